//! The lab of one stage: an attacker and a server, joined by a wire whose receive queues have the cores they are given.

use std::{
    net::{IpAddr, Ipv4Addr},
    thread,
    time::{Duration, Instant},
};

use lab::{Lab, LabError, Mac, Namespace, VethEnd};

use crate::{
    error::DemoError,
    measure::{LOST, TAKEN, of_queues},
};

/// The server's address: of the network that RFC 2544 sets aside for measurements.
pub(crate) const SERVER: Ipv4Addr = Ipv4Addr::new(198, 18, 0, 2);

/// Longest wait for a queue to become empty. The ledger has frames that are in it afterwards as unexplained.
const DRAIN_TIMEOUT: Duration = Duration::from_secs(5);
const DRAIN_PERIOD: Duration = Duration::from_millis(10);

/// Two namespaces and the wire between them.
#[derive(Debug)]
pub(crate) struct Bed {
    pub attacker: Namespace,
    pub server: Namespace,
    pub attacker_end: VethEnd,
    pub server_end: VethEnd,
}

impl Bed {
    /// Builds the lab with one receive queue per entry of `queue_cpus`, each served by a NAPI thread on that CPU.
    pub(crate) fn build(lab: &Lab, queue_cpus: &[u32]) -> Result<Self, LabError> {
        let bed = Self::build_inline(lab, queue_cpus.len())?;
        bed.server.thread_napi(&bed.server_end.name, queue_cpus)?;
        Ok(bed)
    }

    /// Builds the lab with `queues` receive queues whose work is done on the core of their sender, within its soft interrupts.
    pub(crate) fn build_inline(lab: &Lab, queues: usize) -> Result<Self, LabError> {
        let attacker = lab.namespace("attacker")?;
        let server = lab.namespace("server")?;
        let (a, s) = (lab.interface("a"), lab.interface("s"));
        let queues = u32::try_from(queues).unwrap_or(u32::MAX);
        let (attacker_end, server_end) = lab.veth((&attacker, &a), (&server, &s), queues)?;
        server.add_address(&s, IpAddr::V4(SERVER), 15)?;
        // GRO makes a veth run NAPI, without which it takes no frames from XDP; it stays on for every stage alike.
        server.set_feature(&s, "rx-gro", true)?;
        Ok(Self { attacker, server, attacker_end, server_end })
    }

    /// The address to which a mirror port's frames go: nobody's on this wire, so that the stack drops each frame right after
    /// the taps have seen it.
    pub(crate) fn mirrored_mac() -> Mac {
        Mac([0x02, 0, 0x5e, 0, 0x53, 0x01])
    }

    /// Frames that the server's end lost after it had taken them.
    pub(crate) fn lost_in_queues(&self) -> Result<u64, DemoError> {
        Ok(self.server.run(|| of_queues(&self.server_end.name, LOST))??)
    }

    /// Waits until the server's end has taken `frames` out of its queues, which takes time on a busy machine; [`DRAIN_TIMEOUT`] at the most.
    pub(crate) fn drain(&self, frames: u64) -> Result<(), DemoError> {
        let begun = Instant::now();
        while self.server.run(|| of_queues(&self.server_end.name, TAKEN))?? < frames && begun.elapsed() < DRAIN_TIMEOUT
        {
            thread::sleep(DRAIN_PERIOD);
        }
        Ok(())
    }
}
