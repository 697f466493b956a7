//! `evenkeel link`: messages between nodes over plain Ethernet.

use std::time::{Duration, Instant};

use clap::{Args, Subcommand};
use link::{Engine, Raw};
use model::link::{LinkNode, LinkNodes};
use report::Look;
use sys::privilege::{self, Capability};

use crate::{
    failure::{Failure, Outcome, print, print_json},
    time::time,
};

/// Exchange messages between the nodes of an Ethernet, without TCP and without a kernel module.
#[derive(Debug, Args)]
pub(crate) struct LinkArgs {
    #[command(subcommand)]
    action: Action,
}

#[derive(Debug, Subcommand)]
enum Action {
    Nodes(NodesArgs),
}

/// Show the nodes that answer on an interface.
#[derive(Debug, Args)]
struct NodesArgs {
    /// Interface that the nodes are behind.
    #[arg(value_name = "INTERFACE")]
    interface: String,
    /// How long to wait for answers.
    #[arg(long, value_name = "TIME", default_value = "300ms", value_parser = time)]
    wait: Duration,
    /// Print JSON (schema evenkeel.link.nodes/1).
    #[arg(long)]
    json: bool,
}

/// Does what the action says.
pub(crate) fn run(args: &LinkArgs) -> Result<Outcome, Failure> {
    match &args.action {
        Action::Nodes(args) => nodes(args),
    }
}

fn nodes(args: &NodesArgs) -> Result<Outcome, Failure> {
    privilege::require("frames of one's own", &[Capability::CAP_NET_RAW])?;
    let mut engine = Engine::new(Raw::open(&args.interface)?, "")?;
    engine.hello()?;
    let began = Instant::now();
    while let left = args.wait.saturating_sub(began.elapsed())
        && !left.is_zero()
    {
        engine.wait(Duration::ZERO, left)?;
    }
    let node = |(address, peer): (&wire::Mac, &link::Peer)| LinkNode {
        name: peer.name.clone(),
        address: address.to_string(),
        epoch: peer.epoch,
    };
    let mut nodes: Vec<LinkNode> = engine.peers().map(node).collect();
    nodes.sort_by(|a, b| (&a.name, &a.address).cmp(&(&b.name, &b.address)));
    let nodes = LinkNodes { interface: args.interface.clone(), nodes };
    match args.json {
        true => print_json("link.nodes", &nodes)?,
        false => print(&report::link_nodes_text(&nodes, Look::of_stdout()))?,
    }
    Ok(if nodes.nodes.is_empty() { Outcome::No } else { Outcome::Fine })
}
