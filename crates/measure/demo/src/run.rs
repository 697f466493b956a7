//! Runs the stages and puts the measurements together.

use std::{sync::atomic::AtomicBool, thread, time::Duration};

use bpf::{XdpDrop, XdpMode, XmitDrops};
use host::{machine, picture::Host};
use lab::Lab;
use model::{
    CpuSet, Loss,
    run::{Cost, DemoRun, Generator, Repeats, Sharing, Stage},
    sources, units,
};
use rig::{
    experiment::{self, Control, End, Experiment, Facts, Planned},
    repeat::{median_by, sorted},
    window::{LoadMeter, busy_ns_per_second, pause, steal_percent, undisturbed},
};

use crate::{
    bed::Bed,
    conclusion,
    error::DemoError,
    flood::{FRAME_BYTES, Flood, FloodResult},
    measure::Counted,
    plan::{DemoCores, StagePlan},
    sampling::Sampling,
};

/// The time that the flood runs before loads are measured.
const WARM_UP_TIME: Duration = Duration::from_millis(300);
/// Offered rate as a share of the generator's ceiling, when the user names none: where the generator has cores of its own …
const SHARE_APART: f64 = 0.9;
/// … and where it shares them with the receivers, and a frame of a sender that sleeps between bursts costs several times as much.
const SHARE_INLINE: f64 = 0.1;
#[derive(Debug, Clone)]
pub struct DemoConfig {
    /// The length of each measurement.
    pub duration: Duration,
    pub repeats: u32,
    /// Packets per second to offer; none is a share of the ceiling.
    pub pps: Option<f64>,
    pub cpus: CpuSet,
}

/// Measures the ceiling and every stage. The stop flag ends it early, with none.
pub fn run(config: &DemoConfig, host: &Host, control: &mut Control<'_>) -> Result<Option<DemoRun>, DemoError> {
    let cores = DemoCores::split(&config.cpus, &host.cpus);
    let (plans, lab) = (cores.stages(), Lab::new("demo")?);
    let demo = Demo { config, cores, plans, stop: control.stop, generator: None, pps: 0.0, stages: Vec::new(), lab };
    experiment::carry_out(demo, machine::describe(host), &config.cpus, control)
}

struct Demo<'a> {
    config: &'a DemoConfig,
    cores: DemoCores,
    plans: Vec<StagePlan>,
    stop: &'a AtomicBool,
    generator: Option<Generator>,
    pps: f64,
    stages: Vec<Stage>,
    lab: Lab,
}

impl Experiment for Demo<'_> {
    /// The number of a stage; none: the generator's ceiling.
    type Step = Option<usize>;
    type Found = Option<DemoRun>;
    type Error = DemoError;

    fn plan(&self) -> Vec<Planned<Option<usize>>> {
        std::iter::once(None).chain((0..self.plans.len()).map(Some)).map(Planned::new).collect()
    }

    fn name(&self, step: &Option<usize>) -> Option<String> {
        Some(step.map_or("generator ceiling", |stage| self.plans[stage].name).to_owned())
    }

    /// Each measurement has a bed of its own.
    fn build(&mut self, _: &Option<usize>, _: &mut Control<'_>) -> Result<(), DemoError> {
        Ok(())
    }

    fn round(&mut self, step: &Option<usize>, control: &mut Control<'_>) -> Result<(), DemoError> {
        let Some(plan) = step.map(|stage| &self.plans[stage]) else {
            let generator = ceiling(&self.lab, &self.cores, self.config.duration, control.stop)?;
            let share = if self.cores.sharing == Sharing::Apart { SHARE_APART } else { SHARE_INLINE };
            self.pps = self.config.pps.unwrap_or(generator.ceiling_pps * share);
            self.generator = Some(generator);
            return Ok(());
        };
        let mut measured = Vec::new();
        for _ in 0..self.config.repeats {
            if control.is_stopped() {
                return Ok(());
            }
            let (mut stage, disturbed) = undisturbed(|| self.measure(plan), |stage| stage.steal_percent)?;
            stage.notes.extend(disturbed);
            measured.push(stage);
        }
        if control.is_stopped() {
            return Ok(());
        }
        if let Some(stage) = median(measured) {
            control.progress.line(&format!(
                "{:<22} {:>10} of {:>10} captured",
                stage.name,
                units::pps(stage.delivered_pps),
                units::pps(stage.offered_pps)
            ));
            self.stages.push(stage);
        }
        Ok(())
    }

    fn conclude(self, facts: Facts, end: End<DemoError>) -> Result<Option<DemoRun>, DemoError> {
        let is_whole = end.is_whole()? && self.stages.len() == self.plans.len();
        let (true, Some(generator)) = (is_whole, self.generator) else { return Ok(None) };
        Ok(Some(DemoRun {
            timestamp: facts.timestamp,
            machine: facts.machine,
            disturbed: facts.disturbed,
            frame_bytes: FRAME_BYTES as u32,
            seconds_per_stage: self.config.duration.as_secs_f64(),
            generator,
            conclusion: conclusion::conclusion(&self.stages),
            stages: self.stages,
            sources: sources::figures(),
        }))
    }
}

/// Measures the senders while each frame ends in XDP, the cheapest receiver there is, on the sender's own core: there
/// the load throttles itself, so that nothing is lost and what was sent has arrived.
fn ceiling(lab: &Lab, cores: &DemoCores, duration: Duration, stop: &AtomicBool) -> Result<Generator, DemoError> {
    let bed = Bed::build_inline(lab, cores.senders.len())?;
    let server = &bed.server_end.name;
    let drop_all = bed.server.run(|| XdpDrop::attach(server, XdpMode::Native))??;
    let before = drop_all.counts()?.frames;
    let flood = Flood::load(&bed, &cores.senders, None, duration)?;
    let (result, ()) = flood.run(&bed, stop, || pause(duration, stop))?;
    thread::sleep(Duration::from_millis(50));
    let arrived = drop_all.counts()?.frames - before;
    let ceiling_pps = arrived as f64 / result.seconds.max(1e-9);
    Ok(Generator {
        backend: "XDP live frames".into(),
        cpus: cores.senders.iter().copied().collect(),
        ceiling_pps,
        ceiling_conditions: format!(
            "{FRAME_BYTES}-byte SYNs as fast as they go for {:.1} s, each counted and dropped by XDP on its sender's core: {} \
             sent, {} arrived",
            result.seconds,
            units::count(result.sent),
            units::count(arrived),
        ),
    })
}

impl Demo<'_> {
    fn measure(&self, plan: &StagePlan) -> Result<Stage, DemoError> {
        let &Self { config, ref lab, ref cores, stop, pps, .. } = self;
        let bed = Bed::build(lab, &plan.queue_cpus)?;
        let receiving = bed.server.run(|| plan.sources().open(&bed.server_end.name, &plan.reader_cpus))??;
        let wire = bed.attacker.run(|| XmitDrops::attach(&bed.attacker_end.name))??;
        let flood = Flood::load(&bed, &cores.senders, Some(pps), config.duration + WARM_UP_TIME)?;
        // Last, so that it knows the names of all programs.
        let mut sampling = Sampling::open();
        let (sent, window) = flood.run(&bed, stop, || {
            pause(WARM_UP_TIME, stop);
            sampling.begin();
            let meter = LoadMeter::start()?;
            pause(config.duration.mul_f64(0.9), stop);
            let loads = meter.finish();
            sampling.end();
            loads
        })?;
        let loads = window?;
        let refused = wire.refused()?;
        bed.drain(sent.sent.saturating_sub(refused))?;
        receiving.readers.settle();
        let (delivered, lost) = receiving.readers.finish()?;
        // The driver also counts a frame that AF_XDP refuses (veth_xdp_rcv_one: rx_drops).
        let counted_twice = if plan.backend == rig::receive::Backend::Xdp { lost } else { 0 };
        let counted = Counted {
            offered: sent.sent,
            delivered,
            refused,
            lost_in_queues: bed.lost_in_queues()?.saturating_sub(counted_twice),
            capture: vec![Loss { place: receiving.place.to_owned(), packets: lost }],
        };
        let seconds = sent.seconds.max(1e-9);
        let (offered_pps, delivered_pps) = (sent.sent as f64 / seconds, delivered as f64 / seconds);
        let spent = busy_ns_per_second(&loads) - sent.cpu_ns as f64 / seconds;
        let per = |rate: f64| (rate > 0.0).then(|| spent.max(0.0) / rate);
        let work = sampling.finish();
        let mut notes = notes(&sent, pps, offered_pps, cores);
        notes.extend(work.as_ref().err().cloned());
        Ok(Stage {
            key: plan.key.into(),
            name: plan.name.into(),
            what: plan.what.into(),
            backend: plan.mode.into(),
            arrangement: cores.arrangement(plan),
            attached_mode: receiving.mode,
            repeats: Repeats { count: 1, lowest_pps: delivered_pps, highest_pps: delivered_pps },
            offered_pps,
            delivered_pps,
            ledger: counted.ledger(),
            steal_percent: steal_percent(&loads),
            cores: loads,
            ns_per_packet: Cost { per_delivered_ns: per(delivered_pps), per_offered_ns: per(offered_pps) },
            work: work.ok(),
            notes,
        })
    }
}

/// Notes on the flood itself.
fn notes(sent: &FloodResult, intended_pps: f64, offered_pps: f64, cores: &DemoCores) -> Vec<String> {
    let mut notes = Vec::new();
    if cores.sharing == Sharing::Inline {
        let share = sent.cpu_ns as f64 / (sent.seconds.max(1e-9) * 1e9 * cores.senders.len() as f64);
        notes.push(format!("the generator itself took {} of these cores", units::percent(share)));
    }
    if offered_pps < 0.97 * intended_pps {
        notes.push(format!(
            "the generator got only {} of the {} it was to offer, because it shares its cores",
            units::pps(offered_pps),
            units::pps(intended_pps)
        ));
    }
    if sent.behind_seconds > 0.01 * sent.seconds {
        notes.push(format!("its senders gave up {:.2} s of their schedule", sent.behind_seconds));
    }
    notes
}

/// The measurement with the median delivered rate, with the range of all.
fn median(measured: Vec<Stage>) -> Option<Stage> {
    let rates = sorted(measured.iter().map(|stage| stage.delivered_pps));
    let repeats = Repeats { count: rates.len() as u32, lowest_pps: *rates.first()?, highest_pps: *rates.last()? };
    median_by(measured, |stage| stage.delivered_pps).map(|stage| Stage { repeats, ..stage })
}
