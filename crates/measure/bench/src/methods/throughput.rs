//! Throughput (RFC 2544, section 26.1; RFC 9971): the search asks, the tester answers.

use std::time::Duration;

use model::{
    bench::{Goal, TESTER_LIMITED, Throughput, Trial, Verdict},
    units,
};

use super::{Bench, Tried};
use crate::{
    BenchError, Load,
    patience::STRAINED_IDLE_SHARE,
    search::{Counted, Limits, SameLoss, Search, Step},
};

/// The least load that is tried, as a share of the tester's ceiling, and its bounds in units per second.
const LOAD_MIN_SHARE: f64 = 1e-4;
const LOAD_MIN_PPS: (f64, f64) = (100.0, 1000.0);
/// Below this share of turns with nothing due, the sender had no time to spare.
const SATURATED_IDLE_SHARE: f64 = 0.01;
/// A load that a saturated sender cannot offer is left behind by so much, and one that strains it.
const BELOW_VOID: f64 = 0.97;
const BELOW_STRAIN: f64 = 0.85;
/// So many loads may have no trial that can be believed; then the tester itself is what is unsteady.
const SPOILED_LOADS_MAX: u32 = 8;

/// Searches for the highest load that meets each goal, up to `ceiling_pps`, which is what the tester can do without a box.
///
/// A load that the tester cannot offer, however often it tries, lowers the ceiling of this search. A box that has never forwarded
/// anything is tried at the least load at once, and not searched any further when nothing comes through there either.
///
/// A search whose time is over says what it knows by then.
pub fn throughput(bench: &mut Bench<'_>, goals: &[Goal], ceiling_pps: f64) -> Result<Throughput, BenchError> {
    // Below a certain load no trial that is made can judge any of the goals.
    let judged_from = goals.iter().map(|g| g.least_units() / g.longest_s()).fold(f64::INFINITY, f64::min);
    let min_pps = (ceiling_pps * LOAD_MIN_SHARE).clamp(LOAD_MIN_PPS.0, LOAD_MIN_PPS.1).max(judged_from).ceil();
    let mut course = Course { goals, min_pps, max_pps: ceiling_pps, recorded: Vec::new(), steps: Vec::new() };
    let mut search = course.search();
    let mut spoiled = 0;
    let mut forwards = false;
    while let Step::Trial { pps, duration, why } = search.next() {
        if let Some(late) = bench.late(duration) {
            return Ok(course.unfinished(&search, &late));
        }
        let order = bench.order(format!("throughput, {why}"), Load::Pps(pps), duration);
        let tried = match bench.attempt(&order) {
            Err(BenchError::GivenUp(late)) if !bench.patience.is_exhausted() => {
                return Ok(course.unfinished(&search, &late));
            }
            other => other?,
        };
        match tried {
            Tried::Good(trial) => {
                course.describe(&why, pps, &trial);
                if forwards {
                    bench.require_life(&trial)?;
                } else if trial.total().received == 0 && !course.least_forwards(bench, duration)? {
                    return Ok(course.end(&search, Verdict::Nothing));
                }
                forwards = true;
                let (total, forwarded_pps) = (trial.total(), trial.received_pps);
                let counted = Counted { sent: total.sent, failed: total.failed(), forwarded_pps };
                let recorded = Recorded { pps, duration, counted };
                recorded.record(&mut search);
                course.recorded.push(recorded);
            }
            Tried::Void { trial, reason } => {
                course.steps.push(format!("{}: {why}: no trial could be believed: {reason}", units::pps(pps)));
                spoiled += 1;
                // A sender that had time to spare was disturbed by others: the same load once more. One that had little cannot do it.
                let below = if trial.pacing.idle_share < SATURATED_IDLE_SHARE { BELOW_VOID } else { BELOW_STRAIN };
                if trial.pacing.idle_share < STRAINED_IDLE_SHARE {
                    let offered = if trial.offered_pps > 0.0 { trial.offered_pps } else { pps };
                    course.max_pps = (pps.min(offered) * below).floor();
                    course.steps.push(format!("the search goes on below {}", units::pps(course.max_pps)));
                    search = course.search();
                }
                if course.max_pps <= min_pps || spoiled > SPOILED_LOADS_MAX {
                    return Ok(course.end(&search, Verdict::Void { reason }));
                }
            }
        }
    }
    let verdict = verdict(&search, ceiling_pps, course.max_pps);
    Ok(course.end(&search, verdict))
}

/// The verdict on the main goal.
fn verdict(search: &Search, ceiling_pps: f64, max_pps: f64) -> Verdict {
    let all = search.found();
    let found = all.first();
    let Some(lower) = found.and_then(|f| f.lower_pps) else {
        if let Some(SameLoss { loss_ratio, min_pps, max_pps }) = search.same_loss() {
            return Verdict::SameLoss { loss_ratio, min_pps, max_pps };
        }
        let least = search.least();
        return least.map_or(Verdict::Nothing, |(min_pps, units, judged)| Verdict::NotMet { min_pps, units, judged });
    };
    let failed_above = found.is_some_and(|f| f.upper_pps.is_some());
    if lower >= ceiling_pps * TESTER_LIMITED {
        return Verdict::TesterLimited { ceiling_pps };
    }
    // Nothing above failed: the ceiling was lowered meanwhile, and the box goes on beyond it.
    if failed_above { Verdict::Measured } else { Verdict::TesterLimited { ceiling_pps: max_pps } }
}

/// The course of a search so far.
struct Course<'a> {
    goals: &'a [Goal],
    min_pps: f64,
    max_pps: f64,
    recorded: Vec<Recorded>,
    steps: Vec<String>,
}

/// A trial that a search has recorded.
struct Recorded {
    pps: f64,
    duration: Duration,
    counted: Counted,
}

impl Recorded {
    fn record(&self, search: &mut Search) {
        search.record(self.pps, self.duration, self.counted);
    }
}

impl Course<'_> {
    /// A search that knows what was found at loads that can still be offered.
    fn search(&self) -> Search {
        let limits = Limits { min_pps: self.min_pps, max_pps: self.max_pps };
        let mut search = Search::new(self.goals.to_vec(), limits);
        self.recorded.iter().filter(|t| t.pps <= self.max_pps).for_each(|t| t.record(&mut search));
        search
    }

    /// True if anything comes through at the least load.
    fn least_forwards(&mut self, bench: &mut Bench<'_>, duration: Duration) -> Result<bool, BenchError> {
        let why = "throughput, does anything come through at all";
        let order = bench.order(why, Load::Pps(self.min_pps), duration);
        Ok(match bench.attempt(&order)? {
            Tried::Good(trial) => {
                self.describe("does anything come through at all", self.min_pps, &trial);
                trial.total().received > 0
            }
            Tried::Void { .. } => true,
        })
    }

    fn describe(&mut self, why: &str, pps: f64, trial: &Trial) {
        let total = trial.total();
        let late = match total.late {
            0 => String::new(),
            late => format!(
                ", {} more than {} after the last was sent",
                units::percent(late as f64 / total.sent.max(1) as f64),
                units::nanoseconds(trial.after.late_after_ns as f64)
            ),
        };
        self.steps.push(format!(
            "{} for {:.3} s: {why}: {} lost{late}, {} came through",
            units::pps(pps),
            trial.seconds,
            units::percent(trial.loss_ratio()),
            units::pps(trial.received_pps)
        ));
    }

    /// The time is over: what is known of the main goal by now.
    fn unfinished(self, search: &Search, late: &str) -> Throughput {
        let all = search.found();
        let pps = |p: Option<f64>| p.map(units::pps);
        let known = match all.first().map(|f| (pps(f.lower_pps), pps(f.upper_pps))) {
            Some((Some(lower), Some(upper))) => format!("the throughput is between {lower} and {upper}"),
            Some((Some(lower), None)) => format!("the throughput is at least {lower}"),
            Some((None, Some(upper))) => format!("the throughput is below {upper}"),
            _ => match self.recorded.iter().max_by(|a, b| a.pps.total_cmp(&b.pps)) {
                Some(highest) => format!(
                    "no bound is known, and {} of {} came through",
                    units::pps(highest.counted.forwarded_pps),
                    units::pps(highest.pps)
                ),
                None => "nothing is known".to_owned(),
            },
        };
        self.end(search, Verdict::Unfinished { reason: format!("{known}; {late}") })
    }

    fn end(self, search: &Search, verdict: Verdict) -> Throughput {
        Throughput { results: search.found(), verdict, steps: self.steps }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{
        Patience, Tester,
        methods::simulated::{self, SimBox},
        search::Preset,
    };

    fn measure(tester: &mut SimBox, goals: &[Goal]) -> Throughput {
        let ceiling = tester.ceiling_pps;
        tester.with(|b| throughput(b, goals, ceiling)).unwrap()
    }

    #[test]
    fn a_known_rate_is_found_within_the_width() {
        let goals = Preset::quick().goals;
        for capacity_pps in [50_000.0, 123_456.0, 400_000.0] {
            let found = measure(&mut SimBox { capacity_pps, ..SimBox::default() }, &goals);
            let lower = found.pps(0).unwrap();
            let most = capacity_pps / (1.0 - goals[0].loss_ratio) + 1.0;
            assert!(lower <= most && lower >= capacity_pps * (1.0 - goals[0].width), "{capacity_pps}: {lower}");
            assert_eq!(found.verdict, Verdict::Measured);
            assert!(found.steps.len() < 20, "{:#?}", found.steps);
        }
    }

    fn lossy(lose_one_in: u64) -> SimBox {
        SimBox { lose_one_in, ceiling_pps: 5e5, ..SimBox::default() }
    }

    #[test]
    fn one_in_a_thousand_passes_a_loss_of_a_thousandth_and_fails_none() {
        let (quick, strict) = (Preset::quick().goals, Preset::rfc2544().goals);
        for fine in [1000, 1100] {
            assert!(matches!(measure(&mut lossy(fine), &quick).verdict, Verdict::TesterLimited { .. }), "{fine}");
        }
        for (lose_one_in, goals) in [(1000, &strict), (400, &quick)] {
            let found = measure(&mut lossy(lose_one_in), goals);
            assert_eq!(found.pps(0), None);
            assert!(matches!(found.verdict, Verdict::NotMet { .. } | Verdict::SameLoss { .. }), "{found:#?}");
        }
    }

    #[test]
    fn a_box_that_loses_one_in_700_at_every_load_has_no_throughput_and_shows_it_in_five_trials() {
        for preset in [Preset::quick(), Preset::study(), Preset::mlr()] {
            let goals = vec![model::bench::Goal { loss_ratio: 0.001, ..preset.goals[0].clone() }];
            let mut tester = lossy(700);
            let found = measure(&mut tester, &goals);
            let Verdict::SameLoss { loss_ratio, min_pps, max_pps } = found.verdict else { panic!("{found:#?}") };
            assert_eq!((found.pps(0), tester.trials), (None, 5), "{}: {:#?}", preset.name, found.steps);
            assert!((loss_ratio * 700.0 - 1.0).abs() < 0.05 && max_pps / min_pps > 50.0, "{found:#?}");
        }
    }

    /// Measures with the time that `quick` plans; the verdict and the time that it took.
    fn timed(tester: &mut SimBox, goals: &[Goal], ceiling_pps: f64, planned_s: f64) -> (Throughput, f64) {
        let patience = Patience::default();
        patience.begin(planned_s, tester.now(), "a remedy");
        let mut bench = Bench { patience: &patience, ..simulated::bench(tester) };
        let found = throughput(&mut bench, goals, ceiling_pps).unwrap();
        (found, tester.now().as_secs_f64())
    }

    #[test]
    fn a_search_answers_or_says_why_not_within_three_times_its_plan() {
        let goals = Preset::quick().goals;
        let planned_s = 3.0;
        // 64 MB of least frames, which leave at 100 Mbit/s.
        let deep = SimBox { capacity_pps: 148_800.0, buffer_units: 1e6, ..SimBox::default() };
        let endless = SimBox { capacity_pps: 1e4, buffer_units: 1e9, ..SimBox::default() };
        let slow = SimBox { capacity_pps: 1500.0, ..SimBox::default() };
        let noisy = SimBox { void_trials: 6, ..SimBox::default() };
        for mut tester in [deep, endless, slow, noisy, lossy(700), lossy(900), SimBox::default()] {
            let (found, took_s) = timed(&mut tester, &goals, 1e6, planned_s);
            assert!(took_s <= 3.0 * planned_s, "{took_s} s: {found:#?}");
            if let Verdict::Unfinished { reason } = &found.verdict {
                assert!(reason.contains("stopped after 9 s, 3 times what was planned"), "{reason}");
            }
        }
        let (found, _) =
            timed(&mut SimBox { capacity_pps: 1e4, buffer_units: 1e9, ..SimBox::default() }, &goals, 1e6, planned_s);
        let Verdict::Unfinished { reason } = found.verdict else { panic!("{found:#?}") };
        assert!(reason.contains("shorten the queues of the box"), "{reason}");
    }

    #[test]
    fn ten_void_trials_in_a_row_end_the_run_with_what_to_change() {
        let goals = Preset::quick().goals;
        let mut tester = SimBox { void_trials: u32::MAX, ..SimBox::default() };
        let patience = Patience::default();
        let mut bench = Bench { patience: &patience, ..simulated::bench(&mut tester) };
        let error = throughput(&mut bench, &goals, 1e6).unwrap_err().to_string();
        assert_eq!(tester.trials, 10);
        assert!(error.contains("10 trials in a row were void: the sender was late; end what else runs"), "{error}");
    }

    #[test]
    fn a_slow_box_without_loss_is_measured_by_longer_trials() {
        let goals = Preset::quick().goals;
        for capacity_pps in [1500.0, 9000.0, 20_000.0] {
            let found = measure(&mut SimBox { capacity_pps, ceiling_pps: 1e6, ..SimBox::default() }, &goals);
            let lower = found.pps(0).unwrap();
            assert!((lower / capacity_pps - 1.0).abs() <= goals[0].width, "{capacity_pps}: {lower}");
        }
    }

    #[test]
    fn a_deep_buffer_raises_the_result_by_no_more_than_the_width() {
        let goals = Preset::quick().goals;
        // It holds all that a trial sends beyond its rate, and gives it back while it drains.
        let mut tester = SimBox { capacity_pps: 1e5, buffer_units: 1e9, ceiling_pps: 1e6, ..SimBox::default() };
        let found = measure(&mut tester, &goals);
        let lower = found.pps(0).unwrap();
        assert_eq!(found.verdict, Verdict::Measured);
        assert!((1e5 * (1.0 - goals[0].width)..=1e5 * 1.04).contains(&lower), "{lower}: {:#?}", found.steps);
        let highest = &found.steps[0];
        assert!(highest.contains(": 0.0 % lost, 89.") && highest.contains("100 kpps came through"), "{highest}");
    }

    #[test]
    fn a_long_way_is_no_buffer() {
        let goals = Preset::quick().goals;
        let mut tester = SimBox { delay_ns: 2e8, capacity_pps: 4e5, ..SimBox::default() };
        let lower = measure(&mut tester, &goals).pps(0).unwrap();
        assert!((lower / 4e5 - 1.0).abs() <= goals[0].width, "{lower}");
    }

    #[test]
    fn near_the_ceiling_it_is_the_testers() {
        let goals = Preset::quick().goals;
        let found = measure(&mut SimBox { ceiling_pps: 1e6, capacity_pps: 9.7e5, ..SimBox::default() }, &goals);
        assert_eq!(found.verdict, Verdict::TesterLimited { ceiling_pps: 1e6 });
        let found = measure(&mut SimBox { ceiling_pps: 1e6, capacity_pps: 9e5, ..SimBox::default() }, &goals);
        assert_eq!(found.verdict, Verdict::Measured);
    }

    #[test]
    fn a_ceiling_that_the_tester_does_not_reach_any_more_is_lowered() {
        let goals = Preset::quick().goals;
        let mut tester = SimBox { ceiling_pps: 8e5, capacity_pps: 9e5, ..SimBox::default() };
        let found = tester.with(|b| throughput(b, &goals, 1e6)).unwrap();
        assert!(matches!(found.verdict, Verdict::TesterLimited { ceiling_pps } if ceiling_pps < 8e5), "{found:?}");
        assert!(found.steps.iter().any(|s| s.contains("saturated")), "{:#?}", found.steps);
        let mut tester = SimBox { ceiling_pps: 8e5, capacity_pps: 4e5, ..SimBox::default() };
        let found = tester.with(|b| throughput(b, &goals, 1e6)).unwrap();
        assert_eq!(found.verdict, Verdict::Measured);
    }

    #[test]
    fn a_load_that_strains_the_sender_is_left_behind_by_more() {
        let goals = Preset::quick().goals;
        let strained = |capacity_pps| SimBox { strained_from_pps: 7e5, capacity_pps, ..SimBox::default() };
        let below = format!("the search goes on below {}", units::pps(1e6 * BELOW_STRAIN));
        // The box goes on beyond what the sender can offer in good order.
        let found = strained(9e5).with(|b| throughput(b, &goals, 1e6)).unwrap();
        let most = 1e6 * BELOW_STRAIN * BELOW_STRAIN * BELOW_STRAIN;
        assert_eq!(found.verdict, Verdict::TesterLimited { ceiling_pps: most.floor() });
        assert!(found.steps.contains(&below) && found.steps[0].contains("held up"), "{:#?}", found.steps);
        assert_eq!(found.pps(0), Some(most.floor()));
        let found = strained(4e5).with(|b| throughput(b, &goals, 1e6)).unwrap();
        assert_eq!(found.verdict, Verdict::Measured);
        assert!((found.pps(0).unwrap() / 4e5 - 1.0).abs() <= goals[0].width, "{found:?}");
    }

    #[test]
    fn a_trial_that_cannot_be_believed_is_made_again() {
        let goals = Preset::quick().goals;
        let once = measure(&mut SimBox { void_trials: 2, ..SimBox::default() }, &goals);
        assert_eq!(once.results, measure(&mut SimBox::default(), &goals).results);
        let never = measure(&mut SimBox { void_trials: 1000, ..SimBox::default() }, &goals);
        assert_eq!(never.verdict, Verdict::Void { reason: "the sender was late".into() });
    }

    #[test]
    fn a_box_that_forwards_nothing_is_not_searched_for_long() {
        let mut cut = SimBox { capacity_pps: 0.0, ..SimBox::default() };
        let found = measure(&mut cut, &Preset::quick().goals);
        assert_eq!((found.verdict, cut.trials, found.steps.len()), (Verdict::Nothing, 2, 2));
    }

    #[test]
    fn a_box_that_loops_is_named() {
        let mut tester = SimBox { loops: true, ..SimBox::default() };
        let error = tester.with(|b| throughput(b, &Preset::quick().goals, 1e6)).unwrap_err().to_string();
        assert!(error.contains("loops") && error.contains("came back"), "{error}");
    }

    #[test]
    fn a_box_that_dies_on_the_way_is_an_error() {
        let mut tester = SimBox { dead_from: 4, ..SimBox::default() };
        let error = tester.with(|b| throughput(b, &Preset::quick().goals, 1e7)).unwrap_err().to_string();
        assert!(error.contains("forwarded before") && error.contains("died"), "{error}");
        assert_eq!(tester.trials, 5);
    }
}
