//! Errors of both measurements.

use std::io;

use link::LinkError;
use model::speedup::FitError;

use crate::{bench::Way, remote::RemoteError, speedup::NODES_MAX};

/// A measurement that could not be made.
#[derive(Debug, thiserror::Error)]
pub enum MessagesError {
    #[error("link bench needs two CPUs, one for each end, but may use {0}: name others with --cpus")]
    Cpus(usize),
    #[error("link speedup makes 1 to {NODES_MAX} nodes, not {0}: name others with --nodes, such as 1,2,4,8")]
    Nodes(u32),
    #[error(
        "--nodes needs at least 3 numbers of nodes, as the model has three unknowns, not {0}: name more, such as 1,2,4,8"
    )]
    Few(usize),
    #[error("--nodes has {0} twice: name each number once, such as 1,2,4,8")]
    Twice(u32),
    #[error("--nodes asks for {1} nodes, but this machine and those of --with are {0}: name as many")]
    Machines(u32, u32),
    #[error(
        "an interface of a node has no IPv4 address, which TCP needs: give it one, or measure link alone with --carrier link"
    )]
    NoAddress,
    #[error(transparent)]
    Lab(#[from] lab::LabError),
    #[error(transparent)]
    Link(#[from] LinkError),
    #[error(transparent)]
    Apart(#[from] RemoteError),
    #[error(transparent)]
    Fit(#[from] FitError),
    #[error("AF_XDP: {0}")]
    Xsk(sys::xsk::XskError),
    #[error("cannot {operation}: {source}")]
    System { operation: &'static str, source: io::Error },
    #[error("{0}: no message for 10 s")]
    Silent(&'static str),
    #[error("{0}: the other end closed before everything had arrived")]
    Short(&'static str),
    #[error("{0}: another node closed before everything had arrived")]
    Closed(&'static str),
    #[error("message {0} did not come back as it was sent")]
    Changed(u32),
    #[error("{by}: node {node} added up other values than were sent in step {step}")]
    Sum { by: &'static str, node: u32, step: u32 },
    #[error("{0} may lose bytes of a transfer")]
    Unreliable(Way),
    #[error("{0} panicked")]
    Panicked(&'static str),
    #[error("the measurement was stopped")]
    Stopped,
}

impl MessagesError {
    pub(crate) fn system(operation: &'static str) -> impl FnOnce(io::Error) -> Self {
        move |source| Self::System { operation, source }
    }
}

model::classified!(
    MessagesError: Internal,
    Usage: Nodes Few Twice Machines,
    Lacking: Cpus NoAddress;
    within: Apart Lab Link
);
