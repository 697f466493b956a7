//! Carries a run out, step by step; everything is kept after every trial.

use model::{
    CpuSet,
    bench::{Mode, Point, Status, Trial},
};
use rig::experiment::{self, Control, End, Experiment, Facts, Planned};

use super::{
    conclusion,
    file::{Begun, Keep, Saved},
    measure::{self, ResetWay, Settings},
    plan::{self, Step, StepId, What},
    resume::ResumedTester,
};
use crate::{BenchError, Patience, Tester, dut::Identity};

/// A box that stands, with a tester at its ports.
pub struct StandingBox {
    pub tester: Box<dyn Tester>,
    /// The name, the description and the settings.
    pub identity: Identity,
    /// Each port in words.
    pub ports: Vec<String>,
    /// The way in which addresses were set or found.
    pub addressing: String,
    pub resets: Vec<ResetWay>,
}

/// Builds the boxes of a run, one at a time. Tests put simulated ones in their place.
pub trait Benches {
    /// Builds the box of the mode `key`. It goes when it is dropped, before the next one is built.
    fn build(&mut self, key: &str) -> Result<StandingBox, BenchError>;
}

/// The steps that `saved` asks for, with their times.
pub fn plan_of(saved: &Saved, settings: &Settings) -> Vec<Step> {
    plan::steps(&saved.request, &|what| measure::seconds(what, settings))
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
    control: &mut Control<'_>,
) -> Result<(), BenchError> {
    let (steps, machine) = (plan_of(saved, settings), saved.run.machine.clone());
    let patience = Patience::default();
    let carried = Carry { saved, settings, steps: &steps, keep, benches, standing: None, unmeasured: None, patience };
    experiment::carry_out(carried, machine, &CpuSet::new(), control)
}

struct Carry<'a> {
    saved: &'a mut Saved,
    settings: &'a Settings,
    steps: &'a [Step],
    keep: &'a mut dyn Keep,
    benches: &'a mut dyn Benches,
    /// The box that stands, and its mode.
    standing: Option<(String, StandingBox)>,
    /// The reason of the last test that could not be measured.
    unmeasured: Option<String>,
    patience: Patience,
}

impl Experiment for Carry<'_> {
    type Step = Step;
    type Found = ();
    type Error = BenchError;

    fn plan(&self) -> Vec<Planned<Step>> {
        self.steps.iter().map(|step| Planned { step: step.clone(), seconds: Some(step.seconds) }).collect()
    }

    fn name(&self, step: &Step) -> Option<String> {
        (!self.saved.done.contains(&step.id)).then(|| step.id.to_string())
    }

    /// Neighbours in the plan that share a box share its building, too.
    fn build(&mut self, step: &Step, _: &mut Control<'_>) -> Result<(), BenchError> {
        let key = &step.id.mode;
        if self.standing.as_ref().is_none_or(|(mode, _)| mode != key) {
            self.take_away()?;
            let ready = self.benches.build(key)?;
            self.introduce(key, &ready);
            self.standing = Some((key.clone(), ready));
        }
        Ok(())
    }

    fn round(&mut self, step: &Step, control: &mut Control<'_>) -> Result<(), BenchError> {
        let (key, mut ready) = self.standing.take().ok_or(BenchError::Panicked("lab"))?;
        self.step(step, &mut ready, control)?;
        let is_last = !self.steps.iter().any(|step| step.id.mode == key && !self.saved.done.contains(&step.id));
        self.standing = Some((key, ready));
        if is_last { self.take_away() } else { Ok(()) }
    }

    fn conclude(mut self, _: Facts, end: End<BenchError>) -> Result<(), BenchError> {
        let result = end.or(BenchError::Interrupted).and_then(|()| self.take_away());
        if self.patience.is_exhausted()
            && let Some(begun) = &mut self.saved.begun
        {
            // Whoever goes on with the run has changed what made them void.
            let counted = begun.trials.iter().rposition(|t| t.invalid.is_none()).map_or(0, |last| last + 1);
            begun.trials.truncate(counted);
        }
        let (done, of) = (self.saved.done.len(), self.steps.len());
        let run = &mut self.saved.run;
        run.status = match &result {
            Ok(()) => Status::Complete,
            Err(e) => Status::Partial { reason: format!("{e}; {done} of {of} steps were done"), begun: None },
        };
        run.ended = Some(host::machine::now());
        run.conclusion = conclusion::conclusion(run);
        run.notes = conclusion::notes(run);
        run.notes.extend(self.saved.remarks.iter().cloned());
        match (result, self.keep.keep(self.saved)) {
            // Nobody can go on with what was not saved.
            (Err(BenchError::Interrupted), Err(unsaved)) => Err(unsaved),
            (result, kept) => result.and(kept),
        }
    }
}

impl Carry<'_> {
    /// Takes away the box that stands. Without any ceiling no box can be judged: the run is not gone on with, and its ceilings are measured
    /// anew when it is.
    fn take_away(&mut self) -> Result<(), BenchError> {
        let Some((mode, _)) = self.standing.take() else { return Ok(()) };
        let of_ceilings = |id: &StepId| id.what == What::Ceiling;
        let mut points = self.saved.run.modes.iter().flat_map(|m| &m.points);
        let had = self.steps.iter().any(|step| step.id.mode == mode && of_ceilings(&step.id));
        if !had || points.any(|p| p.ceiling_pps.is_some()) {
            return Ok(());
        }
        let why = self.unmeasured.take().unwrap_or_default();
        self.saved.done.retain(|id| !of_ceilings(id));
        Err(BenchError::Machine(format!(
            "no test completed: {why}; end what else runs on the CPUs, or name others with --cpus"
        )))
    }

    fn introduce(&mut self, key: &str, ready: &StandingBox) {
        let setup = &mut self.saved.run.setup;
        setup.ports.clone_from(&ready.ports);
        setup.addressing.clone_from(&ready.addressing);
        let modes = &mut self.saved.run.modes;
        if modes.iter().all(|m| m.key != key) {
            let mut points: Vec<Point> = self.saved.request.frames.iter().cloned().map(Point::new).collect();
            // The ceilings were measured with the first one.
            for (point, with) in points.iter_mut().zip(modes.first().iter().flat_map(|m| &m.points)) {
                point.ceiling_pps = with.ceiling_pps;
            }
            modes.push(Mode { key: key.to_owned(), points, ..Mode::default() });
        }
        if let Some(mode) = modes.iter_mut().find(|m| m.key == key) {
            let Identity { name, what, settings, .. } = ready.identity.clone();
            (mode.name, mode.what, mode.settings) = (name, what, settings);
        }
    }

    fn step(&mut self, step: &Step, ready: &mut StandingBox, control: &mut Control<'_>) -> Result<(), BenchError> {
        let (stop, progress) = (control.stop, &mut *control.progress);
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
            let (saved, keep) = (&mut *self.saved, &mut *self.keep);
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
                match &trial.invalid {
                    // A trial that does not count is worth a line wherever it is read.
                    Some(why) => progress.line(&format!("  {text}: void: {why}")),
                    None => progress.update(&text),
                }
                keep.keep(saved)
            };
            let mut tester = ResumedTester::new(&mut *ready.tester, before, number, &mut on_trial);
            self.patience.begin(step.seconds, tester.now(), id.what.too_slow());
            let control = measure::Control { stop, patience: &self.patience };
            let done = measure::step(id.what, &mut tester, self.settings, &mut point, &ready.resets, control);
            self.patience.end(tester.now());
            done
        };
        for reason in result? {
            progress.line(&format!("  {reason}"));
            self.saved.remarks.push(format!("{id}: {reason}"));
            self.unmeasured = Some(reason);
        }
        if let (What::Test(super::Test::Throughput), Some(found)) = (id.what, &point.throughput) {
            found.steps.iter().for_each(|line| progress.line(&format!("  {line}")));
        }
        point.trials.extend(self.saved.begun.take().map(|b| b.trials).unwrap_or_default());
        *self.point(id) = point;
        self.saved.done.push(id.clone());
        self.mark_unfinished();
        self.keep.keep(self.saved)
    }

    /// As long as it has not ended, the run says that it is partial: it may be killed at any moment.
    fn mark_unfinished(&mut self) {
        let (done, of) = (self.saved.done.len(), self.steps.len());
        let reason = format!("it has not ended: {done} of {of} steps are done");
        self.saved.run.status = Status::Partial { reason, begun: None };
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
