//! What fails in a measurement of the speed-up.

use std::io;

use model::{Classified, ErrorClass, speedup::FitError};

use super::plan::NODES_MAX;
use link::LinkError;

use crate::apart::ApartError;

/// A measurement that could not be made.
#[allow(missing_docs, reason = "the messages say it")]
#[derive(Debug, thiserror::Error)]
pub enum SpeedupError {
    #[error("link speedup makes 1 to {NODES_MAX} nodes, not {0}: name others with --nodes, such as 1,2,4,8")]
    Nodes(u32),
    #[error(
        "--nodes needs at least 3 numbers of nodes, as the model has three unknowns, not {0}: name more, such as 1,2,4,8"
    )]
    Few(usize),
    #[error("--nodes has {0} twice: name each number once, such as 1,2,4,8")]
    Twice(u32),
    #[error(transparent)]
    Lab(#[from] lab::LabError),
    #[error(transparent)]
    Link(#[from] LinkError),
    #[error(transparent)]
    Apart(#[from] ApartError),
    #[error(
        "an interface of a node has no IPv4 address, which TCP needs: give it one, or measure link alone with --carrier link"
    )]
    NoAddress,
    #[error("--nodes asks for {1} nodes, but this machine and those of --with are {0}: name as many")]
    Machines(u32, u32),
    #[error(transparent)]
    Fit(#[from] FitError),
    #[error("cannot {operation}: {source}")]
    System { operation: &'static str, source: io::Error },
    #[error("{0}: no message for 10 s")]
    Silent(&'static str),
    #[error("{0}: another node closed before everything had arrived")]
    Closed(&'static str),
    #[error("{by}: node {node} added up other values than were sent in step {step}")]
    Changed { by: &'static str, node: u32, step: u32 },
    #[error("the measurement was stopped")]
    Stopped,
    #[error("a node panicked")]
    Panicked,
}

impl SpeedupError {
    pub(super) fn system(operation: &'static str) -> impl FnOnce(io::Error) -> Self {
        move |source| Self::System { operation, source }
    }
}

impl Classified for SpeedupError {
    fn class(&self) -> ErrorClass {
        match self {
            Self::Apart(e) => e.class(),
            Self::NoAddress => ErrorClass::Lacking,
            Self::Nodes(_) | Self::Few(_) | Self::Twice(_) | Self::Machines(..) => ErrorClass::Usage,
            Self::Lab(e) => e.class(),
            Self::Link(e) => e.class(),
            Self::Fit(_)
            | Self::System { .. }
            | Self::Silent(_)
            | Self::Closed(_)
            | Self::Changed { .. }
            | Self::Stopped
            | Self::Panicked => ErrorClass::Internal,
        }
    }
}
