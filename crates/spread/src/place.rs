//! Which CPU is next: one queue per physical core of the NIC's node, then SMT siblings, then the far node.

use std::collections::BTreeMap;

use host::picture::Cpu;
use model::CpuSet;

/// How good a CPU is for a queue; better ones first.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Tier {
    /// The first thread of a core on the NIC's node.
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
    /// The CPU.
    pub cpu: u32,
    /// Its NUMA node.
    pub node: u32,
    /// How good it is.
    pub tier: Tier,
    /// How many queues it had before.
    pub shared_with: u32,
}

/// Queues of one NIC that want a CPU each.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Want {
    /// The NIC's node, when it is known.
    pub node: Option<u32>,
    /// How many queues.
    pub queues: u32,
}

/// The allowed CPUs and how many queues each has so far.
#[derive(Debug, Clone)]
pub struct Cores<'a> {
    cpus: Vec<&'a Cpu>,
    load: BTreeMap<u32, u32>,
    allowed: CpuSet,
    nodes: CpuSet,
}

impl<'a> Cores<'a> {
    /// The CPUs of `all` that are in `allowed`, without any queue.
    pub fn new(all: &'a [Cpu], allowed: &CpuSet) -> Self {
        let cpus: Vec<&Cpu> = all.iter().filter(|c| allowed.contains(c.id)).collect();
        Self {
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

    /// The allowed CPUs.
    pub fn allowed(&self) -> &CpuSet {
        &self.allowed
    }

    /// Whether the allowed CPUs lie on several NUMA nodes.
    pub fn has_nodes(&self) -> bool {
        self.nodes.len() > 1
    }

    /// The allowed CPUs on `node`, or all of them when the NIC's node is not known.
    pub fn near(&self, node: Option<u32>) -> CpuSet {
        self.cpus.iter().filter(|c| node.is_none_or(|n| n == c.node)).map(|c| c.id).collect()
    }

    /// Takes the best CPU for a queue of a NIC on `node`: the least loaded, then by tier, then the one whose core is the
    /// least loaded, then the lowest. None when no CPU is allowed.
    fn take(&mut self, node: Option<u32>) -> Option<Placement> {
        let best = self.cpus.iter().min_by_key(|c| (self.load[&c.id], self.tier(c, node), self.core_load(c), c.id))?;
        let placement =
            Placement { cpu: best.id, node: best.node, tier: self.tier(best, node), shared_with: self.load[&best.id] };
        self.occupy(placement.cpu);
        Some(placement)
    }

    /// Takes a CPU for every queue of several NICs: the placements of each NIC in the order of its queues.
    ///
    /// CPUs fill evenly, one queue each before any gets another. Among CPUs with the same number of queues those of a
    /// node go to the NICs of that node first, so that no NIC loses a near core to the overflow of another; where a node
    /// is too small for its NICs, each gets as many as the others.
    pub fn deal(&mut self, wants: &[Want]) -> Vec<Vec<Placement>> {
        let mut dealt: Vec<Vec<Placement>> = wants.iter().map(|_| Vec::new()).collect();
        let nodes: CpuSet = wants.iter().filter_map(|w| w.node).collect();
        let passes: Vec<Option<u32>> = nodes.iter().map(Some).chain([None]).collect();
        let lacking = |dealt: &[Vec<Placement>], nic: usize| wants[nic].queues - dealt[nic].len() as u32;
        while let Some(&level) = self.load.values().min()
            && (0..wants.len()).any(|nic| lacking(&dealt, nic) > 0)
        {
            for &node in &passes {
                let part = |nic: usize| node.is_none() || wants[nic].node == node;
                let left: Vec<u32> =
                    (0..wants.len()).map(|nic| if part(nic) { lacking(&dealt, nic) } else { 0 }).collect();
                let in_node = |c: &&&Cpu| self.load[&c.id] == level && node.is_none_or(|n| n == c.node);
                let free = self.cpus.iter().filter(in_node).count() as u32;
                for (nic, share) in shares(&left, free).into_iter().enumerate() {
                    dealt[nic].extend((0..share).map_while(|_| self.take(wants[nic].node)));
                }
            }
        }
        dealt
    }

    fn tier(&self, cpu: &Cpu, node: Option<u32>) -> Tier {
        let far = node.is_some_and(|n| n != cpu.node);
        let first = cpu.siblings.iter().find(|&s| self.allowed.contains(s)).is_none_or(|first| first == cpu.id);
        match (far, first) {
            (false, true) => Tier::NearCore,
            (false, false) => Tier::NearSibling,
            (true, true) => Tier::FarCore,
            (true, false) => Tier::FarSibling,
        }
    }

    /// How good an allowed CPU is for a NIC on `node`.
    pub fn tier_of(&self, cpu: u32, node: Option<u32>) -> Option<Tier> {
        self.cpus.iter().find(|c| c.id == cpu).map(|c| self.tier(c, node))
    }

    fn core_load(&self, cpu: &Cpu) -> u32 {
        cpu.siblings.iter().filter_map(|s| self.load.get(&s)).sum()
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

impl Placement {
    /// The reason for this placement in a few words, for a NIC on `node`.
    pub fn reason(&self, node: Option<u32>, has_nodes: bool) -> String {
        let near = match node {
            Some(node) if has_nodes => format!(" on the NIC's node {node}"),
            _ => String::new(),
        };
        let place = match self.tier {
            Tier::NearCore => format!("a core{near}"),
            Tier::NearSibling => format!("second thread{near}: its cores are taken"),
            Tier::FarCore => format!("far node {}: the near one is full", self.node),
            Tier::FarSibling => format!("far node {}, second thread: all else is full", self.node),
        };
        match self.shared_with {
            0 if self.tier == Tier::NearCore => format!("its own core{near}"),
            0 => place,
            others => format!("{place}; with {others} more: more queues than CPUs"),
        }
    }
}
