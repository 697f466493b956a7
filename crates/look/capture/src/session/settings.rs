//! Settings of a capture, and their consequences.

use std::{
    io::{self, IsTerminal},
    time::Duration,
};

use model::CpuSet;
use sys::{packet::FanoutAlgorithm, privilege::Capability};

use super::error::SessionError;
use crate::{
    open::Tuning,
    output::Target,
    pcapng::{Captured, Section},
    plan::Backend,
    run::Limits,
    text::Shown,
};

/// The name that stands for all interfaces.
pub const ANY: &str = "any";
/// Blocks that the rings of all interfaces have together, with `any`.
const ANY_BLOCKS: u32 = 64;
/// Blocks that a ring has at least.
const BLOCKS_MIN: u32 = 2;
/// Wait of a ring's reader at the end beyond the retire time-out.
const DRAIN_MARGIN: Duration = Duration::from_millis(60);

/// Settings of a capture.
#[derive(Debug)]
pub struct Settings {
    /// The interface; [`ANY`]: all that are up. Empty where a file is read.
    pub interface: String,
    pub filter: String,
    /// Backend of the capture; none: `auto`.
    pub backend: Option<Backend>,
    pub readers: Readers,
    pub tuning: Tuning,
    /// Put the interface into promiscuous mode.
    pub promiscuous: bool,
    /// Leave out packets that this machine sends.
    pub inbound: bool,
    /// `auto` may attach an XDP program.
    pub try_xdp: bool,
    /// Bytes kept of each packet.
    pub snaplen: u32,
    /// Stop after so many packets.
    pub count: Option<u64>,
    /// Stop after this time.
    pub duration: Option<Duration>,
    pub destination: Destination,
}

/// The readers that the user asks for; none: as the topology says.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Readers {
    /// Members of a fanout group.
    pub members: Option<usize>,
    pub cpus: Option<CpuSet>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Destination {
    /// Nowhere: they are counted.
    Count,
    /// Lines to standard output.
    Text(Shown),
    Pcapng(Target),
}

impl Settings {
    /// The capabilities that this capture will need.
    pub(super) fn capabilities(&self) -> Vec<Capability> {
        let mut needed = vec![Capability::CAP_NET_RAW];
        if self.backend.map_or(self.try_xdp, Backend::is_xdp) {
            needed.extend([Capability::CAP_NET_ADMIN, Capability::CAP_BPF]);
        }
        if self.backend.map_or(self.try_xdp, |mode| mode == Backend::Tap) {
            // The tap sees the end of NAPI polls at a tracepoint.
            needed.push(Capability::CAP_PERFMON);
        }
        let ebpf = self.tuning.fanout.algorithm == FanoutAlgorithm::ExtendedBpf;
        if ebpf && self.backend.is_none_or(Backend::is_fanout) && !needed.contains(&Capability::CAP_BPF) {
            needed.push(Capability::CAP_BPF);
        }
        needed
    }

    pub(super) fn limits(&self) -> Limits {
        Limits {
            packets: self.count,
            duration: self.duration,
            snaplen: self.snaplen,
            held_back: Duration::from_millis(u64::from(self.tuning.retire_ms)) * 2 + DRAIN_MARGIN,
        }
    }

    /// The tuning of each of so many interfaces.
    pub(super) fn tuning_for(&self, interfaces: usize) -> Tuning {
        let mut tuning = self.tuning.clone();
        if interfaces > 1 {
            // The memory of one ring, in parts for all.
            tuning.blocks = tuning.blocks.or(Some((ANY_BLOCKS / interfaces as u32).max(BLOCKS_MIN)));
        }
        tuning
    }

    /// The head of a pcapng file.
    ///
    /// # Errors
    /// [`SessionError::Terminal`].
    pub fn section(&self, kernel: &str, interfaces: Vec<Captured>) -> Result<Section, SessionError> {
        if self.destination == Destination::Pcapng(Target::Stdout) && io::stdout().is_terminal() {
            return Err(SessionError::Terminal);
        }
        Ok(Section {
            hardware: std::env::consts::ARCH.to_owned(),
            os: format!("Linux {kernel}"),
            application: format!("evenkeel {}", env!("CARGO_PKG_VERSION")),
            interfaces,
            filter: self.filter.clone(),
            snaplen: self.snaplen,
        })
    }
}
