//! Carries a sweep out: the ceilings first, then step by step, the configurations in turn at each load.

use std::{
    sync::atomic::{AtomicBool, Ordering},
    thread,
    time::{Duration, Instant},
};

use host::{
    counters::{self, delta},
    picture::Host,
};
use lab::{BoxKind, BoxSpec, Lab, TestBox};
use model::{
    CpuSet,
    profile::Class,
    run::{Generator, Machine},
    sources,
    sweep::{Setup, Step, Sweep},
};

use super::{
    SweepError,
    bed::Bed,
    offer::{FLOWS, FRAME, offer},
    plan::{Configuration, Cores, SweepBox, rates},
    sample::{FREQUENCY_HZ, Sampler},
    words,
};

/// How long the load is on before a measurement begins.
const WARM_UP: Duration = Duration::from_millis(150);
/// The longest slice of a pause between two looks at the stop flag.
const SLICE: Duration = Duration::from_millis(50);
/// A ceiling is measured for so long at most.
const CEILING: Duration = Duration::from_secs(1);

/// What the user asked for.
#[derive(Debug, Clone)]
pub struct SweepConfig {
    /// The box.
    pub what: SweepBox,
    /// How many loads.
    pub steps: u32,
    /// How long each is measured.
    pub duration: Duration,
    /// The CPUs to use.
    pub cpus: CpuSet,
    /// What is compared: usually the [`configurations`](super::configurations) of the box.
    pub compared: Vec<Configuration>,
}

/// What happens, for those who watch.
pub trait Watch {
    /// A measurement begins: what, its number, how many there are.
    fn begins(&mut self, what: &str, number: usize, of: usize);
}

/// Measures ceilings and steps. `stop` ends it early, with none.
///
/// # Errors
/// What the lab, the generator or the sampling lack.
pub fn run(
    config: &SweepConfig,
    host: &Host,
    (when, machine): (String, Machine),
    stop: &AtomicBool,
    watch: &mut impl Watch,
) -> Result<Option<Sweep>, SweepError> {
    let cores = Cores::split(&config.cpus).ok_or(SweepError::NoCpu)?;
    let lab = Lab::new("sweep")?;
    let compared = &config.compared;
    let total = 1 + compared.len() * (1 + config.steps as usize);
    let mut number = 0;
    let mut begin = |what: &str| {
        number += 1;
        watch.begins(what, number, total);
        !stop.load(Ordering::Relaxed)
    };
    if !begin("ceiling of the generator") {
        return Ok(None);
    }
    let short = config.duration.min(CEILING);
    let generator = generator_ceiling(&lab, &cores, short, stop)?;
    let mut measure = Measure { host, cores: &cores, stop, sampler: Sampler::start(cores.of_box)? };
    let mut under_test = Vec::new();
    for configuration in compared {
        if !begin(&format!("ceiling, {}", configuration.name)) {
            return Ok(None);
        }
        let bed = Bed::build(&lab, configuration, &cores)?;
        let ceiling_pps = measure.step(&bed, None, short)?.forwarded_pps;
        let setup = setup(configuration, ceiling_pps);
        under_test.push((bed, setup));
    }
    let best = under_test.iter().map(|(_, s)| s.ceiling_pps).fold(0.0, f64::max);
    if best <= 0.0 && !stop.load(Ordering::Relaxed) {
        return Err(SweepError::Nothing(config.what.name().into()));
    }
    for pps in rates(best, config.steps) {
        for (bed, setup) in &mut under_test {
            if !begin(&format!("{}, {}", setup.name, model::units::pps(pps))) {
                return Ok(None);
            }
            let step = measure.step(bed, Some(pps), config.duration)?;
            setup.ceiling_pps = setup.ceiling_pps.max(step.forwarded_pps);
            setup.steps.push(step);
        }
    }
    if stop.load(Ordering::Relaxed) {
        return Ok(None);
    }
    let mut setups = Vec::new();
    for (bed, setup) in under_test {
        bed.finish()?;
        setups.push(setup);
    }
    let arrangement = cores.arrangement(config.what);
    Ok(Some(Sweep {
        when,
        machine,
        box_key: config.what.key().into(),
        box_name: config.what.name().into(),
        frame_bytes: FRAME.bytes_in_memory() as u32,
        flows: FLOWS as u32,
        seconds_per_step: config.duration.as_secs_f64(),
        frequency_hz: FREQUENCY_HZ,
        box_cores: 1,
        notes: words::notes(config.what, &arrangement, &setups),
        arrangement,
        generator,
        conclusion: words::conclusion(config.what, &setups),
        setups,
        sources: if config.what == SweepBox::Router { sources::router_figures() } else { Vec::new() },
    }))
}

fn setup(configuration: &Configuration, ceiling_pps: f64) -> Setup {
    Setup {
        key: configuration.key.into(),
        name: configuration.name.into(),
        what: configuration.what.into(),
        settings: configuration.settings(),
        ceiling_pps,
        steps: Vec::new(),
    }
}

/// How fast the generator is when each frame ends in XDP, the cheapest receiver there is, on its own core.
fn generator_ceiling(lab: &Lab, cores: &Cores, duration: Duration, stop: &AtomicBool) -> Result<Generator, SweepError> {
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

/// What every step needs.
struct Measure<'a> {
    host: &'a Host,
    cores: &'a Cores,
    stop: &'a AtomicBool,
    sampler: Sampler,
}

impl Measure<'_> {
    /// Offers `pps` (none: as many as go) to the box and measures for `duration`.
    fn step(&mut self, bed: &Bed, pps: Option<f64>, duration: Duration) -> Result<Step, SweepError> {
        let (host, stop, cpu) = (self.host, self.stop, self.cores.of_box);
        let sampler = &mut self.sampler;
        let window = || -> Result<_, SweepError> {
            pause(WARM_UP, stop);
            let mut load = counters::Sampler::open()?;
            let load_before = load.read()?;
            sampler.begin()?;
            let before = bed.counts()?;
            pause(duration, stop);
            let after = bed.counts()?;
            let samples = sampler.end(bed.has_receiver())?;
            let cores = delta(host, &load_before, &load.read()?).cores;
            let steal = cores.iter().find(|c| c.load.cpu == cpu).map_or(0.0, |c| c.load.steal_percent);
            Ok((after.rates(&before), samples, steal))
        };
        let ((offered_pps, forwarded_pps), samples, steal) = offer(&bed.made, self.cores.generator, pps, window)??;
        let mut classes: std::collections::BTreeMap<Class, f64> =
            samples.classes.iter().map(|(&class, &n)| (class, samples.percent(n, steal))).collect();
        if steal > 0.0 {
            classes.insert(Class::Steal, steal);
        }
        Ok(Step {
            wanted_pps: pps.unwrap_or(offered_pps),
            offered_pps,
            forwarded_pps,
            loss_ratio: if offered_pps > 0.0 { (1.0 - forwarded_pps / offered_pps).max(0.0) } else { 0.0 },
            classes,
            generator_percent: samples.percent(samples.generator, steal),
            receiver_percent: samples.percent(samples.receiver, steal),
            others_percent: samples.percent(samples.others, steal),
            samples: samples.total(),
            lost_samples: samples.lost,
        })
    }
}

/// Sleeps, but not longer than until `stop` is set.
fn pause(duration: Duration, stop: &AtomicBool) {
    let end = Instant::now() + duration;
    while !stop.load(Ordering::Relaxed) {
        let left = end.saturating_duration_since(Instant::now());
        if left.is_zero() {
            return;
        }
        thread::sleep(left.min(SLICE));
    }
}
