//! What can go wrong in a run of the bench.

use model::{Classified, ErrorClass};
use thiserror::Error;

/// Why a run cannot begin or go on.
#[derive(Debug, Error)]
pub enum BenchError {
    /// A setting that makes no sense, with the way out.
    #[error("{0}")]
    Setting(String),
    /// The file of the run cannot be written.
    #[error("{0}; --save names the file of the run")]
    Save(#[from] host::file::FileError),
    /// The lab refused.
    #[error(transparent)]
    Lab(#[from] lab::LabError),
    /// A kernel program refused.
    #[error(transparent)]
    Program(#[from] bpf::XdpError),
    /// The traffic cannot be made.
    #[error(transparent)]
    Traffic(#[from] traffic::TrafficError),
    /// A part of the tester ended without saying why.
    #[error("the {0} ended unexpectedly")]
    Panicked(&'static str),
    /// What watches the box failed.
    #[error("what watches the box under test failed: {0}")]
    Observer(String),
    /// The machine or the box under test lacks something.
    #[error("{0}")]
    Machine(String),
    /// The user asked to stop.
    #[error("interrupted")]
    Interrupted,
}

impl Classified for BenchError {
    fn class(&self) -> ErrorClass {
        match self {
            Self::Setting(_) => ErrorClass::Usage,
            Self::Save(e) => e.class(),
            Self::Lab(e) => e.class(),
            Self::Program(e) => e.class(),
            Self::Traffic(e) => e.class(),
            Self::Panicked(_) => ErrorClass::Internal,
            Self::Observer(_) | Self::Machine(_) | Self::Interrupted => ErrorClass::Lacking,
        }
    }
}
