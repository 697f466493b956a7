//! What fails in a measurement.

use std::io;

use model::{Classified, ErrorClass};

use link::LinkError;

use crate::apart::ApartError;

/// A measurement that could not be made.
#[allow(missing_docs, reason = "the messages say it")]
#[derive(Debug, thiserror::Error)]
pub enum BenchError {
    #[error("link bench needs two CPUs, one for each end, but may use {0}: name others with --cpus")]
    Cpus(usize),
    #[error(transparent)]
    Lab(#[from] lab::LabError),
    #[error(transparent)]
    Link(#[from] LinkError),
    #[error("AF_XDP: {0}")]
    Xsk(sys::xsk::XskError),
    #[error("cannot {operation}: {source}")]
    System { operation: &'static str, source: io::Error },
    #[error("{0}: no message for 10 s")]
    Silent(&'static str),
    #[error("{0}: the other end closed before everything had arrived")]
    Short(&'static str),
    #[error("message {0} did not come back as it was sent")]
    Changed(u32),
    #[error("{0} may lose bytes of a transfer")]
    Unreliable(super::Way),
    #[error("the {0} panicked")]
    Panicked(&'static str),
    #[error(transparent)]
    Apart(#[from] ApartError),
}

impl BenchError {
    pub(super) fn system(operation: &'static str) -> impl FnOnce(io::Error) -> Self {
        move |source| Self::System { operation, source }
    }
}

impl Classified for BenchError {
    fn class(&self) -> ErrorClass {
        match self {
            Self::Cpus(_) => ErrorClass::Lacking,
            Self::Apart(e) => e.class(),
            Self::Lab(e) => e.class(),
            Self::Link(e) => e.class(),
            Self::Xsk(_)
            | Self::System { .. }
            | Self::Silent(_)
            | Self::Short(_)
            | Self::Changed(_)
            | Self::Unreliable(_)
            | Self::Panicked(_) => ErrorClass::Internal,
        }
    }
}
