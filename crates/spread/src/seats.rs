//! Which queue sits where: what is fixed already, then the rest dealt out over the CPUs.

use std::collections::BTreeMap;

use host::{
    Host,
    picture::{Irq, Nic, QueueRole},
};
use model::CpuSet;

use crate::place::{Cores, Placement, Tier, Want};

/// The CPU of a queue, and why.
pub(crate) struct Seat {
    pub(crate) cpu: u32,
    pub(crate) tier: Option<Tier>,
    pub(crate) why: String,
}

/// The interrupts of each queue of a NIC.
pub(crate) fn queue_irqs(nic: &Nic) -> BTreeMap<u32, Vec<(u32, QueueRole)>> {
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
pub(crate) fn seats(host: &Host, nics: &[&Nic], cores: &mut Cores<'_>) -> Vec<BTreeMap<u32, Seat>> {
    let mut seats: Vec<BTreeMap<u32, Seat>> = nics.iter().map(|_| BTreeMap::new()).collect();
    let mut owners: BTreeMap<u32, (usize, u32)> = BTreeMap::new();
    let mut followers: Vec<(usize, u32, (usize, u32))> = Vec::new();
    let mut open: Vec<Vec<u32>> = nics.iter().map(|_| Vec::new()).collect();
    for (n, nic) in nics.iter().enumerate() {
        let queues = queue_irqs(nic);
        if queues.is_empty() {
            open[n] = (0..nic.napis.iter().filter(|napi| napi.pid.is_some()).count() as u32).collect();
        }
        for (queue, irqs) in queues {
            let managed = irqs.iter().find_map(|(irq, _)| host.irq(*irq).filter(|i| i.managed).and_then(seat));
            let owner = irqs.iter().find_map(|(irq, _)| owners.get(irq).copied());
            match (managed, owner) {
                (Some(cpu), _) => {
                    cores.occupy(cpu);
                    seats[n].insert(queue, Seat { cpu, tier: None, why: FOLLOWS.to_owned() });
                }
                (None, Some(owner)) => followers.push((n, queue, owner)),
                (None, None) => open[n].push(queue),
            }
            for (irq, _) in irqs {
                owners.entry(irq).or_insert((n, queue));
            }
        }
    }
    let wants: Vec<Want> =
        nics.iter().zip(&open).map(|(nic, open)| Want { node: nic.node, queues: open.len() as u32 }).collect();
    for (n, placements) in cores.deal(&wants).into_iter().enumerate() {
        let why = |p: &Placement| p.reason(nics[n].node, cores.has_nodes());
        let seat = |p: Placement| Seat { cpu: p.cpu, tier: Some(p.tier), why: why(&p) };
        seats[n].extend(open[n].iter().copied().zip(placements.into_iter().map(seat)));
    }
    for (n, queue, (owner, owners_queue)) in followers {
        if let Some(cpu) = seats[owner].get(&owners_queue).map(|s| s.cpu) {
            seats[n].insert(queue, Seat { cpu, tier: None, why: FOLLOWS.to_owned() });
        }
    }
    seats
}

const FOLLOWS: &str = "with the other interrupts of its queue";

/// Where an interrupt goes now.
fn seat(irq: &Irq) -> Option<u32> {
    irq.effective.as_ref().and_then(CpuSet::first).or_else(|| irq.affinity.first())
}
