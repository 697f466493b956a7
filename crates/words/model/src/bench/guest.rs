//! Events that card models cost a guest: the result of `evenkeel bench --dut guest` without KVM, where no rate means anything.

use serde::{Deserialize, Serialize};

use super::PublishedRate;
use crate::machine::Machine;

/// The version of the schema `evenkeel.bench.guest/<version>`.
pub const SCHEMA: u32 = 1;

/// Events per forwarded frame, counted and not timed.
#[derive(Debug, Clone, Copy, Default, PartialEq, Serialize, Deserialize)]
pub struct PerFrame {
    /// Reads of registers of either card.
    pub reads: f64,
    pub writes: f64,
    /// Notifications of VirtIO queues.
    pub notifications: f64,
    /// Interrupts of both cards, as the guest counts them.
    pub interrupts: f64,
}

impl PerFrame {
    /// Reads, writes and notifications: what each would leave the guest for.
    pub fn accesses(&self) -> f64 {
        self.reads + self.writes + self.notifications
    }
}

/// A burst: so many frames are under way at once.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Burst {
    pub frames: u32,
    /// Each run: the slope between two lengths, so that what happens once does not count.
    pub runs: Vec<PerFrame>,
    pub median: PerFrame,
    /// The distance of the runs' accesses, over their median.
    pub spread: f64,
    /// Frames that were sent and did not come out.
    pub lost: u64,
}

/// Outcome of a verb with a driver and a kernel.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum VerbOutcome {
    Works,
    /// The verb names the missing requirement, and does nothing.
    Refused,
    Fails,
}

impl VerbOutcome {
    pub fn word(self) -> &'static str {
        match self {
            Self::Works => "works",
            Self::Refused => "refused",
            Self::Fails => "FAILS",
        }
    }
}

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Verb {
    pub command: String,
    #[serde(alias = "fares")]
    pub outcome: VerbOutcome,
    #[serde(alias = "said")]
    pub message: String,
}

/// A card model in a guest.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Card {
    /// `virtio`, `e1000`, …
    pub nic: String,
    /// The driver, as the guest names it.
    pub driver: String,
    pub queues: u32,
    /// Descriptors of a receive ring; none: the driver does not tell.
    pub ring: Option<u32>,
    /// Offloads that are on, as ethtool names them.
    pub offloads: Vec<String>,
    /// An XDP program runs in the driver; otherwise what it said.
    pub native_xdp: Result<(), String>,
    /// Seconds from QEMU's start until the guest was ready to forward.
    pub ready_s: f64,
    pub bursts: Vec<Burst>,
    /// Verbs of evenkeel in the guest.
    pub verbs: Vec<Verb>,
    /// The command line of QEMU.
    pub qemu: Vec<String>,
    /// The element of the card in a domain of libvirt.
    pub libvirt: String,
}

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct GuestRun {
    /// Beginning of the run (RFC 3339, UTC).
    #[serde(alias = "when")]
    pub timestamp: String,
    pub machine: Machine,
    /// Why the guest is emulated: why KVM carries none here, or that it was asked for.
    #[serde(alias = "no_kvm")]
    pub emulation_reason: String,
    pub kernel: String,
    /// The version of QEMU.
    pub qemu: String,
    pub runs: u32,
    pub cards: Vec<Card>,
    /// Card models that were not run, each with the reason and the command that helps.
    #[serde(alias = "left_out")]
    pub skipped: Vec<String>,
    /// Nanoseconds of an exit as the user gave them: accesses times that is a model, and no measurement.
    pub exit_ns: Option<f64>,
    /// Nanoseconds of an exit to user space on this machine, as measured; otherwise why they could not be.
    #[serde(default = "unmeasured")]
    #[serde(alias = "exit_here_ns")]
    pub measured_exit_ns: Result<f64, String>,
    /// Rates that others published for card models, on their hardware.
    #[serde(default)]
    pub sources: Vec<PublishedRate>,
    /// Notes on the origin of the figures.
    pub notes: Vec<String>,
}

/// Value in runs of a version that did not measure it.
fn unmeasured() -> Result<f64, String> {
    Err("not measured".into())
}

impl GuestRun {
    /// Cost of an exit in nanoseconds, and its origin: given, or else measured.
    pub fn exit(&self) -> Option<(f64, &'static str)> {
        let given = self.exit_ns.map(|ns| (ns, "as you gave it"));
        given.or(self.measured_exit_ns.as_ref().ok().map(|&ns| (ns, "as it was measured here, to user space and back")))
    }
}

/// The share of the rate on bare metal that a published rate is, both directions together; none without the other.
pub fn of_bare(rate: &PublishedRate, all: &[PublishedRate]) -> Option<f64> {
    let both = |rate: &PublishedRate| rate.pps * if rate.per_direction { 2.0 } else { 1.0 };
    let is_bare = |other: &&PublishedRate| {
        (&other.mode, other.frame_bytes, &other.citation) == (&rate.mode, rate.frame_bytes, &rate.citation)
            && other.platform == "bare metal"
    };
    all.iter().find(is_bare).map(|bare| both(rate) / both(bare))
}

#[cfg(test)]
mod tests {
    use super::of_bare;
    use crate::sources::firewall_rates;

    #[test]
    fn published_rates_are_shares_of_bare_metal() {
        let all = firewall_rates();
        let share = |on: &str| {
            let rate = all.iter().find(|rate| rate.mode == "router" && rate.platform == on).unwrap();
            (100.0 * of_bare(rate, &all).unwrap()).round()
        };
        // 470 of 629 kpps; 85 and 32 are of each direction.
        assert_eq!((share("passthrough (IOMMU)"), share("VirtIO"), share("E1000")), (75.0, 27.0, 10.0));
    }
}
