//! The CPU of each queue: what is fixed already, then the rest, as it is where that is good, else dealt out anew.

use std::collections::BTreeMap;

use model::CpuSet;

use super::{
    assign::Want,
    cores::{Cores, Placement, Tier},
    goes_to,
    score::Score,
};
use crate::picture::{Host, Nic, QueueRole};

/// The CPU of a queue, and why.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct QueueCpu {
    pub cpu: u32,
    /// Tier of the CPU; none where it was not chosen.
    pub tier: Option<Tier>,
    pub why: String,
}

/// The interrupts of each queue of a NIC.
pub(super) fn queue_irqs(nic: &Nic) -> BTreeMap<u32, Vec<(u32, QueueRole)>> {
    let mut queues: BTreeMap<u32, Vec<(u32, QueueRole)>> = BTreeMap::new();
    for i in &nic.irqs {
        match i.role {
            QueueRole::Rx(q) | QueueRole::Tx(q) | QueueRole::RxTx(q) => {
                queues.entry(q).or_default().push((i.irq, i.role));
            }
            QueueRole::Control => {}
        }
    }
    queues
}

/// Gives every queue of every NIC a CPU. A queue without an interrupt of its own (veth) gets one only if it has a thread
/// that can be pinned. A line that the kernel keeps, or that another NIC of the plan has too, decides for the whole queue.
pub(super) fn queue_cpus(host: &Host, nics: &[&Nic], cores: &mut Cores<'_>) -> Vec<BTreeMap<u32, QueueCpu>> {
    let mut queue_cpus: Vec<BTreeMap<u32, QueueCpu>> = nics.iter().map(|_| BTreeMap::new()).collect();
    let mut owners: BTreeMap<u32, (usize, u32)> = BTreeMap::new();
    let mut followers: Vec<(usize, u32, (usize, u32))> = Vec::new();
    let mut open: Vec<Vec<u32>> = nics.iter().map(|_| Vec::new()).collect();
    for (n, nic) in nics.iter().enumerate() {
        let queues = queue_irqs(nic);
        if queues.is_empty() {
            open[n] = (0..nic.napis.iter().filter(|napi| napi.pid.is_some()).count() as u32).collect();
        }
        for (queue, irqs) in queues {
            let keeps = |irq: &u32| host.irq(*irq).filter(|i| i.managed);
            let managed =
                irqs.iter().find_map(|(irq, _)| keeps(irq).and_then(|i| goes_to(i).or_else(|| i.affinity.first())));
            // Nothing that can be written follows the kernel to a CPU that is to be left alone.
            let stuck = irqs.iter().all(|(irq, _)| keeps(irq).is_some());
            let managed = managed.filter(|cpu| stuck || cores.allowed().contains(*cpu));
            let owner = irqs.iter().find_map(|(irq, _)| owners.get(irq).copied());
            match (managed, owner) {
                (Some(cpu), _) => {
                    cores.occupy(cpu);
                    queue_cpus[n].insert(queue, QueueCpu { cpu, tier: None, why: FOLLOWS.to_owned() });
                }
                (None, Some(owner)) => followers.push((n, queue, owner)),
                (None, None) => open[n].push(queue),
            }
            for (irq, _) in irqs {
                owners.entry(irq).or_insert((n, queue));
            }
        }
    }
    for (n, placements) in place(host, nics, &open, cores).into_iter().enumerate() {
        let queue_cpu = |p: Placement| QueueCpu { cpu: p.cpu, tier: Some(p.tier), why: cores.reason(&p, nics[n].node) };
        queue_cpus[n].extend(open[n].iter().copied().zip(placements.into_iter().map(queue_cpu)));
    }
    // An owner may follow another one: as many rounds as it takes.
    while !followers.is_empty() {
        let left = followers.len();
        followers.retain(|&(n, queue, (owner, owners_queue))| {
            let cpu = queue_cpus[owner].get(&owners_queue).map(|s| s.cpu);
            if let Some(cpu) = cpu {
                queue_cpus[n].insert(queue, QueueCpu { cpu, tier: None, why: FOLLOWS.to_owned() });
            }
            cpu.is_none()
        });
        if followers.len() == left {
            break;
        }
    }
    queue_cpus
}

const FOLLOWS: &str = "with the other interrupts of its queue";

/// Places the open queues: where they are if no better place can be had, else all of them anew.
fn place(host: &Host, nics: &[&Nic], open: &[Vec<u32>], cores: &mut Cores<'_>) -> Vec<Vec<Placement>> {
    let before = cores.clone();
    let wants: Vec<Want> =
        nics.iter().zip(open).map(|(nic, open)| Want { node: nic.node, queues: open.len() as u32 }).collect();
    let assigned = cores.assign(&wants);
    let current = nics.iter().zip(open).map(|(nic, open)| current(host, nic, open, before.allowed()));
    let Some(current) = current.collect::<Option<Vec<_>>>() else { return assigned };
    let with_nodes =
        |cpus: Vec<Vec<u32>>| -> Vec<(Option<u32>, Vec<u32>)> { nics.iter().map(|nic| nic.node).zip(cpus).collect() };
    let score = |cpus: Vec<Vec<u32>>| Score::of(&before, &with_nodes(cpus));
    let anew = assigned.iter().map(|placements| placements.iter().map(|p| p.cpu).collect()).collect();
    if !score(current.clone()).is_as_good_as(&score(anew)) {
        return assigned;
    }
    *cores = before;
    let stay = |(nic, cpus): (&&Nic, Vec<u32>)| -> Vec<Placement> {
        let mut stay = |id: u32| {
            let placement = cores.cpu(id).map(|cpu| cores.placement(cpu, nic.node));
            cores.occupy(id);
            placement
        };
        cpus.into_iter().filter_map(&mut stay).collect()
    };
    nics.iter().zip(current).map(stay).collect()
}

/// The CPU to which each of these queues is pinned now; none when one of them is not, or to a CPU that is not allowed.
fn current(host: &Host, nic: &Nic, open: &[u32], allowed: &CpuSet) -> Option<Vec<u32>> {
    let single = |set: &CpuSet| set.first().filter(|&cpu| set.len() == 1 && allowed.contains(cpu));
    let irqs = queue_irqs(nic);
    if irqs.is_empty() {
        let mut threads: Vec<_> = nic.napis.iter().filter(|napi| napi.pid.is_some()).collect();
        threads.sort_by_key(|napi| napi.id);
        return threads.iter().map(|napi| single(napi.cpus.as_ref()?)).collect();
    }
    let of_queue = |queue: &u32| {
        let mut cpus = irqs.get(queue)?.iter().map(|(irq, _)| single(&host.irq(*irq)?.affinity));
        let first = cpus.next()??;
        cpus.all(|cpu| cpu == Some(first)).then_some(first)
    };
    open.iter().map(of_queue).collect()
}
