//! Errors of both measurements.

use std::io;

use link::LinkError;
use model::speedup::FitError;

use crate::{bench::Transport, speedup::NODES_MAX};

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
    #[error("`{0}` is no machine's name: write a host, user@host or ssh://user@host:port")]
    Name(String),
    #[error("{0} is this machine: name another one with --with")]
    ThisMachine(String),
    #[error("--with names one machine twice: both have an interface with the address {0}")]
    SameMachine(String),
    #[error("cannot start ssh: {0}")]
    Ssh(io::Error),
    #[error("{node}: {message}")]
    Gone { node: String, message: String },
    #[error("{node} has evenkeel {theirs}, and this machine {ours}: install one version on both")]
    Version { node: String, ours: String, theirs: String },
    #[error("MTU {ours} on {interface} here and {theirs} on {node}: set one on both")]
    Mtus { interface: String, node: String, ours: u32, theirs: u32 },
    #[error("unexpected answer from the process on the other machine: {0}")]
    Words(String),
    #[error("{node}: {message}")]
    Far { node: String, message: String },
    #[error(
        "no message of {by} from {node} on {interface} for 10 s, though ssh reaches it: is it on the same Ethernet, and does its process run? `evenkeel link check` shows what passes between brokers"
    )]
    Unheard { node: String, by: &'static str, interface: String },
    #[error("cannot answer the other machine: {0}")]
    Answer(io::Error),
    #[error("cannot list the addresses of this machine: {0}")]
    Addresses(io::Error),
    #[error(transparent)]
    Lab(#[from] lab::LabError),
    #[error(transparent)]
    Link(#[from] LinkError),
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
    Unreliable(Transport),
    #[error("{0} panicked")]
    Panicked(&'static str),
    #[error("the measurement was stopped")]
    Stopped,
}

impl MessagesError {
    pub(crate) fn system(operation: &'static str) -> impl FnOnce(io::Error) -> Self {
        move |source| Self::System { operation, source }
    }

    /// Words of another process that do not fit here.
    pub(crate) fn words(what: impl Into<String>) -> Self {
        Self::Words(what.into())
    }
}

model::classified!(
    MessagesError: Internal,
    Usage: Nodes Few Twice Machines Name ThisMachine SameMachine,
    Lacking: Cpus NoAddress Ssh Gone Version Mtus Unheard;
    within: Lab Link
);
