//! Summary of a NIC's plan.

use std::{collections::BTreeMap, fmt};

use host::{
    picture::Nic,
    placement::{Cores, QueueCpu, Tier},
};
use model::CpuSet;
use serde::{Deserialize, Serialize};

/// CPUs of a NIC's queues.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct NicSummary {
    pub nic: String,
    /// Its NUMA node, where it has one and the CPUs in use lie on several.
    pub node: Option<u32>,
    pub queues: u32,
    pub cpus: CpuSet,
    /// Number of queues of this NIC on the fullest of these CPUs.
    pub queues_per_cpu_max: u32,
    /// CPUs that are the first thread of a core on the NIC's node.
    pub near_cores: u32,
    /// CPUs that are another thread of such a core.
    pub near_siblings: u32,
    pub far: u32,
}

impl NicSummary {
    /// None for a NIC without queues that can be placed.
    pub(crate) fn of(nic: &Nic, queue_cpus: &BTreeMap<u32, QueueCpu>, cores: &Cores<'_>) -> Option<Self> {
        let mut queues_of: BTreeMap<u32, (u32, Tier)> = BTreeMap::new();
        for queue_cpu in queue_cpus.values() {
            let tier = queue_cpu.tier.or_else(|| cores.tier_of(queue_cpu.cpu, nic.node))?;
            queues_of.entry(queue_cpu.cpu).or_insert((0, tier)).0 += 1;
        }
        let count = |tiers: &[Tier]| queues_of.values().filter(|(_, tier)| tiers.contains(tier)).count() as u32;
        Some(Self {
            nic: nic.name.clone(),
            node: nic.node.filter(|&node| cores.has_nodes() && cores.has_cpus_on(node)),
            queues: queue_cpus.len() as u32,
            cpus: queues_of.keys().copied().collect(),
            queues_per_cpu_max: queues_of.values().map(|(queues, _)| *queues).max()?,
            near_cores: count(&[Tier::NearCore]),
            near_siblings: count(&[Tier::NearSibling]),
            far: count(&[Tier::FarCore, Tier::FarSibling]),
        })
    }
}

/// `eth0: 24 queues on 12 CPUs, up to 2 each: 6 cores and 6 second threads of its node 0`.
impl fmt::Display for NicSummary {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let many = |n: u32, one: &str| if n == 1 { format!("1 {one}") } else { format!("{n} {one}s") };
        write!(f, "{}: {} on {}", self.nic, many(self.queues, "queue"), many(self.cpus.len() as u32, "CPU"))?;
        if self.queues_per_cpu_max > 1 {
            write!(f, ", up to {} each", self.queues_per_cpu_max)?;
        }
        let mut near = Vec::new();
        if self.near_cores > 0 {
            near.push(many(self.near_cores, "core"));
        }
        if self.near_siblings > 0 {
            near.push(many(self.near_siblings, "second thread"));
        }
        let mut parts = Vec::new();
        match self.node {
            Some(node) if !near.is_empty() => parts.push(format!("{} of its node {node}", near.join(" and "))),
            _ => parts.extend(near),
        }
        if self.far > 0 {
            parts.push(format!("{} of the far node", self.far));
        }
        write!(f, ": {}", parts.join(", "))
    }
}
