//! A port of the tester.

use lab::{
    LabError, Mac, NamespaceHandle,
    boxes::{PortCounters, Target},
};

use crate::BenchError;

/// A port of the tester: frames are sent from it, and those of the other direction arrive there.
#[derive(Debug, Clone)]
pub struct TestPort {
    pub interface: String,
    pub mac: Mac,
    /// The destination of frames from this port.
    pub target: Target,
    /// True if it is one end of a pair of the lab's. What such a port counts as dropped on sending was refused by the other end, whose
    /// receive queue was full: a loss of the box, not of the tester.
    pub refused_by_peer: bool,
    namespace: Option<NamespaceHandle>,
    threads: Option<u32>,
}

impl TestPort {
    /// A port in this process's own namespace: to a box outside.
    pub fn here(interface: &str, mac: Mac, target: Target) -> Self {
        let interface = interface.to_owned();
        Self { interface, mac, target, refused_by_peer: false, namespace: None, threads: None }
    }

    /// A port that is an end of a veth pair, inside of `namespace`.
    pub fn within(namespace: NamespaceHandle, interface: &str, mac: Mac, target: Target) -> Self {
        Self { refused_by_peer: true, namespace: Some(namespace), ..Self::here(interface, mac, target) }
    }

    /// Has the port's NAPI run in a kernel thread on `cpu`. NAPI must be on (`rx-gro`).
    pub(super) fn in_thread(mut self, cpu: u32) -> Result<Self, BenchError> {
        self.threads = Some(cpu);
        self.pin()?;
        Ok(self)
    }

    fn pin(&self) -> Result<(), BenchError> {
        match (&self.namespace, self.threads) {
            (Some(namespace), Some(cpu)) => {
                namespace.thread_napi(&self.interface, &[cpu])?;
                Ok(namespace.prefer_napi(&self.interface)?)
            }
            _ => Ok(()),
        }
    }

    /// Runs `work` where the interface is: in a thread inside of its namespace, or right here.
    pub fn run<T: Send>(&self, work: impl FnOnce() -> T + Send) -> Result<T, LabError> {
        match &self.namespace {
            Some(namespace) => namespace.run(work),
            None => Ok(work()),
        }
    }

    /// The namespace; none for this process's own.
    pub fn namespace(&self) -> Option<&NamespaceHandle> {
        self.namespace.as_ref()
    }

    pub fn counters(&self) -> Result<PortCounters, BenchError> {
        Ok(self.run(|| PortCounters::read(&self.interface))??)
    }

    /// Bytes of the largest IP packet.
    pub fn mtu(&self) -> Result<u32, BenchError> {
        let failed = |e| BenchError::Machine(format!("cannot read the MTU of {}: {e}", self.interface));
        self.run(|| sys::link::mtu(&self.interface))?.map_err(failed)
    }

    /// Sets the link up or down.
    pub fn set_link(&self, up: bool) -> Result<(), BenchError> {
        self.run(|| lab::set_link(&self.interface, up))??;
        // The threads of NAPI went with the link.
        if up { self.pin() } else { Ok(()) }
    }
}
