//! The driver of measurements in steps.
//!
//! An [`Experiment`] has a plan, builds what a step needs, measures it, and concludes. [`carry_out`] does the steps in their order, shows how
//! far it is, ends at the stop flag, and judges how busy the machine was.

use std::{
    sync::atomic::{AtomicBool, Ordering},
    time::Instant,
};

use host::machine;
use model::{CpuSet, run::Machine};

use crate::{
    others::Watch,
    progress::{self, Progress},
};

/// Planned seconds below which the time that was taken says nothing about the estimate.
const ESTIMATE_MIN_S: f64 = 5.0;

/// A measurement in steps.
pub trait Experiment {
    type Step;
    /// The result of all steps.
    type Found;
    /// An error that ends the experiment.
    type Error;

    /// All steps in their order, those of each round one after the other.
    fn plan(&self) -> Vec<Planned<Self::Step>>;

    /// The step in words; none: it is passed over, as it was done before or cannot be done here.
    fn name(&self, step: &Self::Step) -> Option<String>;

    /// Makes what the step needs, and keeps what stands and serves it.
    fn build(&mut self, step: &Self::Step, control: &mut Control<'_>) -> Result<(), Self::Error>;

    fn round(&mut self, step: &Self::Step, control: &mut Control<'_>) -> Result<(), Self::Error>;

    /// Makes the result, however the steps ended.
    fn conclude(self, facts: Facts, end: End<Self::Error>) -> Result<Self::Found, Self::Error>;
}

/// A step and its estimated time.
#[derive(Debug, Clone, PartialEq)]
pub struct Planned<S> {
    pub step: S,
    /// Seconds that it takes; none: nobody knows.
    pub seconds: Option<f64>,
}

impl<S> Planned<S> {
    /// A step of unknown length.
    pub fn new(step: S) -> Self {
        Self { step, seconds: None }
    }
}

/// The stop flag and the progress of a run.
pub struct Control<'a> {
    /// Ends the run when it is set.
    pub stop: &'a AtomicBool,
    /// Shows how far the run is.
    pub progress: &'a mut dyn Progress,
}

impl Control<'_> {
    /// True once the run is to end.
    pub fn is_stopped(&self) -> bool {
        self.stop.load(Ordering::Relaxed)
    }
}

/// The circumstances of a run.
#[derive(Debug, Clone, PartialEq)]
pub struct Facts {
    /// Start of the run (RFC 3339, UTC).
    pub timestamp: String,
    pub machine: Machine,
    /// The load average before the first step.
    pub load_average: f64,
    /// A warning if other programs took too much of the CPUs.
    pub disturbed: Option<String>,
}

/// End of the steps of a run.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum End<E> {
    Whole,
    /// The stop flag was set; a step that failed meanwhile is no failure.
    Stopped,
    Failed(E),
}

impl<E> End<E> {
    /// The failure that ended the steps; `stopped` for the stop flag.
    pub fn or(self, stopped: E) -> Result<(), E> {
        if self.is_whole()? { Ok(()) } else { Err(stopped) }
    }

    /// True if all steps were done, false if the run was stopped.
    pub fn is_whole(self) -> Result<bool, E> {
        match self {
            Self::Whole => Ok(true),
            Self::Stopped => Ok(false),
            Self::Failed(error) => Err(error),
        }
    }
}

/// Does the steps of `experiment` on `machine`; other programs on the CPUs `watched` are a warning.
pub fn carry_out<E: Experiment>(
    mut experiment: E,
    machine: Machine,
    watched: &CpuSet,
    control: &mut Control<'_>,
) -> Result<E::Found, E::Error> {
    let (timestamp, load_average) = (machine::now(), machine::load_average());
    let others = Watch::start(watched.iter());
    let end = match steps(&mut experiment, control) {
        Ok(true) => End::Whole,
        Ok(false) => End::Stopped,
        Err(_) if control.is_stopped() => End::Stopped,
        Err(error) => End::Failed(error),
    };
    experiment.conclude(Facts { timestamp, machine, load_average, disturbed: others.warning() }, end)
}

/// Does all steps; false if it was stopped.
fn steps<E: Experiment>(experiment: &mut E, control: &mut Control<'_>) -> Result<bool, E::Error> {
    let plan = experiment.plan();
    let (begun, mut done_s) = (Instant::now(), 0.0);
    for (at, Planned { step, seconds }) in plan.iter().enumerate() {
        let Some(name) = experiment.name(step) else { continue };
        if control.is_stopped() {
            return Ok(false);
        }
        let left = plan[at..].iter().filter(|planned| experiment.name(&planned.step).is_some());
        let left_s = left.map(|planned| planned.seconds).sum::<Option<f64>>();
        let left_s = left_s.map(|left_s| left_s * slowness(begun.elapsed().as_secs_f64(), done_s));
        control.progress.begin(&progress::Step { name, number: at + 1, of: plan.len(), left_s });
        experiment.build(step, control)?;
        if control.is_stopped() {
            return Ok(false);
        }
        experiment.round(step, control)?;
        done_s += seconds.unwrap_or(0.0);
    }
    Ok(true)
}

/// The time that the steps took over the time that was planned for them.
fn slowness(took_s: f64, planned_s: f64) -> f64 {
    if planned_s < ESTIMATE_MIN_S { 1.0 } else { (took_s / planned_s).clamp(0.1, 10.0) }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Steps 0, 1, 2, of which one stops the run, fails or is passed over.
    #[derive(Default)]
    struct Simulated {
        seconds: Option<f64>,
        passed: Vec<u32>,
        stops_at: Option<u32>,
        fails_at: Option<u32>,
        built: Vec<u32>,
        measured: Vec<u32>,
    }

    impl Experiment for Simulated {
        type Step = u32;
        type Found = (Vec<u32>, Vec<u32>, End<&'static str>);
        type Error = &'static str;

        fn plan(&self) -> Vec<Planned<u32>> {
            (0..3).map(|step| Planned { step, seconds: self.seconds }).collect()
        }

        fn name(&self, step: &u32) -> Option<String> {
            (!self.passed.contains(step)).then(|| format!("step {step}"))
        }

        fn build(&mut self, step: &u32, control: &mut Control<'_>) -> Result<(), &'static str> {
            self.built.push(*step);
            control.stop.store(self.stops_at == Some(*step), Ordering::Relaxed);
            Ok(())
        }

        fn round(&mut self, step: &u32, control: &mut Control<'_>) -> Result<(), &'static str> {
            if self.fails_at == Some(*step) {
                return Err("made up");
            }
            control.progress.update("measured");
            self.measured.push(*step);
            Ok(())
        }

        fn conclude(self, facts: Facts, end: End<&'static str>) -> Result<Self::Found, &'static str> {
            assert!(facts.machine == machine() && facts.disturbed.is_none() && facts.timestamp.ends_with('Z'));
            Ok((self.built, self.measured, end))
        }
    }

    fn machine() -> Machine {
        Machine {
            hostname: "a".into(),
            kernel: "b".into(),
            cpu_model: "c".into(),
            cpus: 1,
            memory_bytes: 1,
            virtualised: None,
        }
    }

    /// Everything that was shown.
    #[derive(Default)]
    struct Shown(Vec<(String, usize, usize, Option<f64>)>);

    impl Progress for Shown {
        fn begin(&mut self, step: &progress::Step) {
            self.0.push((step.name.clone(), step.number, step.of, step.left_s));
        }

        fn update(&mut self, text: &str) {
            assert_eq!(text, "measured");
        }

        fn line(&mut self, _: &str) {}
    }

    fn run(experiment: Simulated) -> (Vec<u32>, Vec<u32>, End<&'static str>, Shown) {
        let (stop, mut shown) = (AtomicBool::new(false), Shown::default());
        let (built, measured, end) =
            carry_out(experiment, machine(), &CpuSet::new(), &mut Control { stop: &stop, progress: &mut shown })
                .expect("a result");
        (built, measured, end, shown)
    }

    #[test]
    fn all_steps_are_done_in_their_order_and_shown() {
        let (built, measured, end, shown) = run(Simulated { seconds: Some(1.0), ..Simulated::default() });
        assert_eq!((built, measured, end), (vec![0, 1, 2], vec![0, 1, 2], End::Whole));
        let step = |step: usize, left_s| (format!("step {step}"), step + 1, 3, Some(left_s));
        assert_eq!(shown.0, [step(0, 3.0), step(1, 2.0), step(2, 1.0)]);
    }

    #[test]
    fn a_stop_ends_the_run_before_the_next_measurement() {
        let (built, measured, end, shown) = run(Simulated { stops_at: Some(1), ..Simulated::default() });
        assert_eq!((built, measured, end), (vec![0, 1], vec![0], End::Stopped));
        assert_eq!(shown.0.last(), Some(&("step 1".to_owned(), 2, 3, None)), "nobody knows how long it takes");
    }

    #[test]
    fn a_failure_is_reported_and_what_was_measured_is_kept() {
        let (_, measured, end, _) = run(Simulated { fails_at: Some(2), ..Simulated::default() });
        assert_eq!((measured, end.clone().is_whole()), (vec![0, 1], Err("made up")));
        assert_eq!((End::<()>::Whole.is_whole(), End::<()>::Stopped.is_whole()), (Ok(true), Ok(false)));
    }

    #[test]
    fn a_run_that_is_resumed_passes_over_what_was_done() {
        let resumed = Simulated { seconds: Some(2.0), passed: vec![0], ..Simulated::default() };
        let (built, _, end, shown) = run(resumed);
        assert_eq!((built, end), (vec![1, 2], End::Whole));
        assert_eq!(shown.0[0], ("step 1".to_owned(), 2, 3, Some(4.0)));
    }

    #[test]
    fn the_rest_is_estimated_by_the_time_that_was_taken() {
        assert_eq!((slowness(9.0, 4.0), slowness(9.0, 6.0), slowness(900.0, 6.0)), (1.0, 1.5, 10.0));
    }
}
