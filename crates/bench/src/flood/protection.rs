//! What stands between the flood and the listener.

use std::net::SocketAddrV4;

use lab::NamespaceHandle;

use crate::BenchError;

/// Where a protection is to work.
#[derive(Debug, Clone, Copy)]
pub struct Place<'a> {
    /// The namespace of the host under attack.
    pub host: &'a NamespaceHandle,
    /// Its interface.
    pub interface: &'a str,
    /// Where it listens.
    pub server: SocketAddrV4,
    /// The host's cores: processes of the protection belong there.
    pub cpus: &'a [u32],
}

/// A way to protect a host. Each point of a run starts it anew, in a host of its own.
pub trait Protection: Sync {
    /// Its key on the command line.
    fn key(&self) -> &str;
    /// Its name.
    fn name(&self) -> &str;
    /// What it does, in a sentence.
    fn what(&self) -> String;
    /// What it sets in the host, as commands or lines of files.
    fn settings(&self) -> Vec<String>;
    /// Puts it in front of the listener.
    ///
    /// # Errors
    /// What it lacks.
    fn start(&self, place: &Place<'_>) -> Result<Box<dyn Protecting>, BenchError>;
}

/// A protection at work, until it is stopped or dropped.
pub trait Protecting {
    /// What it counted since it was started.
    ///
    /// # Errors
    /// It does not say.
    fn counters(&mut self) -> Result<Vec<Counter>, BenchError>;

    /// Takes it away.
    ///
    /// # Errors
    /// Something of it stays.
    fn stop(self: Box<Self>) -> Result<(), BenchError>;
}

/// Something that a protection counts.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Counter {
    /// What, in words.
    pub what: String,
    /// Packets.
    pub packets: u64,
    /// Whether these packets ended there, without an answer.
    pub ended: bool,
}
