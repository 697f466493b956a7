//! A trial: frames sent and received, and whether the trial counts.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use crate::{CoreLoad, profile::Class};

use super::FrameSpec;

/// The ports of the tester.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Direction {
    /// Out of the first port, into the second.
    Forward,
    /// Out of the second port, into the first.
    Backward,
}

impl Direction {
    pub const ALL: [Self; 2] = [Self::Forward, Self::Backward];

    /// 0 for forward, 1 for backward.
    pub fn index(self) -> usize {
        match self {
            Self::Forward => 0,
            Self::Backward => 1,
        }
    }
}

/// The ends of the units of one direction. A unit is a frame, or a datagram with all its fragments.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct Counts {
    pub sent: u64,
    pub received: u64,
    /// Units received once more than sent.
    pub duplicated: u64,
    /// Units received after a later one of their flow (RFC 4737, type-P-reordered), once each.
    pub reordered: u64,
    /// Units so late that it cannot be told whether they are duplicates; in none of the other counts.
    pub stale: u64,
    /// Datagrams of which some fragments came, but not all; they are lost.
    pub incomplete: u64,
    /// Frames of the other direction, which came back to where they were sent from: the box loops.
    pub looped: u64,
    /// Frames that are not of this trial.
    pub stray: u64,
    /// Units that came only after the box's time was over ([`Aftermath::late_after_ns`]): it held them back. They are among those received.
    #[serde(default)]
    pub late: u64,
}

impl Counts {
    /// Units that never came.
    pub fn lost(&self) -> u64 {
        self.sent.saturating_sub(self.received)
    }

    /// Lost units as a share of those sent; 0 when none was sent.
    pub fn loss_ratio(&self) -> f64 {
        if self.sent == 0 { 0.0 } else { self.lost() as f64 / self.sent as f64 }
    }

    /// Units that never came, or only after the box's time was over: those that it has not forwarded while they were sent.
    pub fn failed(&self) -> u64 {
        self.lost() + self.late.min(self.received)
    }

    /// Failed units as a share of those sent; 0 when none was sent.
    pub fn failed_ratio(&self) -> f64 {
        if self.sent == 0 { 0.0 } else { self.failed() as f64 / self.sent as f64 }
    }

    /// The counts of both.
    pub fn plus(&self, other: &Self) -> Self {
        Self {
            sent: self.sent + other.sent,
            received: self.received + other.received,
            duplicated: self.duplicated + other.duplicated,
            reordered: self.reordered + other.reordered,
            stale: self.stale + other.stale,
            incomplete: self.incomplete + other.incomplete,
            looped: self.looped + other.looped,
            stray: self.stray + other.stray,
            late: self.late + other.late,
        }
    }
}

/// Delays that were measured, in nanoseconds.
#[derive(Debug, Clone, Copy, PartialEq, Default, Serialize, Deserialize)]
pub struct Delays {
    pub samples: u64,
    pub min_ns: u64,
    pub mean_ns: f64,
    /// Percentiles: 50, 90, 99, 99.9.
    pub p50_ns: u64,
    /// Ninety of a hundred are at or below.
    pub p90_ns: u64,
    /// Ninety-nine of a hundred are at or below.
    pub p99_ns: u64,
    /// 999 of a thousand are at or below.
    pub p999_ns: u64,
    pub max_ns: u64,
    /// Interarrival jitter at the end (RFC 3550, section 6.4.1); none with less than two in a row.
    pub jitter_ns: Option<f64>,
}

/// A drop's place and how many packets died there.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Drop {
    /// The station and cause, in the ledger's words.
    pub place: String,
    pub packets: u64,
}

/// The box under test during a trial.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
pub struct Observation {
    /// The load of every core of the machine; empty where it cannot be seen.
    pub cores: Vec<CoreLoad>,
    /// Share of the time of the box's cores by class, in percent (idle and steal among them); empty where it cannot be seen.
    pub classes: BTreeMap<Class, f64>,
    /// CPU time of the tester's own ends on the box's cores, in percent; in none of the classes.
    #[serde(default)]
    pub tester_percent: f64,
    /// Samples on which these shares rest, filled-in idle ones included; 0 in runs saved before this was kept.
    #[serde(default)]
    pub samples: u64,
    /// The time that these shares are of, in seconds; 0 in runs saved before this was kept.
    #[serde(default)]
    pub seconds: f64,
    /// Drops by place, most first.
    pub drops: Vec<Drop>,
    /// CPU time taken by other guests of the hypervisor, in percent of all cores.
    pub steal_percent: f64,
}

impl Observation {
    /// Has the shares be those of the first `seconds`, in which units were sent: of the time after it, in which the box is waited for to be
    /// empty, the work stays and the idleness goes.
    #[must_use]
    pub fn of_sending(mut self, seconds: f64) -> Self {
        let busy =
            self.tester_percent + self.classes.iter().filter(|(c, _)| **c != Class::Idle).map(|(_, p)| p).sum::<f64>();
        if self.classes.is_empty() || seconds <= 0.0 || seconds >= self.seconds || busy <= 0.0 {
            return self;
        }
        let longer = (self.seconds / seconds).min(100.0 / busy);
        self.tester_percent *= longer;
        self.classes.values_mut().for_each(|percent| *percent *= longer);
        let idle = (100.0 - longer * busy).max(0.0);
        self.classes.remove(&Class::Idle);
        if idle > 0.0 {
            self.classes.insert(Class::Idle, idle);
        }
        self.seconds = seconds;
        self
    }
}

/// The tester's own promises, as it kept them.
#[derive(Debug, Clone, Copy, PartialEq, Default, Serialize, Deserialize)]
pub struct Pacing {
    /// Achieved over wanted rate, less one, over the time in which the sender was not held up; none when no rate was wanted.
    pub error: Option<f64>,
    /// Share of the time that the sender was held up (its core was taken from it) and did not make good by a burst.
    #[serde(default)]
    #[serde(alias = "held_up")]
    pub stalled: f64,
    /// The longest time by which sending was behind its schedule, in nanoseconds.
    #[serde(alias = "latest_ns")]
    pub max_lag_ns: u64,
    /// Time behind schedule that was given up, in nanoseconds.
    #[serde(alias = "given_up_ns")]
    pub skipped_ns: u64,
    /// Share of the sender's turns in which nothing was due: 0 is a saturated sender.
    #[serde(alias = "spare")]
    pub idle_share: f64,
}

/// Arrivals after the last unit was sent. All 0 in runs saved before this was kept.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct Aftermath {
    /// Time after the last unit from which an arrival is late, in nanoseconds; 0 where it was not asked for.
    pub late_after_ns: u64,
    /// The time after the last unit was sent at which something still arrived, in nanoseconds, as far as the looks at the counters tell.
    pub drained_ns: u64,
    /// True if units still arrived when the wait ended: the box is not empty.
    #[serde(alias = "never_empty")]
    pub undrained: bool,
    /// Units of the trial before that arrived in this one.
    pub leftover: u64,
}

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Trial {
    /// Number of the trial in the run, from 1.
    pub number: u32,
    /// Its purpose, in words: a step of the search, a point of the loss curve.
    pub purpose: String,
    pub frame: FrameSpec,
    /// Units per second that were wanted, all directions together; none for as fast as it goes.
    #[serde(alias = "wanted_pps")]
    pub intended_pps: Option<f64>,
    /// Units per second that were sent, all directions together, over the time in which the sender was not held up.
    pub offered_pps: f64,
    /// Units per second that came through, all directions together, over the same time.
    pub received_pps: f64,
    /// The time in which units were sent, in seconds.
    pub seconds: f64,
    /// Forward, then backward; the second all zeros in a trial of one direction.
    pub counts: [Counts; 2],
    /// One-way delays, forward then backward; none when none was stamped.
    pub one_way: [Option<Delays>; 2],
    /// Differences of the one-way delays of neighbours (RFC 5481, IPDV), as absolute values.
    pub ipdv: [Option<Delays>; 2],
    /// Round trips of probes; none when none was sent.
    pub round_trip: Option<Delays>,
    /// Probes sent and probes that came back.
    pub probes: (u64, u64),
    /// Each round trip in the order of arrival, at most 1000, in nanoseconds.
    pub round_trips_ns: Vec<u64>,
    /// The longest time without an arrival between the first and the last, per direction, in nanoseconds; only where every unit is stamped.
    #[serde(alias = "longest_silence_ns")]
    pub max_gap_ns: [Option<u64>; 2],
    /// From the last change of the rate to the last unit that was found missing, per direction, in nanoseconds; none without a change or a loss after it.
    pub last_loss_after_ns: [Option<u64>; 2],
    /// The tester's promises, as it kept them.
    pub pacing: Pacing,
    /// Frames that came after the end of sending.
    #[serde(default)]
    pub after: Aftermath,
    /// The box during the trial.
    pub observed: Observation,
    /// The reason why the trial does not count; none when it does.
    #[serde(alias = "void")]
    pub invalid: Option<String>,
}

impl Trial {
    /// The counts of both directions together.
    pub fn total(&self) -> Counts {
        self.counts[0].plus(&self.counts[1])
    }

    /// Lost units as a share of those sent, both directions together.
    pub fn loss_ratio(&self) -> f64 {
        self.total().loss_ratio()
    }

    /// Units that the box has not forwarded while they were sent, lost or late, as a share, both directions together.
    pub fn failed_ratio(&self) -> f64 {
        self.total().failed_ratio()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn shares_of_a_trial_leave_the_wait_after_it_out() {
        let classes = BTreeMap::from([(Class::Ip, 40.0), (Class::Steal, 4.0), (Class::Idle, 50.0)]);
        let seen = Observation { classes, tester_percent: 6.0, seconds: 1.2, ..Observation::default() };
        let of_sending = seen.clone().of_sending(1.0);
        assert!((of_sending.classes[&Class::Ip] - 48.0).abs() < 1e-9 && (of_sending.tester_percent - 7.2).abs() < 1e-9);
        assert!((of_sending.classes[&Class::Idle] - 40.0).abs() < 1e-9, "{of_sending:?}");
        // More than all of the time is none.
        let full = seen.clone().of_sending(0.1);
        let all = full.tester_percent + full.classes.values().sum::<f64>();
        assert!((all - 100.0).abs() < 1e-9 && !full.classes.contains_key(&Class::Idle), "{full:?}");
        assert_eq!(seen.clone().of_sending(2.0), seen);
    }

    #[test]
    fn what_is_lost_is_what_was_sent_and_never_came() {
        let one = Counts { sent: 1000, received: 999, duplicated: 5, ..Counts::default() };
        assert_eq!((one.lost(), one.loss_ratio()), (1, 0.001));
        assert_eq!(one.plus(&one).lost(), 2);
        assert_eq!(Counts::default().loss_ratio(), 0.0);
        let late = Counts { late: 9, ..one };
        assert_eq!((late.loss_ratio(), late.failed(), late.failed_ratio()), (0.001, 10, 0.01));
        assert_eq!(Counts::default().failed_ratio(), 0.0);
    }
}
