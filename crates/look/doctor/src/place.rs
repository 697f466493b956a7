//! Places of an interface's queues, besides the layout itself ([`host::placement`]).

use std::collections::BTreeSet;

use host::{
    Host,
    picture::{Nic, QueueRole},
    placement::{self, Cores},
};
use model::CpuSet;

/// The CPUs for the packet work of an interface: usable, and nearest to it.
pub fn near(host: &Host, nic: &Nic) -> CpuSet {
    Cores::new(host, &placement::usable(host)).near(nic.node)
}

/// Number of physical cores among these CPUs.
pub fn cores(host: &Host, cpus: &CpuSet) -> usize {
    Cores::new(host, cpus).physical(cpus) as usize
}

/// The interrupts that bring packets in, as queue and number, by queue.
pub fn receive_irqs(nic: &Nic) -> impl Iterator<Item = (u32, u32)> {
    nic.irqs.iter().filter_map(|i| match i.role {
        QueueRole::Rx(queue) | QueueRole::RxTx(queue) => Some((queue, i.irq)),
        QueueRole::Tx(_) | QueueRole::Control => None,
    })
}

/// Number of queues with an interrupt that brings packets in.
pub fn receive_queues(nic: &Nic) -> usize {
    receive_irqs(nic).map(|(queue, _)| queue).collect::<BTreeSet<u32>>().len()
}

/// The CPU that an interrupt goes to, where there is no doubt.
pub fn goes_to(host: &Host, irq: u32) -> Option<u32> {
    host.irq(irq).and_then(placement::goes_to)
}

/// The machine has more than one node with CPUs.
pub fn has_nodes(host: &Host) -> bool {
    host.cpus.windows(2).any(|pair| pair[0].node != pair[1].node)
}
