//! Carries a run out, step by step; everything is kept after every trial.

use std::{
    sync::atomic::{AtomicBool, Ordering},
    time::Instant,
};

use model::bench::{Mode, Point, Status, Trial};
use rig::progress::{self, Progress};

use super::{
    conclusion,
    file::{Begun, Keep, Saved},
    measure::{self, ResetWay, Settings},
    plan::{self, Step, StepId, What},
    resume::ResumedTester,
};
use crate::{BenchError, Patience, Tester, dut::Identity};

/// A box that stands, with a tester at its ports.
pub struct StandingBox<'a> {
    /// Makes the trials.
    pub tester: &'a mut dyn Tester,
    /// The name, the description and the settings.
    pub identity: Identity,
    /// Each port in words.
    pub ports: Vec<String>,
    /// The way in which addresses were set or found.
    pub addressing: String,
    /// The ways to reset it.
    pub resets: Vec<ResetWay<'a>>,
}

/// The work that a box is built for.
pub type Work<'a> = &'a mut dyn FnMut(&mut StandingBox<'_>) -> Result<(), BenchError>;

/// Builds the boxes of a run, one at a time. Tests put simulated ones in their place.
pub trait Benches {
    /// Builds the box of the mode `key`, lets `work` measure it, and takes it away again.
    ///
    /// # Errors
    /// The box cannot be built, or `work` fails.
    fn with(&mut self, key: &str, work: Work<'_>) -> Result<(), BenchError>;
}

/// The steps that `saved` asks for, with their times.
pub fn plan_of(saved: &Saved, settings: &Settings) -> Vec<Step> {
    plan::steps(&saved.asked, &|what| measure::seconds(what, settings))
}

/// Does all steps of `saved` that are not done yet. However it ends, what was measured is kept, and the run is marked.
///
/// # Errors
/// Going on is useless; the run is partial then, and says why.
pub fn carry_out(
    saved: &mut Saved,
    settings: &Settings,
    benches: &mut dyn Benches,
    keep: &mut dyn Keep,
    stop: &AtomicBool,
    progress: &mut dyn Progress,
) -> Result<(), BenchError> {
    let steps = plan_of(saved, settings);
    let mut carried = Carry {
        saved,
        settings,
        steps: &steps,
        keep,
        stop,
        progress,
        begun: Instant::now(),
        planned_s: 0.0,
        unmeasured: None,
        patience: Patience::default(),
    };
    let result = carried.all(benches);
    if carried.patience.is_exhausted()
        && let Some(begun) = &mut carried.saved.begun
    {
        // Whoever goes on with the run has changed what made them void.
        let counted = begun.trials.iter().rposition(|t| t.void.is_none()).map_or(0, |last| last + 1);
        begun.trials.truncate(counted);
    }
    let done = carried.saved.done.len();
    let run = &mut saved.run;
    run.status = match &result {
        Ok(()) => Status::Complete,
        Err(e) => Status::Partial { reason: format!("{e}; {done} of {} steps were done", steps.len()), begun: None },
    };
    run.ended = Some(host::machine::now());
    run.conclusion = conclusion::conclusion(run);
    run.notes = conclusion::notes(run);
    run.notes.extend(saved.remarks.iter().cloned());
    let kept = keep.keep(saved);
    result.and(kept)
}

struct Carry<'a> {
    saved: &'a mut Saved,
    settings: &'a Settings,
    steps: &'a [Step],
    keep: &'a mut dyn Keep,
    stop: &'a AtomicBool,
    progress: &'a mut dyn Progress,
    begun: Instant,
    /// Seconds that were estimated for the steps which this process has done.
    planned_s: f64,
    /// The reason of the last test that could not be measured.
    unmeasured: Option<String>,
    patience: Patience,
}

impl Carry<'_> {
    fn all(&mut self, benches: &mut dyn Benches) -> Result<(), BenchError> {
        let steps = self.steps;
        let pending = |saved: &Saved, step: &Step| !saved.done.contains(&step.id);
        // Neighbours in the plan that share a box share its building, too.
        for group in steps.chunk_by(|a, b| a.id.mode == b.id.mode) {
            if !group.iter().any(|s| pending(self.saved, s)) {
                continue;
            }
            if self.stop.load(Ordering::Relaxed) {
                return Err(BenchError::Interrupted);
            }
            benches.with(&group[0].id.mode, &mut |ready| {
                self.introduce(&group[0].id.mode, ready);
                for step in group {
                    if pending(self.saved, step) {
                        self.step(step, ready)?;
                    }
                }
                Ok(())
            })?;
            self.require_ceiling(group)?;
        }
        Ok(())
    }

    /// Without any ceiling no box can be judged: the run is not gone on with, and its ceilings are measured anew when it is.
    fn require_ceiling(&mut self, group: &[Step]) -> Result<(), BenchError> {
        let of_ceilings = |id: &StepId| id.what == What::Ceiling;
        let mut points = self.saved.run.modes.iter().flat_map(|m| &m.points);
        if !group.iter().any(|s| of_ceilings(&s.id)) || points.any(|p| p.ceiling_pps.is_some()) {
            return Ok(());
        }
        let why = self.unmeasured.take().unwrap_or_default();
        self.saved.done.retain(|id| !of_ceilings(id));
        Err(BenchError::Machine(format!(
            "no test completed: {why}; end what else runs on the CPUs, or name others with --cpus"
        )))
    }

    fn introduce(&mut self, key: &str, ready: &StandingBox<'_>) {
        let setup = &mut self.saved.run.setup;
        setup.ports.clone_from(&ready.ports);
        setup.addressing.clone_from(&ready.addressing);
        let modes = &mut self.saved.run.modes;
        if modes.iter().all(|m| m.key != key) {
            let mut points: Vec<Point> = self.saved.asked.frames.iter().cloned().map(Point::new).collect();
            // The ceilings were measured with the first one.
            for (point, with) in points.iter_mut().zip(modes.first().iter().flat_map(|m| &m.points)) {
                point.ceiling_pps = with.ceiling_pps;
            }
            modes.push(Mode {
                key: key.to_owned(),
                name: String::new(),
                what: String::new(),
                settings: Vec::new(),
                points,
            });
        }
        if let Some(mode) = modes.iter_mut().find(|m| m.key == key) {
            let Identity { name, what, settings, .. } = ready.identity.clone();
            (mode.name, mode.what, mode.settings) = (name, what, settings);
        }
    }

    fn step(&mut self, step: &Step, ready: &mut StandingBox<'_>) -> Result<(), BenchError> {
        if self.stop.load(Ordering::Relaxed) {
            return Err(BenchError::Interrupted);
        }
        self.progress.begin(&self.shown(step));
        let id = &step.id;
        let before = match self.saved.begun.take() {
            Some(begun) if begun.step == *id => begun.trials,
            _ => Vec::new(),
        };
        let number =
            1 + self.saved.run.modes.iter().flat_map(|m| &m.points).map(|p| p.trials.len() as u32).sum::<u32>();
        let mut point = self.point(id).clone();
        let mut recalled = before.len();
        self.saved.begun = Some(Begun { step: id.clone(), trials: Vec::new() });
        self.mark_unfinished();
        let result = {
            let (saved, keep, progress) = (&mut *self.saved, &mut *self.keep, &mut *self.progress);
            let mut on_trial = |trial: &Trial| {
                if let Some(begun) = &mut saved.begun {
                    begun.trials.push(trial.clone());
                }
                // Those of before are in the file already, and were shown.
                if recalled > 0 {
                    recalled -= 1;
                    return Ok(());
                }
                let text = conclusion::trial(trial);
                match &trial.void {
                    // A trial that does not count is worth a line wherever it is read.
                    Some(why) => progress.line(&format!("  {text}: void: {why}")),
                    None => progress.update(&text),
                }
                keep.keep(saved)
            };
            let mut tester = ResumedTester::new(ready.tester, before, number, &mut on_trial);
            self.patience.begin(step.seconds, tester.now());
            let control = measure::Control { stop: self.stop, patience: &self.patience };
            let done = measure::step(id.what, &mut tester, self.settings, &mut point, &ready.resets, control);
            self.patience.end(tester.now());
            done
        };
        for reason in result? {
            self.progress.line(&format!("  {reason}"));
            self.saved.remarks.push(format!("{id}: {reason}"));
            self.unmeasured = Some(reason);
        }
        if let (What::Test(super::Test::Throughput), Some(found)) = (id.what, &point.throughput) {
            found.steps.iter().for_each(|line| self.progress.line(&format!("  {line}")));
        }
        point.trials.extend(self.saved.begun.take().map(|b| b.trials).unwrap_or_default());
        *self.point(id) = point;
        self.saved.done.push(id.clone());
        self.planned_s += step.seconds;
        self.mark_unfinished();
        self.keep.keep(self.saved)
    }

    /// As long as it has not ended, the run says that it is partial: it may be killed at any moment.
    fn mark_unfinished(&mut self) {
        let (done, of) = (self.saved.done.len(), self.steps.len());
        let reason = format!("it has not ended: {done} of {of} steps are done");
        self.saved.run.status = Status::Partial { reason, begun: None };
    }

    /// The step as those see it who watch.
    fn shown(&self, step: &Step) -> progress::Step {
        let left: f64 = self.steps.iter().filter(|s| !self.saved.done.contains(&s.id)).map(|s| s.seconds).sum();
        // A few seconds say nothing about how well the estimate holds.
        let held = if self.planned_s < 5.0 { 1.0 } else { self.begun.elapsed().as_secs_f64() / self.planned_s };
        progress::Step {
            name: step.id.to_string(),
            number: self.saved.done.len() + 1,
            of: self.steps.len(),
            left_s: Some(left * held.clamp(0.1, 10.0)),
        }
    }

    fn point(&mut self, id: &StepId) -> &mut Point {
        let modes = &mut self.saved.run.modes;
        let mode = modes.iter().position(|m| m.key == id.mode).unwrap_or_default();
        let points = &mut modes[mode].points;
        let at = points.iter().position(|p| p.frame == id.frame).unwrap_or_else(|| {
            points.push(Point::new(id.frame.clone()));
            points.len() - 1
        });
        &mut points[at]
    }
}
