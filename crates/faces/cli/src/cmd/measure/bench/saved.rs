//! Runs in files that are no runs of the RFC 2544 bench: known by the schema in their document.

use std::path::Path;

use anyhow::anyhow;
use model::schema::Document;
use serde::de::DeserializeOwned;

use crate::failure::Failure;

/// True if a file claims to be a saved run of this name; what cannot be read is none.
pub(crate) fn is_saved(path: &Path, name: &str) -> bool {
    let text = host::file::read_text(path).ok();
    let document = text.and_then(|text| serde_json::from_str::<Document<serde_json::Value>>(&text).ok());
    document.is_some_and(|document| document.schema.starts_with(&format!("evenkeel.{name}/")))
}

/// Such a run. `how` says what writes one.
pub(crate) fn load<T: DeserializeOwned>(path: &Path, (name, version): (&str, u32), how: &str) -> Result<T, Failure> {
    let cannot =
        |why: String| Failure::usage(anyhow!("cannot show {}: {why}; {how} writes such a run", path.display()));
    let text = host::file::read_text(path).map_err(|e| cannot(e.to_string()))?;
    let document: Document<serde_json::Value> =
        serde_json::from_str(&text).map_err(|_| cannot("it is no run of the bench".to_owned()))?;
    let wanted = format!("evenkeel.{name}/{version}");
    if document.schema != wanted {
        return Err(cannot(format!("it is {}, not {wanted}", document.schema)));
    }
    serde_json::from_value(document.body).map_err(|e| cannot(format!("it is damaged: {e}")))
}
