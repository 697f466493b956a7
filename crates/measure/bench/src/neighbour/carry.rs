//! Boxes, rounds, conditions, in order.

use std::{
    collections::BTreeSet,
    fs,
    sync::atomic::{AtomicBool, Ordering},
    time::{Duration, Instant},
};

use host::Host;
use host::machine;
use model::{
    CpuSet,
    bench::{
        FrameSpec, Verdict,
        neighbour::{Boxed, Disturbed, NeighbourRun, Reading, costs},
    },
    sources,
};
use rig::progress::{Progress, Step};

use super::{
    conclude,
    guests::{self, Guests},
    kind::{Form, Neighbour},
    plan::{Made, Plan},
    reading::{Rates, read},
    stress::Stress,
    threads::{self, BoxThreads},
};
use crate::{
    BenchError, Cores, Patience,
    methods::{self, Answer, Bench},
    run::{Benches, Request, Settings, StandingBox},
};

/// The fixed rate, as a share of the throughput.
const FIXED: f64 = 0.5;
/// From this share of the tester's ceiling on, the tester is the limit.
const LIMITED: f64 = 0.95;
/// Memory that stays free beside a neighbour, in MB.
const FREE_MB: f64 = 256.0;

/// Looks whether this machine can have the neighbours, before anything is made.
///
/// # Errors
/// stress-ng is missing, or the memory.
pub fn check(plan: &Plan) -> Result<(), BenchError> {
    let neighbours = &plan.asked.neighbours;
    if neighbours.iter().any(Neighbour::needs_stress) && sys::program::find("stress-ng".as_ref()).is_none() {
        return Err(BenchError::Machine(
            "stress-ng is missing, which makes a neighbour's work: apt install stress-ng".into(),
        ));
    }
    // Rather now than after minutes of searching.
    lab::Group::new("bench", "check")?;
    let free_mb = available_mb();
    let as_guest = plan.asked.forms.contains(&Form::Guest);
    for one in neighbours {
        let wanted = one.memory_mb() + if as_guest { guests::OVERHEAD_MB } else { 0.0 };
        if wanted > 0.0 && wanted + FREE_MB > free_mb {
            let advice = if one.memory_mb() > 0.0 {
                format!("name a smaller dose, such as {}:{:.0}", one.kind.key(), (0.5 * free_mb).floor())
            } else {
                "name --neighbour-as process".to_owned()
            };
            return Err(BenchError::Machine(format!(
                "the neighbour {one} takes {wanted:.0} MB, and {free_mb:.0} MB are free, of which {FREE_MB:.0} stay: {advice}"
            )));
        }
    }
    Ok(())
}

fn available_mb() -> f64 {
    let text = fs::read_to_string("/proc/meminfo").unwrap_or_default();
    let line = text.lines().find_map(|line| line.strip_prefix("MemAvailable:")).unwrap_or_default();
    line.trim().trim_end_matches(" kB").parse::<f64>().map_or(f64::INFINITY, |kib| kib * 1024.0 / 1e6)
}

/// Does what was planned; `guests` are what neighbours that are guests are made of. However it ends, `run` has what was measured; a run that was stopped says that it is partial.
///
/// # Errors
/// The first thing that failed; `run` is marked as partial then.
pub fn measure(
    (asked, settings, plan, trial): (&Request, &Settings, &Plan, Duration),
    guests: Option<&Guests>,
    benches: &mut dyn Benches,
    run: &mut NeighbourRun,
    stop: &AtomicBool,
    progress: &mut dyn Progress,
) -> Result<(), BenchError> {
    let frame = asked.frames.first().cloned().ok_or_else(|| BenchError::Setting("no frames are named".into()))?;
    let mut work = || -> Result<(), BenchError> {
        let mut ceiling_pps = None;
        benches.with(crate::run::WIRE, &mut |standing| {
            progress.begin(&Step { name: "the tester's own ceiling".into(), number: 1, of: 1, left_s: None });
            // Under a neighbour many trials are void: that is what is measured.
            let patience = Patience::endless();
            let mut bench = bench(standing, &frame, settings, stop, &patience);
            let loss_ratio = settings.preset.goals.first().map_or(0.0, |goal| goal.loss_ratio);
            ceiling_pps = Some(methods::ceiling(&mut bench, &settings.preset.ceiling, loss_ratio)?);
            Ok(())
        })?;
        let ceiling_pps = match ceiling_pps {
            Some(Answer::Measured(pps)) => pps,
            Some(Answer::Not { reason }) => {
                return Err(BenchError::Machine(format!("this machine is too busy to measure: {reason}")));
            }
            None => return Err(BenchError::Panicked("tester")),
        };
        for key in asked.boxes.modes() {
            let before = threads::present();
            benches.with(&key, &mut |standing| {
                let mut one =
                    OneBox { settings, plan, trial, guests, ceiling_pps, frame: &frame, stop, before: before.clone() };
                one.measure(standing, &asked.cpus, run, progress)
            })?;
        }
        Ok(())
    };
    let done = work();
    if let Err(error) = &done {
        run.partial = Some(error.to_string());
    }
    run.conclusions = run.boxes.iter().flat_map(conclude::sentences).collect();
    done
}

fn bench<'a>(
    standing: &'a mut StandingBox<'_>,
    frame: &FrameSpec,
    settings: &Settings,
    stop: &'a AtomicBool,
    patience: &'a Patience,
) -> Bench<'a> {
    Bench {
        tester: &mut *standing.tester,
        frame: frame.clone(),
        drain: settings.preset.drain,
        observe: settings.observe,
        void_repeats: settings.preset.void_repeats,
        stop,
        patience,
    }
}

/// A box that is measured.
struct OneBox<'a> {
    settings: &'a Settings,
    plan: &'a Plan,
    trial: Duration,
    guests: Option<&'a Guests>,
    ceiling_pps: f64,
    frame: &'a FrameSpec,
    stop: &'a AtomicBool,
    /// Threads that were there before the box was.
    before: BTreeSet<u32>,
}

impl OneBox<'_> {
    fn measure(
        &mut self,
        standing: &mut StandingBox<'_>,
        usable: &CpuSet,
        run: &mut NeighbourRun,
        progress: &mut dyn Progress,
    ) -> Result<(), BenchError> {
        let cores = Cores::split(usable)?;
        let of_box: CpuSet = cores.of_box.iter().copied().collect();
        let others = usable.difference(&of_box);
        let threads = BoxThreads::new(std::mem::take(&mut self.before), &cores.of_box, &self.plan.aside);
        let identity = standing.identity.clone();
        let patience = Patience::endless();
        let mut bench = bench(standing, self.frame, self.settings, self.stop, &patience);
        progress.begin(&Step {
            name: format!("{}: its throughput while it is quiet", identity.name),
            number: 1,
            of: 1,
            left_s: None,
        });
        let found = methods::throughput(&mut bench, &self.settings.preset.goals, self.ceiling_pps)?;
        let throughput_pps = found.pps(0).ok_or_else(|| {
            let why = match &found.verdict {
                Verdict::Void { reason } | Verdict::Unfinished { reason } => format!(": {reason}"),
                Verdict::Nothing => ": nothing comes through".to_owned(),
                _ => ": it loses more than the goal at every rate, as on a machine that is busy with something else; --loss-ratio allows more".to_owned(),
            };
            BenchError::Machine(format!(
                "the {} has no throughput while it is quiet, so nothing can be laid beside it{why}",
                identity.name
            ))
        })?;
        let rates = Rates { fixed_pps: FIXED * throughput_pps, throughput_pps, trial: self.trial };
        let conditions = self.plan.conditions();
        let mut readings: Vec<Vec<Reading>> = vec![Vec::new(); conditions];
        let began = Instant::now();
        let of = conditions * self.plan.asked.rounds as usize;
        let mut done = 0;
        let at = run.boxes.len();
        for round in 0..self.plan.asked.rounds {
            for which in self.plan.order(round) {
                if self.stop.load(Ordering::Relaxed) {
                    return Err(BenchError::Interrupted);
                }
                let made = &self.plan.conditions[which];
                let left_s = (done > 0).then(|| began.elapsed().as_secs_f64() / done as f64 * (of - done) as f64);
                done += 1;
                progress.begin(&Step {
                    name: format!("{}, round {}: {}", identity.name, round + 1, words(made)),
                    number: done,
                    of,
                    left_s,
                });
                let reading = condition(&mut bench, &threads, made, rates, (&others, self.guests), &mut run.stolen);
                readings[which].push(reading?);
            }
            // A run that ends before its time has all whole rounds.
            run.boxes.truncate(at);
            run.boxes.push(Boxed {
                key: identity.key.clone(),
                name: identity.name.clone(),
                what: identity.what.clone(),
                throughput_pps,
                tester_limited: throughput_pps >= LIMITED * self.ceiling_pps,
                rate_pps: rates.fixed_pps,
                quiet: readings[0].clone(),
                rows: rows(self.plan, &readings),
            });
        }
        Ok(())
    }
}

fn words(made: &Made) -> String {
    match &made.neighbour {
        None => "quiet".to_owned(),
        Some(placed) => format!("{placed} on {}, {}", placed.spot.key(), made.remedy.key()),
    }
}

/// One condition: its neighbour is there for as long as it is measured.
fn condition(
    bench: &mut Bench<'_>,
    threads: &BoxThreads,
    made: &Made,
    rates: Rates,
    (others, guests): (&CpuSet, Option<&Guests>),
    stolen: &mut u32,
) -> Result<Reading, BenchError> {
    let Some(placed) = &made.neighbour else {
        return read(bench, (threads, made.remedy), rates, stolen);
    };
    let mut stress = Stress::start(placed, made.remedy, others, guests)?;
    let mut reading = read(bench, (threads, made.remedy), rates, stolen)?;
    stress.check()?;
    let had = stress.had();
    (reading.neighbour_cpus, reading.throttled) = (had.cpus, had.throttled);
    Ok(reading)
}

fn rows(plan: &Plan, readings: &[Vec<Reading>]) -> Vec<Disturbed> {
    let row = |at: usize| Disturbed {
        condition: plan.conditions[at].words(),
        readings: readings[at].clone(),
        costs: costs(&readings[0], &readings[at]),
        remedy: plan.bare(at).map_or_else(Vec::new, |bare| costs(&readings[bare], &readings[at])),
    };
    (1..readings.len()).map(row).collect()
}

/// A run without figures.
///
/// # Errors
/// No CPU, or no frames.
pub fn begun(
    host: &Host,
    asked: &Request,
    (plan, guests): (&Plan, Option<&Guests>),
    trial: Duration,
) -> Result<NeighbourRun, BenchError> {
    let cores = Cores::split(&asked.cpus)?;
    Ok(NeighbourRun {
        when: machine::now(),
        version: env!("CARGO_PKG_VERSION").into(),
        machine: machine::describe(host),
        load_average: machine::load_average(),
        preset: asked.preset.clone(),
        frame: asked.frames.first().cloned().ok_or_else(|| BenchError::Setting("no frames are named".into()))?,
        cores: cores.arrangement(false).roles,
        rounds: plan.asked.rounds,
        trial_s: trial.as_secs_f64(),
        seed: plan.asked.seed,
        stolen: 0,
        boxes: Vec::new(),
        partial: None,
        left_out: plan.left_out.clone(),
        conclusions: Vec::new(),
        notes: conclude::notes(plan, &cores, guests),
        sources: sources::neighbour_figures(),
    })
}
