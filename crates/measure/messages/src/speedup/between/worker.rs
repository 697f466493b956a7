//! The process of a node.

use std::{
    io::{BufRead, Write},
    net::Ipv4Addr,
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicU32},
    },
    thread,
    time::{Duration, Instant},
};

use model::run::Machine;

use super::{
    super::{
        mesh::{Halt, Mesh},
        native,
        node::{Task, work},
        plan::{Transport, Trial},
        tcp,
    },
    orders::{Answer, Order, Other},
};
use crate::{
    MessagesError,
    remote::{Facts, Orders, Reply},
};

/// A node that listens, and is not joined yet.
enum Waiting {
    Link(Box<native::Waiting>),
    Tcp(tcp::Waiting),
}

struct Node {
    transport: Transport,
    me: usize,
    waiting: Option<Waiting>,
    mesh: Option<Box<dyn Mesh>>,
}

/// Time between two polls of a node without an order.
const SERVE_PERIOD: Duration = Duration::from_millis(1);

/// Runs the node at `interface`: carries out the orders on `input`, and answers on `output`, until the input ends.
pub fn answer_as_node(
    interface: &str,
    machine: Machine,
    input: impl BufRead + Send + 'static,
    output: impl Write,
) -> Result<(), MessagesError> {
    let ours = Facts::read(interface, machine, 0)?;
    let mut orders = Orders::open(input, output, &ours)?;
    let mut nodes: Vec<Node> = Vec::new();
    let (never, all) = (AtomicBool::new(false), AtomicU32::new(1));
    let halt = Halt { stop: &never, failed: &never };
    while let Some(order) = orders.next() {
        let reply = match carry_out(&ours, &mut nodes, order, halt) {
            Ok(answer) => Reply::Answer(answer),
            Err(error) => Reply::Failed(error.to_string()),
        };
        orders.reply(&reply)?;
        // Another one may still wait for the acknowledgement of what it sent last.
        while !orders.has_next() {
            for mesh in nodes.iter_mut().filter_map(|node| node.mesh.as_mut()) {
                mesh.settle(&all, 1, halt)?;
            }
            thread::sleep(SERVE_PERIOD);
        }
    }
    Ok(())
}

fn carry_out(ours: &Facts, nodes: &mut Vec<Node>, order: Order, halt: Halt<'_>) -> Result<Answer, MessagesError> {
    match order {
        Order::Listen { transport, me, nodes: count, bytes } => {
            let (waiting, port) = match transport {
                Transport::Link => {
                    let (waiting, port) = native::listen(&ours.interface, &ours.machine.hostname, count, bytes)?;
                    (Waiting::Link(Box::new(waiting)), port)
                }
                Transport::Tcp => {
                    let (waiting, port) =
                        tcp::listen(address(ours.address.map(|(address, _)| address))?, count, bytes)?;
                    (Waiting::Tcp(waiting), port)
                }
            };
            nodes.push(Node { transport, me, waiting: Some(waiting), mesh: None });
            Ok(Answer::Listens { port })
        }
        Order::Join { transport, others, ports } => {
            let node = of(nodes, transport)?;
            let mesh: Box<dyn Mesh> =
                match node.waiting.take().ok_or_else(|| MessagesError::words("a node that waits for nobody"))? {
                    Waiting::Link(waiting) => {
                        let macs = others
                            .iter()
                            .map(|other| other.mac.parse().map_err(|_| MessagesError::words("no address")));
                        Box::new(waiting.join(node.me, &macs.collect::<Result<Vec<_>, _>>()?, &ports)?)
                    }
                    Waiting::Tcp(waiting) => {
                        let all = others.iter().map(|other: &Other| address(other.address));
                        Box::new(waiting.join(node.me, &all.collect::<Result<Vec<_>, _>>()?, &ports)?)
                    }
                };
            node.mesh = Some(mesh);
            Ok(Answer::Joined)
        }
        Order::Trial { transport, exchange, nodes: count, steps, bytes, computing_ns } => {
            let node = of(nodes, transport)?;
            let mesh = node.mesh.as_mut().ok_or_else(|| MessagesError::words("a turn before all have met"))?;
            // All begin with what one has said to each: their clocks need not agree.
            let all: Vec<usize> = (0..count as usize).filter(|&other| other != node.me).collect();
            mesh.exchange(&all, &vec![0; bytes as usize], halt, &mut |_| {})?;
            let start = Instant::now();
            let task = Task {
                trial: Trial { transport, exchange, nodes: count },
                steps,
                bytes,
                computing: Duration::from_nanos(computing_ns),
                start,
                // Each is served until the next order is here.
                quiet: Arc::new(AtomicU32::new(count)),
            };
            let took = work(&mut **mesh, node.me as u32, &task, halt)?;
            let seconds = took.end.duration_since(start).as_secs_f64();
            Ok(Answer::Took { seconds, computed_s: took.computed.as_secs_f64() })
        }
    }
}

fn of(nodes: &mut [Node], transport: Transport) -> Result<&mut Node, MessagesError> {
    nodes
        .iter_mut()
        .find(|node| node.transport == transport)
        .ok_or_else(|| MessagesError::words("a carrier that nobody listens by"))
}

fn address(address: Option<Ipv4Addr>) -> Result<Ipv4Addr, MessagesError> {
    address.ok_or(MessagesError::NoAddress)
}
