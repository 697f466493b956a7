//! The user's request: kept in the run's file, so that an interrupted run goes on as it began.

use std::{fmt, path::PathBuf};

use model::{CpuSet, bench::FrameSpec};
use serde::{Deserialize, Serialize};

use crate::{RuleOrder, keyed::keyed};

/// The tests of RFC 2544, section 26, and their successors, in the order in which they are made.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Test {
    /// The highest rate that the box forwards within a loss ratio (26.1, RFC 9971).
    Throughput,
    /// Loss against offered rate (26.3).
    Loss,
    /// The longest burst without loss (26.4, RFC 9004).
    Bursts,
    /// Delay (26.2).
    Latency,
    /// Delay variation at the throughput (RFC 3550, RFC 5481).
    Jitter,
    /// The time that an overload is felt (26.5).
    Recovery,
    /// The time that a reset is felt (26.6, RFC 6201).
    Reset,
}

keyed! {
    Test: Throughput "throughput", Loss "loss", Bursts "bursts", Latency "latency", Jitter "jitter", Recovery "recovery",
        Reset "reset";
    |word, all| format!("there is no test `{word}`; there are {}", all.join(", "))
}

impl fmt::Display for Test {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.key())
    }
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Boxes {
    /// Made for the run, in network namespaces: their keys, such as `router`.
    Lab(Vec<String>),
    /// Outside of this machine, cabled to these two interfaces.
    Ports(String, String),
    /// Guests, and what is laid beside them.
    Guests(GuestBoxes),
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct GuestBoxes {
    /// Keys: `CARD:KIND` for a guest such as `virtio:router`, [`TAPS`] for QEMU without one, and those of a lab.
    pub modes: Vec<String>,
    pub kernel: PathBuf,
    /// The program evenkeel, which is their first process.
    pub evenkeel: PathBuf,
    /// True: guests are emulated, for tests, since rates of such guests say nothing.
    pub emulated: bool,
}

impl Boxes {
    /// The keys of the modes to be measured, in their order.
    pub fn modes(&self) -> Vec<String> {
        match self {
            Self::Lab(keys) => keys.clone(),
            Self::Ports(..) => vec![PORTS.to_owned()],
            Self::Guests(guests) => guests.modes.clone(),
        }
    }
}

/// The key of the mode of an outside box.
pub const PORTS: &str = "ports";
/// The key of QEMU without a guest, which carries frames from one tap device to the other.
pub const TAPS: &str = "taps";
/// The key of the mode without a box.
pub const WIRE: &str = "wire";

/// The request, every default filled in.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Request {
    pub boxes: Boxes,
    pub frames: Vec<FrameSpec>,
    /// The tests, in order, without repeats.
    pub tests: Vec<Test>,
    pub preset: String,
    /// The loss ratio of the main goal, where it is not the preset's.
    pub loss_ratio: Option<f64>,
    /// Seconds of a full-length trial, where they are not the preset's.
    pub trial_s: Option<f64>,
    /// Full-length trials of each load, where they are not the preset's.
    pub repeats: Option<u32>,
    /// True if units go one way alone.
    pub one_way: bool,
    /// Different flows of each direction.
    pub flows: u32,
    /// True if they are of IPv6.
    pub ipv6: bool,
    pub rules: u32,
    pub rule_order: RuleOrder,
    /// True if an outside box forwards by MAC address.
    pub bridged: bool,
    pub cpus: CpuSet,
}

impl Request {
    /// The tests with those that they need: nearly all of them begin from a throughput.
    pub fn tests_with_needs(&self) -> Vec<Test> {
        let mut tests = self.tests.clone();
        tests.push(Test::Throughput);
        tests.sort_unstable();
        tests.dedup();
        tests
    }
}

#[cfg(test)]
impl Request {
    /// A request for tests: frames of 64 and 1518 bytes one way through simulated boxes, nothing overridden.
    pub(super) fn simulated(modes: &[&str], tests: &[Test]) -> Self {
        Self {
            boxes: Boxes::Lab(modes.iter().map(|&m| m.to_owned()).collect()),
            frames: [64, 1518].map(|bytes| FrameSpec::Size { bytes }).to_vec(),
            tests: tests.to_vec(),
            preset: "quick".into(),
            loss_ratio: None,
            trial_s: None,
            repeats: None,
            one_way: true,
            flows: 1,
            ipv6: false,
            rules: 25,
            rule_order: RuleOrder::Study,
            bridged: false,
            cpus: [0, 1].into_iter().collect(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_test_is_known_by_its_key() {
        for test in Test::ALL {
            assert_eq!(test.key().parse::<Test>().unwrap(), test);
        }
        let message = "speed".parse::<Test>().unwrap_err().to_string();
        assert!(message.contains("`speed`") && message.contains("throughput, loss, bursts"), "{message}");
    }
}
