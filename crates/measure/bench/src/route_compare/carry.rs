//! Carries a comparison out: the tester's ceilings, the rounds with the ways in turn, the loads with the ways in turn.

use std::sync::atomic::AtomicBool;

use model::{
    Classified, CpuSet, ErrorClass,
    bench::{FrameSpec, Goal, Throughput},
    route_compare::{Allocations, Bed, Configuration, Round, RouteCompare, Skipped},
    run::Machine,
    sources,
    sweep::Step,
};
use rig::{
    experiment::{self, Control, End, Experiment, Facts, Planned},
    progress::Progress,
};
use sweep::rates;

use super::{
    Stage, conclusion,
    memory::{Counting, METHOD},
    plan::{FLOW_COUNT, FRAME_BYTES, Forwarding, LATENCY_LOAD, Plan, PlannedStep, WayId, What},
    way::{empty, summed_up},
};
use crate::{
    BenchError, Patience, Tester,
    methods::{self, Answer, Bench},
    observer::FREQUENCY_HZ,
    run::{StandingBox, WIRE},
};

/// The tester's ceiling is searched so often before it is given up.
const CEILING_TRIES: u32 = 4;

/// Measures what `plan` says. The stop flag ends it early, with none.
///
/// # Errors
/// Going on is useless: the lab, the tester or what watches the box fails, or none of the ways can be built here.
pub fn carry_out(
    plan: &Plan,
    machine: Machine,
    stage: &mut dyn Stage,
    control: &mut Control<'_>,
) -> Result<Option<RouteCompare>, BenchError> {
    experiment::carry_out(Carry::new(plan, stage, control.stop), machine, &CpuSet::new(), control)
}

/// A way and the figures of it so far.
struct Course {
    id: WayId,
    way: Configuration,
    /// True: the way cannot be built here.
    gone: bool,
}

struct Carry<'a> {
    plan: &'a Plan,
    stage: &'a mut dyn Stage,
    stop: &'a AtomicBool,
    patience: Patience,
    courses: Vec<Course>,
    /// The box that stands; none: it cannot be built here.
    standing: Option<StandingBox>,
    /// The tester's ceilings, by the cores of the box.
    ceilings: Vec<(u32, f64)>,
    skipped: Vec<Skipped>,
    remarks: Vec<String>,
    /// Nothing counts memory here.
    uncounted: bool,
}

impl Experiment for Carry<'_> {
    type Step = PlannedStep;
    type Found = Option<RouteCompare>;
    type Error = BenchError;

    fn plan(&self) -> Vec<Planned<PlannedStep>> {
        self.plan.steps.iter().map(|step| Planned { step: step.clone(), seconds: Some(step.seconds) }).collect()
    }

    fn name(&self, step: &PlannedStep) -> Option<String> {
        let is_gone = way_of(step.what).is_some_and(|way| self.courses[way].gone);
        (!is_gone).then(|| step.name.clone())
    }

    /// Builds the box of the step. One that cannot be built here is left out, with the reason.
    fn build(&mut self, step: &PlannedStep, control: &mut Control<'_>) -> Result<(), BenchError> {
        self.standing = None;
        let (cores, key) = match step.what {
            What::Ceiling { cores } => (cores, WIRE),
            What::Round { way, .. } | What::Loads { way, .. } => {
                let WayId { forwarding, cores } = self.courses[way].id;
                (cores, forwarding.kind().key())
            }
        };
        match (self.stage.build(cores, key), way_of(step.what)) {
            (Err(error), Some(way)) if error.class() == ErrorClass::Lacking => {
                self.courses[way].gone = true;
                let what = self.courses[way].id.to_string();
                control.progress.line(&format!("  left out: {what}: {error}"));
                self.skipped.push(Skipped { what, reason: error.to_string() });
            }
            (built, way) => {
                let ready = built?;
                if let Some(way) = way {
                    self.introduce(way, &ready);
                }
                self.standing = Some(ready);
            }
        }
        Ok(())
    }

    fn round(&mut self, step: &PlannedStep, control: &mut Control<'_>) -> Result<(), BenchError> {
        let Some(mut ready) = self.standing.take() else { return Ok(()) };
        self.patience.begin(step.seconds, ready.tester.now(), "longer trials (--duration) get more time");
        let progress = &mut *control.progress;
        let done = match step.what {
            What::Ceiling { cores } => self.ceiling(cores, &mut ready, progress),
            What::Round { way, .. } => self.round_of(way, &mut ready, progress),
            What::Loads { pass, way } => self.loads(pass, way, &mut ready, progress),
        };
        self.patience.end(ready.tester.now());
        done
    }

    fn conclude(self, facts: Facts, end: End<BenchError>) -> Result<Option<RouteCompare>, BenchError> {
        if end.is_whole()? { self.found(facts).map(Some) } else { Ok(None) }
    }
}

/// The way of a step; none: it is the tester's own.
fn way_of(what: What) -> Option<usize> {
    match what {
        What::Ceiling { .. } => None,
        What::Round { way, .. } | What::Loads { way, .. } => Some(way),
    }
}

impl<'a> Carry<'a> {
    fn new(plan: &'a Plan, stage: &'a mut dyn Stage, stop: &'a AtomicBool) -> Self {
        Self {
            plan,
            stage,
            stop,
            patience: Patience::default(),
            courses: plan.ways.iter().map(|&id| Course { id, way: empty(id), gone: false }).collect(),
            standing: None,
            ceilings: Vec::new(),
            skipped: plan.skipped.clone(),
            remarks: Vec::new(),
            uncounted: false,
        }
    }

    fn introduce(&mut self, way: usize, ready: &StandingBox) {
        let setup = &mut self.courses[way].way.setup;
        setup.what.clone_from(&ready.identity.what);
        setup.settings.clone_from(&ready.identity.settings);
    }

    /// Memory of each packet of a way at `pps`. The counter comes and goes with it: it costs time.
    fn memory(
        &mut self,
        id: WayId,
        ready: &mut StandingBox,
        pps: f64,
        progress: &mut dyn Progress,
    ) -> Result<Option<Allocations>, BenchError> {
        if self.uncounted {
            return Ok(None);
        }
        let counter = match self.stage.count(id.cores)() {
            Ok(counter) => counter,
            Err(error) => {
                self.uncounted = true;
                let what = "pages and socket buffers".into();
                self.skipped.push(Skipped { what, reason: error.to_string() });
                return Ok(None);
            }
        };
        let mut counting = Counting::new(&mut *ready.tester, &counter);
        let duration = self.plan.options.duration;
        let found = methods::load(&mut self.bench(&mut counting, false), &[], "memory of each packet", pps, duration)?;
        match found {
            Answer::Measured(_) => Ok(counting.last()),
            Answer::Not { reason } => {
                self.remark(id, &reason, progress);
                Ok(None)
            }
        }
    }

    fn bench<'t>(&'t self, tester: &'t mut dyn Tester, observe: bool) -> Bench<'t> {
        let frame = FrameSpec::Size { bytes: FRAME_BYTES };
        Bench { observe, ..self.plan.settings.bench(tester, frame, (self.stop, &self.patience)) }
    }

    /// The ceiling of the tester, without which no box can be judged. A moment in which others have the CPUs does not end the run.
    fn ceiling(&mut self, cores: u32, ready: &mut StandingBox, progress: &mut dyn Progress) -> Result<(), BenchError> {
        let loss_ratio = self.goal().loss_ratio;
        let settings = &self.plan.settings.preset.ceiling;
        let mut why = String::new();
        for _ in 0..CEILING_TRIES {
            let found = methods::ceiling(&mut self.bench(&mut *ready.tester, false), settings, loss_ratio)?;
            match found {
                Answer::Measured(pps) => {
                    progress.update(&model::units::pps(pps));
                    self.ceilings.push((cores, pps));
                    return Ok(());
                }
                Answer::Not { reason } => {
                    progress.line(&format!("  {reason}"));
                    why = reason;
                }
            }
        }
        Err(BenchError::Machine(format!(
            "the tester has no ceiling of its own: {why}; end what else runs on the CPUs, or name others with --cpus"
        )))
    }

    fn round_of(&mut self, way: usize, ready: &mut StandingBox, progress: &mut dyn Progress) -> Result<(), BenchError> {
        let id = self.courses[way].id;
        let preset = &self.plan.settings.preset;
        let ceiling_pps = self.ceiling_of(id.cores);
        let searched =
            methods::throughput(&mut self.bench(&mut *ready.tester, false), &preset.goals, ceiling_pps.unwrap_or(0.0))?;
        let throughput_pps = searched.pps(0);
        let fails_at_pps = searched.results.first().and_then(|f| f.upper_pps);
        let Throughput { verdict, steps, .. } = searched;
        let mut round = Round {
            throughput_pps,
            fails_at_pps,
            verdict,
            latency: None,
            latency_at_reference: None,
            allocations: None,
        };
        let shown = throughput_pps.map_or_else(|| "no throughput".to_owned(), model::units::pps);
        progress.update(&shown);
        let Some(pps) = throughput_pps else {
            steps.last().into_iter().for_each(|why| self.remark(id, why, progress));
            self.courses[way].way.rounds.push(round);
            return Ok(());
        };
        let mut latency =
            |pps| methods::latency(&mut self.bench(&mut *ready.tester, false), &preset.latency, Some(pps));
        round.latency = latency(pps)?.into_iter().next();
        round.latency_at_reference = match self.beside(way) {
            _ if id.forwarding == Forwarding::None => round.latency.clone(),
            Some(pps) => latency(pps)?.into_iter().next(),
            None => None,
        };
        round.allocations = self.memory(id, ready, LATENCY_LOAD * pps, progress)?;
        let at_throughput = self.load(id, ready, ("at the throughput", pps), progress)?;
        let way = &mut self.courses[way].way;
        way.setup.ceilings_pps.push(pps);
        way.setup.at_ceiling.extend(at_throughput);
        way.rounds.push(round);
        Ok(())
    }

    /// The throughput of no program in the round of `way`, on as many cores; it has its turn first.
    fn beside(&self, way: usize) -> Option<f64> {
        let Course { id, way: Configuration { rounds, .. }, .. } = &self.courses[way];
        let none = self.courses.iter().find(|c| c.id.cores == id.cores && c.id.forwarding == Forwarding::None)?;
        none.way.rounds.get(rounds.len())?.throughput_pps
    }

    fn load(
        &mut self,
        id: WayId,
        ready: &mut StandingBox,
        (why, pps): (&str, f64),
        progress: &mut dyn Progress,
    ) -> Result<Option<Step>, BenchError> {
        let of_box = self.plan.beds.iter().find(|(n, _)| *n == id.cores).map_or(&[][..], |(_, split)| &split.of_box);
        let found =
            methods::load(&mut self.bench(&mut *ready.tester, true), of_box, why, pps, self.plan.options.duration)?;
        Ok(match found {
            Answer::Measured(step) => Some(step),
            Answer::Not { reason } => {
                self.remark(id, &reason, progress);
                None
            }
        })
    }

    fn remark(&mut self, id: WayId, why: &str, progress: &mut dyn Progress) {
        progress.line(&format!("  {why}"));
        self.remarks.push(format!("{id}: {why}"));
    }

    /// The loads of a pass, offered to a way: evenly spaced up to a tenth above the best throughput of all, but not beyond what the tester can.
    fn loads(
        &mut self,
        pass: u32,
        way: usize,
        ready: &mut StandingBox,
        progress: &mut dyn Progress,
    ) -> Result<(), BenchError> {
        let id = self.courses[way].id;
        let of_bed = self.courses.iter().filter(|c| c.id.cores == id.cores);
        let best = of_bed.flat_map(|c| c.way.setup.ceilings_pps.iter().copied()).fold(0.0, f64::max);
        let ceiling_pps = self.ceiling_of(id.cores);
        let all = rates(best, self.plan.options.loads);
        for (_, pps) in all.into_iter().enumerate().filter(|(i, _)| self.plan.is_turn(pass, *i)) {
            if pps > 0.0 && ceiling_pps.is_some_and(|most| pps <= most) {
                let step = self.load(id, ready, ("CPU time over the load", pps), progress)?;
                self.courses[way].way.setup.steps.extend(step);
            }
        }
        Ok(())
    }

    fn goal(&self) -> &Goal {
        &self.plan.settings.preset.goals[0]
    }

    fn ceiling_of(&self, cores: u32) -> Option<f64> {
        self.ceilings.iter().find(|(of, _)| *of == cores).map(|(_, pps)| *pps)
    }

    fn found(self, facts: Facts) -> Result<RouteCompare, BenchError> {
        let plan = self.plan;
        let bed = |(cores, arrangement)| Bed { cores, arrangement, ceiling_pps: self.ceiling_of(cores) };
        let (beds, goal) = (plan.arrangements().map(bed).collect(), self.goal().clone());
        let mut found = RouteCompare {
            timestamp: facts.timestamp,
            version: env!("CARGO_PKG_VERSION").into(),
            machine: facts.machine,
            frame_bytes: FRAME_BYTES,
            flows: FLOW_COUNT,
            goal,
            rounds: plan.options.rounds,
            latency_load: LATENCY_LOAD,
            seconds_per_step: plan.options.duration.as_secs_f64(),
            frequency_hz: FREQUENCY_HZ,
            beds,
            configurations: Vec::new(),
            skipped: self.skipped,
            allocations_method: METHOD.into(),
            sources: sources::router_figures(),
            conclusion: String::new(),
            notes: Vec::new(),
        };
        found.configurations = self.courses.into_iter().filter(|c| !c.gone).map(|c| summed_up(c.way)).collect();
        if found.configurations.is_empty() {
            let why = found.skipped.last().map_or_else(String::new, |l| l.reason.clone());
            return Err(BenchError::Machine(why));
        }
        let nothing = found.configurations.iter().all(|w| w.setup.ceilings_pps.is_empty());
        let verdicts = || found.configurations.iter().flat_map(|w| &w.rounds).map(|r| &r.verdict);
        if let Some(why) = verdicts().find_map(conclusion::void).filter(|_| nothing) {
            return Err(BenchError::Machine(format!(
                "no trial could be believed: {why}; end what else runs on the CPUs, or name others with --cpus"
            )));
        }
        conclusion::gains(&mut found);
        found.conclusion = conclusion::conclusion(&found);
        found.notes = conclusion::notes(&found);
        found.notes.extend(conclusion::remarks(self.remarks));
        Ok(found)
    }
}
