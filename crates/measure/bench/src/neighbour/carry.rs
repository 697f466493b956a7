//! Boxes, rounds, conditions, in order.

use std::{collections::BTreeSet, fs, sync::atomic::AtomicBool, time::Duration};

use host::{Host, machine};
use model::{
    CpuSet,
    bench::{
        Verdict,
        neighbour::{Boxed, Disturbed, NeighbourRun, Reading, costs},
    },
    sources,
};
use rig::experiment::{self, Control, End, Experiment, Facts, Planned};

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
const FIXED_SHARE: f64 = 0.5;
/// From this share of the tester's ceiling on, the tester is the limit.
const LIMITED_SHARE_MIN: f64 = 0.95;
/// Trials of a condition, the seconds of each besides its length, and those of a search for a throughput or a ceiling.
const TRIAL_COUNT: f64 = 3.0;
const MORE_S: f64 = 0.8;
const SEARCH_S: f64 = 20.0;
/// Memory that stays free beside a neighbour, in MB.
const FREE_MB: f64 = 256.0;

/// Looks whether this machine can have the neighbours, before anything is made.
pub fn check(plan: &Plan) -> Result<(), BenchError> {
    let neighbours = &plan.options.neighbours;
    if neighbours.iter().any(Neighbour::needs_stress) && sys::program::find("stress-ng".as_ref()).is_none() {
        return Err(BenchError::Machine(
            "stress-ng is missing, which makes a neighbour's work: apt install stress-ng".into(),
        ));
    }
    // Rather now than after minutes of searching.
    lab::Group::new("bench", "check")?;
    let free_mb = available_mb();
    let as_guest = plan.options.forms.contains(&Form::Guest);
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
    (request, settings, plan, trial): (&Request, &Settings, &Plan, Duration),
    guests: Option<&Guests>,
    benches: &mut dyn Benches,
    run: &mut NeighbourRun,
    control: &mut Control<'_>,
) -> Result<(), BenchError> {
    let machine = run.machine.clone();
    let carried = Carry {
        request,
        settings,
        plan,
        trial,
        guests,
        benches,
        run,
        // Under a neighbour many trials are void: that is what is measured.
        patience: Patience::endless(),
        ceiling_pps: 0.0,
        standing: None,
    };
    experiment::carry_out(carried, machine, &CpuSet::new(), control)
}

#[derive(Debug, Clone, PartialEq, Eq)]
enum What {
    /// The tester's own ceiling.
    Ceiling,
    /// The throughput of a quiet box.
    Throughput { key: String },
    /// A condition in a round.
    Condition { key: String, round: u32, which: usize },
}

struct Carry<'a> {
    request: &'a Request,
    settings: &'a Settings,
    plan: &'a Plan,
    trial: Duration,
    guests: Option<&'a Guests>,
    benches: &'a mut dyn Benches,
    run: &'a mut NeighbourRun,
    patience: Patience,
    ceiling_pps: f64,
    standing: Option<Standing>,
}

struct Standing {
    key: String,
    /// Place of the box in the run.
    at: usize,
    made: StandingBox,
    /// Threads that were there before the box was.
    before: BTreeSet<u32>,
    /// Threads and rates of the quiet box, once the throughput is known.
    quiet: Option<(BoxThreads, Rates)>,
    /// Readings of each condition, round by round.
    readings: Vec<Vec<Reading>>,
}

impl Experiment for Carry<'_> {
    type Step = What;
    type Found = ();
    type Error = BenchError;

    fn plan(&self) -> Vec<Planned<What>> {
        let conditions = |key: &str| {
            let of = |round| self.plan.order(round).into_iter().map(move |which| (round, which));
            let all = (0..self.plan.options.rounds).flat_map(of);
            all.map(|(round, which)| What::Condition { key: key.to_owned(), round, which }).collect::<Vec<_>>()
        };
        let boxes = self.request.boxes.modes().into_iter().flat_map(|key| {
            let conditions = conditions(&key);
            std::iter::once(What::Throughput { key }).chain(conditions)
        });
        let seconds = |step: &What| match step {
            What::Condition { .. } => TRIAL_COUNT * (self.trial.as_secs_f64() + MORE_S),
            What::Ceiling | What::Throughput { .. } => SEARCH_S,
        };
        let planned = |step: What| Planned { seconds: Some(seconds(&step)), step };
        std::iter::once(What::Ceiling).chain(boxes).map(planned).collect()
    }

    fn name(&self, step: &What) -> Option<String> {
        let name = |key: &str| match &self.standing {
            Some(standing) if standing.key == key => standing.made.identity.name.clone(),
            _ => key.to_owned(),
        };
        Some(match step {
            What::Ceiling => "the tester's own ceiling".to_owned(),
            What::Throughput { key } => format!("{}: its throughput while it is quiet", name(key)),
            What::Condition { key, round, which } => {
                format!("{}, round {}: {}", name(key), round + 1, words(&self.plan.conditions[*which]))
            }
        })
    }

    fn build(&mut self, step: &What, _: &mut Control<'_>) -> Result<(), BenchError> {
        let key = match step {
            What::Ceiling => crate::run::WIRE,
            What::Throughput { key } => key,
            What::Condition { .. } => return Ok(()),
        };
        self.standing = None;
        let (before, made) = (threads::present(), self.benches.build(key)?);
        let readings = vec![Vec::new(); self.plan.conditions()];
        self.standing =
            Some(Standing { key: key.to_owned(), at: self.run.boxes.len(), made, before, quiet: None, readings });
        Ok(())
    }

    fn round(&mut self, step: &What, control: &mut Control<'_>) -> Result<(), BenchError> {
        let mut standing = self.standing.take().ok_or(BenchError::Panicked("lab"))?;
        match *step {
            What::Ceiling => self.ceiling(&mut standing, control.stop)?,
            What::Throughput { .. } => self.throughput(&mut standing, control.stop)?,
            What::Condition { round, which, .. } => {
                self.condition(&mut standing, which, control.stop)?;
                // A run that ends before its time has all whole rounds.
                if standing.readings.iter().all(|of| of.len() as u32 == round + 1) {
                    self.keep(&standing);
                }
            }
        }
        self.standing = Some(standing);
        Ok(())
    }

    fn conclude(self, _: Facts, end: End<BenchError>) -> Result<(), BenchError> {
        let done = end.or(BenchError::Interrupted);
        if let Err(error) = &done {
            self.run.partial = Some(error.to_string());
        }
        self.run.conclusions = self.run.boxes.iter().flat_map(conclude::sentences).collect();
        done
    }
}

impl Carry<'_> {
    fn bench<'t>(&'t self, standing: &'t mut Standing, stop: &'t AtomicBool) -> Result<Bench<'t>, BenchError> {
        let frame = self.request.frames.first().cloned().ok_or_else(no_frames)?;
        Ok(self.settings.bench(&mut *standing.made.tester, frame, (stop, &self.patience)))
    }

    fn ceiling(&mut self, standing: &mut Standing, stop: &AtomicBool) -> Result<(), BenchError> {
        let preset = &self.settings.preset;
        let loss_ratio = preset.goals.first().map_or(0.0, |goal| goal.loss_ratio);
        let found = methods::ceiling(&mut self.bench(standing, stop)?, &preset.ceiling, loss_ratio)?;
        match found {
            Answer::Measured(pps) => self.ceiling_pps = pps,
            Answer::Not { reason } => {
                return Err(BenchError::Machine(format!("this machine is too busy to measure: {reason}")));
            }
        }
        Ok(())
    }

    /// The throughput of the quiet box, from which the rates follow.
    fn throughput(&mut self, standing: &mut Standing, stop: &AtomicBool) -> Result<(), BenchError> {
        let cores = Cores::split(&self.request.cpus)?;
        let threads = BoxThreads::new(std::mem::take(&mut standing.before), &cores.of_box, &self.plan.aside);
        let goals = &self.settings.preset.goals;
        let found = methods::throughput(&mut self.bench(standing, stop)?, goals, self.ceiling_pps)?;
        let throughput_pps = found.pps(0).ok_or_else(|| {
            let why = match &found.verdict {
                Verdict::Void { reason } | Verdict::Unfinished { reason } => format!(": {reason}"),
                Verdict::Nothing => ": nothing comes through".to_owned(),
                _ => ": it loses more than the goal at every rate, as on a machine that is busy with something else; --loss-ratio allows more".to_owned(),
            };
            BenchError::Machine(format!(
                "the {} has no throughput while it is quiet, so nothing can be laid beside it{why}",
                standing.made.identity.name
            ))
        })?;
        standing.quiet =
            Some((threads, Rates { fixed_pps: FIXED_SHARE * throughput_pps, throughput_pps, trial: self.trial }));
        Ok(())
    }

    fn condition(&mut self, standing: &mut Standing, which: usize, stop: &AtomicBool) -> Result<(), BenchError> {
        let (threads, rates) = standing.quiet.take().ok_or(BenchError::Panicked("lab"))?;
        let of_box: CpuSet = Cores::split(&self.request.cpus)?.of_box.into_iter().collect();
        let others = self.request.cpus.difference(&of_box);
        let made = &self.plan.conditions[which];
        let mut stolen = 0;
        let mut bench = self.bench(standing, stop)?;
        let reading = condition(&mut bench, &threads, made, rates, (&others, self.guests), &mut stolen);
        self.run.stolen += stolen;
        standing.readings[which].push(reading?);
        standing.quiet = Some((threads, rates));
        Ok(())
    }

    /// Puts the whole rounds of a box into the run.
    fn keep(&mut self, standing: &Standing) {
        let Some((_, rates)) = &standing.quiet else { return };
        let identity = &standing.made.identity;
        self.run.boxes.truncate(standing.at);
        self.run.boxes.push(Boxed {
            key: identity.key.clone(),
            name: identity.name.clone(),
            what: identity.what.clone(),
            throughput_pps: rates.throughput_pps,
            tester_limited: rates.throughput_pps >= LIMITED_SHARE_MIN * self.ceiling_pps,
            rate_pps: rates.fixed_pps,
            quiet: standing.readings[0].clone(),
            rows: rows(self.plan, &standing.readings),
        });
    }
}

fn no_frames() -> BenchError {
    BenchError::Setting("no frames are named".into())
}

fn words(made: &Made) -> String {
    match &made.neighbour {
        None => "quiet".to_owned(),
        Some(placed) => format!("{placed} on {}, {}", placed.spot.key(), made.remedy.key()),
    }
}

/// Measures a condition, with its neighbour there all the time.
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
pub fn begun(
    host: &Host,
    request: &Request,
    (plan, guests): (&Plan, Option<&Guests>),
    trial: Duration,
) -> Result<NeighbourRun, BenchError> {
    let cores = Cores::split(&request.cpus)?;
    Ok(NeighbourRun {
        timestamp: machine::now(),
        version: env!("CARGO_PKG_VERSION").into(),
        machine: machine::describe(host),
        load_average: machine::load_average(),
        preset: request.preset.clone(),
        frame: request.frames.first().cloned().ok_or_else(no_frames)?,
        cores: cores.arrangement(false).roles,
        rounds: plan.options.rounds,
        trial_s: trial.as_secs_f64(),
        seed: plan.options.seed,
        stolen: 0,
        boxes: Vec::new(),
        partial: None,
        skipped: plan.skipped.clone(),
        conclusions: Vec::new(),
        notes: conclude::notes(plan, &cores, guests),
        sources: sources::neighbour_figures(),
    })
}
