//! Protections between the flood and the listener.

use std::net::SocketAddr;

use lab::NamespaceHandle;

use crate::BenchError;

/// The place of a protection.
#[derive(Debug, Clone, Copy)]
pub struct Place<'a> {
    /// The namespace of the host under attack, or of the gateway in front of it.
    pub host: &'a NamespaceHandle,
    /// Interface of the host; of a gateway the one where the flood comes from.
    pub interface: &'a str,
    /// A gateway's interface to the host.
    pub inner: Option<&'a str>,
    pub server: SocketAddr,
    /// The host's cores: processes of the protection belong there.
    pub cpus: &'a [u32],
}

/// The position of a protection.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Layout {
    /// On the host under attack.
    #[default]
    Host,
    /// Between two interfaces of a gateway in front of it.
    Between,
    /// The same, where interfaces must not merge frames: what comes waits in the backlog of a core.
    BetweenRings,
}

/// The name of a protection.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct About {
    /// Key of the protection on the command line.
    pub key: &'static str,
    pub name: &'static str,
    /// A description, in a sentence.
    pub what: String,
}

impl About {
    pub(super) fn new(key: &'static str, name: &'static str, what: impl Into<String>) -> Self {
        Self { key, name, what: what.into() }
    }
}

/// A way to protect a host. Each point of a run starts it anew, in a host of its own.
pub trait Protection: Sync {
    /// Name and description of the protection.
    fn about(&self) -> About;
    /// Its settings in the host, as commands or lines of files, for either version of IP.
    fn settings(&self, ipv6: bool) -> Vec<String>;
    fn layout(&self) -> Layout {
        Layout::Host
    }
    /// Puts it in front of the listener.
    fn start(&self, place: &Place<'_>) -> Result<Box<dyn Protecting>, BenchError>;
}

/// A protection at work, until it is stopped or dropped.
pub trait Protecting {
    /// Counters of the protection since it was started.
    fn counters(&mut self) -> Result<Vec<Counter>, BenchError>;

    fn stop(self: Box<Self>) -> Result<(), BenchError>;
}

/// Something that a protection counts.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Counter {
    pub what: String,
    pub packets: u64,
    /// True if these packets ended there, without an answer.
    pub ended: bool,
}
