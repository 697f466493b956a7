//! `bench --dut guest`: a guest that QEMU runs as the box.

use ::bench::guest::{Asked, Plan, carry_out};
use ::guest::{Kernel, Nic};
use anyhow::anyhow;
use host::Host;
use model::{
    bench::guest::{Fares, SCHEMA},
    schema::Document,
};
use report::Look;
use sys::privilege;

use super::BenchArgs;
use crate::{
    failure::{Failure, Outcome, note, print},
    long_run::{LAB_CAPABILITIES, interrupted, json_text, long_run, put_out},
};

/// The word for `--dut`.
pub(super) const KEY: &str = "guest";
/// Runs of each burst.
const RUNS: u32 = 3;

/// Counts, and shows.
pub(super) fn run(args: &BenchArgs, host: &Host) -> Result<Outcome, Failure> {
    if args.dut.len() > 1 {
        return Err(Failure::usage(anyhow!("a guest is measured by itself: name no other box beside `--dut guest`")));
    }
    let (as_json, page) = args.output.for_flood().map_err(|option| {
        Failure::usage(anyhow!("{option} is not for `--dut guest`: its results are text and --json"))
    })?;
    if page.is_some() {
        return Err(Failure::usage(anyhow!("--html is not for `--dut guest`: its results are text and --json")));
    }
    let kernel = Kernel::open(args.guest_kernel.as_deref())?;
    let nics = if args.nic.is_empty() { Nic::MODELS.to_vec() } else { args.nic.clone() };
    let runs = args.repeats.unwrap_or(RUNS);
    let plan = Plan::new(Asked { nics, runs, exit_ns: args.exit_ns }, &kernel);
    if args.dry_run {
        let names: Vec<String> = plan.asked.nics.iter().map(ToString::to_string).collect();
        let left_out: String = plan.left_out.iter().map(|left| format!("Left out, {left}.\n")).collect();
        return print(&format!(
            "Linux {} in a guest with {}, {runs} runs of each burst.\n{left_out}",
            kernel.release,
            names.join(", ")
        ))
        .map(|()| Outcome::Fine);
    }
    if plan.asked.nics.is_empty() {
        return Err(Failure::lacking(anyhow!("no card model is left; {}", plan.left_out.join("; "))));
    }
    privilege::require_root("bench", &LAB_CAPABILITIES)?;
    let program = std::env::current_exe().map_err(|e| Failure::lacking(anyhow!("cannot find this program: {e}")))?;
    note(format_args!("evenkeel: guests of Linux {} with {} card models", kernel.release, plan.asked.nics.len()));
    let Some(found) = long_run(|stop, bar| carry_out(&plan, (host, &kernel, &program), stop, bar))? else {
        return interrupted("run");
    };
    let text = match as_json {
        true => json_text(&Document::new("bench.guest", SCHEMA, &found))?,
        false => report::guest_text(&found, Look::of_stdout()),
    };
    put_out(&text, None, || Ok::<_, Failure>(String::new()))?;
    let all = found.cards.iter().all(|card| card.verbs.iter().all(|verb| verb.fares != Fares::Fails));
    Ok(if all { Outcome::Fine } else { Outcome::No })
}
