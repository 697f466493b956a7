//! `link speedup`: what communication costs as nodes are added.

use std::{io, path::PathBuf, time::Duration};

use anyhow::anyhow;
use clap::Args;
use host::{Host, Root};
use messages::{
    remote::Reach,
    speedup::{NODES_MAX, Plan, SpeedupOptions, Transport, answer_as_node, carry_out, carry_out_between},
};
use model::speedup::{Exchange, LinkSpeedup};
use model::units::duration_words;
use sys::privilege;

use super::others::OthersArgs;
use crate::{
    dry_run::DryRun,
    failure::{Failure, Outcome, note},
    long_run::{Found, LAB_CAPABILITIES, measure},
    numbers::{number, words},
    results::OutFile,
    time::within,
    unit::program,
};

/// Numbers of nodes, rounds and steps of `--quick`, and otherwise.
const QUICK: (&[u32], u32, u32) = (&[1, 2, 4, 8], 5, 5);
const USUAL: (&[u32], u32, u32) = (&[1, 2, 3, 4, 5, 6, 7, 8], 20, 10);
/// The longest message: the room of a connection is 256 frames.
const BYTES_MAX: u32 = 262_144;

/// The verb of a node.
const VERB: [&str; 2] = ["link", "speedup-node"];

const EXCHANGES: [(&str, &str, &[Exchange]); 3] = [
    ("all-reduce", "Each node sends its values to each other one, and adds up all", &[Exchange::AllReduce]),
    ("neighbour", "The nodes are a ring, and each sends its values to both sides", &[Exchange::Neighbour]),
    ("both", "One after the other", &[Exchange::AllReduce, Exchange::Neighbour]),
];
const CARRIERS: [(&str, &str, &[Transport]); 3] = [
    ("link", "Messages of link", &[Transport::Link]),
    ("tcp", "TCP connections", &[Transport::Tcp]),
    ("both", "In turns", &[Transport::Link, Transport::Tcp]),
];

/// Measure what communication costs as nodes are added.
///
///     evenkeel link speedup --html page.html
///
///     evenkeel link speedup --quick
///
///     evenkeel link speedup --nodes 1,2,4,8 --exchange all-reduce --size 65536
///
///     evenkeel link speedup eth1 --with root@n2,root@n3,root@n4
///
/// It fits a and n of S(N) = N / ((1 - a) + a N + n N^3) to the times of steps of 1 to 8 nodes, and shows how many nodes are best. Without INTERFACE the nodes are network namespaces
/// of this machine, which it makes and removes, and which share its CPUs. With it they are this machine and those of --with. Computing is emulated by waiting. Run it on machines that
/// serve nobody.
#[derive(Debug, Args)]
pub(crate) struct SpeedupArgs {
    /// This machine's interface, with --with.
    #[arg(value_name = "INTERFACE", requires = "with", value_parser = crate::args::interface)]
    interface: Option<String>,
    /// The other machines: host, user@host or ssh://user@host:port; commas separate them.
    ///
    /// evenkeel is installed there, of the same version, and runs as root.
    #[arg(long, value_name = "NODE", value_delimiter = ',', requires = "interface", help_heading = "Other machines")]
    with: Vec<String>,
    #[command(flatten)]
    others: OthersArgs,
    /// A first look: 1, 2, 4, 8 nodes, 5 rounds.
    #[arg(long, help_heading = "Measurements")]
    quick: bool,
    /// Print the plan and its time, then exit.
    #[arg(long, help_heading = "Measurements")]
    dry_run: bool,
    /// Three or more numbers of nodes [default: 1 to 8].
    #[arg(long, value_name = "LIST", value_delimiter = ',', value_parser = number::<u32>("numbers of nodes", "1,2,4,8", 1..=NODES_MAX), help_heading = "Measurements")]
    nodes: Vec<u32>,
    /// Computing of a step on one node.
    ///
    /// 1ms to 1s. It is a wait; what can be divided of it is divided by the number of nodes.
    #[arg(long, value_name = "TIME", default_value = "20ms", value_parser = within("1ms", "1s"), help_heading = "Measurements")]
    step: Duration,
    /// Share that is not divided.
    ///
    /// From 0 to below 1, such as 5% or 0.05.
    #[arg(long, value_name = "SHARE", default_value = "0.05", value_parser = share, help_heading = "Measurements")]
    serial: f64,
    /// Exchange after each step.
    #[arg(long, value_name = "EXCHANGE", default_value = "both", value_parser = words(&EXCHANGES), help_heading = "Measurements")]
    exchange: &'static [Exchange],
    /// Carrier of the messages.
    #[arg(long, value_name = "CARRIER", default_value = "both", value_parser = words(&CARRIERS), help_heading = "Measurements")]
    carrier: &'static [Transport],
    /// Bytes that one node sends another.
    ///
    /// 1 to 262144, in each step to each node that it exchanges with.
    #[arg(long, value_name = "BYTES", default_value = "8192", value_parser = number::<u32>("a number of bytes", "8192", 1..=BYTES_MAX), help_heading = "Measurements")]
    size: u32,
    /// Rounds, 3 to 1000 [default: 20].
    ///
    /// The intervals come from what differs between them.
    #[arg(long, value_name = "N", value_parser = number::<u32>("a number of rounds", "20", 3..=1000), help_heading = "Measurements")]
    repeats: Option<u32>,
    /// Steps of a turn, 1 to 1000 [default: 10].
    ///
    /// In each round every number of nodes, exchange and carrier has a turn.
    #[arg(long, value_name = "N", value_parser = number::<u32>("a number of steps", "10", 1..=1000), help_heading = "Measurements")]
    count: Option<u32>,
    /// Write a page with the charts.
    #[arg(long, value_name = "FILE", help_heading = "Output")]
    html: Option<PathBuf>,
    /// Print JSON (schema evenkeel.link.speedup/1) instead of text.
    #[arg(long, help_heading = "Output")]
    json: bool,
}

/// A share of a step that leaves something to divide.
fn share(text: &str) -> Result<f64, String> {
    let (number, scale) = text.strip_suffix('%').map_or((text, 1.0), |number| (number, 0.01));
    let share = number.trim().parse::<f64>().ok().map(|share| share * scale).filter(|share| (0.0..1.0).contains(share));
    share.ok_or_else(|| "write a share from 0 to below 1, such as 5% or 0.05".to_owned())
}

pub(super) fn run(args: &SpeedupArgs) -> Result<Outcome, Failure> {
    if let (Some(_), 0 | 1) = (&args.interface, args.with.len()) {
        return Err(Failure::usage(anyhow!(
            "the model needs at least three nodes: name two or more machines with --with, commas between"
        )));
    }
    let (nodes, rounds, steps) = if args.quick { QUICK } else { USUAL };
    let nodes = match (args.nodes.as_slice(), args.with.len() as u32) {
        ([], 0) => nodes.to_vec(),
        ([], others) => (1..=others + 1).collect(),
        (given, _) => given.to_vec(),
    };
    let plan = Plan::new(SpeedupOptions {
        nodes,
        step: args.step,
        serial_share: args.serial,
        exchanges: args.exchange.to_vec(),
        carriers: args.carrier.to_vec(),
        bytes: args.size,
        rounds: args.repeats.unwrap_or(rounds),
        steps: args.count.unwrap_or(steps),
    })?;
    // One round more warms up.
    let about = plan.round_s() * f64::from(plan.options.rounds + 1);
    if args.dry_run {
        let nodes: Vec<String> = plan.options.nodes.iter().map(ToString::to_string).collect();
        let steps = vec![
            format!("nodes: {}", nodes.join(", ")),
            format!("{} rounds of {} turns, {} steps each", plan.options.rounds, plan.trials.len(), plan.options.steps),
        ];
        return DryRun { steps, seconds: about }.print("link.speedup.plan", args.json);
    }
    let all = match &args.interface {
        Some(interface) => Some((interface, machines(args, interface)?)),
        None => None,
    };
    privilege::require_root("link speedup", &LAB_CAPABILITIES)?;
    let page = OutFile::open(args.html.as_deref(), LinkSpeedup::PAGE)?;
    note(format_args!(
        "evenkeel: {} rounds of {} turns, about {}",
        plan.options.rounds,
        plan.trials.len(),
        duration_words(about)
    ));
    let machine = host::machine::describe(&Host::read(&Root::live())?);
    let fitted = |found: &LinkSpeedup| found.series.iter().any(|series| series.fitting.law.is_some());
    measure("measurement", (args.json, page), fitted, |control| match all {
        Some((interface, all)) => carry_out_between(&plan, interface, all, machine, control),
        None => carry_out(&plan, machine, control),
    })
}

/// The command that reaches each machine: this one first, without ssh.
fn machines(args: &SpeedupArgs, interface: &str) -> Result<Vec<Reach>, Failure> {
    let program = program()?;
    let mut all = vec![Reach::here(&program, &[VERB[0], VERB[1], "--", interface])];
    for node in &args.with {
        all.push(args.others.reach(node, &VERB, interface)?);
    }
    Ok(all)
}

/// The node of a machine: started there by ssh, and told what to do on its standard input.
#[derive(Debug, Args)]
pub(crate) struct NodeArgs {
    /// Its interface.
    #[arg(value_name = "INTERFACE", value_parser = crate::args::interface)]
    interface: String,
}

/// Runs as that node, until its input ends.
pub(super) fn node(args: &NodeArgs) -> Result<Outcome, Failure> {
    privilege::require_root("link speedup", &LAB_CAPABILITIES)?;
    let machine = host::machine::describe(&Host::read(&Root::live())?);
    answer_as_node(&args.interface, machine, io::BufReader::new(io::stdin()), io::stdout())?;
    Ok(Outcome::Fine)
}

#[cfg(test)]
mod tests {
    use super::share;

    #[test]
    fn a_share_leaves_something_to_divide() {
        assert_eq!((share("5%"), share("0"), share("0.25")), (Ok(0.05), Ok(0.0), Ok(0.25)));
        for wrong in ["1", "100%", "-0.1", "x", "NaN", "inf", ""] {
            assert!(share(wrong).is_err_and(|message| message.contains("0.05")), "{wrong}");
        }
    }
}
