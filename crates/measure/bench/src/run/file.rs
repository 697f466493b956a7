//! The file of a run: whole after every trial, so that nothing that was measured is ever lost.

use std::path::{Path, PathBuf};

use host::file::{self, AtomicFile, FileError, PUBLIC};
use model::{
    bench::{BenchRun, SCHEMA, Status, Trial, Unfinished},
    schema::Document,
};
use serde::{Deserialize, Serialize};

use super::{Request, plan::StepId};
use crate::BenchError;

/// The name of the schema, without its version.
pub const NAME: &str = "bench";

/// A step that was begun and has not ended.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Begun {
    pub step: StepId,
    pub trials: Vec<Trial>,
}

/// A run and what is needed to go on with it.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Saved {
    #[serde(flatten)]
    pub run: BenchRun,
    #[serde(rename = "asked")]
    pub request: Request,
    /// Steps that are done, or that found nothing to measure.
    pub done: Vec<StepId>,
    /// Reasons why something could not be measured.
    pub remarks: Vec<String>,
    /// The step that was begun last, while it has not ended.
    pub begun: Option<Begun>,
}

impl Begun {
    /// The step in the words of a report.
    fn unfinished(&self) -> Unfinished {
        let StepId { mode, frame, what } = self.step.clone();
        Unfinished { mode, frame, test: what.to_string(), trials: self.trials.len() as u32 }
    }
}

/// The run as it is to be shown: one that is partial says which step was begun, whose trials stand with those of its point.
fn shown(mut run: BenchRun, begun: Option<&Begun>) -> BenchRun {
    let Some(begun) = begun else { return run };
    if let Status::Partial { begun: unfinished, .. } = &mut run.status {
        *unfinished = Some(begun.unfinished());
    }
    let mut points = run.modes.iter_mut().filter(|m| m.key == begun.step.mode).flat_map(|m| &mut m.points);
    if let Some(point) = points.find(|p| p.frame == begun.step.frame) {
        point.trials.extend(begun.trials.iter().cloned());
    }
    run
}

impl Saved {
    /// The run as it is to be shown: one that is partial says which step was begun, whose trials stand with those of its point.
    pub fn shown(&self) -> BenchRun {
        shown(self.run.clone(), self.begun.as_ref())
    }

    /// True if no trial was made yet.
    pub fn is_empty(&self) -> bool {
        let mut points = self.run.modes.iter().flat_map(|m| &m.points);
        points.all(|p| p.trials.is_empty()) && self.begun.as_ref().is_none_or(|b| b.trials.is_empty())
    }
}

pub trait Keep {
    /// Keeps it as it is now.
    fn keep(&mut self, saved: &Saved) -> Result<(), BenchError>;
}

/// The file of a run, replaced in one step: whoever reads it finds a whole run.
#[derive(Debug)]
pub struct RunFile {
    path: PathBuf,
}

impl RunFile {
    /// A file to be written to. Learns now, not after an hour, that it cannot be.
    pub fn create(path: &Path) -> Result<Self, BenchError> {
        drop(AtomicFile::plain(path, PUBLIC)?);
        Ok(Self { path: path.to_owned() })
    }

    pub fn path(&self) -> &Path {
        &self.path
    }
}

impl Keep for RunFile {
    fn keep(&mut self, saved: &Saved) -> Result<(), BenchError> {
        let written = |source: serde_json::Error| FileError::Io { path: self.path.clone(), source: source.into() };
        let text = serde_json::to_vec(&Document::new(NAME, SCHEMA, saved)).map_err(written)?;
        Ok(file::replace(&self.path, &text, PUBLIC)?)
    }
}

/// Reads a run back.
pub fn load(path: &Path) -> Result<Saved, BenchError> {
    read(path, "a run that can be gone on with", "`evenkeel bench --save FILE` writes one")
}

/// Reads the run as it is to be shown, without what is needed to go on.
pub fn load_run(path: &Path) -> Result<BenchRun, BenchError> {
    #[derive(Deserialize)]
    struct Shown {
        #[serde(flatten)]
        run: BenchRun,
        begun: Option<Begun>,
    }
    let it: Shown = read(
        path,
        "a run of the bench",
        "`evenkeel bench --save FILE` or `evenkeel bench flood --save FILE` writes one",
    )?;
    Ok(shown(it.run, it.begun.as_ref()))
}

fn read<T: for<'a> Deserialize<'a>>(path: &Path, what: &str, how: &str) -> Result<T, BenchError> {
    let refused = |why: String| BenchError::Setting(format!("{} {why}; {how}", path.display()));
    let text = file::read_text(path)
        .map_err(|e| BenchError::Setting(format!("cannot read the run {}: {e}; {how}", path.display())))?;
    let value: serde_json::Value =
        serde_json::from_str(&text).map_err(|e| refused(format!("is not {what}: {}", not_json(&e))))?;
    let expected = Document::new(NAME, SCHEMA, ()).schema;
    match value.get("schema").and_then(serde_json::Value::as_str) {
        Some(schema) if schema == expected => {}
        Some(other) => return Err(refused(format!("is `{other}`, not {what} (`{expected}`)"))),
        None => return Err(refused(format!("is not {what}: it names no schema"))),
    }
    serde_json::from_value(value).map_err(|e| refused(format!("is not {what}, or damaged: {e}")))
}

/// The reason why a text is no JSON, for people.
fn not_json(error: &serde_json::Error) -> &'static str {
    if error.is_eof() { "its JSON text is cut off" } else { "it is not JSON" }
}
