//! Errors of a demo.

use model::{Classified, ErrorClass};

use crate::{bed::BedError, flood::FloodError};

/// A demo that could not be made.
#[derive(Debug, thiserror::Error)]
pub enum DemoError {
    /// The lab could not be built or entered.
    #[error(transparent)]
    Lab(#[from] lab::LabError),
    /// A counter of the lab could not be read.
    #[error(transparent)]
    Bed(#[from] BedError),
    /// A kernel program did not run.
    #[error(transparent)]
    Program(#[from] bpf::XdpError),
    /// The flood could not be sent.
    #[error(transparent)]
    Flood(#[from] FloodError),
    /// A way to receive could not be opened.
    #[error(transparent)]
    Port(#[from] port::PortError),
    /// A reader could not do its work.
    #[error(transparent)]
    Readers(#[from] rig::readers::ReadersError),
    /// The load of the cores could not be read.
    #[error(transparent)]
    Counters(#[from] host::counters::CountersError),
}

impl Classified for DemoError {
    fn class(&self) -> ErrorClass {
        match self {
            Self::Lab(e) => e.class(),
            Self::Bed(e) => e.class(),
            Self::Program(e) => e.class(),
            Self::Flood(e) => e.class(),
            Self::Port(e) => e.class(),
            Self::Readers(e) => e.class(),
            Self::Counters(e) => e.class(),
        }
    }
}
