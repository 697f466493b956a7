//! What card models ask of a guest: what `evenkeel bench --dut guest` found without KVM, where no rate means anything.

use serde::{Deserialize, Serialize};

use super::PublishedRate;
use crate::machine::Machine;

/// The version of the schema `evenkeel.bench.guest/<version>`.
pub const SCHEMA: u32 = 1;

/// What a frame that is forwarded costs in events, counted and not timed.
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

/// How a verb fares on a driver and a kernel.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Fares {
    /// It does what it should.
    Works,
    /// It says what the machine lacks, and does nothing.
    Refused,
    Fails,
}

impl Fares {
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
    pub fares: Fares,
    pub said: String,
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
    /// Its beginning (RFC 3339, UTC).
    pub when: String,
    pub machine: Machine,
    /// Why the guest is emulated: why KVM carries none here, or that it was asked for.
    pub no_kvm: String,
    pub kernel: String,
    /// The version of QEMU.
    pub qemu: String,
    pub runs: u32,
    pub cards: Vec<Card>,
    /// What was left out, and why, with the command of an owner of it.
    pub left_out: Vec<String>,
    /// Nanoseconds of an exit as the user gave them: accesses times that is a model, and no measurement.
    pub exit_ns: Option<f64>,
    /// Nanoseconds of an exit to user space on this machine, as measured; otherwise why they could not be.
    #[serde(default = "unmeasured")]
    pub exit_here_ns: Result<f64, String>,
    /// Rates that others published for card models, on their hardware.
    #[serde(default)]
    pub sources: Vec<PublishedRate>,
    /// On the origin of the figures.
    pub notes: Vec<String>,
}

/// Of runs of a version that did not.
fn unmeasured() -> Result<f64, String> {
    Err("not measured".into())
}

impl GuestRun {
    /// What an exit costs, in nanoseconds, and where that is from: as it was given, or else as it was measured.
    pub fn exit(&self) -> Option<(f64, &'static str)> {
        let given = self.exit_ns.map(|ns| (ns, "as you gave it"));
        given.or(self.exit_here_ns.as_ref().ok().map(|&ns| (ns, "as it was measured here, to user space and back")))
    }
}

/// The share of the rate on bare metal that a published rate is, both directions together; none without the other.
pub fn of_bare(rate: &PublishedRate, all: &[PublishedRate]) -> Option<f64> {
    let both = |rate: &PublishedRate| rate.pps * if rate.per_direction { 2.0 } else { 1.0 };
    let is_bare = |other: &&PublishedRate| {
        (&other.mode, other.frame_bytes, &other.citation) == (&rate.mode, rate.frame_bytes, &rate.citation)
            && other.on == "bare metal"
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
            let rate = all.iter().find(|rate| rate.mode == "router" && rate.on == on).unwrap();
            (100.0 * of_bare(rate, &all).unwrap()).round()
        };
        // 470 of 629 kpps; 85 and 32 are of each direction.
        assert_eq!((share("passthrough (IOMMU)"), share("VirtIO"), share("E1000")), (75.0, 27.0, 10.0));
    }
}
