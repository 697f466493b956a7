//! Hands each step to its method, and what it found to the point.

use std::{sync::atomic::AtomicBool, time::Duration};

use model::bench::{FrameSpec, Goal, Point, Verdict};

use super::{Request, Test, plan::What};
use crate::{
    BenchError, Patience, Tester,
    methods::{self, Answer, Bench},
    search::{Counted, Limits, NAMES, Preset, Search, Step},
};

/// Seconds that a trial takes beside its sending: loading, attaching, reading.
const SET_UP_S: f64 = 0.12;
/// A tester and a box for the estimate; their ratio matters alone.
const TYPICAL_CEILING_PPS: f64 = 5e6;
const TYPICAL_BOX_PPS: f64 = 7e5;
const CEILING_TRIALS: f64 = 6.0;
const BURST_TRIALS: f64 = 6.0;

/// Something that brings the box to its knees for a moment, for the test of resets.
pub struct ResetWay {
    /// A description, such as `link of the second port down and up`.
    pub what: String,
    pub act: Box<dyn Fn() -> Result<(), BenchError> + Sync>,
}

#[derive(Debug, Clone, PartialEq)]
pub struct Settings {
    /// The preset, overrides included.
    pub preset: Preset,
    /// Name of the preset, or `custom` when something was overridden.
    pub name: String,
    /// True if the box is watched in each trial.
    pub observe: bool,
    /// True if both ends of the tester's ceiling can be measured without a box: not where the box is outside.
    pub wire: bool,
    /// Ways to reset the box that are known beforehand, for the estimate.
    pub reset_ways: u32,
}

impl Settings {
    /// The preset that was asked for, with what was overridden.
    ///
    /// # Errors
    /// [`BenchError::Setting`] for a preset that there is not, or an override that makes no sense with it.
    pub fn of(request: &Request) -> Result<Self, BenchError> {
        let mut preset = Preset::named(&request.preset).ok_or_else(|| {
            BenchError::Setting(format!("there is no preset `{}`; there are {}", request.preset, NAMES.join(", ")))
        })?;
        if let Some(loss_ratio) = request.loss_ratio {
            // What the user asks for is the one goal.
            preset.goals.truncate(1);
            for goal in &mut preset.goals {
                goal.loss_ratio = loss_ratio;
                goal.name =
                    if loss_ratio == 0.0 { "no loss".into() } else { format!("{} %", rounded(100.0 * loss_ratio)) };
                goal.width = goal.width.max(loss_ratio);
            }
            preset.latency.loss_ratio = preset.latency.loss_ratio.max(loss_ratio);
        }
        for goal in &mut preset.goals {
            override_trials(goal, request.trial_s, request.repeats);
        }
        if let Some(s) = request.trial_s {
            let trial = Duration::from_secs_f64(s);
            preset.loss_curve.trial = trial;
            preset.ceiling.trial = preset.ceiling.trial.min(trial);
        }
        let changed = request.loss_ratio.is_some() || request.trial_s.is_some() || request.repeats.is_some();
        let name = if changed { "custom".to_owned() } else { request.preset.clone() };
        let wire = !matches!(request.boxes, super::Boxes::Ports(..));
        Ok(Self { preset, name, observe: true, wire, reset_ways: if wire { 2 } else { 1 } })
    }

    /// The tester with what the preset says of its trials.
    pub(crate) fn bench<'a>(
        &self,
        tester: &'a mut dyn Tester,
        frame: FrameSpec,
        (stop, patience): (&'a AtomicBool, &'a Patience),
    ) -> Bench<'a> {
        let Preset { drain, void_repeats, .. } = self.preset;
        Bench { tester, frame, drain, observe: self.observe, void_repeats, stop, patience }
    }
}

/// Without the noise of binary fractions.
fn rounded(value: f64) -> f64 {
    (value * 1e6).round() / 1e6
}

fn override_trials(goal: &mut Goal, trial_s: Option<f64>, repeats: Option<u32>) {
    let before = (goal.sum_s / goal.trial_s).round().max(1.0);
    if let Some(s) = trial_s {
        goal.trial_s = s;
        goal.initial_s = goal.initial_s.min(s);
        goal.longest_s = goal.longest_s.max(s);
    }
    if trial_s.is_some() || repeats.is_some() {
        goal.sum_s = goal.trial_s * repeats.map_or(before, f64::from);
    }
}

/// Seconds that a step is expected to take.
pub(crate) fn seconds(what: What, settings: &Settings) -> f64 {
    let p = &settings.preset;
    let more = SET_UP_S + (p.drain.quiet + p.settle).as_secs_f64();
    let trials = |n: f64, each: Duration| n * (each.as_secs_f64() + more);
    match what {
        // Of an outside box the sender's ceiling alone is known, by one trial.
        What::Ceiling => trials(if settings.wire { 1.0 + CEILING_TRIALS } else { 1.0 }, p.ceiling.trial),
        What::Test(Test::Throughput) => {
            let (seconds, count) = search(&p.goals);
            seconds + f64::from(count) * more
        }
        What::Test(Test::Loss) => trials((1.0 / p.loss_curve.step).ceil(), p.loss_curve.trial),
        What::Test(Test::Bursts) => {
            // On the way the search halves: the mean burst takes half of the longest.
            f64::from(p.back_to_back.repeats) * trials(BURST_TRIALS, p.back_to_back.longest / 2)
        }
        What::Test(Test::Latency) => trials(f64::from(p.latency.series) * p.latency.loads.len() as f64, p.latency.load),
        What::Test(Test::Jitter) => trials(f64::from(p.jitter.readings), p.jitter.every),
        What::Test(Test::Recovery) => trials(f64::from(p.recovery.repeats), p.recovery.overloaded + p.recovery.watched),
        What::Test(Test::Reset) => trials(f64::from(p.reset.repeats * settings.reset_ways), p.reset.trial),
    }
}

/// A search needs so many times the trials that a steady box asks for.
const TRIALS_FACTOR: f64 = 1.5;

/// Seconds of sending and trials of a search on a box in the middle of the tester's range.
fn search(goals: &[Goal]) -> (f64, u32) {
    let mut search =
        Search::new(goals.to_vec(), Limits { min_pps: 1e-4 * TYPICAL_CEILING_PPS, max_pps: TYPICAL_CEILING_PPS });
    let (mut seconds, mut trials) = (0.0, 0);
    while let Step::Trial { pps, duration, .. } = search.next() {
        seconds += duration.as_secs_f64();
        trials += 1;
        let loss_ratio = (1.0 - TYPICAL_BOX_PPS / pps).max(0.0);
        search.record(pps, duration, Counted::at(pps, duration, loss_ratio));
    }
    (TRIALS_FACTOR * seconds, (TRIALS_FACTOR * f64::from(trials)).ceil() as u32)
}

/// Reason for the early end of a step.
#[derive(Clone, Copy)]
pub(super) struct Control<'a> {
    pub(super) stop: &'a AtomicBool,
    pub(super) patience: &'a Patience,
}

/// Measures one step into its point. What could not be measured is message in words.
pub(super) fn step(
    what: What,
    tester: &mut dyn Tester,
    settings: &Settings,
    point: &mut Point,
    resets: &[ResetWay],
    Control { stop, patience }: Control<'_>,
) -> Result<Vec<String>, BenchError> {
    let preset = &settings.preset;
    let mut bench = settings.bench(tester, point.frame.clone(), (stop, patience));
    let mut unmeasured = Vec::new();
    let test = match what {
        What::Ceiling => {
            let loss_ratio = preset.goals.first().map_or(0.0, |g| g.loss_ratio);
            let answer = match settings.wire {
                true => methods::ceiling(&mut bench, &preset.ceiling, loss_ratio)?,
                false => methods::sender_ceiling(&mut bench, &preset.ceiling)?,
            };
            point.ceiling_pps = take(answer, &mut unmeasured);
            return Ok(unmeasured);
        }
        What::Test(test) => test,
    };
    let Some(ceiling_pps) = point.ceiling_pps else {
        return Ok(vec!["not measured: the tester has no ceiling of its own with these frames".into()]);
    };
    if test == Test::Throughput {
        point.throughput = Some(methods::throughput(&mut bench, &preset.goals, ceiling_pps)?);
        return Ok(unmeasured);
    }
    let throughput = point.throughput.as_ref();
    if throughput.is_some_and(|t| t.verdict == Verdict::Nothing) && test != Test::Loss {
        return Ok(vec!["not measured: nothing comes through the box".into()]);
    }
    let pps = throughput.and_then(|t| t.pps(0));
    if test == Test::Loss {
        point.loss_curve = methods::loss_curve(&mut bench, &preset.loss_curve, ceiling_pps, pps)?;
        return Ok(unmeasured);
    }
    let Some(pps) = pps else {
        return Ok(vec!["not measured: the box has no throughput to begin from".into()]);
    };
    match test {
        Test::Throughput | Test::Loss => {}
        Test::Bursts => {
            let answer = methods::back_to_back(&mut bench, &preset.back_to_back, ceiling_pps, Some(pps))?;
            point.back_to_back = take(answer, &mut unmeasured);
        }
        Test::Latency => point.latency = methods::latency(&mut bench, &preset.latency, Some(pps))?,
        Test::Jitter => point.jitter = take(methods::jitter(&mut bench, &preset.jitter, pps)?, &mut unmeasured),
        Test::Recovery => {
            let answer = methods::recovery(&mut bench, &preset.recovery, pps, Some(ceiling_pps))?;
            point.recovery = take(answer, &mut unmeasured);
        }
        Test::Reset => {
            point.resets.clear();
            for way in resets {
                let answer = methods::reset(&mut bench, &preset.reset, pps, &way.what, &*way.act)?;
                point.resets.extend(take(answer, &mut unmeasured));
            }
        }
    }
    Ok(unmeasured)
}

fn take<T>(answer: Answer<T>, unmeasured: &mut Vec<String>) -> Option<T> {
    match answer {
        Answer::Measured(it) => Some(it),
        Answer::Not { reason } => {
            unmeasured.push(reason);
            None
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn request() -> Request {
        Request::simulated(&["router"], &[Test::Throughput])
    }

    #[test]
    fn overrides_make_a_goal_of_their_own() {
        let plain = Settings::of(&request()).unwrap();
        assert_eq!((plain.name.as_str(), &plain.preset), ("quick", &Preset::named("quick").unwrap()));
        let custom =
            Request { loss_ratio: Some(0.0), trial_s: Some(0.2), repeats: Some(5), preset: "mlr".into(), ..request() };
        let settings = Settings::of(&custom).unwrap();
        let [goal] = &settings.preset.goals[..] else { panic!("{:?}", settings.preset.goals) };
        assert_eq!((settings.name.as_str(), goal.name.as_str(), goal.loss_ratio), ("custom", "no loss", 0.0));
        assert!((goal.sum_s - 1.0).abs() < 1e-9 && goal.initial_s <= goal.trial_s && goal.trial_s == 0.2);
        let message = Settings::of(&Request { preset: "fast".into(), ..request() }).unwrap_err().to_string();
        assert!(message.contains("`fast`") && message.contains("rfc2544"), "{message}");
    }

    #[test]
    fn stricter_presets_take_longer() {
        let of = |preset: &str, test| {
            let settings = Settings::of(&Request { preset: preset.into(), ..request() }).unwrap();
            seconds(What::Test(test), &settings)
        };
        for test in Test::ALL {
            assert!(of("quick", test) < of("study", test), "{test}");
        }
    }
}
