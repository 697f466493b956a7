//! Errors before a capture begins.

use std::io;

use host::{HostError, interface::NoInterface};
use port::PortError;
use sys::privilege::PrivilegeError;

use crate::{filter::FilterError, output::OutputError, plan::PlanError, run::RunError};

#[derive(Debug, thiserror::Error)]
pub enum SessionError {
    #[error(transparent)]
    Privilege(#[from] PrivilegeError),
    #[error("cannot list the interfaces: {0}")]
    Interfaces(#[source] io::Error),
    #[error(transparent)]
    Host(#[from] HostError),
    #[error(transparent)]
    NoInterface(#[from] NoInterface),
    #[error("no interface is up; `ip link set INTERFACE up` brings one up")]
    NoneUp,
    #[error("{up} interfaces are up, {most} is the most; name one with -i")]
    TooManyUp { up: usize, most: usize },
    #[error(transparent)]
    Port(#[from] PortError),
    #[error(transparent)]
    Filter(#[from] FilterError),
    #[error(transparent)]
    Plan(#[from] PlanError),
    #[error(transparent)]
    Trial(#[from] RunError),
    #[error("no backend was tried")]
    NoTrial,
    #[error(transparent)]
    Output(#[from] OutputError),
    #[error("standard output is a terminal, which cannot show pcapng: pipe it (`| tshark -r -`), or name a file")]
    Terminal,
}

model::classified!(
    SessionError: Lacking,
    Internal: NoTrial,
    Usage: Terminal;
    within: Privilege Host NoInterface Port Filter Plan Trial Output
);
