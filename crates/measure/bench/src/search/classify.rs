//! Classifies a load by its trials for a goal (RFC 9971, sections "Load Classification Logic" and "Conditional Throughput Logic").

use std::time::Duration;

use model::bench::{Goal, Judged};

#[derive(Debug, Clone, Copy, PartialEq)]
pub struct TrialResult {
    /// The load that was wanted, in units per second.
    pub pps: f64,
    pub seconds: f64,
    pub counted: Counted,
}

#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Counted {
    pub sent: u64,
    /// Units that the box has not forwarded while they were sent: lost, or late.
    pub failed: u64,
    /// Units per second that came through.
    pub forwarded_pps: f64,
}

impl Counted {
    /// The counts of a trial of `duration` at `pps` in which the share `failed_ratio` fails: for simulated boxes.
    pub fn at(pps: f64, duration: Duration, failed_ratio: f64) -> Self {
        let sent = (pps * duration.as_secs_f64()).round();
        let failed = (sent * failed_ratio).round();
        Self { sent: sent as u64, failed: failed as u64, forwarded_pps: pps * (1.0 - failed_ratio) }
    }

    /// Units that failed as a share.
    pub fn failed_ratio(&self) -> f64 {
        if self.sent == 0 { 0.0 } else { self.failed as f64 / self.sent as f64 }
    }
}

impl TrialResult {
    /// Judges the trial for `goal`. A trial that could not be made any longer, and has too few units to judge, has not met it.
    pub fn judged(&self, goal: &Goal) -> Judged {
        match goal.judge(self.counted.sent, self.counted.failed) {
            Judged::Unsure if self.is_longest(goal) => Judged::Beyond,
            judged => judged,
        }
    }

    /// True if a longer trial could not be made at this load.
    pub(super) fn is_longest(&self, goal: &Goal) -> bool {
        self.seconds >= goal.judging_s(self.pps) - SECONDS_TOLERANCE
    }

    /// The seconds that it counts for: a trial that was only made longer to have enough units counts as one.
    pub(super) fn weight(&self, goal: &Goal) -> f64 {
        if self.seconds <= goal.longest_s() + SECONDS_TOLERANCE && goal.longest_s > 0.0 {
            self.seconds.min(goal.trial_s)
        } else {
            self.seconds
        }
    }
}

/// The class of a load for a goal.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Bound {
    /// The load meets the goal, whatever the trials show that are missing for the duration sum.
    Lower,
    /// The load misses the goal, whatever they show.
    Upper,
    Undecided,
}

/// Seconds of the trials of one load, by length and outcome.
#[derive(Debug, Clone, Copy, PartialEq, Default)]
pub struct Evidence {
    /// Full-length trials within the goal's loss ratio.
    pub full_low: f64,
    /// Full-length trials beyond it.
    pub full_high: f64,
    /// Shorter ones within it.
    pub short_low: f64,
    /// Shorter ones beyond it.
    pub short_high: f64,
    pub low: u32,
    pub high: u32,
    /// True if a trial had too few units to tell: the next one at this load is longer.
    pub unsure: bool,
}

/// Sums of seconds are compared with this tolerance: 3 x 0.4 is to be 1.2.
const SECONDS_TOLERANCE: f64 = 1e-9;

impl Evidence {
    /// The evidence of `trials`, which are all of one load.
    pub fn of(trials: &[TrialResult], goal: &Goal) -> Self {
        let mut sums = Self::default();
        for trial in trials {
            let is_full = trial.seconds >= goal.trial_s - SECONDS_TOLERANCE;
            let (seconds, count) = match (trial.judged(goal), is_full) {
                (Judged::Unsure, _) => {
                    sums.unsure = true;
                    continue;
                }
                (Judged::Within, true) => (&mut sums.full_low, &mut sums.low),
                (Judged::Within, false) => (&mut sums.short_low, &mut sums.low),
                (Judged::Beyond, true) => (&mut sums.full_high, &mut sums.high),
                (Judged::Beyond, false) => (&mut sums.short_high, &mut sums.high),
            };
            *seconds += trial.weight(goal);
            *count += 1;
        }
        sums
    }

    /// All seconds of full-length trials.
    pub fn full(&self) -> f64 {
        self.full_low + self.full_high
    }

    /// The class of the load.
    pub fn bound(&self, goal: &Goal) -> Bound {
        let balancing = self.short_low * goal.exceed_ratio / (1.0 - goal.exceed_ratio);
        let high = self.full_high + (self.short_high - balancing).max(0.0);
        let whole = (self.full_low + high).max(goal.sum_s);
        let tolerated = whole * goal.exceed_ratio + SECONDS_TOLERANCE;
        if high > tolerated {
            Bound::Upper
        } else if whole - self.full_low <= tolerated {
            Bound::Lower
        } else {
            Bound::Undecided
        }
    }

    /// Seconds of trials that are missing for a decision if they come out as most of those that were made.
    pub fn missing(&self, goal: &Goal) -> f64 {
        match (self.bound(goal), self.leans_upper(goal)) {
            (Bound::Undecided, true) => (goal.sum_s * goal.exceed_ratio - self.full_high - self.short_high).max(0.0),
            (Bound::Undecided, false) => (goal.sum_s * (1.0 - goal.exceed_ratio) - self.full_low).max(0.0),
            _ => 0.0,
        }
    }

    /// True if the load would be above the throughput if the missing trials came out as those that were made; false when there are none.
    pub fn leans_upper(&self, goal: &Goal) -> bool {
        match self.bound(goal) {
            Bound::Upper => true,
            Bound::Lower => false,
            Bound::Undecided => {
                let high = self.full_high + self.short_high;
                high > (self.full() + self.short_low + self.short_high) * goal.exceed_ratio + SECONDS_TOLERANCE
            }
        }
    }
}

/// Units per second that came through at a load: least, conditional throughput, most. None without a full-length trial.
pub(super) fn forwarded(trials: &[TrialResult], goal: &Goal) -> Option<[f64; 3]> {
    let is_full = |t: &&TrialResult| t.seconds >= goal.trial_s - SECONDS_TOLERANCE && t.judged(goal) != Judged::Unsure;
    let mut full: Vec<&TrialResult> = trials.iter().filter(is_full).collect();
    full.sort_by(|a, b| a.counted.failed_ratio().total_cmp(&b.counted.failed_ratio()));
    let whole = full.iter().map(|t| t.weight(goal)).sum::<f64>().max(goal.sum_s);
    let mut remaining = whole * (1.0 - goal.exceed_ratio);
    let mut quantile = full.first()?;
    for trial in &full {
        if remaining <= SECONDS_TOLERANCE {
            break;
        }
        quantile = trial;
        remaining -= trial.weight(goal);
    }
    // What is still missing may come out as badly as can be: then nothing is sure to come through.
    let sure = if remaining > SECONDS_TOLERANCE { 0.0 } else { quantile.counted.forwarded_pps };
    let rates = full.iter().map(|t| t.counted.forwarded_pps);
    Some([rates.clone().fold(f64::INFINITY, f64::min), sure, rates.fold(0.0, f64::max)])
}

#[cfg(test)]
mod tests {
    use super::*;

    fn goal(trial_s: f64, sum_s: f64, loss_ratio: f64, exceed_ratio: f64) -> Goal {
        let name = String::new();
        Goal { name, loss_ratio, exceed_ratio, initial_s: 1.0, trial_s, sum_s, width: 0.01, longest_s: 0.0 }
    }

    /// So many trials of so many seconds with such a loss.
    fn trials(groups: &[(usize, f64, f64)]) -> Vec<TrialResult> {
        let one = |&(n, seconds, loss_ratio): &(usize, f64, f64)| {
            let counted = Counted::at(1e6, Duration::from_secs_f64(seconds), loss_ratio);
            vec![TrialResult { pps: 1e6, seconds, counted }; n]
        };
        groups.iter().flat_map(one).collect()
    }

    /// The four goals and six points in time of RFC 9971, appendix "Example Search".
    #[test]
    fn the_example_of_the_rfc_comes_out() {
        use Bound::{Lower, Undecided, Upper};
        let goals = [
            goal(60.0, 60.0, 0.0, 0.0),
            goal(60.0, 120.0, 0.0, 0.5),
            goal(1.0, 120.0, 0.005, 0.5),
            goal(60.0, 60.0, 0.005, 0.2),
        ];
        let (good, bad) = (|n| (n, 1.0, 0.0), |n| (n, 1.0, 0.01));
        let (long_bad, long_good) = ((1, 60.0, 0.001), (1, 60.0, 0.0));
        type Groups<'a> = &'a [(usize, f64, f64)];
        let points: [(Groups<'_>, [Bound; 4]); 6] = [
            (&[good(59)], [Undecided; 4]),
            (&[good(59), bad(1)], [Upper, Undecided, Undecided, Undecided]),
            (&[good(59), bad(60)], [Upper, Undecided, Undecided, Upper]),
            (&[good(60), bad(60)], [Upper, Undecided, Lower, Upper]),
            // The RFC's tables say Lower for the last goal, beside exceed ratios of 42.857 % and 27.273 % where 20 % are tolerated:
            // by its own rule, which counts here, that is an upper bound.
            (&[good(60), bad(60), long_bad], [Upper, Undecided, Lower, Upper]),
            (&[good(60), bad(60), long_bad, long_good], [Upper, Lower, Lower, Upper]),
        ];
        for (i, (groups, expected)) in points.iter().enumerate() {
            let made = trials(groups);
            let found = goals.each_ref().map(|g| Evidence::of(&made, g).bound(g));
            assert_eq!(found, *expected, "point {}", i + 1);
        }
    }

    #[test]
    fn two_of_three_decide() {
        let goal = goal(0.4, 1.2, 0.001, 0.5);
        let bound = |groups: &[(usize, f64, f64)]| Evidence::of(&trials(groups), &goal).bound(&goal);
        assert_eq!(bound(&[]), Bound::Undecided);
        assert_eq!(bound(&[(1, 0.4, 0.0)]), Bound::Undecided);
        assert_eq!(bound(&[(2, 0.4, 0.0)]), Bound::Lower);
        assert_eq!(bound(&[(1, 0.4, 0.0), (1, 0.4, 0.1)]), Bound::Undecided);
        assert_eq!(bound(&[(1, 0.4, 0.0), (2, 0.4, 0.1)]), Bound::Upper);
    }

    #[test]
    fn a_trial_of_too_few_units_decides_nothing_until_it_is_as_long_as_it_may_be() {
        let goal = Goal { longest_s: 10.0, ..goal(0.3, 0.9, 0.001, 0.5) };
        let result = |pps: f64, seconds: f64, failed: u64| {
            let sent = (pps * seconds).round() as u64;
            TrialResult { pps, seconds, counted: Counted { sent, failed, forwarded_pps: pps } }
        };
        let of = |trials: &[TrialResult]| Evidence::of(trials, &goal);
        // 486 frames, none lost.
        let few = of(&[result(1620.0, 0.3, 0); 3]);
        assert_eq!((few.bound(&goal), few.unsure, few.low), (Bound::Undecided, true, 0));
        // One in 1000 of 20,000/s for as long as it takes to count 50 of them; such a trial counts as one, not as eight.
        let long = result(20_000.0, 2.5, 50);
        assert_eq!(of(&[long]).bound(&goal), Bound::Undecided);
        assert_eq!(of(&[long; 2]).bound(&goal), Bound::Lower);
        // One in 700 of 1000/s can never be told from one in 1000: the goal is not met.
        let longest = result(1000.0, 10.0, 14);
        assert_eq!((longest.judged(&goal), of(&[longest; 2]).bound(&goal)), (Judged::Beyond, Bound::Upper));
        // None at all is lost: 4603 units say so.
        assert_eq!(of(&[result(1000.0, 4.7, 0); 2]).bound(&goal), Bound::Lower);
    }

    #[test]
    fn what_comes_through_is_what_the_worst_of_the_needed_trials_says() {
        let goal = goal(1.0, 3.0, 0.005, 0.5);
        let made = trials(&[(1, 1.0, 0.0), (1, 1.0, 0.001), (1, 1.0, 0.1)]);
        assert_eq!(forwarded(&made, &goal), Some([0.9e6, 0.999e6, 1e6]));
        // A single one says nothing for sure.
        assert_eq!(forwarded(&made[..1], &goal), Some([1e6, 0.0, 1e6]));
        assert_eq!(forwarded(&[], &goal), None);
    }
}
