//! CPUs and their topology, from sys/devices/system/cpu and sys/devices/system/node.

use std::collections::BTreeMap;

use model::CpuSet;

use super::{HostError, cpu_list, soft, soft_list, soft_number};
use crate::{
    picture::{Cpu, FULL_CAPACITY},
    root::Root,
};

const CPU: &str = "sys/devices/system/cpu";
const NODE: &str = "sys/devices/system/node";

pub(super) fn read(root: &Root) -> Result<Vec<Cpu>, HostError> {
    let present = cpu_list(root, &format!("{CPU}/present"))?;
    // Without CPU hotplug in the kernel every CPU is online and the file may be missing.
    let online = soft_list(root, &format!("{CPU}/online")).unwrap_or_else(|| present.clone());
    // `nohz_full` reads "(null)" on kernels built for it but started without it.
    let isolated = soft_list(root, &format!("{CPU}/isolated"))
        .unwrap_or_default()
        .union(&soft_list(root, &format!("{CPU}/nohz_full")).unwrap_or_default());
    let nodes = nodes(root);
    Ok(present
        .iter()
        .map(|id| {
            let topology = format!("{CPU}/cpu{id}/topology");
            let siblings = soft_list(root, &format!("{topology}/thread_siblings_list")).filter(|s| s.contains(id));
            Cpu {
                id,
                // The kernel says -1 where the platform does not tell.
                package: soft_number(root, &format!("{topology}/physical_package_id")).unwrap_or(0),
                core: soft_number(root, &format!("{topology}/core_id")).unwrap_or(id),
                siblings: siblings.unwrap_or_else(|| CpuSet::single(id)),
                node: nodes.get(&id).copied().unwrap_or(0),
                online: online.contains(id),
                isolated: isolated.contains(id),
                // ARM and RISC-V boards with cores of several kinds have it.
                capacity: soft_number(root, &format!("{CPU}/cpu{id}/cpu_capacity")).unwrap_or(FULL_CAPACITY),
            }
        })
        .collect())
}

/// The node of each CPU; empty on a kernel without NUMA.
fn nodes(root: &Root) -> BTreeMap<u32, u32> {
    let online = soft_list(root, &format!("{NODE}/online")).unwrap_or_default();
    online
        .iter()
        .flat_map(|node| {
            let cpus = soft_list(root, &format!("{NODE}/node{node}/cpulist")).unwrap_or_default();
            cpus.iter().map(|cpu| (cpu, node)).collect::<Vec<_>>()
        })
        .collect()
}

/// The distance from each node to each: a line of numbers per node, in the order of the nodes that are online. A line of another
/// length says nothing.
pub(super) fn distances(root: &Root) -> BTreeMap<u32, BTreeMap<u32, u32>> {
    let online = soft_list(root, &format!("{NODE}/online")).unwrap_or_default();
    let row = |node: u32| -> Option<(u32, BTreeMap<u32, u32>)> {
        let text = soft(root, &format!("{NODE}/node{node}/distance"))?;
        let numbers: Vec<u32> = text.split_whitespace().map(str::parse).collect::<Result<_, _>>().ok()?;
        (numbers.len() == online.len()).then(|| (node, online.iter().zip(numbers).collect()))
    };
    online.iter().filter_map(row).collect()
}
