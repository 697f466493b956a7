//! `evenkeel route compare`: the ways to forward beside each other, on boxes of a lab.

use std::{path::PathBuf, time::Duration};

use bench::route_compare::{Forwarding, Options, Plan, RealStage, carry_out};
use clap::Args;
use host::{Host, Root};
use model::units::duration_words;
use model::{
    CpuSet,
    route_compare::{Configuration, RouteCompare, Skipped},
    schema::Document,
};
use report::Look;
use rig::cores;
use serde::Serialize;
use sys::privilege;

use crate::{
    cmd::measure::bench::ratio,
    failure::{Failure, Outcome, note, print},
    long_run::{Found, LAB_CAPABILITIES, measure},
    numbers::{number, words},
    results::{OutFile, json_text},
    time::within,
};

/// Measurements of `--quick`, and otherwise.
const QUICK: Length = Length { duration: Duration::from_millis(300), repeats: 1, loads: 4 };
const USUAL: Length = Length { duration: Duration::from_secs(1), repeats: 3, loads: 8 };
/// The version of the schema `evenkeel.route.compare.plan/<version>`.
const PLAN_SCHEMA: u32 = 1;

struct Length {
    duration: Duration,
    repeats: u32,
    loads: u32,
}

const MODES: [(&str, &str, Forwarding); 4] = [
    ("none", "The kernel, without a program", Forwarding::None),
    ("standard", "The kernel, with the programs on the ports", Forwarding::Standard),
    ("routed", "The fast path", Forwarding::Routed),
    ("stateful", "The fast path for established connections", Forwarding::Stateful),
];

/// Measure what the modes forward and cost, beside the kernel alone.
///
///     evenkeel route compare --html page.html
///     evenkeel route compare --quick --modes none,routed
///
/// It builds routers of this kernel in network namespaces, one after the other, and removes them. Your own router is not touched, but its CPUs are
/// busy: run it on a machine that serves nobody.
///
/// In each round every mode has its turn: throughput, then latency, pages and socket buffers at half of it. Then all are offered the same rising
/// loads, and the CPU time of the box is sampled by class of work.
///
/// Exit codes: 0 every mode has a throughput of its own in each round; 1 one has none, or the tester was the limit; 2 wrong usage; 3 the machine lacks
/// something.
#[derive(Debug, Args)]
pub(crate) struct CompareArgs {
    /// Modes to compare [default: all].
    #[arg(long, value_name = "LIST", value_parser = words(&MODES), value_delimiter = ',', help_heading = "Measurements")]
    modes: Vec<Forwarding>,
    /// A first look: 1 round, 4 loads, 300 ms each.
    #[arg(long, help_heading = "Measurements")]
    quick: bool,
    /// Length of a full trial and of each load, 100ms to 1m [default: 1s].
    #[arg(long, value_name = "TIME", value_parser = within("100ms", "1m"), help_heading = "Measurements")]
    duration: Option<Duration>,
    /// Rounds, 1 to 20. Fewer than 3 give no verdict [default: 3].
    #[arg(long, value_name = "N", value_parser = number::<u32>("a number of rounds", "3", 1..=20), help_heading = "Measurements")]
    repeats: Option<u32>,
    /// Number of loads, 1 to 50 [default: 8].
    #[arg(long, hide_short_help = true, value_name = "N", value_parser = number::<u32>("a number of loads", "8", 1..=50), help_heading = "Measurements")]
    loads: Option<u32>,
    /// Loss that a throughput may have, such as 0.1% or 0.001 [default: 0.1%].
    #[arg(long, hide_short_help = true, value_name = "RATIO", value_parser = ratio, help_heading = "Measurements")]
    loss_ratio: Option<f64>,
    /// CPUs, such as 2-5: the first sends, the next two are the box's [default: all online, not isolated].
    #[arg(long, value_name = "CPUS", help_heading = "Measurements")]
    cpus: Option<CpuSet>,
    /// Print the plan and its time, then exit.
    #[arg(long, help_heading = "Measurements")]
    dry_run: bool,
    /// Write a page with the charts.
    #[arg(long, value_name = "FILE", help_heading = "Results")]
    html: Option<PathBuf>,
    /// Print JSON (schema evenkeel.route.compare/1) instead of text.
    #[arg(long, help_heading = "Results")]
    json: bool,
}

impl CompareArgs {
    /// Checks everything that can be checked before anything is made.
    fn plan(&self, host: &Host) -> Result<Plan, Failure> {
        let length = if self.quick { QUICK } else { USUAL };
        Ok(Plan::new(Options {
            ways: if self.modes.is_empty() { Forwarding::ALL.to_vec() } else { self.modes.clone() },
            cpus: cores::usable(host, self.cpus.as_ref())?,
            duration: self.duration.unwrap_or(length.duration),
            rounds: self.repeats.unwrap_or(length.repeats),
            loads: self.loads.unwrap_or(length.loads),
            loss_ratio: self.loss_ratio,
        })?)
    }
}

impl CompareArgs {
    pub(crate) fn run(&self) -> Result<Outcome, Failure> {
        run(self)
    }
}

fn run(args: &CompareArgs) -> Result<Outcome, Failure> {
    let host = Host::read(&Root::live())?;
    let plan = args.plan(&host)?;
    if args.dry_run {
        let shown = if args.json { plan_json(&plan)? } else { plan_text(&plan) };
        return print(&shown).map(|()| Outcome::Fine);
    }
    privilege::require_root("route compare", &LAB_CAPABILITIES)?;
    let page = OutFile::open(args.html.as_deref(), RouteCompare::PAGE)?;
    note(format_args!("evenkeel: {} steps, about {}", plan.steps.len(), duration_words(plan.seconds())));
    for left in &plan.skipped {
        note(format_args!("left out, {}: {}", left.what, left.reason));
    }
    let machine = host::machine::describe(&host);
    measure("comparison", (args.json, page), answered, |control| -> Result<_, Failure> {
        let mut stage = RealStage::new(&plan)?;
        Ok(carry_out(&plan, machine, &mut stage, control)?)
    })
}

fn answered(found: &RouteCompare) -> bool {
    found.configurations.iter().all(Configuration::answered)
}

/// The plan of a comparison (`evenkeel.route.compare.plan/1`).
#[derive(Serialize)]
struct PlanShown<'a> {
    /// Seconds that all steps take.
    seconds: f64,
    steps: Vec<StepShown<'a>>,
    skipped: &'a [Skipped],
}

#[derive(Serialize)]
struct StepShown<'a> {
    name: &'a str,
    seconds: f64,
}

fn plan_json(plan: &Plan) -> Result<String, Failure> {
    let steps = plan.steps.iter().map(|s| StepShown { name: &s.name, seconds: s.seconds }).collect();
    let shown = PlanShown { seconds: plan.seconds(), steps, skipped: &plan.skipped };
    json_text(&Document::new("route.compare.plan", PLAN_SCHEMA, shown))
}

fn plan_text(plan: &Plan) -> String {
    let look = Look::of_stdout();
    let mut text = String::new();
    for (_, arrangement) in plan.arrangements() {
        let roles: Vec<String> = arrangement.roles.iter().map(|r| format!("CPU {} {}", r.cpus, r.role)).collect();
        text += &look.paragraph(&format!("{}.", roles.join("; ")));
    }
    for left in &plan.skipped {
        text += &look.paragraph(&format!("Left out, {}: {}.", left.what, left.reason));
    }
    text.push('\n');
    let rows = plan.steps.iter().enumerate();
    let rows = rows.map(|(i, step)| vec![(i + 1).to_string(), step.name.clone(), duration_words(step.seconds)]);
    text += &look.table(&[">STEP", "WHAT", ">ABOUT"], rows);
    text + &look.paragraph(&format!("\n{} steps, about {} in all.", plan.steps.len(), duration_words(plan.seconds())))
}
