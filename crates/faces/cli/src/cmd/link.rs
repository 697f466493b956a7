//! `evenkeel link`: messages between nodes over plain Ethernet.

mod check;
mod copy;
mod ping;
mod run;
mod serve;
mod unit;

use std::time::{Duration, Instant};

use clap::{Args, Subcommand};
use link::{
    BrokerCarrier, Engine, LinkError, Raw,
    broker::{self, Answer, Command},
};
use model::link::{LinkNode, LinkNodes, LinkStatus};
use report::Look;
use sys::privilege::{self, Capability};

use crate::{
    failure::{Failure, Outcome, note, print, print_json},
    time::time,
};

/// Exchange messages between nodes over plain Ethernet.
///
/// Start a broker on every node: `evenkeel link serve eth0`. See docs/run/link.md for what it carries today.
#[derive(Debug, Args)]
pub(crate) struct LinkArgs {
    #[command(subcommand)]
    action: Action,
}

#[derive(Debug, Subcommand)]
enum Action {
    Serve(serve::ServeArgs),
    Status(StatusArgs),
    Nodes(NodesArgs),
    Ping(ping::PingArgs),
    Check(check::CheckArgs),
    Copy(copy::CopyArgs),
    Run(run::RunArgs),
    #[cfg(feature = "measure")]
    #[command(flatten)]
    Measure(super::measure::LinkVerb),
    Stop(StopArgs),
    Unit(unit::UnitArgs),
}

impl LinkArgs {
    /// True if it asks this node's broker and nobody else.
    pub(crate) fn needs_broker(&self) -> bool {
        use Action::{Check, Copy, Ping, Run, Status, Stop};
        matches!(self.action, Status(_) | Ping(_) | Check(_) | Copy(_) | Run(_) | Stop(_))
    }
}

/// Show this node, the others, and the programs that have ports.
#[derive(Debug, Args)]
struct StatusArgs {
    /// Print JSON (schema evenkeel.link.status/1).
    #[arg(long)]
    json: bool,
}

/// Show the nodes that answer.
///
///     evenkeel link nodes
///
///     evenkeel link nodes eth0
#[derive(Debug, Args)]
struct NodesArgs {
    /// Interface that the nodes are behind [default: that of this node's broker].
    #[arg(value_name = "INTERFACE", value_parser = crate::args::interface)]
    interface: Option<String>,
    /// Time to wait for answers, where an interface is named.
    #[arg(long, value_name = "TIME", default_value = "300ms", value_parser = time)]
    wait: Duration,
    /// Print JSON (schema evenkeel.link.nodes/1).
    #[arg(long)]
    json: bool,
}

/// End this node's broker.
#[derive(Debug, Args)]
struct StopArgs {
    /// Print JSON (schema evenkeel.link.stop/1).
    #[arg(long)]
    json: bool,
}

/// Does what the action says.
pub(crate) fn run(args: &LinkArgs) -> Result<Outcome, Failure> {
    let done = match &args.action {
        Action::Serve(args) => return serve::run(args),
        Action::Unit(args) => return unit::run(args),
        #[cfg(feature = "measure")]
        Action::Measure(verb) => return verb.run(),
        Action::Nodes(NodesArgs { interface: Some(interface), wait, json }) => return seen(interface, *wait, *json),
        Action::Ping(args) => ping::run(args),
        Action::Check(args) => check::run(args),
        Action::Copy(args) => copy::run(args),
        Action::Run(args) => run::run(args),
        Action::Nodes(args) => known(args),
        Action::Status(args) => status(args),
        Action::Stop(args) => stop(args),
    };
    match done {
        Err(error @ (LinkError::NoBroker | LinkError::NoCluster)) => {
            note(error);
            Ok(Outcome::No)
        }
        other => other?,
    }
}

fn broker_status() -> Result<LinkStatus, LinkError> {
    match broker::ask(&Command::Status)? {
        Answer::Status(status) => Ok(*status),
        _ => Err(LinkError::NoBroker),
    }
}

/// The address of a node that is named or whose address it is.
fn address_of(status: &LinkStatus, node: &str) -> Result<String, LinkError> {
    let found = status.find(node).map_err(|found| match found.as_slice() {
        [] if node == status.node || node.eq_ignore_ascii_case(&status.address) => {
            LinkError::ThisNode { name: node.to_owned() }
        }
        [] => LinkError::NoNode { name: node.to_owned() },
        several => LinkError::same_name(node, &several.iter().map(String::as_str).collect::<Vec<_>>()),
    })?;
    Ok(found.to_owned())
}

fn status(args: &StatusArgs) -> Result<Result<Outcome, Failure>, LinkError> {
    let status = broker_status()?;
    let shown = match args.json {
        true => print_json("link.status", &status),
        false => print(&report::link_text(&status, Look::of_stdout())),
    };
    Ok(shown.map(|()| Outcome::Fine))
}

fn stop(args: &StopArgs) -> Result<Result<Outcome, Failure>, LinkError> {
    broker::stop()?;
    Ok(match args.json {
        true => print_json("link.stop", serde_json::json!({ "done": "stopped" })),
        false => print("The broker has ended. Root's programs keep their connections, and get no new ones.\n"),
    }
    .map(|()| Outcome::Fine))
}

fn known(args: &NodesArgs) -> Result<Result<Outcome, Failure>, LinkError> {
    let LinkStatus { interface, nodes, .. } = broker_status()?;
    Ok(show(interface, nodes, args.json))
}

/// Asks on an interface, without a broker.
fn seen(interface: &str, wait: Duration, json: bool) -> Result<Outcome, Failure> {
    privilege::require("frames of one's own", &[Capability::CAP_NET_RAW])?;
    let mut engine = Engine::new(BrokerCarrier::from(Raw::open(interface)?), "")?;
    engine.hello()?;
    let began = Instant::now();
    while let left = wait.saturating_sub(began.elapsed())
        && !left.is_zero()
    {
        engine.wait(Duration::ZERO, left)?;
    }
    show(interface.to_owned(), broker::nodes(&engine, None), json)
}

fn show(interface: String, nodes: Vec<LinkNode>, json: bool) -> Result<Outcome, Failure> {
    let nodes = LinkNodes { interface, nodes };
    match json {
        true => print_json("link.nodes", &nodes)?,
        false => print(&report::link_nodes_text(&nodes, Look::of_stdout()))?,
    }
    Ok(if nodes.nodes.is_empty() { Outcome::No } else { Outcome::Fine })
}
