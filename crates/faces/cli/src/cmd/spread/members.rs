//! `evenkeel spread members`.

use anyhow::anyhow;
use clap::Args;
use host::{Host, members::fanout_members};
use report::Look;
use serde::Serialize;

use super::open_root;
use crate::{
    args::RootArg,
    failure::{Failure, Outcome, print, print_json},
};

/// Arguments of `spread members`.
#[derive(Debug, Args)]
pub(crate) struct MembersArgs {
    /// The interface to capture on: only CPUs of its NUMA node count, as in `capture` [default: none, the whole machine].
    interface: Option<String>,
    #[command(flatten)]
    root: RootArg,
    /// Print JSON (schema evenkeel.spread.members/1).
    #[arg(long)]
    json: bool,
}

impl MembersArgs {
    /// True if it is about a saved machine.
    pub(super) fn is_saved(&self) -> bool {
        self.root.is_given()
    }
}

#[derive(Debug, Serialize)]
struct Report {
    interface: Option<String>,
    node: Option<u32>,
    total: u32,
    cpus: Vec<Row>,
}

#[derive(Debug, Serialize)]
struct Row {
    cpu: u32,
    package: u32,
    core: u32,
    node: u32,
    members: u32,
}

/// Computes the members and prints them.
pub(crate) fn run(args: &MembersArgs) -> Result<Outcome, Failure> {
    let host = Host::read(&open_root(&args.root)?)?;
    let node = match &args.interface {
        None => None,
        Some(name) => host.named(&crate::args::interfaces(std::slice::from_ref(name), args.root.is_given())[0])?.node,
    };
    // As in capture: a node without a CPU that is online counts as none.
    let node = node.filter(|node| host.cpus.iter().any(|c| c.node == *node && c.online));
    let near: Vec<_> = host.cpus.iter().filter(|c| node.is_none_or(|n| n == c.node)).cloned().collect();
    let cpus: Vec<Row> = fanout_members(&near)
        .into_iter()
        .filter_map(|(cpu, members)| {
            let c = near.iter().find(|c| c.id == cpu)?;
            Some(Row { cpu, package: c.package, core: c.core, node: c.node, members })
        })
        .collect();
    if cpus.is_empty() {
        return Err(Failure::lacking(anyhow!("no CPU for members: every CPU there is offline or isolated")));
    }
    let report = Report { interface: args.interface.clone(), node, total: cpus.iter().map(|r| r.members).sum(), cpus };
    if args.json {
        print_json("spread.members", report)?;
        return Ok(Outcome::Fine);
    }
    print(&text(&report)).map(|()| Outcome::Fine)
}

fn text(report: &Report) -> String {
    let cells = report.cpus.iter().map(|r| [r.cpu, r.node, r.package, r.core, r.members].map(|n| n.to_string()));
    let look = Look::of_stdout();
    let table = look.table(&[">CPU", ">NODE", ">PACKAGE", ">CORE", ">MEMBERS"], cells);
    let place = report.node.map_or_else(String::new, |n| format!(" of node {n}"));
    let rule = "One per CPU, and a second on the first CPU, on the last physical core and on the last CPU.";
    let sum = format!("{} members for {} CPUs{place}. {rule}", report.total, report.cpus.len());
    format!("{table}\n{}", look.paragraph(&sum))
}
