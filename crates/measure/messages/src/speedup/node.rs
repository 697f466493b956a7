//! The steps of one node.

use std::{
    sync::{Arc, atomic::AtomicU32},
    time::{Duration, Instant},
};

use model::speedup::Exchange;

use super::{
    MessagesError,
    mesh::{Halt, Mesh},
    plan::Trial,
};

/// A turn of all its nodes.
#[derive(Debug, Clone)]
pub(super) struct Task {
    pub(super) trial: Trial,
    pub(super) steps: u32,
    pub(super) bytes: u32,
    /// The wait that stands for computing a step.
    pub(super) computing: Duration,
    /// The moment at which all begin.
    pub(super) start: Instant,
    /// Nodes that wait for nothing any more.
    pub(super) quiet: Arc<AtomicU32>,
}

/// Times of a node in a trial.
#[derive(Debug, Clone, Copy)]
pub(super) struct Took {
    /// The end of its last step.
    pub(super) end: Instant,
    /// Emulated computing time.
    pub(super) computed: Duration,
}

/// Peers of a node in an exchange.
fn peers(exchange: Exchange, me: u32, nodes: u32) -> Vec<usize> {
    let mut peers: Vec<u32> = match exchange {
        Exchange::AllReduce => (0..nodes).collect(),
        Exchange::Neighbour => vec![(me + nodes - 1) % nodes, (me + 1) % nodes],
    };
    peers.sort_unstable();
    peers.dedup();
    peers.into_iter().filter(|&peer| peer != me).map(|peer| peer as usize).collect()
}

/// The values of a node: each differs from those of other nodes and places. The first byte is its step's.
fn values(node: u32, bytes: u32) -> Vec<u8> {
    (0..bytes).map(|at| (node * 37 + at * 3 + 1) as u8).collect()
}

/// Adds values up, modulo 256.
fn add(sum: &mut [u8], values: &[u8]) {
    sum.iter_mut().zip(values).for_each(|(sum, value)| *sum = sum.wrapping_add(*value));
}

/// Does the steps of node `me`.
pub(super) fn work(mesh: &mut dyn Mesh, me: u32, task: &Task, halt: Halt<'_>) -> Result<Took, MessagesError> {
    let Task { trial, steps, bytes, computing, start, quiet } = task;
    let peers = peers(trial.exchange, me, trial.nodes);
    let mut ours = values(me, *bytes);
    let mut all = ours.clone();
    peers.iter().for_each(|&peer| add(&mut all, &values(peer as u32, *bytes)));
    let firsts = all[0];
    let (first, members) = (ours[0], peers.len() as u8 + 1);
    let (mut sum, mut computed) = (vec![0; *bytes as usize], Duration::ZERO);
    mesh.pause(*start)?;
    for step in 0..*steps {
        halt.look(Instant::now(), trial.transport.name())?;
        let began = Instant::now();
        mesh.pause(began + *computing)?;
        computed += began.elapsed();
        if peers.is_empty() {
            continue;
        }
        ours[0] = first.wrapping_add(step as u8);
        sum.copy_from_slice(&ours);
        mesh.exchange(&peers, &ours, halt, &mut |values| add(&mut sum, values))?;
        all[0] = firsts.wrapping_add(members.wrapping_mul(step as u8));
        if sum != all {
            return Err(MessagesError::Sum { by: trial.transport.name(), node: me + 1, step });
        }
    }
    let end = Instant::now();
    mesh.settle(quiet, trial.nodes, halt)?;
    Ok(Took { end, computed })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_node_has_its_peers_and_is_a_peer_of_theirs() {
        assert_eq!(peers(Exchange::AllReduce, 2, 4), [0, 1, 3]);
        assert_eq!(peers(Exchange::Neighbour, 0, 5), [1, 4]);
        assert_eq!(peers(Exchange::Neighbour, 1, 2), [0], "two nodes have one neighbour each");
        for exchange in [Exchange::AllReduce, Exchange::Neighbour] {
            assert_eq!(peers(exchange, 0, 1), [0; 0]);
            for nodes in 1..=8 {
                for me in 0..nodes {
                    let of = |node: usize| peers(exchange, node as u32, nodes);
                    assert!(of(me as usize).iter().all(|&peer| of(peer).contains(&(me as usize))));
                }
            }
        }
    }

    #[test]
    fn a_sum_is_that_of_its_nodes_alone() {
        let sum = |nodes: &[u32]| {
            let mut sum = vec![0; 16];
            nodes.iter().for_each(|&node| add(&mut sum, &values(node, 16)));
            sum
        };
        assert_ne!(sum(&[0, 1, 2]), sum(&[0, 1, 3]));
        assert_ne!(sum(&[0, 1, 1]), sum(&[0, 1, 2]));
        assert_eq!(sum(&[2, 0]), sum(&[0, 2]));
    }
}
