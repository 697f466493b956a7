//! The search: several goals, shared trials, and no more of them than a noisy box asks for (RFC 9971).
//!
//! 1. The highest load shows what comes through at most. All other loads lie on a grid around that, in steps of the goal's width.
//! 2. What all trials together say about where the throughput lies (`belief`) chooses the gap of the grid to look at: likely, and with the
//!    fewest trials missing until both of its ends are bounds. The end that is known less gets the next trial.
//! 3. The search ends when two neighbours are bounds by the goal's own rule.
//!
//! A plain binary search must believe each load before it goes on; here only the two that become the result have to be believed, and a trial
//! that went wrong by accident is outvoted by those at other loads.

use std::time::Duration;

use model::bench::{Goal, GoalResult, Judged};

use super::{
    belief::Grid,
    bounds::{self, Loads, Seen},
    classify::{Bound, Counted, TrialResult, forwarded},
    flat::{self, Flat, SameLoss},
    reason::Reason,
};

/// Between which loads is searched, in units per second over all directions together.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Limits {
    /// The least load: at least one unit in the shortest trial.
    pub min_pps: f64,
    /// The highest load: what the tester can make.
    pub max_pps: f64,
}

/// The next step of a search.
#[derive(Debug, Clone, PartialEq)]
pub enum Step {
    Trial {
        /// Units per second, a whole number.
        pps: f64,
        duration: Duration,
        why: String,
    },
    /// Nothing: every goal has its answer.
    Done,
}

/// A search for the throughput. It has no state but what it was result.
#[derive(Debug, Clone)]
pub struct Search {
    goals: Vec<Goal>,
    min: u64,
    max: u64,
    loads: Loads,
    /// Effort that was spent on each goal.
    spent: Vec<Spent>,
}

/// The time spent on a goal.
#[derive(Debug, Clone, Copy, Default)]
struct Spent {
    trials: u32,
    seconds: f64,
    /// Seconds as the duration sum counts them.
    weight: f64,
}

/// A trial to be made, and for which goal.
struct Plan {
    goal: usize,
    pps: u64,
    seconds: f64,
    why: Reason,
}

impl Search {
    /// A search for `goals` (the first one first) that has been told nothing yet.
    pub fn new(goals: Vec<Goal>, limits: Limits) -> Self {
        let max = (limits.max_pps.round() as u64).max(1);
        let min = (limits.min_pps.round() as u64).clamp(1, max);
        let spent = vec![Spent::default(); goals.len()];
        Self { goals, min, max, loads: Loads::new(), spent }
    }

    /// The next trial. The same until something is result: a trial that cannot be believed is simply made again.
    pub fn next(&self) -> Step {
        match self.plan() {
            None => Step::Done,
            Some(plan) => {
                let name = (self.goals.len() > 1).then(|| self.goals[plan.goal].name.as_str());
                Step::Trial {
                    pps: plan.pps as f64,
                    duration: Duration::from_secs_f64(plan.seconds),
                    why: plan.why.text(name),
                }
            }
        }
    }

    /// Records a trial: `pps` and `duration` as [`Step::Trial`] had them (`pps` is the load that was wanted), and its counts. Trials of
    /// an interrupted run are told again in their order.
    pub fn record(&mut self, pps: f64, duration: Duration, counted: Counted) {
        let result = TrialResult { pps, seconds: duration.as_secs_f64(), counted };
        if let Some(plan) = self.plan() {
            let weight = result.weight(&self.goals[plan.goal]);
            let spent = &mut self.spent[plan.goal];
            *spent = Spent {
                trials: spent.trials + 1,
                seconds: spent.seconds + result.seconds,
                weight: spent.weight + weight,
            };
        }
        self.loads.entry(pps.round() as u64).or_default().push(result);
    }

    /// The loss of the first goal's trials if it is the same at every load, and more than the goal allows.
    pub fn same_loss(&self) -> Option<SameLoss> {
        match flat::flat(&self.loads, self.goals.first()?, self.min)? {
            Flat::Same(same) => Some(same),
            Flat::Look { .. } => None,
        }
    }

    /// The least load that was tried: units per second, units of the longest trial there, and whether so many can judge the first goal.
    pub fn least(&self) -> Option<(f64, u64, bool)> {
        let goal = self.goals.first()?;
        let (&pps, trials) = self.loads.first_key_value()?;
        let units = trials.iter().map(|t| t.counted.sent).max()?;
        let judged = |t: &TrialResult| goal.judge(t.counted.sent, t.counted.failed) == Judged::Beyond;
        Some((pps as f64, units, trials.iter().any(judged)))
    }

    /// The state goal by goal; the result once the next step is [`Step::Done`].
    pub fn found(&self) -> Vec<GoalResult> {
        let one = |(goal, spent): (&Goal, &Spent)| {
            let seen = bounds::seen(&self.loads, goal);
            let (lower, upper) = bounds::relevant(&seen);
            GoalResult {
                goal: goal.clone(),
                lower_pps: lower.map(|s| s.pps as f64),
                upper_pps: upper.map(|s| s.pps as f64),
                forwarded_pps: lower.and_then(|s| forwarded(s.trials, goal)),
                trials: spent.trials,
                seconds: spent.seconds,
            }
        };
        self.goals.iter().zip(&self.spent).map(one).collect()
    }

    /// The first goal that has no answer yet, and the trial that it needs.
    fn plan(&self) -> Option<Plan> {
        self.goals.iter().enumerate().find_map(|(i, goal)| {
            if self.spent[i].weight >= DURATION_SUMS_MAX * goal.sum_s {
                return None;
            }
            let (pps, seconds, why) = self.plan_for(goal)?;
            Some(Plan { goal: i, pps, seconds, why })
        })
    }

    fn plan_for(&self, goal: &Goal) -> Option<(u64, f64, Reason)> {
        let Some(highest) = self.loads.get(&self.max) else {
            let seconds = goal.first_s(self.max as f64, goal.initial_s);
            return Some((self.max, seconds, Reason::Highest));
        };
        let seen = bounds::seen(&self.loads, goal);
        if let Some(plan) = contradicted(&seen, goal) {
            return Some(plan);
        }
        match flat::flat(&self.loads, goal, self.min) {
            Some(Flat::Same(_)) => return None,
            Some(Flat::Look { pps, loss_ratio }) => {
                return Some((pps, goal.first_s(pps as f64, goal.trial_s), Reason::Same { loss_ratio }));
            }
            None => {}
        }
        let came = highest.iter().map(|t| t.counted.forwarded_pps).sum::<f64>() / highest.len() as f64;
        let width = self.goals.iter().map(|g| g.width).fold(1.0, f64::min);
        let grid = Grid::new(self.min, self.max, highest[0].counted.forwarded_pps, width);
        let points = grid.points();
        let (lower, upper) = bounds::relevant(&seen);
        if let (Some(lower), Some(upper)) = (lower, upper)
            && bounds::narrow(lower.pps, upper.pps, goal)
        {
            return None;
        }
        // Gap i lies below point i.
        let from = lower.map_or(0, |s| points.partition_point(|&p| p <= s.pps));
        let to = upper.map_or(points.len(), |s| points.partition_point(|&p| p < s.pps));
        if from >= to {
            return None;
        }
        let guess = came.max(self.min as f64) / (1.0 - goal.loss_ratio);
        let [least, median, most] = grid.likely_gaps(&seen, guess, (from, to));
        let known = |i: usize| seen.iter().find(|s| s.pps == points[i]);
        let ends = |gap: usize| [gap.checked_sub(1), (gap < points.len()).then_some(gap)];
        // In whole milliseconds: sums of seconds that differ by rounding are equal.
        let missing = |i: usize| known(i).map_or(goal.sum_s / 2.0, |s| s.evidence.missing(goal));
        let cost = |gap: usize| (ends(gap).into_iter().flatten().map(missing).sum::<f64>() * 1000.0).round() as u64;
        let gap = (least..=most).min_by_key(|&gap| (cost(gap), gap.abs_diff(median)))?;
        let open = ends(gap).into_iter().flatten().filter(|&i| known(i).is_none_or(|s| s.bound == Bound::Undecided));
        let spent = |i: usize| known(i).map_or(0.0, |s| s.trials.iter().map(|t| t.seconds).sum());
        let end = open.min_by(|&a, &b| spent(a).total_cmp(&spent(b)))?;
        let near = ends(gap).map(|i| i.map(|i| points[i]));
        Some(match known(end) {
            None => {
                let came = (seen.len() == 1).then_some(came);
                let seconds = goal.first_s(points[end] as f64, goal.initial_s);
                (points[end], seconds, Reason::Probe { near, came })
            }
            Some(s) => {
                let number = s.trials.len() + 1;
                let (load, seconds) = (s.pps, again_s(s, goal));
                let too_few = s.evidence.unsure && s.evidence.high + s.evidence.low == 0;
                let why = if too_few {
                    Reason::TooFew { load, number, sent: s.trials.iter().map(|t| t.counted.sent).max().unwrap_or(0) }
                } else {
                    Reason::Again { load, upper: s.upper, number }
                };
                (load, seconds, why)
            }
        })
    }
}

/// The length of a further trial at a load: where one had too few units to judge the goal, as long as it takes.
fn again_s(seen: &Seen<'_>, goal: &Goal) -> f64 {
    let pps = seen.pps as f64;
    if seen.evidence.unsure { goal.judging_s(pps) } else { goal.first_s(pps, goal.trial_s) }
}

/// A goal is given up after so many times its duration sum: on a box that answers at random no bounds are ever close. What is known by then is
/// the answer, its bounds further apart than the width (RFC 9971: an irregular result).
const DURATION_SUMS_MAX: f64 = 60.0;

/// An upper bound although a higher load is a lower one: by accident, perhaps. Once more so many trials as the goal asks for are made; then the
/// cautious answer stands (RFC 9971: the lowest upper bound counts).
fn contradicted(seen: &[Seen<'_>], goal: &Goal) -> Option<(u64, f64, Reason)> {
    let upper = seen.iter().find(|s| s.bound == Bound::Upper)?;
    let fine = seen.iter().rev().find(|s| s.pps > upper.pps && s.bound == Bound::Lower)?;
    (goal.exceed_ratio > 0.0 && upper.evidence.full() < 2.0 * goal.sum_s).then_some((
        upper.pps,
        again_s(upper, goal),
        Reason::Contradicted { load: upper.pps, fine: fine.pps, number: upper.trials.len() + 1 },
    ))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::search::Preset;

    const LIMITS: Limits = Limits { min_pps: 1000.0, max_pps: 8e6 };

    /// Searches on a box that answers with a loss ratio; all trials.
    fn search(goals: Vec<Goal>, limits: Limits, loss: impl FnMut(f64) -> f64) -> (Vec<GoalResult>, Vec<(f64, String)>) {
        let (search, made) = searched(goals, limits, loss);
        (search.found(), made)
    }

    fn searched(goals: Vec<Goal>, limits: Limits, mut loss: impl FnMut(f64) -> f64) -> (Search, Vec<(f64, String)>) {
        let mut search = Search::new(goals, limits);
        let mut made = Vec::new();
        while let Step::Trial { pps, duration, why } = search.next() {
            let ratio = loss(pps);
            search.record(pps, duration, Counted::at(pps, duration, ratio));
            made.push((pps, why));
            assert!(made.len() < 2000, "it does not end");
        }
        (search, made)
    }

    /// A box that lets so many units per second through.
    fn hard(limit: f64) -> impl FnMut(f64) -> f64 {
        move |pps| (1.0 - limit / pps).max(0.0)
    }

    #[test]
    fn a_hard_limit_is_found_within_the_width_by_five_trials() {
        for limit in [50_000.0, 123_456.0, 400_000.0] {
            let (found, made) = search(Preset::quick().goals, LIMITS, hard(limit));
            let (lower, upper) = (found[0].lower_pps.unwrap(), found[0].upper_pps.unwrap());
            assert!(lower <= limit * 1.001 && limit <= upper && upper - lower <= 0.03 * upper + 1.0, "{lower} {upper}");
            assert_eq!((made.len(), found[0].trials), (5, 5), "{made:?}");
        }
    }

    #[test]
    fn every_thousandth_may_be_lost_and_every_four_hundredth_may_not() {
        let preset = Preset::quick().goals;
        let no_loss = Preset::rfc2544().goals;
        let (found, _) = search(preset.clone(), LIMITS, |_| 0.001);
        assert_eq!((found[0].lower_pps, found[0].upper_pps), (Some(8e6), None));
        let (found, made) = search(no_loss, LIMITS, |_| 0.001);
        assert_eq!(found[0].lower_pps, None);
        assert!(made.len() < 20, "{made:?}");
        let (found, _) = search(preset, LIMITS, |_| 0.0025);
        assert_eq!(found[0].lower_pps, None);
    }

    #[test]
    fn a_box_that_forwards_nothing_is_soon_known() {
        let (found, made) = search(Preset::quick().goals, LIMITS, |_| 1.0);
        assert_eq!((found[0].lower_pps, found[0].forwarded_pps), (None, None));
        assert!(made.len() < 8, "{made:?}");
    }

    #[test]
    fn several_goals_share_trials() {
        let goals = Preset::mlr().goals;
        let (found, made) = search(goals.clone(), LIMITS, hard(300_000.0));
        let alone: usize = goals.into_iter().map(|g| search(vec![g], LIMITS, hard(300_000.0)).1.len()).sum();
        assert!(made.len() < alone, "{} and {alone}", made.len());
        assert_eq!(found.iter().map(|f| f.trials as usize).sum::<usize>(), made.len());
        assert!(made.iter().all(|(_, why)| why.starts_with("[no loss] ") || why.starts_with("[0.5 %] ")), "{made:?}");
        assert!(found[0].lower_pps <= found[1].lower_pps);
    }

    #[test]
    fn a_loss_that_is_the_same_at_every_load_is_known_by_five_trials() {
        for preset in [Preset::quick(), Preset::study(), Preset::rfc2544()] {
            for lose_one_in in [700.0, 100.0, 2.0] {
                let (found, made) = search(preset.goals.clone(), LIMITS, |_| 1.0 / lose_one_in);
                assert_eq!((made.len(), found[0].lower_pps), (5, None), "{}: {made:?}", preset.name);
            }
        }
        // A bend below the loads that look alike is found all the same.
        let bend = |pps: f64| if pps > 60_000.0 { 1.0 / 700.0 } else { 0.0 };
        let (found, _) = search(Preset::quick().goals, LIMITS, bend);
        assert!(found[0].lower_pps.is_some_and(|l| (l / 60_000.0 - 1.0).abs() < 0.04), "{found:?}");
    }

    #[test]
    fn a_search_is_resumed_by_repeating_it() {
        let mut whole = Search::new(Preset::quick().goals, LIMITS);
        let mut result = Vec::new();
        while let Step::Trial { pps, duration, .. } = whole.next() {
            let mut again = Search::new(Preset::quick().goals, LIMITS);
            result.iter().for_each(|&(pps, duration, counted)| again.record(pps, duration, counted));
            assert_eq!(again.next(), whole.next());
            let loss = hard(77_777.0)(pps);
            let counted = Counted::at(pps, duration, loss);
            whole.record(pps, duration, counted);
            result.push((pps, duration, counted));
        }
        assert_eq!(result.len(), 5);
    }

    proptest::proptest! {
        #![proptest_config(proptest::test_runner::Config::with_cases(16))]
        /// Whatever a box does, the search ends, with bounds that are what they claim to be or with the goal given up.
        #[test]
        fn every_search_ends(
            losses in proptest::collection::vec(proptest::prop_oneof![proptest::strategy::Just(0.0), 0.0..1.0f64], 1..50),
            max in 1.0..1e8f64, quick in proptest::bool::ANY,
        ) {
            let preset = if quick { Preset::quick() } else { Preset::rfc2544() };
            let goals: Vec<Goal> = preset.goals.into_iter().map(|g| Goal { width: 0.05, ..g }).collect();
            let mut turn = losses.iter().copied().cycle();
            let (search, _) = searched(goals, Limits { min_pps: 100.0, max_pps: max }, |_| turn.next().unwrap());
            let (found, same) = (search.found(), search.same_loss().is_some());
            let found = &found[0];
            let given_up = same || found.seconds >= DURATION_SUMS_MAX * found.goal.sum_s;
            match (found.lower_pps, found.upper_pps) {
                (Some(lower), Some(upper)) => {
                    proptest::prop_assert!(lower < upper && (given_up || upper - lower <= 0.05 * upper + 1.0));
                }
                (Some(lower), None) => proptest::prop_assert!(given_up || lower == max.round()),
                (None, Some(upper)) => proptest::prop_assert!(given_up || upper == 100f64.min(max.round())),
                (None, None) => proptest::prop_assert!(given_up),
            }
        }
    }
}
