//! The CPUs that may do packet work: how near each is to an interface, and how many queues it has.

use std::{cmp::Reverse, collections::BTreeMap};

use model::CpuSet;

use crate::picture::{Cpu, Host};

/// The worth of a CPU for a queue; better ones first.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Tier {
    /// The first thread of a core on the NIC's node (or on the nearest one that has usable CPUs).
    NearCore,
    /// Another thread of such a core.
    NearSibling,
    /// The first thread of a core on another node.
    FarCore,
    /// Another thread of such a core.
    FarSibling,
}

/// A CPU chosen for a queue.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Placement {
    pub cpu: u32,
    pub node: u32,
    pub tier: Tier,
    /// The number of queues that it had before.
    pub shared_with: u32,
}

/// The allowed CPUs and how many queues each has so far.
#[derive(Debug, Clone)]
pub struct Cores<'a> {
    host: &'a Host,
    pub(super) cpus: Vec<&'a Cpu>,
    pub(super) load: BTreeMap<u32, u32>,
    allowed: CpuSet,
    nodes: CpuSet,
}

impl<'a> Cores<'a> {
    /// The CPUs of the machine that are in `allowed`, without any queue.
    pub fn new(host: &'a Host, allowed: &CpuSet) -> Self {
        let cpus: Vec<&Cpu> = host.cpus.iter().filter(|c| allowed.contains(c.id)).collect();
        Self {
            host,
            load: cpus.iter().map(|c| (c.id, 0)).collect(),
            nodes: cpus.iter().map(|c| c.node).collect(),
            cpus,
            allowed: allowed.clone(),
        }
    }

    /// Notes a queue that `cpu` has already. Of no effect for a CPU that is not allowed.
    pub fn occupy(&mut self, cpu: u32) {
        if let Some(load) = self.load.get_mut(&cpu) {
            *load += 1;
        }
    }

    pub fn allowed(&self) -> &CpuSet {
        &self.allowed
    }

    /// True if the allowed CPUs lie on several NUMA nodes.
    pub fn has_nodes(&self) -> bool {
        self.nodes.len() > 1
    }

    /// True if an allowed CPU lies on this node.
    pub fn has_cpus_on(&self, node: u32) -> bool {
        self.nodes.contains(node)
    }

    /// The distance of a CPU from the NIC's node; 0 for all when the node is not known.
    pub(super) fn distance(&self, cpu: &Cpu, node: Option<u32>) -> u32 {
        node.map_or(0, |node| self.host.distance(node, cpu.node))
    }

    /// The least distance that an allowed CPU has from the NIC's node.
    fn nearest(&self, node: Option<u32>) -> u32 {
        self.cpus.iter().map(|c| self.distance(c, node)).min().unwrap_or(0)
    }

    /// The allowed CPUs nearest to `node`: its own, or those of the nearest node that has any; all when the node is not known.
    pub fn near(&self, node: Option<u32>) -> CpuSet {
        let nearest = self.nearest(node);
        self.cpus.iter().filter(|c| self.distance(c, node) == nearest).map(|c| c.id).collect()
    }

    /// The number of physical cores among these CPUs.
    pub fn physical(&self, cpus: &CpuSet) -> u32 {
        let first = |c: &&&Cpu| c.siblings.intersection(cpus).first().is_none_or(|first| first == c.id);
        self.cpus.iter().filter(|c| cpus.contains(c.id)).filter(first).count() as u32
    }

    /// Takes the best CPU for a queue of a NIC on `node`: the least loaded, then the nearest, then the fastest, then the first
    /// thread of a core, then the one whose core is the least loaded, then the lowest. None when no CPU is allowed.
    pub(super) fn take(&mut self, node: Option<u32>) -> Option<Placement> {
        let key = |c: &&&Cpu| {
            let place = (self.distance(c, node), Reverse(c.capacity), !self.is_first(c));
            (self.load[&c.id], place, self.core_load(c), c.id)
        };
        let best: &Cpu = self.cpus.iter().min_by_key(key)?;
        let placement = self.placement(best, node);
        self.occupy(placement.cpu);
        Some(placement)
    }

    pub(super) fn placement(&self, cpu: &Cpu, node: Option<u32>) -> Placement {
        Placement {
            cpu: cpu.id,
            node: cpu.node,
            tier: self.tier(cpu, node),
            shared_with: self.load.get(&cpu.id).copied().unwrap_or(0),
        }
    }

    pub(super) fn cpu(&self, id: u32) -> Option<&'a Cpu> {
        self.cpus.iter().copied().find(|c| c.id == id)
    }

    /// True if it is the first thread of its core, of those that are allowed.
    pub(super) fn is_first(&self, cpu: &Cpu) -> bool {
        cpu.siblings.iter().find(|&s| self.allowed.contains(s)).is_none_or(|first| first == cpu.id)
    }

    pub(super) fn tier(&self, cpu: &Cpu, node: Option<u32>) -> Tier {
        let far = self.distance(cpu, node) > self.nearest(node);
        match (far, self.is_first(cpu)) {
            (false, true) => Tier::NearCore,
            (false, false) => Tier::NearSibling,
            (true, true) => Tier::FarCore,
            (true, false) => Tier::FarSibling,
        }
    }

    /// The worth of an allowed CPU for a NIC on `node`.
    pub fn tier_of(&self, cpu: u32, node: Option<u32>) -> Option<Tier> {
        self.cpu(cpu).map(|c| self.tier(c, node))
    }

    fn core_load(&self, cpu: &Cpu) -> u32 {
        cpu.siblings.iter().filter_map(|s| self.load.get(&s)).sum()
    }

    /// The reason for a placement in a few words, for a NIC on `node`.
    pub fn reason(&self, placement: &Placement, node: Option<u32>) -> String {
        let node = node.filter(|_| self.has_nodes());
        let own = node.is_none_or(|node| self.has_cpus_on(node));
        let near = match node {
            Some(node) if own => format!(" on the NIC's node {node}"),
            Some(node) => format!(" on node {}: the NIC's node {node} has no usable CPU", placement.node),
            None => String::new(),
        };
        let far = if own { "its own has no CPU left" } else { "the nearest has no CPU left" };
        let place = match placement.tier {
            Tier::NearCore => format!("a core{near}"),
            Tier::NearSibling if own => format!("second thread{near}: its cores are taken"),
            Tier::NearSibling => format!("second thread{near}"),
            Tier::FarCore => format!("far node {}: {far}", placement.node),
            Tier::FarSibling => format!("far node {}, second thread: all else is taken", placement.node),
        };
        match placement.shared_with {
            0 if placement.tier == Tier::NearCore => format!("its own core{near}"),
            0 => place,
            others => format!("{place}; with {others} more: more queues than CPUs"),
        }
    }
}
