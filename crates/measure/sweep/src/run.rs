//! Carries a sweep out: the ceilings first, then step by step, the configurations in turn at each repeat and load.

use std::{
    ops::Range,
    sync::atomic::{AtomicBool, Ordering},
    time::{Duration, Instant},
};

use host::Host;
use host::machine;
use lab::{BoxKind, BoxSpec, Lab, TestBox};
use model::{
    CpuSet,
    run::Generator,
    sources,
    sweep::{Setup, Step, Sweep},
};
use rig::{
    experiment::{self, Control, End, Experiment, Facts, Planned},
    repeat::{median_by, middle},
    window::pause,
};

use profile::{Party, PerPacket, Recorder, RecorderOptions, SetApart};

use super::{
    SweepError,
    bed::{Bed, BoxCounts},
    conclusion,
    offer::{FLOW_COUNT, FRAME, offer},
    plan::{Configuration, SweepBox, SweepCores, rates},
    search::{LOSS_GOAL, RESOLUTION_FACTOR, Trial, search},
    verdict,
};

/// Samples per second: no divisor of the kernel's tick.
const FREQUENCY_HZ: u32 = 997;

/// The time that the load is on before a measurement begins.
const WARM_UP_TIME: Duration = Duration::from_millis(150);
/// A trial of a search takes so long at most, and so does the generator's ceiling.
const TRIAL_TIME_MAX: Duration = Duration::from_millis(300);
const CEILING_TRIAL_TIME_MAX: Duration = Duration::from_secs(1);

#[derive(Debug, Clone)]
pub struct SweepConfig {
    pub what: SweepBox,
    pub steps: u32,
    /// The length of each measurement.
    pub duration: Duration,
    pub repeats: u32,
    pub cpus: CpuSet,
    /// The configurations to compare: usually the [`configurations`](super::configurations) of the box.
    pub compared: Vec<Configuration>,
}

/// Told of each load that was measured, and of the time in which.
pub type OnStep<'a> = &'a mut dyn FnMut(&Step, Range<Instant>);

/// Measures ceilings and steps. The stop flag ends it early, with none. Tests hold what `on_step` is told against other counts of the same time.
pub fn run(
    config: &SweepConfig,
    host: &Host,
    control: &mut Control<'_>,
    on_step: OnStep<'_>,
) -> Result<Option<Sweep>, SweepError> {
    let cores = SweepCores::split(&config.cpus).ok_or(SweepError::NoCpu)?;
    let measure = Measure { cores: &cores, stop: control.stop, duration: config.duration };
    let sweeping =
        Sweeping { config, measure, on_step, under_test: Vec::new(), generator: None, lab: Lab::new("sweep")? };
    experiment::carry_out(sweeping, machine::describe(host), &config.cpus, control)
}

/// A step of a sweep; configurations by number.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum What {
    Generator,
    Ceiling { of: usize, round: u32 },
    AtCeiling { of: usize, round: u32 },
    Load { of: usize, number: usize },
}

struct Sweeping<'a> {
    config: &'a SweepConfig,
    measure: Measure<'a>,
    on_step: OnStep<'a>,
    generator: Option<Generator>,
    under_test: Vec<(Bed, Setup)>,
    // What is in it goes before.
    lab: Lab,
}

impl Sweeping<'_> {
    fn rates(&self) -> Vec<f64> {
        rates(self.under_test.iter().map(|(_, s)| s.ceiling_pps).fold(0.0, f64::max), self.config.steps)
    }
}

impl Experiment for Sweeping<'_> {
    type Step = What;
    type Found = Option<Sweep>;
    type Error = SweepError;

    fn plan(&self) -> Vec<Planned<What>> {
        let SweepConfig { compared, repeats, steps, .. } = self.config;
        let rounds = || (1..=*repeats).flat_map(|round| (0..compared.len()).map(move |of| (of, round)));
        let ceilings = rounds().map(|(of, round)| What::Ceiling { of, round });
        let at_ceilings = rounds().map(|(of, round)| What::AtCeiling { of, round });
        let loads =
            (0..*steps as usize).flat_map(|number| (0..compared.len()).map(move |of| What::Load { of, number }));
        std::iter::once(What::Generator).chain(ceilings).chain(at_ceilings).chain(loads).map(Planned::new).collect()
    }

    fn name(&self, step: &What) -> Option<String> {
        let (name, repeats) = (|of: usize| self.config.compared[of].name, self.config.repeats);
        let ceiling = |of: usize| self.under_test.get(of).map_or(0.0, |(_, setup)| setup.ceiling_pps);
        Some(match *step {
            What::Generator => "ceiling of the generator".to_owned(),
            What::Ceiling { of, round } => format!("ceiling, {}, {round} of {repeats}", name(of)),
            What::AtCeiling { of, .. } if ceiling(of) <= 0.0 => return None,
            What::AtCeiling { of, round } => format!("at the ceiling, {}, {round} of {repeats}", name(of)),
            What::Load { of, number } => format!("{}, {}", name(of), model::units::pps(self.rates()[number])),
        })
    }

    fn build(&mut self, step: &What, _: &mut Control<'_>) -> Result<(), SweepError> {
        if *step != What::Generator && self.under_test.is_empty() {
            for configuration in &self.config.compared {
                let bed = Bed::build(&self.lab, configuration, self.measure.cores)?;
                self.under_test.push((bed, setup(configuration)));
            }
        }
        Ok(())
    }

    /// Searches the ceilings, the configurations in turn, then measures at each of them as often, and offers the same loads to all.
    fn round(&mut self, step: &What, control: &mut Control<'_>) -> Result<(), SweepError> {
        match *step {
            What::Generator => {
                let duration = self.config.duration.min(CEILING_TRIAL_TIME_MAX);
                self.generator = Some(generator_ceiling(&self.lab, self.measure.cores, duration, control.stop)?);
            }
            What::Ceiling { of, round } => {
                let (bed, setup) = &mut self.under_test[of];
                // A flood tells where to begin, and nothing else.
                let start = match setup.ceilings_pps.last() {
                    Some(&found) => found / RESOLUTION_FACTOR.powi(3),
                    None => self.measure.trial(bed, None)?.forwarded_pps,
                };
                let found = search(start, |pps| -> Result<_, SweepError> {
                    let seen = self.measure.trial(bed, Some(pps))?;
                    Ok((!control.is_stopped()).then_some(seen))
                })?;
                setup.ceilings_pps.extend(found);
                setup.ceiling_pps = middle(setup.ceilings_pps.iter().copied());
                let last = round == self.config.repeats && of + 1 == self.under_test.len();
                if last && self.under_test.iter().all(|(_, setup)| setup.ceiling_pps <= 0.0) {
                    return Err(SweepError::Nothing(self.config.what.name().into()));
                }
            }
            What::AtCeiling { of, .. } => {
                let (bed, setup) = &mut self.under_test[of];
                let pps = setup.ceiling_pps / RESOLUTION_FACTOR;
                setup.at_ceiling.push(self.measure.step(bed, pps, self.on_step)?);
            }
            What::Load { of, number } => {
                let pps = self.rates()[number];
                let (bed, setup) = &mut self.under_test[of];
                setup.steps.push(self.measure.step(bed, pps, self.on_step)?);
            }
        }
        Ok(())
    }

    fn conclude(self, facts: Facts, end: End<SweepError>) -> Result<Option<Sweep>, SweepError> {
        let Self { config, measure, under_test, generator, .. } = self;
        // What was measured while it was stopped was cut short.
        let is_whole = end.is_whole()? && !measure.stop.load(Ordering::Relaxed);
        let (true, Some(generator)) = (is_whole, generator) else { return Ok(None) };
        let mut setups = Vec::new();
        for (bed, mut setup) in under_test {
            bed.finish()?;
            // The figure of the headline is in the table.
            setup.steps.extend(median_by(setup.at_ceiling.clone(), |step| step.loss_ratio));
            setup.steps.sort_by(|a, b| a.intended_pps.total_cmp(&b.intended_pps));
            setups.push(setup);
        }
        let gain = verdict::gain(&setups);
        let arrangement = measure.cores.arrangement(config.what);
        Ok(Some(Sweep {
            timestamp: facts.timestamp,
            machine: facts.machine,
            disturbed: facts.disturbed,
            box_key: config.what.key().into(),
            box_name: config.what.name().into(),
            frame_bytes: FRAME.bytes_in_memory() as u32,
            flows: FLOW_COUNT as u32,
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
}

fn setup(configuration: &Configuration) -> Setup {
    Setup {
        key: configuration.key.into(),
        name: configuration.name.into(),
        what: configuration.what.into(),
        settings: configuration.settings(),
        ..Setup::default()
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
        pause(WARM_UP_TIME, stop);
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
            pause(WARM_UP_TIME, self.stop);
            let before = bed.counts()?;
            pause(self.duration.min(TRIAL_TIME_MAX), self.stop);
            Ok(trial(&before, &bed.counts()?))
        };
        offer(&bed.made, self.cores.generator, pps, window)?
    }

    /// Offers `pps` to the box, counts, and samples what the box's core does meanwhile.
    fn step(&self, bed: &Bed, pps: f64, on_step: OnStep<'_>) -> Result<Step, SweepError> {
        let cpu = self.cores.of_box;
        let mut recorder = Recorder::with(RecorderOptions {
            frequency_hz: FREQUENCY_HZ,
            cpus: Some([cpu].into_iter().collect()),
            per_packet: PerPacket::default(),
            set_apart: SetApart::Lab { receiver: bed.has_receiver() },
            ..RecorderOptions::default()
        })?;
        let window = || -> Result<_, SweepError> {
            pause(WARM_UP_TIME, self.stop);
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
            intended_pps: pps,
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
        on_step(&step, time);
        Ok(step)
    }
}

fn trial(before: &BoxCounts, after: &BoxCounts) -> Trial {
    let (offered_pps, forwarded_pps) = after.rates(before);
    Trial { offered_pps, forwarded_pps }
}
