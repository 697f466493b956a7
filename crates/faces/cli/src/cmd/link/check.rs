//! `link check`: what is wrong with the cluster.

use std::time::Duration;

use anyhow::anyhow;
use clap::Args;
use doctor::{
    compare::compare,
    nodes::{self, NodesOptions},
};
use host::stack::Hooks;
use link::{
    LinkError,
    broker::{self, Answer, Command},
    check,
};
use model::{
    doctor::{Report, Role},
    doctor_nodes::{Node, Nodes},
    link_check::LinkCheck,
};
use report::{Look, compare_text, link_check_text, nodes_text};

use super::broker_status;
use crate::{
    failure::{Failure, Outcome, json, note_within, print_verdict},
    time::{seconds_within, time},
};

/// Look for what is wrong with the cluster: who answers, MTU, names, versions; with NODE also what doctor finds there.
///
///     evenkeel link check
///
///     evenkeel link check root@n1 root@n2 root@n3
///
/// Every node that link sees is probed, also with the longest frame of this interface. A shorter MTU on this node than on the others shows on those.
#[derive(Debug, Args)]
pub(super) struct CheckArgs {
    /// Machines to run `evenkeel doctor --role cluster` on over ssh, and to compare: host, user@host or ssh://user@host:port.
    #[arg(value_name = "NODE")]
    nodes: Vec<String>,
    /// An option of ssh, as behind its -o: --ssh-option Port=2222.
    #[arg(long, value_name = "OPTION")]
    ssh_option: Vec<String>,
    /// The program on those machines, by name or path.
    #[arg(long, value_name = "PATH", default_value = "evenkeel")]
    program: String,
    /// The longest that one machine may take, 1s to 1h.
    #[arg(long, value_name = "TIME", default_value = "30s", value_parser = seconds_within("1s", "1h"))]
    timeout: u64,
    /// Time to wait for the answer to a probe.
    #[arg(long, short = 'W', value_name = "TIME", default_value = "100ms", value_parser = time)]
    wait: Duration,
    /// Print JSON (schema evenkeel.link.check/1).
    #[arg(long)]
    json: bool,
}

pub(super) fn run(args: &CheckArgs) -> Result<Result<Outcome, Failure>, LinkError> {
    let names = match args.nodes.as_slice() {
        [] => Vec::new(),
        given => match nodes::names(given) {
            Ok(names) => names,
            Err(error) => return Ok(Err(error.into())),
        },
    };
    let status = broker_status()?;
    let mut found = check::check(&status, |address, bytes| {
        match broker::ask(&Command::Ping { address: address.to_owned(), bytes, timeout: args.wait })? {
            Answer::Ping(came) => Ok(came.is_some()),
            // The MTU has changed since; the next status has the new one.
            _ => Ok(false),
        }
    })?;
    // What cannot be read is not judged.
    let filters = Hooks::open().look(&status.interface).ok().flatten();
    found.problems.extend(check::passed_by(&status, filters.as_deref()));
    if !names.is_empty() {
        match machines(args, &names) {
            Ok(machines) => {
                let hosts = |n: &Node| Some((n.node.clone(), n.report.as_ref()?.hostname.clone()));
                let hosts: Vec<_> = machines.nodes.iter().filter_map(hosts).collect();
                let missed = check::missed(&found, &hosts);
                found.problems.extend(missed);
                found.machines = Some(machines);
            }
            Err(failure) => return Ok(Err(failure)),
        }
    }
    Ok(show(&found, args.json))
}

/// Asks each machine for what doctor finds.
fn machines(args: &CheckArgs, names: &[String]) -> Result<Nodes, Failure> {
    let options = NodesOptions {
        ssh_options: args.ssh_option.clone(),
        timeout: Duration::from_secs(args.timeout),
        parallel: 16,
        program: args.program.clone(),
        copy: None,
        role: Some(Role::Cluster),
        only: Vec::new(),
    };
    let nodes = nodes::ask(names, &options, |node| {
        if let Some(error) = &node.error {
            note_within(format_args!("{}: {error}", node.node));
        }
    })?;
    let reports: Vec<_> = nodes.iter().filter_map(|n| Some((n.node.clone(), n.report.as_ref()?))).collect();
    let comparison = compare(&reports);
    Ok(Nodes { nodes, comparison })
}

fn show(found: &LinkCheck, as_json: bool) -> Result<Outcome, Failure> {
    let look = Look::of_stdout();
    let machines = found.machines.as_ref();
    let all = machines.map_or(&[][..], |machines| &machines.nodes);
    let reports = || all.iter().filter_map(|node| node.report.as_ref());
    let mut text = match as_json {
        true => json("link.check", found)?,
        false => link_check_text(found, look),
    };
    if let (Some(machines), false) = (machines, as_json) {
        text += &format!("\n{}", nodes_text(&machines.nodes, look));
        if reports().count() > 1 {
            text += &format!("\n{}", compare_text(&machines.comparison, look, false));
        }
    }
    if !text.ends_with('\n') {
        text.push('\n');
    }
    let fine = found.problems.is_empty() && !reports().any(Report::has_findings);
    let outcome = print_verdict(&text, if fine { Outcome::Fine } else { Outcome::No })?;
    match all.len() - reports().count() {
        0 => Ok(outcome),
        failed => Err(Failure::lacking(anyhow!("{failed} of {} machines gave no report (named above)", all.len()))),
    }
}
