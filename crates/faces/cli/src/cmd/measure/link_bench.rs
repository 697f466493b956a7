//! `link bench`: messages over link beside UDP, TCP and bare frames.

use std::{io, path::PathBuf};

use clap::Args;
use host::{Host, Root};
use messages::{
    MessagesError,
    bench::{BenchOptions, Between, Plan, answer, carry_out, carry_out_between},
};
use model::{CpuSet, link_bench::LinkBench, run::Machine};
use rig::cores;
use sys::privilege;

use super::{once, others::OthersArgs};
use crate::{
    dry_run::{DryRun, times},
    failure::{Failure, Outcome, note},
    long_run::{Found, LAB_CAPABILITIES, measure},
    numbers::number,
    results::OutFile,
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
///     evenkeel link bench eth1 --with root@n2
///
/// Without INTERFACE it makes two nodes in network namespaces with a wire between them, and removes them. With it, the other end runs on another machine,
/// which ssh reaches, and frames cross the real link. No broker and no other program is touched, but two CPUs are busy: run it on machines that serve nobody.
#[derive(Debug, Args)]
pub(crate) struct BenchArgs {
    /// This machine's interface, with --with.
    #[arg(value_name = "INTERFACE", requires = "with", value_parser = crate::args::interface)]
    interface: Option<String>,
    /// The other machine: host, user@host or ssh://user@host:port.
    ///
    /// evenkeel is installed there, of the same version, and runs as root.
    #[arg(long, value_name = "NODE", requires = "interface", help_heading = "Other machines")]
    with: Option<String>,
    /// The CPU of its end [default: its first that is online, not isolated].
    #[arg(long, hide_short_help = true, value_name = "CPU", requires = "with", help_heading = "Other machines")]
    peer_cpu: Option<u32>,
    #[command(flatten)]
    others: OthersArgs,
    /// A first look: 1 round, fewer sizes and links, 500 messages, 90 MB.
    #[arg(long, help_heading = "Measurements")]
    quick: bool,
    /// Print the plan and its time, then exit.
    #[arg(long, help_heading = "Measurements")]
    dry_run: bool,
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

pub(super) fn run(args: &BenchArgs) -> Result<Outcome, Failure> {
    let host = Host::read(&Root::live())?;
    let (rounds, messages, megabytes) = if args.quick { QUICK } else { USUAL };
    let options = BenchOptions {
        cpus: cores::usable(&host, args.cpus.as_ref())?,
        rounds: args.repeats.unwrap_or(rounds),
        messages: args.messages.unwrap_or(messages),
        transfer_bytes: args.megabytes.unwrap_or(megabytes) * 1_000_000,
        quick: args.quick,
    };
    if args.dry_run {
        return plan(options, args.interface.is_some())?.print("link.bench.plan", args.json);
    }
    let machine = host::machine::describe(&host);
    if let (Some(interface), Some(node)) = (&args.interface, &args.with) {
        let between = between(args, interface, node, machine)?;
        privilege::require_root("link bench", &LAB_CAPABILITIES)?;
        let page = OutFile::open(args.html.as_deref(), LinkBench::PAGE)?;
        let plan = |mtu| Plan::between(options, mtu);
        return measure(
            "measurement",
            (args.json, page),
            |_| true,
            |control| carry_out_between(between, plan, control),
        );
    }
    let plan = Plan::new(options)?;
    privilege::require_root("link bench", &LAB_CAPABILITIES)?;
    let page = OutFile::open(args.html.as_deref(), LinkBench::PAGE)?;
    let rounds = plan.options.rounds;
    let word = if rounds == 1 { "round" } else { "rounds" };
    note(format_args!("evenkeel: {rounds} {word} of {} steps", plan.steps.len()));
    measure("measurement", (args.json, page), |_| true, |control| carry_out(&plan, machine, control))
}

/// A step besides its messages or bytes takes about so many seconds.
const STEP_S: f64 = 1.0;

/// The steps of a run, and its time.
fn plan(options: BenchOptions, between: bool) -> Result<DryRun, Failure> {
    let plan = if between { Plan::between(options, MTU)? } else { Plan::new(options)? };
    let rounds = plan.options.rounds;
    let steps = once(plan.steps.iter().map(|step| format!("{step}, {}", times(rounds))));
    Ok(DryRun { seconds: STEP_S * f64::from(rounds) * plan.steps.len() as f64, steps })
}

/// The MTU of Ethernet, for a plan that asks no other machine.
const MTU: u32 = 1500;

/// The run between two machines.
fn between(args: &BenchArgs, interface: &str, node: &str, machine: Machine) -> Result<Between, Failure> {
    if node.contains(',') {
        return Err(MessagesError::Name(node.to_owned()).into());
    }
    let cpu = args.peer_cpu.map(|cpu| format!("--cpu={cpu}"));
    let words: Vec<&str> = ["link", "bench-end"].into_iter().chain(cpu.as_deref()).collect();
    let other = args.others.reach(node, &words, interface)?;
    Ok(Between { interface: interface.to_owned(), machine, other })
}

/// The other end of a run between two machines: started there by ssh, and told what to do on its standard input.
#[derive(Debug, Args)]
pub(crate) struct EndArgs {
    /// Its interface.
    #[arg(value_name = "INTERFACE", value_parser = crate::args::interface)]
    interface: String,
    /// Its CPU.
    #[arg(long, value_name = "CPU")]
    cpu: Option<u32>,
}

/// Is that end, until its input ends.
pub(super) fn end(args: &EndArgs) -> Result<Outcome, Failure> {
    privilege::require_root("link bench", &LAB_CAPABILITIES)?;
    let host = Host::read(&Root::live())?;
    let wanted = args.cpu.map(|cpu| CpuSet::from_iter([cpu]));
    let cpu = cores::usable(&host, wanted.as_ref())?.iter().next().ok_or(MessagesError::Cpus(0))?;
    let input = io::BufReader::new(io::stdin());
    answer(&args.interface, host::machine::describe(&host), cpu, input, io::stdout())?;
    Ok(Outcome::Fine)
}
