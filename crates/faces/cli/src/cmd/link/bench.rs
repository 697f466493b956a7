//! `link bench`: messages over link beside UDP, TCP and bare frames.

use std::path::PathBuf;

use clap::Args;
use host::{Host, Root};
use link::bench::{Asked, Plan, carry_out};
use model::{CpuSet, link_bench::SCHEMA, schema::Document};
use report::Look;
use rig::cores;
use sys::privilege;

use crate::{
    failure::{Failure, Outcome, note},
    long_run::{LAB_CAPABILITIES, OutFile, interrupted, json_text, long_run, put_out},
    numbers::number,
};

/// Rounds, messages and megabytes of `--quick`, and otherwise.
const QUICK: (u32, u32, u64) = (1, 500, 90);
const USUAL: (u32, u32, u64) = (3, 2000, 900);

/// Measure messages and transfers over link beside TCP, UDP and bare frames.
///
///     evenkeel link bench --html page.html
///
///     evenkeel link bench --quick
///
/// It makes two nodes in network namespaces with a wire between them, and removes them. No broker and no other program is touched, but two CPUs are
/// busy: run it on a machine that serves nobody.
#[derive(Debug, Args)]
pub(super) struct BenchArgs {
    /// A first look: 1 round, fewer sizes and links, 500 messages, 90 MB.
    #[arg(long, help_heading = "Measurements")]
    quick: bool,
    /// Rounds, 1 to 20 [default: 3].
    #[arg(long, value_name = "N", value_parser = number::<u32>("a number of rounds", "3", 1..=20), help_heading = "Measurements")]
    repeats: Option<u32>,
    /// Messages there and back of each row and round, 10 to 1000000 [default: 2000].
    #[arg(long, value_name = "N", value_parser = number::<u32>("a number of messages", "2000", 10..=1_000_000), help_heading = "Measurements")]
    messages: Option<u32>,
    /// Megabytes (10^6) of a transfer, 1 to 100000 [default: 900].
    #[arg(long, value_name = "N", value_parser = number::<u64>("a number of megabytes", "900", 1..=100_000), help_heading = "Measurements")]
    megabytes: Option<u64>,
    /// CPUs, such as 2-3: one for each end [default: the first two that are online, not isolated].
    #[arg(long, value_name = "CPUS", help_heading = "Measurements")]
    cpus: Option<CpuSet>,
    /// Write a page with the charts.
    #[arg(long, value_name = "FILE", help_heading = "Output")]
    html: Option<PathBuf>,
    /// Print JSON (schema evenkeel.link.bench/1) instead of text.
    #[arg(long, help_heading = "Output")]
    json: bool,
}

/// Measures, and shows.
pub(super) fn run(args: &BenchArgs) -> Result<Outcome, Failure> {
    let host = Host::read(&Root::live())?;
    let (rounds, messages, megabytes) = if args.quick { QUICK } else { USUAL };
    let plan = Plan::new(Asked {
        cpus: cores::usable(&host, args.cpus.as_ref())?,
        rounds: args.repeats.unwrap_or(rounds),
        messages: args.messages.unwrap_or(messages),
        transfer_bytes: args.megabytes.unwrap_or(megabytes) * 1_000_000,
        quick: args.quick,
    })?;
    privilege::require_root("link bench", &LAB_CAPABILITIES)?;
    let page = OutFile::open(args.html.as_deref(), "page with the charts")?;
    note(format_args!("evenkeel: {} rounds of {} steps", plan.asked.rounds, plan.steps.len()));
    let machine = rig::machine::describe(&host);
    let Some(found) = long_run(|stop, bar| carry_out(&plan, machine, stop, bar))? else {
        drop(page);
        return interrupted("measurement");
    };
    let text = match args.json {
        true => json_text(&Document::new("link.bench", SCHEMA, &found))?,
        false => report::link_bench_text(&found, Look::of_stdout()),
    };
    put_out(&text, page, || report::link_bench_page(&found))?;
    Ok(Outcome::Fine)
}
