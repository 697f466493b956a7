//! Errors of a sweep.

use model::{Classified, ErrorClass};

/// A sweep that could not be made.
#[derive(Debug, thiserror::Error)]
pub enum SweepError {
    /// The lab could not be built.
    #[error(transparent)]
    Lab(#[from] lab::LabError),
    #[error(transparent)]
    Traffic(#[from] traffic::TrafficError),
    #[error(transparent)]
    Record(#[from] profile::RecordError),
    /// The receiver of a capture failed.
    #[error(transparent)]
    Port(#[from] port::PortError),
    /// A reader could not do its work.
    #[error(transparent)]
    Readers(#[from] rig::readers::ReadersError),
    #[error("the generator ran, but no load came through the {0} without loss: there is nothing to sweep")]
    Nothing(String),
    #[error("a sweep needs at least one CPU")]
    NoCpu,
    #[error("the {0} of the sweep stopped by a fault of its own")]
    Panicked(&'static str),
}

impl Classified for SweepError {
    fn class(&self) -> ErrorClass {
        match self {
            Self::Lab(e) => e.class(),
            Self::Traffic(e) => e.class(),
            Self::Record(e) => e.class(),
            Self::Port(e) => e.class(),
            Self::Readers(e) => e.class(),
            Self::NoCpu => ErrorClass::Usage,
            Self::Nothing(_) => ErrorClass::Lacking,
            Self::Panicked(_) => ErrorClass::Internal,
        }
    }
}
