//! Settings that follow from the places of the queues: RPS, XPS and the NAPI threads.

use std::collections::BTreeMap;

use model::CpuSet;

use super::{CpuByQueue, cores::Cores};
use crate::picture::{Cpu, Host, Napi, Nic, QueueRole};

/// The CPUs over which receive packet steering may share the work of a NIC's queues: those near it that serve none of them; where
/// there is none left near it, those of all nodes.
pub fn rps_cpus(nic: &Nic, cores: &Cores<'_>, cpu_by_queue: &CpuByQueue) -> CpuSet {
    // Interrupts beyond the receive queues bring no packets in.
    let receive = nic.rx_queues.len() as u32;
    let taken: CpuSet = cpu_by_queue.iter().filter(|(queue, _)| **queue < receive).map(|(_, cpu)| *cpu).collect();
    let near = cores.near(nic.node).difference(&taken);
    if near.is_empty() { cores.allowed().difference(&taken) } else { near }
}

/// The right transmit packet steering.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Xps {
    /// No XPS: it takes several transmit queues and a driver that supports it.
    NotHere,
    /// The interrupt of a transmit queue is not known.
    Unknown,
    Masks(Vec<CpuSet>),
}

/// Each transmit queue gets the CPU of its interrupt, and every other online CPU the nearest queue, so that no CPU is without
/// one. What is set already stays where it says as much.
pub fn xps(host: &Host, nic: &Nic, cpu_by_queue: &CpuByQueue) -> Xps {
    let now: Vec<&CpuSet> = nic.tx_queues.iter().filter_map(|q| q.xps_cpus.as_ref()).collect();
    if now.len() < 2 || now.len() != nic.tx_queues.len() {
        return Xps::NotHere;
    }
    // A queue without a home would get no CPU, and so never be used.
    let Some(cpu_by_queue) =
        (0..now.len() as u32).map(|queue| cpu_by_queue.get(&queue).copied()).collect::<Option<Vec<u32>>>()
    else {
        return Xps::Unknown;
    };
    let masks = masks(host, &cpu_by_queue);
    if is_as_good(host, &cpu_by_queue, &now, &masks) {
        return Xps::Masks(now.into_iter().cloned().collect());
    }
    Xps::Masks(masks)
}

fn distance(host: &Host, cpus: &BTreeMap<u32, &Cpu>, cpu: &Cpu, cpu_of_queue: u32) -> u32 {
    match cpus.get(&cpu_of_queue) {
        Some(cpu_of_queue) if cpu.siblings.contains(cpu_of_queue.id) => 0,
        Some(cpu_of_queue) => 1 + host.distance(cpu.node, cpu_of_queue.node),
        None => u32::MAX,
    }
}

fn masks(host: &Host, cpu_by_queue: &[u32]) -> Vec<CpuSet> {
    let mut masks: Vec<CpuSet> = cpu_by_queue.iter().map(|&cpu_of_queue| CpuSet::single(cpu_of_queue)).collect();
    let cpus: BTreeMap<u32, &Cpu> = host.cpus.iter().map(|c| (c.id, c)).collect();
    let taken: CpuSet = cpu_by_queue.iter().copied().collect();
    for cpu in host.cpus.iter().filter(|c| c.online && !taken.contains(c.id)) {
        let key = |q: &usize| (distance(host, &cpus, cpu, cpu_by_queue[*q]), masks[*q].len(), *q);
        if let Some(q) = (0..cpu_by_queue.len()).min_by_key(key) {
            masks[q].insert(cpu.id);
        }
    }
    masks
}

/// True if what is set serves as well as `masks`: every online CPU has a queue, no nearer one can be had, and no queue has more
/// CPUs than it need.
fn is_as_good(host: &Host, cpu_by_queue: &[u32], now: &[&CpuSet], masks: &[CpuSet]) -> bool {
    let cpus: BTreeMap<u32, &Cpu> = host.cpus.iter().map(|c| (c.id, c)).collect();
    let on_own_cpu = cpu_by_queue.iter().zip(now).all(|(&cpu_of_queue, mask)| mask.contains(cpu_of_queue));
    let most = |sizes: &mut dyn Iterator<Item = usize>| sizes.max().unwrap_or(0);
    let served = |cpu: &Cpu| {
        let mut queues = (0..now.len()).filter(|&q| now[q].contains(cpu.id)).peekable();
        let is_queue_cpu = cpu_by_queue.contains(&cpu.id);
        let nearest = cpu_by_queue.iter().map(|&cpu_of_queue| distance(host, &cpus, cpu, cpu_of_queue)).min();
        let fits = |q: usize| match is_queue_cpu {
            true => cpu_by_queue[q] == cpu.id,
            false => Some(distance(host, &cpus, cpu, cpu_by_queue[q])) == nearest,
        };
        queues.peek().is_some() && queues.all(fits)
    };
    let online = host.online();
    on_own_cpu
        && most(&mut now.iter().map(|mask| mask.intersection(&online).len()))
            <= most(&mut masks.iter().map(CpuSet::len))
        && host.cpus.iter().filter(|c| c.online).all(served)
}

/// A NAPI thread, and the CPU that it belongs to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Thread<'a> {
    pub napi: &'a Napi,
    pub pid: u32,
    /// The queue that it serves.
    pub queue: u32,
    /// Only the order of the ids says so.
    pub guessed: bool,
    pub cpu: u32,
}

/// The NAPI threads of a NIC whose queues have a place.
pub fn threads<'a>(nic: &'a Nic, cpu_by_queue: &CpuByQueue) -> Vec<Thread<'a>> {
    let mut threads: Vec<(&Napi, u32)> = nic.napis.iter().filter_map(|n| Some((n, n.pid?))).collect();
    threads.sort_by_key(|(napi, _)| napi.id);
    let role = |irq: u32| nic.irqs.iter().find(|i| i.irq == irq).map(|i| i.role);
    let queue_of = |role| match role {
        QueueRole::Rx(q) | QueueRole::Tx(q) | QueueRole::RxTx(q) => Some(q),
        QueueRole::Control => None,
    };
    let thread = |(index, &(napi, pid)): (usize, &(&'a Napi, u32))| {
        let known = napi.irq.and_then(role).and_then(queue_of).or(napi.rx_queue);
        let queue = known.unwrap_or(index as u32);
        cpu_by_queue.get(&queue).map(|&cpu| Thread { napi, pid, queue, guessed: known.is_none(), cpu })
    };
    threads.iter().enumerate().filter_map(thread).collect()
}
