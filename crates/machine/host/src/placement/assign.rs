//! Deals CPUs to the queues of several interfaces at once.

use std::{
    cmp::Reverse,
    collections::{BTreeMap, VecDeque},
};

use model::CpuSet;

use super::cores::{Cores, Placement};
use crate::picture::Cpu;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Want {
    pub(super) node: Option<u32>,
    pub(super) queues: u32,
}

impl Cores<'_> {
    /// Takes a CPU for every queue of several NICs: the placements of each NIC in the order of its queues.
    ///
    /// CPUs fill evenly, one queue each before any gets another. Among CPUs with the same number of queues those of a
    /// node go to the NICs of that node first, so that no NIC loses a near core to the overflow of another; where a node
    /// is too small for its NICs, each gets as many as the others. Then the NICs take turns within each node, so that each has
    /// as many different CPUs as it has queues there.
    pub(super) fn assign(&mut self, wants: &[Want]) -> Vec<Vec<Placement>> {
        let mut assigned: Vec<Vec<Placement>> = wants.iter().map(|_| Vec::new()).collect();
        let nodes: CpuSet = wants.iter().filter_map(|w| w.node).collect();
        let passes: Vec<Option<u32>> = nodes.iter().map(Some).chain([None]).collect();
        let lacking = |assigned: &[Vec<Placement>], nic: usize| wants[nic].queues - assigned[nic].len() as u32;
        while let Some(&level) = self.load.values().min()
            && (0..wants.len()).any(|nic| lacking(&assigned, nic) > 0)
        {
            for &node in &passes {
                let part = |nic: usize| node.is_none() || wants[nic].node == node;
                let left: Vec<u32> =
                    (0..wants.len()).map(|nic| if part(nic) { lacking(&assigned, nic) } else { 0 }).collect();
                let in_node = |c: &&&Cpu| self.load[&c.id] == level && node.is_none_or(|n| n == c.node);
                let free = self.cpus.iter().filter(in_node).count() as u32;
                for (nic, share) in shares(&left, free).into_iter().enumerate() {
                    assigned[nic].extend((0..share).map_while(|_| self.take(wants[nic].node)));
                }
            }
        }
        self.widen(wants, &mut assigned);
        assigned
    }

    /// Exchanges CPUs of one node between NICs: how many queues each CPU has, and how many CPUs of the node each NIC, stays. The
    /// places of the node make one long row, round after round; each NIC gets the piece behind the one before it, in which no CPU
    /// comes twice unless it is longer than the node. The last round may lack CPUs: those that are in it stand first in each.
    fn widen(&self, wants: &[Want], assigned: &mut [Vec<Placement>]) {
        let mut rows: BTreeMap<u32, Vec<Placement>> = BTreeMap::new();
        for placement in assigned.iter().flatten() {
            rows.entry(placement.node).or_default().push(*placement);
        }
        let mut rows: BTreeMap<u32, VecDeque<Placement>> = rows
            .into_iter()
            .map(|(node, mut row)| {
                row.sort_by_key(|p| {
                    let cpu = self.cpu(p.cpu);
                    let order = cpu.map(|c| (Reverse(c.capacity), !self.is_first(c), c.siblings.first()));
                    (p.shared_with, Reverse(self.load[&p.cpu]), order, p.cpu)
                });
                (node, row.into())
            })
            .collect();
        for (nic, placements) in assigned.iter_mut().enumerate() {
            for placement in placements {
                let next = rows.get_mut(&placement.node).and_then(VecDeque::pop_front);
                if let Some((next, cpu)) = next.and_then(|p| Some((p, self.cpu(p.cpu)?))) {
                    *placement = Placement { tier: self.tier(cpu, wants[nic].node), ..next };
                }
            }
        }
    }
}

/// Shares out `free` places: each part gets one in turn until it has what it wants or nothing is left.
fn shares(wanted: &[u32], mut free: u32) -> Vec<u32> {
    let mut shares = vec![0; wanted.len()];
    while free > 0 && shares != wanted {
        for (share, wanted) in shares.iter_mut().zip(wanted) {
            let one = free.min(1).min(wanted - *share);
            *share += one;
            free -= one;
        }
    }
    shares
}
