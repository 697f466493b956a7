//! Which CPUs should do the packet work of an interface.

use host::{
    Host,
    picture::{Cpu, Nic, QueueRole},
};
use model::CpuSet;

/// The CPUs for the packet work of an interface: online, not isolated, on its node (any node where that is unknown or has none
/// left); the first thread of each core first.
pub fn near(host: &Host, nic: &Nic) -> Vec<u32> {
    let usable = |c: &&Cpu| c.online && !c.isolated;
    let on_node: Vec<&Cpu> =
        host.cpus.iter().filter(usable).filter(|c| nic.node.is_none_or(|node| c.node == node)).collect();
    let chosen = if on_node.is_empty() { host.cpus.iter().filter(usable).collect() } else { on_node };
    let all: CpuSet = chosen.iter().map(|c| c.id).collect();
    let is_first = |c: &Cpu| c.siblings.intersection(&all).first().is_none_or(|first| first == c.id);
    let (first, second): (Vec<&Cpu>, Vec<&Cpu>) = chosen.into_iter().partition(|c| is_first(c));
    first.iter().chain(&second).map(|c| c.id).collect()
}

/// How many physical cores there are among these CPUs.
pub fn cores(host: &Host, cpus: &[u32]) -> usize {
    let all: CpuSet = cpus.iter().copied().collect();
    let is_first =
        |id: u32| host.cpu(id).is_none_or(|c| c.siblings.intersection(&all).first().is_none_or(|first| first == id));
    cpus.iter().filter(|&&id| is_first(id)).count()
}

/// The interrupts that bring packets in, as queue and number, by queue.
pub fn receive_irqs(nic: &Nic) -> impl Iterator<Item = (u32, u32)> {
    nic.irqs.iter().filter_map(|i| match i.role {
        QueueRole::Rx(queue) | QueueRole::RxTx(queue) => Some((queue, i.irq)),
        QueueRole::Tx(_) | QueueRole::Control => None,
    })
}

/// The CPU that an interrupt goes to, where there is no doubt: the one in effect, else the only one it may go to.
pub fn goes_to(host: &Host, irq: u32) -> Option<u32> {
    let irq = host.irq(irq)?;
    let set = irq.effective.as_ref().filter(|set| !set.is_empty()).unwrap_or(&irq.affinity);
    if set.len() == 1 { set.first() } else { None }
}

/// Whether the machine has more than one node with CPUs.
pub fn has_nodes(host: &Host) -> bool {
    host.cpus.windows(2).any(|pair| pair[0].node != pair[1].node)
}
