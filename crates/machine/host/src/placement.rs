//! The right CPUs for the packet work of the interfaces: one judgement for every verb that places it or finds fault with its place. Pure.
//!
//! [`Layout::of`] gives every queue a CPU. What is already as good as that stays: a plan that was carried out, or another one of
//! the same worth, is left alone by all who ask.

mod assign;
mod cores;
mod queue_cpus;
mod score;
mod steer;

use std::collections::BTreeMap;

use model::CpuSet;

use crate::picture::{Host, Irq, IrqSource, Nic, QueueRole};

pub use cores::{Cores, Placement, Tier};
pub use queue_cpus::QueueCpu;
pub use steer::{Thread, Xps, rps_cpus, threads, xps};

/// The CPU of each queue of an interface.
pub type CpuByQueue = BTreeMap<u32, u32>;

/// The right CPUs for the queues of several interfaces, seen together.
#[derive(Debug)]
pub struct Layout<'a> {
    /// Each interface, in the order given.
    pub nics: Vec<NicLayout<'a>>,
    /// The CPUs, and how many queues each has now.
    pub cores: Cores<'a>,
}

/// The right CPUs for the queues of an interface.
#[derive(Debug)]
pub struct NicLayout<'a> {
    pub nic: &'a Nic,
    pub queue_cpus: BTreeMap<u32, QueueCpu>,
}

/// An interrupt of a queue, and the CPU that it belongs to.
#[derive(Debug, Clone, Copy)]
pub struct Wanted<'a> {
    pub queue: u32,
    /// The work of the interrupt.
    pub role: QueueRole,
    pub number: u32,
    /// The interrupt; none when /proc/interrupts does not have it.
    pub irq: Option<&'a Irq>,
    pub cpu: u32,
}

impl Wanted<'_> {
    /// True if it has to be written: it can be, and it may go elsewhere now.
    pub fn moves(&self) -> bool {
        self.irq.is_some_and(|irq| !irq.managed && irq.affinity != CpuSet::single(self.cpu))
    }
}

/// The CPUs that may do packet work: online, and not isolated.
pub fn usable(host: &Host) -> CpuSet {
    host.cpus.iter().filter(|c| c.online && !c.isolated).map(|c| c.id).collect()
}

pub fn isolated(host: &Host) -> CpuSet {
    host.cpus.iter().filter(|c| c.isolated).map(|c| c.id).collect()
}

/// The interfaces whose packet work is placed unless somebody names others: hardware and hypervisors' devices that are up.
pub fn ports(host: &Host) -> Vec<&Nic> {
    host.nics.iter().filter(|nic| nic.is_up() && (nic.bus.is_some() || has_queue_irqs(nic))).collect()
}

/// True if an interrupt is known to serve a queue of this interface.
pub fn has_queue_irqs(nic: &Nic) -> bool {
    nic.irqs.iter().any(|i| i.role != QueueRole::Control)
}

/// The reason why nothing is known of the interrupts of an interface's queues; none when they are known.
pub fn why_unplaced(nic: &Nic) -> Option<String> {
    if has_queue_irqs(nic) {
        return None;
    }
    let driver = nic.driver.as_deref().map_or_else(String::new, |driver| format!(" (driver {driver})"));
    Some(match nic.irq_source {
        _ if !nic.is_up() => "is down: its driver asks for interrupts when it comes up".to_owned(),
        IrqSource::Virtual => {
            "has no interrupts of its own: its packets are handled on the CPU that sends them".to_owned()
        }
        IrqSource::Elsewhere => {
            format!("its packets come by an interrupt of the bus, which is not its own{driver}")
        }
        IrqSource::Names | IrqSource::Order | IrqSource::NotFound => {
            format!("no interrupt in /proc/interrupts is known to serve its queues{driver}")
        }
    })
}

impl<'a> Layout<'a> {
    /// Places the queues of `nics` on the CPUs that are `allowed`. Interrupts of other interfaces that are up and pinned count as
    /// queues that are there already, and so does what a router's fast path deals to a CPU.
    pub fn of(host: &'a Host, nics: &[&'a Nic], allowed: &CpuSet) -> Self {
        let mut cores = Cores::new(host, allowed);
        for cpu in pinned_elsewhere(host, nics) {
            cores.occupy(cpu);
        }
        for cpu in host.fast_path.iter().flat_map(|path| path.cpus.iter()) {
            cores.occupy(cpu);
        }
        let queue_cpus = queue_cpus::queue_cpus(host, nics, &mut cores);
        let nics = nics.iter().zip(queue_cpus).map(|(&nic, queue_cpus)| NicLayout { nic, queue_cpus }).collect();
        Self { nics, cores }
    }

    /// The layout of all ports on all usable CPUs; none when there is no usable CPU.
    pub fn of_ports(host: &'a Host) -> Option<Self> {
        let allowed = usable(host);
        (!allowed.is_empty()).then(|| Self::of(host, &ports(host), &allowed))
    }
}

impl<'a> NicLayout<'a> {
    /// The CPU of each queue.
    pub fn cpu_by_queue(&self) -> CpuByQueue {
        self.queue_cpus.iter().map(|(queue, queue_cpu)| (*queue, queue_cpu.cpu)).collect()
    }

    /// The interrupts of its queues that have a place, by queue.
    pub fn wanted(&self, host: &'a Host) -> Vec<Wanted<'a>> {
        let of_queue = |(queue, irqs): (u32, Vec<(u32, QueueRole)>)| {
            let cpu = self.queue_cpus.get(&queue).map(|queue_cpu| queue_cpu.cpu);
            let wanted = move |(number, role)| Some(Wanted { queue, role, number, irq: host.irq(number), cpu: cpu? });
            irqs.into_iter().filter_map(wanted).collect::<Vec<_>>()
        };
        queue_cpus::queue_irqs(self.nic).into_iter().flat_map(of_queue).collect()
    }
}

/// The CPU that an interrupt goes to, where there is no doubt: the one in effect, else the only one it may go to.
pub fn goes_to(irq: &Irq) -> Option<u32> {
    let set = irq.effective.as_ref().filter(|set| !set.is_empty()).unwrap_or(&irq.affinity);
    if set.len() == 1 { set.first() } else { None }
}

/// The CPUs to which queues of the other interfaces are pinned: they are loaded already.
fn pinned_elsewhere(host: &Host, nics: &[&Nic]) -> Vec<u32> {
    let mut irqs: Vec<u32> = host
        .nics
        .iter()
        .filter(|n| n.is_up() && !nics.iter().any(|chosen| chosen.name == n.name))
        .flat_map(|n| n.irqs.iter().filter(|i| i.role != QueueRole::Control).map(|i| i.irq))
        .filter(|irq| !nics.iter().any(|n| n.irqs.iter().any(|i| i.irq == *irq)))
        .collect();
    irqs.sort_unstable();
    irqs.dedup();
    let pinned = |irq: u32| host.irq(irq).filter(|i| i.affinity.len() == 1).and_then(|i| i.affinity.first());
    irqs.into_iter().filter_map(pinned).collect()
}
