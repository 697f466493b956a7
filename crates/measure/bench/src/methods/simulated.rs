//! A tester with a simulated box: a server of a known rate behind a queue of known depth, with known faults.

use std::{sync::atomic::AtomicBool, time::Duration};

use model::bench::{Aftermath, Counts, Delays, FrameSpec, Observation, Pacing, Trial};

use super::Bench;
use crate::{BenchError, Drain, Load, Meanwhile, Order, Patience, Tester};

/// The drain of the preset `quick`.
const DRAIN: Drain = Drain { quiet: Duration::ZERO, longest: Duration::from_secs(10), slack: 0.03 };

/// The box, and the tester around it. Units go forward alone.
#[derive(Debug, Clone)]
pub(crate) struct SimBox {
    /// Units per second that the tester can send.
    pub(crate) ceiling_pps: f64,
    /// Units per second that the box forwards.
    pub(crate) capacity_pps: f64,
    /// Units that its queue holds.
    pub(crate) buffer_units: f64,
    /// Units of which one is lost; 0: none is.
    pub(crate) lose_one_in: u64,
    /// Delay of a unit one way, and of each way of a probe.
    pub(crate) delay_ns: f64,
    /// That delay of an idle box, where it differs.
    pub(crate) idle_ns: f64,
    /// The delay that each further trial adds.
    pub(crate) drift_ns: f64,
    /// The round trips of so many trials are thirteen times as long; with `u32::MAX` those of each thirteen times those of the one before.
    pub(crate) slow_trials: u32,
    /// Jitter that the receiver reads.
    pub(crate) jitter_ns: f64,
    /// Each so-many-th trial's round trips differ widely; 0 for none.
    pub(crate) wild_every: u32,
    /// In each so-many-th trial one round trip is a hundred times as long; 0 for none.
    pub(crate) stall_every: u32,
    /// From this rate on the sender has too little time to spare to make good what it is held up: its trials cannot be believed.
    pub(crate) strained_from_pps: f64,
    /// Seconds of loss after an overload.
    pub(crate) recovers_after_s: f64,
    /// Seconds without a frame after a reset.
    pub(crate) dies_for_s: f64,
    /// True if it sends all units back.
    pub(crate) loops: bool,
    /// The trial from which on nothing is forwarded.
    pub(crate) dead_from: u32,
    /// Number of trials that cannot be believed.
    pub(crate) void_trials: u32,
    /// Units of the trial before that are still in it.
    pub(crate) left_units: u64,
    pub(crate) trials: u32,
    pub(crate) now: Duration,
}

impl Default for SimBox {
    fn default() -> Self {
        Self {
            ceiling_pps: 1e7,
            capacity_pps: 1e6,
            buffer_units: 0.0,
            lose_one_in: 0,
            delay_ns: 10_000.0,
            idle_ns: 0.0,
            drift_ns: 0.0,
            slow_trials: 0,
            jitter_ns: 0.0,
            wild_every: 0,
            stall_every: 0,
            strained_from_pps: f64::INFINITY,
            recovers_after_s: 0.0,
            dies_for_s: 0.0,
            loops: false,
            dead_from: u32::MAX,
            void_trials: 0,
            left_units: 0,
            trials: 0,
            now: Duration::ZERO,
        }
    }
}

/// A bench of `tester` with frames of 64 bytes, which nobody stops.
pub(crate) fn bench(tester: &mut dyn Tester) -> Bench<'_> {
    static STOP: AtomicBool = AtomicBool::new(false);
    // For the life of the test.
    let patience = Box::leak(Box::new(Patience::endless()));
    let frame = FrameSpec::Size { bytes: 64 };
    Bench { tester, frame, drain: DRAIN, observe: false, void_repeats: 2, stop: &STOP, patience }
}

impl SimBox {
    /// Does `work` with this tester and frames of 64 bytes.
    pub(crate) fn with<T>(
        &mut self,
        work: impl FnOnce(&mut Bench<'_>) -> Result<T, BenchError>,
    ) -> Result<T, BenchError> {
        work(&mut bench(self))
    }

    /// Units sent, lost, and late: still in the queue when the time of the box is over.
    fn flow(&self, pps: f64, seconds: f64) -> (u64, u64, u64) {
        let sent = (pps * seconds).round();
        if self.trials >= self.dead_from {
            return (sent as u64, sent as u64, 0);
        }
        let queued = sent * (1.0 - self.capacity_pps / pps).max(0.0);
        let lost = (queued - self.buffer_units).max(0.0).ceil() as u64;
        let drained = self.capacity_pps * DRAIN.slack_of(seconds).as_secs_f64();
        let late = (queued.min(self.buffer_units) - drained).max(0.0) as u64;
        (sent as u64, lost + (sent as u64).checked_div(self.lose_one_in).unwrap_or(0), late)
    }

    fn round_trips(&self, order: &Order, idle: bool) -> Vec<u64> {
        let Some(probes) = order.probes else { return Vec::new() };
        let times = order.duration.saturating_sub(probes.after).as_nanos() / probes.every.as_nanos();
        let one_way = if idle && self.idle_ns > 0.0 { self.idle_ns } else { self.delay_ns };
        let slower = match self.slow_trials {
            u32::MAX => 13f64.powi(self.trials as i32),
            slow if self.trials <= slow => 13.0,
            _ => 1.0,
        };
        let trip = 2.0 * slower * (one_way + self.drift_ns * f64::from(self.trials - 1));
        let every = |n: u32| n > 0 && self.trials.is_multiple_of(n);
        let (wild, stalls) = (every(self.wild_every), every(self.stall_every));
        let factor = |i| match i {
            1 if stalls => 100.0,
            i if wild && i % 2 == 1 => 10.0,
            _ => 1.0,
        };
        (0..=times).map(|i| (trip * factor(i)) as u64).collect()
    }
}

fn delays(around_ns: f64, jitter_ns: f64) -> Delays {
    let ns = around_ns as u64;
    Delays {
        samples: 100,
        min_ns: ns,
        mean_ns: around_ns,
        p50_ns: ns,
        p90_ns: ns,
        p99_ns: ns + jitter_ns as u64,
        p999_ns: ns + jitter_ns as u64,
        max_ns: ns + jitter_ns as u64,
        jitter_ns: Some(jitter_ns),
    }
}

impl SimBox {
    fn simulate(&mut self, order: &Order) -> Trial {
        self.trials += 1;
        let seconds = order.duration.as_secs_f64();
        let (intended_pps, (sent, mut lost, late), seconds, last_loss) = match &order.load {
            Load::Idle => (Some(0.0), (0, 0, 0), seconds, None),
            Load::Pps(pps) => (Some(*pps), self.flow(pps.min(self.ceiling_pps), seconds), seconds, None),
            Load::Max => (None, self.flow(self.ceiling_pps, seconds), seconds, None),
            Load::Burst(units) => {
                let seconds = *units as f64 / self.ceiling_pps;
                (None, self.flow(self.ceiling_pps, seconds), seconds, None)
            }
            Load::Steps(steps) => {
                let all = steps.iter().map(|(pps, d)| self.flow(*pps, d.as_secs_f64()));
                let sums = all.fold((0, 0, 0), |sum, one| (sum.0 + one.0, sum.1 + one.1, 0));
                let after = steps.last().map_or(0.0, |s| s.1.as_secs_f64());
                let last = (sums.1 > 0).then(|| (self.recovers_after_s.min(after) * 1e9) as u64);
                (None, sums, steps.iter().map(|s| s.1.as_secs_f64()).sum(), last)
            }
        };
        let idle = order.load == Load::Idle;
        let looped = if self.loops { sent } else { 0 };
        lost = lost.max(looped).min(sent);
        let trips = self.round_trips(order, idle);
        let saturated = intended_pps.is_some_and(|pps| pps > self.ceiling_pps * 1.01);
        let strained = intended_pps.is_some_and(|pps| pps >= self.strained_from_pps);
        // What it holds comes out while the tester waits, and the rest in the next trial.
        let leftover = std::mem::take(&mut self.left_units);
        let wait_s = late as f64 / self.capacity_pps.max(1.0);
        self.left_units = late.saturating_sub((self.capacity_pps * order.drain.longest.as_secs_f64()) as u64);
        self.now += Duration::from_secs_f64(seconds + wait_s.min(order.drain.longest.as_secs_f64()));
        let void = match saturated {
            _ if leftover > 0 => Some("the box was not empty".to_owned()),
            true => Some("the sender was saturated below the wanted rate".to_owned()),
            false if strained => Some("the sender was held up".to_owned()),
            false => (self.trials <= self.void_trials).then(|| "the sender was late".to_owned()),
        };
        let spare = if saturated {
            0.0
        } else if strained {
            0.2
        } else {
            0.5
        };
        let counts = Counts { sent, received: sent - lost, looped, late, ..Counts::default() };
        Trial {
            number: self.trials,
            purpose: order.purpose.clone(),
            frame: order.frame.clone(),
            intended_pps,
            offered_pps: if seconds > 0.0 { sent as f64 / seconds } else { 0.0 },
            received_pps: order.drain.rate(&counts, seconds),
            seconds,
            counts: [counts, Counts::default()],
            one_way: [(!idle).then(|| delays(self.delay_ns, self.jitter_ns)), None],
            ipdv: [(!idle).then(|| delays(self.jitter_ns, 0.0)), None],
            round_trip: (!trips.is_empty()).then(|| delays(trips[0] as f64, 0.0)),
            probes: (trips.len() as u64, trips.len() as u64),
            round_trips_ns: trips,
            max_gap_ns: [None, None],
            last_loss_after_ns: [last_loss, None],
            pacing: Pacing { idle_share: spare, ..Pacing::default() },
            after: Aftermath {
                late_after_ns: order.drain.slack_of(seconds).as_nanos() as u64,
                leftover,
                undrained: self.left_units > 0,
                ..Aftermath::default()
            },
            observed: Observation::default(),
            invalid: void,
        }
    }
}

impl Tester for SimBox {
    fn now(&self) -> Duration {
        self.now
    }

    fn make(&mut self, order: &Order, also: Option<Meanwhile<'_>>, _stop: &AtomicBool) -> Result<Trial, BenchError> {
        let Some(also) = also else { return Ok(self.simulate(order)) };
        (also.work)()?;
        let mut trial = self.simulate(order);
        let died = (self.dies_for_s * trial.offered_pps) as u64;
        trial.counts[0].received = trial.counts[0].sent.saturating_sub(died);
        trial.max_gap_ns[0] = Some((self.dies_for_s * 1e9) as u64);
        Ok(trial)
    }
}
