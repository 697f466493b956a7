//! Machines composed by hand.

use std::collections::BTreeMap;

use host::{
    Host,
    picture::{Cpu, Irq, Nic, NicIrq, QueueRole, RxQueue, TxQueue},
};
use model::CpuSet;

/// `nodes` packages of `cores` cores with `threads` threads; as Linux numbers x86: all first threads, then all second ones.
pub(crate) fn cpus(nodes: u32, cores: u32, threads: u32) -> Vec<Cpu> {
    let physical = nodes * cores;
    (0..physical * threads)
        .map(|id| {
            let core = id % physical;
            Cpu {
                id,
                package: core / cores,
                core: core % cores,
                siblings: (0..threads).map(|t| core + t * physical).collect(),
                node: core / cores,
                online: true,
                isolated: false,
                capacity: host::picture::FULL_CAPACITY,
            }
        })
        .collect()
}

pub(crate) fn host(cpus: Vec<Cpu>) -> Host {
    Host {
        hostname: "composed".into(),
        kernel: "6.1.0".into(),
        cpus,
        nics: Vec::new(),
        irqs: Vec::new(),
        irqbalance_pid: None,
        distances: BTreeMap::new(),
        garbled_irqs: 0,
        fast_path: None,
    }
}

/// Adds a NIC with `queues` queues; one interrupt per queue, or with `split` one per direction. Every interrupt may go
/// anywhere and goes to CPU 0.
pub(crate) fn add_nic(host: &mut Host, name: &str, node: Option<u32>, queues: u32, split: bool) {
    let all: CpuSet = host.cpus.iter().map(|c| c.id).collect();
    let mut next = host.irqs.last().map_or(30, |i| i.number + 1);
    let mut irqs = Vec::new();
    let mut add = |role, action: String| {
        let irq = Irq {
            number: next,
            chip: "PCI-MSIX".into(),
            actions: vec![action],
            affinity: all.clone(),
            effective: Some(CpuSet::single(0)),
            managed: false,
            counts: BTreeMap::new(),
        };
        irqs.push(NicIrq { irq: next, role });
        host.irqs.push(irq);
        next += 1;
    };
    add(QueueRole::Control, name.to_owned());
    for q in 0..queues {
        if split {
            add(QueueRole::Rx(q), format!("{name}-rx-{q}"));
            add(QueueRole::Tx(q), format!("{name}-tx-{q}"));
        } else {
            add(QueueRole::RxTx(q), format!("{name}-TxRx-{q}"));
        }
    }
    host.nics.push(Nic {
        name: name.into(),
        index: host.nics.len() as u32 + 2,
        mac: None,
        driver: Some("ixgbe".into()),
        bus: None,
        node,
        speed_mbps: Some(10_000),
        mtu: 1500,
        operstate: "up".into(),
        flags: 0x1003,
        rx_queues: vec![RxQueue::default(); queues as usize],
        tx_queues: vec![TxQueue { xps_cpus: Some(CpuSet::new()) }; queues as usize],
        irqs,
        napis: Vec::new(),
        threaded: Some(false),
        rings: None,
        channels: None,
        coalescing: None,
        features: BTreeMap::new(),
        rss: None,
        unanswered: Vec::new(),
        irq_source: host::picture::IrqSource::Names,
    });
}
