//! The order for a trial, and the tester that carries it out.

use std::{
    sync::{LazyLock, atomic::AtomicBool},
    time::{Duration, Instant},
};

use model::bench::{Counts, FrameSpec, Observation, Trial};

use crate::BenchError;

/// The load, in units per second over all directions together.
#[derive(Debug, Clone, PartialEq)]
pub enum Load {
    Pps(f64),
    /// As fast as the tester can.
    Max,
    /// A number of units, as fast as the tester can.
    Burst(u64),
    /// Rates that follow each other, each with its duration.
    Steps(Vec<(f64, Duration)>),
    Idle,
}

/// Probes for the round trip: least frames (64 bytes with FCS; 84 with IPv6) that the far port sends back.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Probes {
    /// Time between two of them.
    pub every: Duration,
    /// Time from the start of the trial to the first.
    pub after: Duration,
}

/// The units that bear a time stamp.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Stamping {
    /// A unit in a prime number of them: enough for the distribution, nearly free.
    Sampled,
    /// Every one: jitter, silence.
    Every,
}

/// The end of a trial: the time until the box is empty and the counters are read.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Drain {
    /// The box is empty when nothing has arrived for so long …
    pub quiet: Duration,
    /// … but it is not waited longer than this.
    pub longest: Duration,
    /// A unit is late that arrives more than the trial's least delay and this share of its length after the last one was sent: then the box has
    /// not kept pace. Buffers can raise a throughput by no more than this share.
    pub slack: f64,
}

/// The slack of a short trial: a box works in batches, and looks at counters take their time.
const SLACK_MIN: Duration = Duration::from_millis(5);

/// From this share of late units on the box was busy to the end of its time.
const HELD_BACK: f64 = 0.001;

impl Drain {
    /// The time that a unit of a trial of `seconds` may arrive later than its least delay after the last one was sent.
    pub fn slack_of(&self, seconds: f64) -> Duration {
        SLACK_MIN.max(Duration::from_secs_f64(self.slack * seconds))
    }

    /// Units per second that came through a trial of `seconds`: those that came in time, over the time that the box had.
    pub(crate) fn rate(&self, counts: &Counts, seconds: f64) -> f64 {
        let held_back = counts.late as f64 > HELD_BACK * counts.sent as f64;
        let had_s = if held_back { seconds + self.slack_of(seconds).as_secs_f64() } else { seconds };
        let in_time = counts.received.saturating_sub(counts.late);
        if seconds > 0.0 { in_time as f64 / had_s } else { 0.0 }
    }
}

/// A trial to be made.
#[derive(Debug, Clone, PartialEq)]
pub struct Order {
    pub purpose: String,
    pub frame: FrameSpec,
    pub load: Load,
    /// The length; a burst ends by itself, this is its longest time.
    pub duration: Duration,
    pub probes: Option<Probes>,
    pub stamping: Stamping,
    pub drain: Drain,
    /// True if the box is observed (CPU by class, drops): costs a little, so that the shortest trials go without.
    pub observe: bool,
}

/// Work that is done while a trial runs: a reset.
#[derive(Clone, Copy)]
pub struct Meanwhile<'a> {
    /// Time from the start of the trial to the start of the work.
    pub after: Duration,
    /// The work. It has a thread of its own.
    pub work: &'a (dyn Fn() -> Result<(), BenchError> + Sync),
}

/// Makes trials. The real one sends on two ports; tests put simulated boxes in its place.
pub trait Tester {
    /// Makes one trial, and does other work meanwhile. A trial that cannot be believed comes back with `void`; the tester does not repeat it.
    ///
    /// # Errors
    /// Further trials are useless: a port is gone, a program cannot be loaded, `stop` is set; or the other work failed.
    fn make(&mut self, order: &Order, also: Option<Meanwhile<'_>>, stop: &AtomicBool) -> Result<Trial, BenchError>;

    /// The time by the clock that trials take their time from; simulated boxes have a virtual one.
    fn now(&self) -> Duration {
        static START: LazyLock<Instant> = LazyLock::new(Instant::now);
        START.elapsed()
    }

    /// Makes one trial, and nothing else.
    fn trial(&mut self, order: &Order, stop: &AtomicBool) -> Result<Trial, BenchError> {
        self.make(order, None, stop)
    }
}

/// Watches the box under test during a trial. Built by whoever knows ledger and profile.
pub trait Observer {
    fn begin(&mut self) -> Result<(), BenchError>;

    /// Ends the trial, once traffic has drained.
    fn end(&mut self) -> Result<Observation, BenchError>;
}
