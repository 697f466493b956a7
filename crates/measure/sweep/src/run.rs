//! Carries a sweep out: the ceilings first, then step by step, the configurations in turn at each repeat and load.

use std::{
    ops::Range,
    sync::atomic::{AtomicBool, Ordering},
    time::{Duration, Instant},
};

use host::Host;
use lab::{BoxKind, BoxSpec, Lab, TestBox};
use model::{
    CpuSet,
    run::Generator,
    sources,
    sweep::{Setup, Step, Sweep},
};
use rig::{
    machine, others,
    progress::{self, Progress},
    repeat::{median, median_by, sorted},
    window::pause,
};

use profile::{Party, PerPacket, Recorder, RecorderOptions, SetApart};

use super::{
    SweepError,
    bed::{Bed, BoxCounts},
    conclusion,
    offer::{FLOWS, FRAME, offer},
    plan::{Configuration, SweepBox, SweepCores, rates},
    search::{LOSS_GOAL, RESOLUTION, Trial, search},
    verdict,
};

/// Samples per second: no divisor of the kernel's tick.
const FREQUENCY_HZ: u32 = 997;

/// The time that the load is on before a measurement begins.
const WARM_UP: Duration = Duration::from_millis(150);
/// A trial of a search takes so long at most, and so does the generator's ceiling.
const TRIAL: Duration = Duration::from_millis(300);
const CEILING: Duration = Duration::from_secs(1);

/// Settings by the user.
#[derive(Debug, Clone)]
pub struct SweepConfig {
    /// The box.
    pub what: SweepBox,
    /// The number of loads.
    pub steps: u32,
    /// The length of each measurement.
    pub duration: Duration,
    /// Searches of each ceiling.
    pub repeats: u32,
    /// The CPUs to use.
    pub cpus: CpuSet,
    /// The configurations to compare: usually the [`configurations`](super::configurations) of the box.
    pub compared: Vec<Configuration>,
}

/// Watches a sweep.
pub trait Watch: Progress {
    /// A load was measured, in this time. Tests hold it against other counts of the same time.
    fn measured(&mut self, step: &Step, time: Range<Instant>) {
        let _ = (step, time);
    }
}

/// Measures ceilings and steps. `stop` ends it early, with none.
///
/// # Errors
/// The lab, the generator or the sampling fails.
pub fn run(
    config: &SweepConfig,
    host: &Host,
    stop: &AtomicBool,
    watch: &mut impl Watch,
) -> Result<Option<Sweep>, SweepError> {
    let cores = SweepCores::split(&config.cpus).ok_or(SweepError::NoCpu)?;
    let when = machine::now();
    let others = others::Watch::start(config.cpus.iter());
    let lab = Lab::new("sweep")?;
    let compared = &config.compared;
    let total = 1 + compared.len() * (2 * config.repeats + config.steps) as usize;
    let mut progress = Steps { watch, number: 0, total, stop };
    if !progress.begin("ceiling of the generator") {
        return Ok(None);
    }
    let generator = generator_ceiling(&lab, &cores, config.duration.min(CEILING), stop)?;
    let measure = Measure { cores: &cores, stop, duration: config.duration };
    let mut under_test = Vec::new();
    for configuration in compared {
        under_test.push((Bed::build(&lab, configuration, &cores)?, setup(configuration)));
    }
    if !ceilings(&measure, config.repeats, &mut under_test, &mut progress)? {
        return Ok(None);
    }
    let best = under_test.iter().map(|(_, s)| s.ceiling_pps).fold(0.0, f64::max);
    if best <= 0.0 {
        return Err(SweepError::Nothing(config.what.name().into()));
    }
    for pps in rates(best, config.steps) {
        for (bed, setup) in &mut under_test {
            if !progress.begin(&format!("{}, {}", setup.name, model::units::pps(pps))) {
                return Ok(None);
            }
            let step = measure.step(bed, pps, progress.watch)?;
            setup.steps.push(step);
        }
    }
    if stop.load(Ordering::Relaxed) {
        return Ok(None);
    }
    let mut setups = Vec::new();
    for (bed, mut setup) in under_test {
        bed.finish()?;
        // The figure of the headline is in the table.
        setup.steps.extend(median_by(setup.at_ceiling.clone(), |step| step.loss_ratio));
        setup.steps.sort_by(|a, b| a.wanted_pps.total_cmp(&b.wanted_pps));
        setups.push(setup);
    }
    let gain = verdict::gain(&setups);
    let arrangement = cores.arrangement(config.what);
    Ok(Some(Sweep {
        when,
        machine: machine::describe(host),
        disturbed: others.warning(),
        box_key: config.what.key().into(),
        box_name: config.what.name().into(),
        frame_bytes: FRAME.bytes_in_memory() as u32,
        flows: FLOWS as u32,
        seconds_per_step: config.duration.as_secs_f64(),
        frequency_hz: FREQUENCY_HZ,
        box_cores: 1,
        loss_goal: LOSS_GOAL,
        gain,
        notes: conclusion::notes(config.what, &arrangement, &setups),
        arrangement,
        generator,
        conclusion: conclusion::conclusion(config.what, &setups, gain.as_ref()),
        setups,
        sources: if config.what == SweepBox::Router { sources::router_figures() } else { Vec::new() },
    }))
}

fn setup(configuration: &Configuration) -> Setup {
    Setup {
        key: configuration.key.into(),
        name: configuration.name.into(),
        what: configuration.what.into(),
        settings: configuration.settings(),
        ceiling_pps: 0.0,
        ceilings_pps: Vec::new(),
        at_ceiling: Vec::new(),
        steps: Vec::new(),
    }
}

/// Searches the ceilings, the configurations in turn, and then measures at each of them as often. Whether it was not interrupted.
fn ceilings<W: Watch>(
    measure: &Measure<'_>,
    repeats: u32,
    under_test: &mut [(Bed, Setup)],
    progress: &mut Steps<'_, W>,
) -> Result<bool, SweepError> {
    for round in 1..=repeats {
        for (bed, setup) in &mut *under_test {
            if !progress.begin(&format!("ceiling, {}, {round} of {repeats}", setup.name)) {
                return Ok(false);
            }
            // A flood tells where to begin, and nothing else.
            let start = match setup.ceilings_pps.last() {
                Some(&found) => found / RESOLUTION.powi(3),
                None => measure.trial(bed, None)?.forwarded_pps,
            };
            let found = search(start, |pps| -> Result<_, SweepError> {
                let seen = measure.trial(bed, Some(pps))?;
                Ok((!measure.stop.load(Ordering::Relaxed)).then_some(seen))
            })?;
            let Some(found) = found else { return Ok(false) };
            setup.ceilings_pps.push(found);
        }
    }
    for (_, setup) in &mut *under_test {
        setup.ceiling_pps = median(&sorted(setup.ceilings_pps.iter().copied())).unwrap_or(0.0);
    }
    for round in 1..=repeats {
        for (bed, setup) in under_test.iter_mut().filter(|(_, s)| s.ceiling_pps > 0.0) {
            if !progress.begin(&format!("at the ceiling, {}, {round} of {repeats}", setup.name)) {
                return Ok(false);
            }
            let step = measure.step(bed, setup.ceiling_pps / RESOLUTION, progress.watch)?;
            setup.at_ceiling.push(step);
        }
    }
    Ok(true)
}

/// BoxCounts the steps that have begun.
struct Steps<'a, W> {
    watch: &'a mut W,
    number: usize,
    total: usize,
    stop: &'a AtomicBool,
}

impl<W: Watch> Steps<'_, W> {
    /// Begins a step; false if it is not to begin.
    fn begin(&mut self, what: &str) -> bool {
        self.number += 1;
        self.watch.begin(&progress::Step { name: what.to_owned(), number: self.number, of: self.total, left_s: None });
        !self.stop.load(Ordering::Relaxed)
    }
}

/// Measures the generator while each frame ends in XDP, the cheapest receiver there is, on its own core.
fn generator_ceiling(
    lab: &Lab,
    cores: &SweepCores,
    duration: Duration,
    stop: &AtomicBool,
) -> Result<Generator, SweepError> {
    let made = TestBox::build(lab, &BoxSpec::new(BoxKind::XdpDrop))?;
    let window = || -> Result<f64, SweepError> {
        pause(WARM_UP, stop);
        let read = || made.counters().map(|c| (c.entry.at, c.forwarded()));
        let before = read()?;
        pause(duration, stop);
        let after = read()?;
        Ok((after.1 - before.1) as f64 / after.0.duration_since(before.0).as_secs_f64().max(1e-9))
    };
    let ceiling_pps = offer(&made, cores.generator, None, window)??;
    Ok(Generator {
        backend: "XDP live frames".into(),
        cpus: [cores.generator].into_iter().collect(),
        ceiling_pps,
        ceiling_conditions: format!(
            "{}-byte UDP frames as fast as they go for {:.1} s, each dropped by XDP on the generator's own core",
            FRAME.bytes_in_memory(),
            duration.as_secs_f64()
        ),
    })
}

/// Data that all steps share.
struct Measure<'a> {
    cores: &'a SweepCores,
    stop: &'a AtomicBool,
    duration: Duration,
}

impl Measure<'_> {
    /// Offers `pps` (none: as many as go) to the box for a short time, and counts.
    fn trial(&self, bed: &Bed, pps: Option<f64>) -> Result<Trial, SweepError> {
        let window = || -> Result<Trial, SweepError> {
            pause(WARM_UP, self.stop);
            let before = bed.counts()?;
            pause(self.duration.min(TRIAL), self.stop);
            Ok(trial(&before, &bed.counts()?))
        };
        offer(&bed.made, self.cores.generator, pps, window)?
    }

    /// Offers `pps` to the box, counts, and samples what the box's core does meanwhile.
    fn step(&self, bed: &Bed, pps: f64, watch: &mut impl Watch) -> Result<Step, SweepError> {
        let cpu = self.cores.of_box;
        let mut recorder = Recorder::with(RecorderOptions {
            frequency_hz: FREQUENCY_HZ,
            cpus: Some([cpu].into_iter().collect()),
            per_packet: PerPacket::default(),
            set_apart: SetApart::Lab { receiver: bed.has_receiver() },
            ..RecorderOptions::default()
        })?;
        let window = || -> Result<_, SweepError> {
            pause(WARM_UP, self.stop);
            recorder.restart()?;
            let begun = Instant::now();
            let before = bed.counts()?;
            pause(self.duration, self.stop);
            let after = bed.counts()?;
            let ended = Instant::now();
            recorder.stop()?;
            Ok((trial(&before, &after), begun..ended))
        };
        let (seen, time) = offer(&bed.made, self.cores.generator, Some(pps), window)??;
        let recording = recorder.finish()?;
        let core = recording.profile.cores.iter().find(|c| c.cpu == cpu);
        let apart = |party| recording.tally.percent_apart(cpu, party, &recording.times);
        let step = Step {
            wanted_pps: pps,
            offered_pps: seen.offered_pps,
            forwarded_pps: seen.forwarded_pps,
            loss_ratio: seen.loss_ratio(),
            classes: core.map(|c| c.percent.clone()).unwrap_or_default(),
            generator_percent: apart(Party::Generator),
            receiver_percent: apart(Party::Receiver),
            others_percent: apart(Party::Others),
            stat_idle_percent: core.map_or(0.0, |c| c.stat_idle_percent),
            samples: core.map_or(0, |c| c.samples),
            lost_samples: recording.profile.lost,
        };
        watch.measured(&step, time);
        Ok(step)
    }
}

fn trial(before: &BoxCounts, after: &BoxCounts) -> Trial {
    let (offered_pps, forwarded_pps) = after.rates(before);
    Trial { offered_pps, forwarded_pps }
}
