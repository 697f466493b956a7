//! Carries a comparison out: the tester's ceilings, the rounds with the ways in turn, the loads with the ways in turn.

use std::{
    sync::atomic::{AtomicBool, Ordering},
    time::Instant,
};

use model::{
    Classified, ErrorClass,
    bench::{FrameSpec, Throughput},
    route_compare::{Allocations, Bed, LeftOut, Round, RouteCompare, Way},
    run::Machine,
    sources,
    sweep::Step,
};
use rig::progress::{self, Progress};
use sweep::rates;

use super::{
    Stage, StartCount, conclusion,
    memory::{Counting, METHOD},
    plan::{FLOWS, FRAME_BYTES, Forwarding, LATENCY_LOAD, Plan, PlannedStep, WayId, What},
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

/// Measures what `plan` says. `stop` ends it early, with none.
///
/// # Errors
/// Going on is useless: the lab, the tester or what watches the box fails, or none of the ways can be built here.
pub fn carry_out(
    plan: &Plan,
    machine: Machine,
    stage: &mut dyn Stage,
    stop: &AtomicBool,
    progress: &mut dyn Progress,
) -> Result<Option<RouteCompare>, BenchError> {
    let patience = Patience::default();
    let mut carried = Carry::new(plan, machine, (stop, &patience), progress);
    let begun = Instant::now();
    let mut planned_s = 0.0;
    for (number, step) in plan.steps.iter().enumerate() {
        if stop.load(Ordering::Relaxed) {
            return Ok(None);
        }
        if carried.is_gone(step.what) {
            continue;
        }
        // A few seconds say nothing about how well the estimate holds.
        let held = if planned_s < 5.0 { 1.0 } else { begun.elapsed().as_secs_f64() / planned_s };
        let left: f64 = plan.steps[number..].iter().map(|s| s.seconds).sum();
        let (name, of) = (step.name.clone(), plan.steps.len());
        let left_s = Some(left * held.clamp(0.1, 10.0));
        carried.progress.begin(&progress::Step { name, number: number + 1, of, left_s });
        match carried.step(step, stage) {
            Err(BenchError::Interrupted) => return Ok(None),
            other => other?,
        }
        planned_s += step.seconds;
    }
    carried.end().map(Some)
}

/// A way and the figures of it so far.
struct Course {
    id: WayId,
    way: Way,
    /// It cannot be built here.
    gone: bool,
}

struct Carry<'a> {
    plan: &'a Plan,
    stop: &'a AtomicBool,
    patience: &'a Patience,
    progress: &'a mut dyn Progress,
    found: RouteCompare,
    courses: Vec<Course>,
    remarks: Vec<String>,
    /// Nothing counts memory here.
    uncounted: bool,
}

impl<'a> Carry<'a> {
    fn new(
        plan: &'a Plan,
        machine: Machine,
        (stop, patience): (&'a AtomicBool, &'a Patience),
        progress: &'a mut dyn Progress,
    ) -> Self {
        let beds = plan.arrangements().map(|(cores, arrangement)| Bed { cores, arrangement, ceiling_pps: None });
        let found = RouteCompare {
            when: host::machine::now(),
            version: env!("CARGO_PKG_VERSION").into(),
            machine,
            frame_bytes: FRAME_BYTES,
            flows: FLOWS,
            goal: plan.settings.preset.goals[0].clone(),
            rounds: plan.asked.rounds,
            latency_load: LATENCY_LOAD,
            seconds_per_step: plan.asked.duration.as_secs_f64(),
            frequency_hz: FREQUENCY_HZ,
            beds: beds.collect(),
            ways: Vec::new(),
            left_out: plan.left_out.clone(),
            allocations_method: METHOD.into(),
            sources: sources::router_figures(),
            conclusion: String::new(),
            notes: Vec::new(),
        };
        let courses = plan.ways.iter().map(|&id| Course { id, way: empty(id), gone: false }).collect();
        Self { plan, stop, patience, progress, found, courses, remarks: Vec::new(), uncounted: false }
    }

    fn is_gone(&self, what: What) -> bool {
        match what {
            What::Ceiling { .. } => false,
            What::Round { way, .. } | What::Loads { way, .. } => self.courses[way].gone,
        }
    }

    fn step(&mut self, step: &PlannedStep, stage: &mut dyn Stage) -> Result<(), BenchError> {
        match step.what {
            What::Ceiling { cores } => stage.with(cores, WIRE, &mut |ready| {
                self.patience.begin(step.seconds, ready.tester.now());
                let done = self.ceiling(cores, ready);
                self.patience.end(ready.tester.now());
                done
            }),
            What::Round { way, .. } => {
                let count = stage.count(self.courses[way].id.cores);
                self.with((way, step.seconds), stage, &mut |this, ready| this.round(way, ready, &count))
            }
            What::Loads { pass, way } => {
                self.with((way, step.seconds), stage, &mut |this, ready| this.loads(pass, way, ready))
            }
        }
    }

    /// Measures a way. One that cannot be built here is left out, with the reason.
    fn with(
        &mut self,
        (way, planned_s): (usize, f64),
        stage: &mut dyn Stage,
        work: &mut dyn FnMut(&mut Self, &mut StandingBox<'_>) -> Result<(), BenchError>,
    ) -> Result<(), BenchError> {
        let WayId { forwarding, cores } = self.courses[way].id;
        let mut stands = false;
        let done = stage.with(cores, forwarding.kind().key(), &mut |ready| {
            stands = true;
            self.introduce(way, ready);
            self.patience.begin(planned_s, ready.tester.now());
            let done = work(self, ready);
            self.patience.end(ready.tester.now());
            done
        });
        match done {
            Err(error) if !stands && error.class() == ErrorClass::Lacking => {
                self.courses[way].gone = true;
                let what = self.courses[way].id.to_string();
                self.progress.line(&format!("  left out: {what}: {error}"));
                self.found.left_out.push(LeftOut { what, why: error.to_string() });
                Ok(())
            }
            other => other,
        }
    }

    fn introduce(&mut self, way: usize, ready: &StandingBox<'_>) {
        let setup = &mut self.courses[way].way.setup;
        setup.what.clone_from(&ready.identity.what);
        setup.settings.clone_from(&ready.identity.settings);
    }

    /// Memory of each packet of a way at `pps`. The counter comes and goes with it: it costs time.
    fn memory(
        &mut self,
        id: WayId,
        ready: &mut StandingBox<'_>,
        count: &StartCount,
        pps: f64,
    ) -> Result<Option<Allocations>, BenchError> {
        if self.uncounted {
            return Ok(None);
        }
        let counter = match count() {
            Ok(counter) => counter,
            Err(error) => {
                self.uncounted = true;
                let what = "pages and socket buffers".into();
                self.found.left_out.push(LeftOut { what, why: error.to_string() });
                return Ok(None);
            }
        };
        let mut counting = Counting::new(ready.tester, &counter);
        let duration = self.plan.asked.duration;
        match methods::load(&mut self.bench(&mut counting, false), &[], "memory of each packet", pps, duration)? {
            Answer::Measured(_) => Ok(counting.last()),
            Answer::Not { reason } => {
                self.remark(id, &reason);
                Ok(None)
            }
        }
    }

    fn bench<'t>(&self, tester: &'t mut dyn Tester, observe: bool) -> Bench<'t>
    where
        'a: 't,
    {
        let preset = &self.plan.settings.preset;
        let frame = FrameSpec::Size { bytes: FRAME_BYTES };
        Bench {
            tester,
            frame,
            drain: preset.drain,
            observe,
            void_repeats: preset.void_repeats,
            stop: self.stop,
            patience: self.patience,
        }
    }

    /// The ceiling of the tester, without which no box can be judged. A moment in which others have the CPUs does not end the run.
    fn ceiling(&mut self, cores: u32, ready: &mut StandingBox<'_>) -> Result<(), BenchError> {
        let settings = &self.plan.settings.preset.ceiling;
        let mut why = String::new();
        for _ in 0..CEILING_TRIES {
            match methods::ceiling(&mut self.bench(ready.tester, false), settings, self.found.goal.loss_ratio)? {
                Answer::Measured(pps) => {
                    self.progress.update(&model::units::pps(pps));
                    self.found.beds.iter_mut().filter(|b| b.cores == cores).for_each(|b| b.ceiling_pps = Some(pps));
                    return Ok(());
                }
                Answer::Not { reason } => {
                    self.progress.line(&format!("  {reason}"));
                    why = reason;
                }
            }
        }
        Err(BenchError::Machine(format!(
            "the tester has no ceiling of its own: {why}; end what else runs on the CPUs, or name others with --cpus"
        )))
    }

    fn round(&mut self, way: usize, ready: &mut StandingBox<'_>, count: &StartCount) -> Result<(), BenchError> {
        let id = self.courses[way].id;
        let preset = &self.plan.settings.preset;
        let ceiling_pps = self.found.beds.iter().find(|b| b.cores == id.cores).and_then(|b| b.ceiling_pps);
        let searched =
            methods::throughput(&mut self.bench(ready.tester, false), &preset.goals, ceiling_pps.unwrap_or(0.0))?;
        let throughput_pps = searched.pps(0);
        let fails_at_pps = searched.found.first().and_then(|f| f.upper_pps);
        let Throughput { verdict, steps, .. } = searched;
        let mut round =
            Round { throughput_pps, fails_at_pps, verdict, latency: None, latency_beside: None, allocations: None };
        let shown = throughput_pps.map_or_else(|| "no throughput".to_owned(), model::units::pps);
        self.progress.update(&shown);
        let Some(pps) = throughput_pps else {
            steps.last().into_iter().for_each(|why| self.remark(id, why));
            self.courses[way].way.rounds.push(round);
            return Ok(());
        };
        let mut latency = |pps| methods::latency(&mut self.bench(ready.tester, false), &preset.latency, Some(pps));
        round.latency = latency(pps)?.into_iter().next();
        round.latency_beside = match self.beside(way) {
            _ if id.forwarding == Forwarding::None => round.latency.clone(),
            Some(pps) => latency(pps)?.into_iter().next(),
            None => None,
        };
        round.allocations = self.memory(id, ready, count, LATENCY_LOAD * pps)?;
        let at_throughput = self.load(id, ready, "at the throughput", pps)?;
        let way = &mut self.courses[way].way;
        way.setup.ceilings_pps.push(pps);
        way.setup.at_ceiling.extend(at_throughput);
        way.rounds.push(round);
        Ok(())
    }

    /// The throughput of no program in the round of `way`, on as many cores; it has its turn first.
    fn beside(&self, way: usize) -> Option<f64> {
        let Course { id, way: Way { rounds, .. }, .. } = &self.courses[way];
        let none = self.courses.iter().find(|c| c.id.cores == id.cores && c.id.forwarding == Forwarding::None)?;
        none.way.rounds.get(rounds.len())?.throughput_pps
    }

    fn load(
        &mut self,
        id: WayId,
        ready: &mut StandingBox<'_>,
        why: &str,
        pps: f64,
    ) -> Result<Option<Step>, BenchError> {
        let of_box = self.plan.beds.iter().find(|(n, _)| *n == id.cores).map_or(&[][..], |(_, split)| &split.of_box);
        let found = methods::load(&mut self.bench(ready.tester, true), of_box, why, pps, self.plan.asked.duration)?;
        Ok(match found {
            Answer::Measured(step) => Some(step),
            Answer::Not { reason } => {
                self.remark(id, &reason);
                None
            }
        })
    }

    fn remark(&mut self, id: WayId, why: &str) {
        self.progress.line(&format!("  {why}"));
        self.remarks.push(format!("{id}: {why}"));
    }

    /// The loads of a pass, offered to a way: evenly spaced up to a tenth above the best throughput of all, but not beyond what the tester can.
    fn loads(&mut self, pass: u32, way: usize, ready: &mut StandingBox<'_>) -> Result<(), BenchError> {
        let id = self.courses[way].id;
        let of_bed = self.courses.iter().filter(|c| c.id.cores == id.cores);
        let best = of_bed.flat_map(|c| c.way.setup.ceilings_pps.iter().copied()).fold(0.0, f64::max);
        let ceiling_pps = self.found.beds.iter().find(|b| b.cores == id.cores).and_then(|b| b.ceiling_pps);
        let all = rates(best, self.plan.asked.loads);
        for (_, pps) in all.into_iter().enumerate().filter(|(i, _)| self.plan.is_turn(pass, *i)) {
            if pps > 0.0 && ceiling_pps.is_some_and(|most| pps <= most) {
                let step = self.load(id, ready, "CPU time over the load", pps)?;
                self.courses[way].way.setup.steps.extend(step);
            }
        }
        Ok(())
    }

    fn end(self) -> Result<RouteCompare, BenchError> {
        let mut found = self.found;
        found.ways = self.courses.into_iter().filter(|c| !c.gone).map(|c| summed_up(c.way)).collect();
        if found.ways.is_empty() {
            let why = found.left_out.last().map_or_else(String::new, |l| l.why.clone());
            return Err(BenchError::Machine(why));
        }
        let nothing = found.ways.iter().all(|w| w.setup.ceilings_pps.is_empty());
        let verdicts = || found.ways.iter().flat_map(|w| &w.rounds).map(|r| &r.verdict);
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
