//! Errors of work on another machine.

use std::io;

use link::LinkError;

/// An error of work on another machine.
#[derive(Debug, thiserror::Error)]
pub enum RemoteError {
    #[error("`{0}` is no machine's name: write a host, user@host or ssh://user@host:port")]
    Name(String),
    #[error("{0} is this machine: name another one with --with")]
    Same(String),
    #[error("--with names one machine twice: both have an interface with the address {0}")]
    Twice(String),
    #[error("cannot start ssh: {0}")]
    Ssh(io::Error),
    #[error("{node}: {said}")]
    Gone { node: String, said: String },
    #[error("{node} has evenkeel {theirs}, and this machine {ours}: install one version on both")]
    Version { node: String, ours: String, theirs: String },
    #[error("MTU {ours} on {interface} here and {theirs} on {node}: set one on both")]
    Mtus { interface: String, node: String, ours: u32, theirs: u32 },
    #[error("unexpected answer from the process on the other machine: {0}")]
    Words(String),
    #[error("{node}: {said}")]
    Far { node: String, said: String },
    #[error(
        "no message of {by} from {node} on {interface} for 10 s, though ssh reaches it: is it on the same Ethernet, and does its process run? `evenkeel link check` shows what passes between brokers"
    )]
    Unheard { node: String, by: &'static str, interface: String },
    #[error("cannot answer the other machine: {0}")]
    Answer(io::Error),
    #[error("cannot list the addresses of this machine: {0}")]
    Addresses(io::Error),
    #[error(transparent)]
    Link(#[from] LinkError),
}

model::classified!(RemoteError: Lacking, Usage: Name Same Twice, Internal: Words Far Answer Addresses; within: Link);
