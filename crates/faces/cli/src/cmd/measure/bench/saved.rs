//! Runs in files that are no runs of the RFC 2544 bench: known by the schema in their document.

use std::path::Path;

use anyhow::anyhow;
use model::{
    bench::{guest::GuestRun, neighbour::NeighbourRun},
    flood::FloodRun,
    schema::Document,
};
use serde::de::DeserializeOwned;

use crate::{failure::Failure, long_run::Found};

/// A run that a file may hold.
pub(crate) trait Saved: Found + DeserializeOwned {
    /// The run in words.
    const WHAT: &'static str;
    /// The command that writes such a file.
    const WRITER: &'static str;
}

impl Saved for FloodRun {
    const WHAT: &'static str = "a run of bench flood";
    const WRITER: &'static str = "`evenkeel bench flood --save FILE`";
}

impl Saved for NeighbourRun {
    const WHAT: &'static str = "a run with neighbours";
    const WRITER: &'static str = "`evenkeel bench --neighbour KIND --save FILE`";
}

impl Saved for GuestRun {
    const WHAT: &'static str = "a run of guests";
    const WRITER: &'static str = "`evenkeel bench --dut guest --json`";
}

/// True if a file claims to hold such a run; what cannot be read is none.
pub(crate) fn is_saved<R: Saved>(path: &Path) -> bool {
    let text = host::file::read_text(path).ok();
    let document = text.and_then(|text| serde_json::from_str::<Document<serde_json::Value>>(&text).ok());
    document.is_some_and(|document| document.schema.starts_with(&format!("evenkeel.{}/", R::SCHEMA.0)))
}

pub(crate) fn load<R: Saved>(path: &Path) -> Result<R, Failure> {
    let cannot =
        |why: String| Failure::usage(anyhow!("cannot show {}: {why}; {} writes such a run", path.display(), R::WRITER));
    let text = host::file::read_text(path).map_err(|e| cannot(e.to_string()))?;
    let document: Document<serde_json::Value> =
        serde_json::from_str(&text).map_err(|_| cannot("it is no run of the bench".to_owned()))?;
    let wanted = Document::new(R::SCHEMA.0, R::SCHEMA.1, ()).schema;
    if document.schema != wanted {
        return Err(cannot(format!("it is {}, not {wanted}", document.schema)));
    }
    serde_json::from_value(document.body).map_err(|e| cannot(format!("it is damaged: {e}")))
}
