//! Errors of serving.

use std::{
    io,
    path::{Path, PathBuf},
};

use host::file::FileError;
use model::{Classified, ErrorClass};

/// A socket, a file, a program or a port that a long-running part needs and does not get.
#[derive(Debug, thiserror::Error)]
pub enum ServeError {
    #[error("cannot {operation} {}: {source}", path.display())]
    File { operation: &'static str, path: PathBuf, source: io::Error },
    #[error("only root may ask the process at {}: run as root", path.display())]
    NotRoot { path: PathBuf },
    #[error("process {pid} holds {}", path.display())]
    Locked { path: PathBuf, pid: String },
    #[error("process {pid} was told to end and still runs: wait, or end it with `kill -9 {pid}`")]
    StillRuns { pid: String },
    #[error("{} does not answer: it hangs or was stopped. End it with `kill -9 {}`", process_name(*pid, path), number(*pid))]
    Silent { path: PathBuf, pid: Option<u32> },
    #[error(
        "process {pid} does not answer, and systemd starts it again when it is killed: end it with `systemctl stop {unit}`"
    )]
    Supervised { pid: u32, unit: String },
    #[error(
        "process {pid} runs here and cannot be asked: its folder {} was removed, or is in another mount namespace. End it with `kill {pid}`",
        path.display()
    )]
    Lost { path: PathBuf, pid: u32 },
    #[error("cannot tell systemd that {} {} up: {source}", names.join(" and "), if names.len() == 1 { "is" } else { "are" })]
    Notify { names: Vec<String>, source: io::Error },
    #[error("cannot {operation} the file of events {}: {source}", path.display())]
    EventLog { operation: &'static str, path: PathBuf, source: io::Error },
    #[error("cannot run the hook {program} for the event `{event}`: {reason}")]
    Hook { program: String, event: &'static str, reason: String },
    #[error("metrics: {source}")]
    MetricsFile { source: FileError },
    #[error("cannot start the thread that writes metrics: {source}")]
    MetricsThread { source: io::Error },
    #[error("cannot answer for metrics on 127.0.0.1:{port}: {source}; choose another port")]
    MetricsPort { port: u16, source: io::Error },
}

/// The folder of an instance, or its lock, is not to be had.
#[derive(Debug, thiserror::Error)]
pub enum HomeError {
    #[error("cannot use the folder {}: {source}", path.display())]
    Folder { path: PathBuf, source: io::Error },
    #[error("process {pid} runs already")]
    Held { pid: String },
    #[error(transparent)]
    Serve(ServeError),
}

impl From<ServeError> for HomeError {
    fn from(error: ServeError) -> Self {
        match error {
            ServeError::Locked { pid, .. } => Self::Held { pid },
            error => Self::Serve(error),
        }
    }
}

fn process_name(pid: Option<u32>, path: &Path) -> String {
    pid.map_or_else(|| format!("the process at {}", path.display()), |pid| format!("process {pid}"))
}

fn number(pid: Option<u32>) -> String {
    pid.map_or_else(|| "PID".to_owned(), |pid| pid.to_string())
}

impl Classified for ServeError {
    fn class(&self) -> ErrorClass {
        match self {
            Self::MetricsFile { source } => source.class(),
            _ => ErrorClass::Lacking,
        }
    }
}
