//! A run: one measurement with its machine, its conditions, its stages and its conclusion.

pub use crate::machine::Machine;
use serde::{Deserialize, Serialize};

use crate::{
    CoreLoad, CpuSet, Ledger,
    profile::{Class, Profile},
};

/// The generator and the most it can do.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Generator {
    /// The backend that made the frames, such as `XDP live frames`.
    pub backend: String,
    /// The CPUs it ran on.
    pub cpus: CpuSet,
    /// Packets per second that it made with nothing in its way.
    pub ceiling_pps: f64,
    /// The measurement of the ceiling: into what, on which CPUs, for how long.
    pub ceiling_conditions: String,
}

impl Generator {
    /// True if the generator was the limit: `offered_pps` is within 5 % of its ceiling or above it.
    pub fn limits(&self, offered_pps: f64) -> bool {
        offered_pps >= 0.95 * self.ceiling_pps
    }
}

/// The sharing of a core by the generator and the receiving work.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Sharing {
    /// Generator and receive work run on one core, so that the load throttles itself.
    Inline,
    /// The receive work has cores of its own: real overload.
    #[default]
    Apart,
}

impl Sharing {
    /// The word for tables.
    pub fn word(self) -> &'static str {
        match self {
            Self::Inline => "inline",
            Self::Apart => "apart",
        }
    }
}

/// The work of a set of cores in a stage.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct CoreRole {
    pub cpus: CpuSet,
    /// Work of the cores, such as `generator` or `receive queues 0-3, reader`.
    #[serde(alias = "does")]
    pub role: String,
}

/// The work of each core in a stage.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct Arrangement {
    /// Generator and receive work share a core.
    pub sharing: Sharing,
    /// The work of each core.
    pub roles: Vec<CoreRole>,
}

impl Arrangement {
    /// The roles in words: `CPU 0 sends; CPU 1 receives`.
    pub fn words(&self) -> String {
        let roles = self.roles.iter().map(|role| format!("CPU {} {}", role.cpus, role.role));
        roles.collect::<Vec<_>>().join("; ")
    }
}

/// The measurements of a stage, and the spread of their results.
#[derive(Debug, Clone, Copy, PartialEq, Default, Serialize, Deserialize)]
pub struct Repeats {
    /// The number of measurements; the figures of the stage are those of the one with the median delivered rate.
    pub count: u32,
    /// The lowest delivered rate among them, in packets per second.
    pub lowest_pps: f64,
    /// The highest delivered rate among them, in packets per second.
    pub highest_pps: f64,
}

/// CPU time per packet: the busy time of every online core, less the CPU time of the generator's own threads.
#[derive(Debug, Clone, Copy, PartialEq, Default, Serialize, Deserialize)]
pub struct Cost {
    /// Nanoseconds per packet that reached its reader; none when no packet did.
    pub per_delivered_ns: Option<f64>,
    /// Nanoseconds per packet that was offered; none when none was.
    pub per_offered_ns: Option<f64>,
}

/// A class of work and its share of a stage's busy time.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct WorkShare {
    pub class: Class,
    /// Percent of the time in which a core was busy, that of the generator left out.
    pub percent: f64,
}

/// The locks that one function takes, and their share of a stage's busy time.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct LockShare {
    pub caller: String,
    /// The class that it belongs to.
    pub class: Class,
    /// Percent of the busy time, that of the generator left out.
    pub percent: f64,
    /// Percent of the busy time spent in waiting for another core's lock.
    pub waiting_percent: f64,
}

/// CPU time of a stage by class of work, from samples.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
pub struct Work {
    /// Samples of busy cores, those of the generator left out.
    pub samples: u64,
    /// The classes, dearest first.
    pub classes: Vec<WorkShare>,
    /// The takers of locks, dearest first.
    pub locks: Vec<LockShare>,
}

impl Work {
    /// The share of a class in percent of the busy time.
    pub fn percent(&self, class: Class) -> f64 {
        self.classes.iter().find(|w| w.class == class).map_or(0.0, |w| w.percent)
    }

    /// The share of waiting for locks that another core held, in percent of the busy time; part of that of [`Class::Locks`].
    pub fn waiting_percent(&self) -> f64 {
        // The sum of nothing is -0.0, which is shown with its sign.
        self.locks.iter().map(|l| l.waiting_percent).sum::<f64>() + 0.0
    }
}

impl From<&Profile> for Work {
    fn from(profile: &Profile) -> Self {
        let busy = profile.classes.iter().filter(|c| c.class.is_busy());
        let samples: u64 = busy.map(|c| c.samples).sum();
        let share = |n: u64| 100.0 * n as f64 / samples.max(1) as f64;
        let classes = profile.dearest(usize::MAX).into_iter().map(|(class, percent)| WorkShare { class, percent });
        let locks = profile.locks.iter().map(|l| LockShare {
            caller: l.caller.clone(),
            class: l.class,
            percent: share(l.samples),
            waiting_percent: share(l.waiting),
        });
        Self { samples, classes: classes.collect(), locks: locks.collect() }
    }
}

/// A way to receive the flood, and its result.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
pub struct Stage {
    /// The stable key that [`SourceFigure::stage`] refers to: one of [`keys`].
    pub key: String,
    /// The name for people, such as `Ring + fanout`.
    pub name: String,
    /// The work of this stage, in one sentence.
    pub what: String,
    /// The capture backend, such as `ring+fanout`.
    pub backend: String,
    /// The work of each core.
    pub arrangement: Arrangement,
    /// The mode of an XDP program (`native`, `generic`, AF_XDP `copy` …); none when there was none.
    pub attached_mode: Option<String>,
    /// The number of measurements.
    pub repeats: Repeats,
    /// Packets per second that the generator put on the wire.
    pub offered_pps: f64,
    /// Packets per second that reached the reader.
    pub delivered_pps: f64,
    /// The way of every packet.
    pub ledger: Ledger,
    pub cores: Vec<CoreLoad>,
    /// CPU time per packet.
    pub ns_per_packet: Cost,
    /// CPU time taken by other guests of the hypervisor, in percent of all cores.
    pub steal_percent: f64,
    /// CPU time by class; none where it could not be sampled.
    pub work: Option<Work>,
    /// Other notes for the reader.
    pub notes: Vec<String>,
}

/// The keys of the stages of the demo, in their order.
pub mod keys {
    /// A queue on a core, a plain socket.
    pub const PLAIN: &str = "plain";
    /// Queues spread over the cores.
    pub const SPREAD: &str = "spread";
    /// Several plain sockets in a fanout group.
    pub const FANOUT: &str = "fanout";
    pub const RING: &str = "ring";
    /// Several rings in a fanout group.
    pub const RING_FANOUT: &str = "ring+fanout";
    /// Copied in XDP into shared memory.
    pub const TAP: &str = "tap";
    /// Copied in XDP into shared memory, and ended there.
    pub const TAP_CONSUME: &str = "tap-consume";
    /// AF_XDP.
    pub const XDP: &str = "xdp";
}

/// A published result of somebody else, on their hardware: to be laid beside ours, never to be taken for ours.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct SourceFigure {
    /// The key of the stage that it is comparable with.
    pub stage: String,
    /// The measurement, in a few words.
    pub label: String,
    /// The lowest value they give, in million packets per second.
    pub low_mpps: f64,
    /// The highest value they give; the same as the lowest for a single value.
    pub high_mpps: f64,
    /// Author, year and machine of the figure.
    pub citation: String,
}

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct DemoRun {
    /// Beginning of the run (RFC 3339, UTC).
    #[serde(alias = "when")]
    pub timestamp: String,
    /// The machine on which it ran.
    pub machine: Machine,
    /// Other programs took so much of the CPUs that the figures mean little: how much, which, what helps.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub disturbed: Option<String>,
    /// The length of a frame in bytes, without its checksum.
    pub frame_bytes: u32,
    /// The length of each measurement.
    pub seconds_per_stage: f64,
    /// The generator and its ceiling.
    pub generator: Generator,
    /// The stages in the order in which they ran.
    pub stages: Vec<Stage>,
    /// Published figures of others.
    pub sources: Vec<SourceFigure>,
    /// Meaning of the run, in plain words.
    pub conclusion: String,
}

impl DemoRun {
    /// The published figures that belong beside the stage with that key.
    pub fn sources_of<'a>(&'a self, key: &'a str) -> impl Iterator<Item = &'a SourceFigure> {
        self.sources.iter().filter(move |s| s.stage == key)
    }
}
