//! Interrupts of the queues beside the layout of [`host::placement`], which is `evenkeel spread`'s as well.

use std::collections::BTreeMap;

use host::{
    knob::Knob,
    picture::{IrqSource, Nic},
    placement::{self, Layout, NicLayout, Thread, Wanted, why_unplaced},
};
use model::CpuSet;

use crate::{evidence::Evidence, outcome::Outcome, place};

/// The queues of one interface, as they are and as they should be.
struct Queues<'a> {
    nic: &'a Nic,
    wanted: Vec<Wanted<'a>>,
    threads: Vec<Thread<'a>>,
    /// Present and right CPU of the receive queues for which both are known.
    now_and_then: Vec<(u32, u32)>,
    near: usize,
    receive: usize,
}

impl<'a> Queues<'a> {
    fn of(ev: &'a Evidence, layout: &'a NicLayout<'a>) -> Self {
        let nic = layout.nic;
        let cpu_by_queue = layout.cpu_by_queue();
        // Several interrupts of one queue count once.
        let now: BTreeMap<u32, (u32, bool)> = place::receive_irqs(nic)
            .filter_map(|(queue, irq)| Some((queue, (place::goes_to(&ev.host, irq)?, is_kept(ev, irq)))))
            .collect();
        // What the kernel keeps stays, though the transmit interrupt of that queue may go elsewhere.
        let then = |queue: &u32, (now, is_kept): (u32, bool)| {
            if is_kept { Some(now) } else { cpu_by_queue.get(queue).copied() }
        };
        Self {
            nic,
            wanted: layout.wanted(&ev.host),
            threads: placement::threads(nic, &cpu_by_queue),
            now_and_then: now.iter().filter_map(|(queue, &seen)| Some((seen.0, then(queue, seen)?))).collect(),
            near: place::near(&ev.host, nic).len(),
            receive: place::receive_queues(nic),
        }
    }

    fn moved_threads(&self) -> impl Iterator<Item = &Thread<'a>> {
        self.threads.iter().filter(|t| t.napi.cpus.as_ref() != Some(&CpuSet::single(t.cpu)))
    }

    fn is_placed(&self) -> bool {
        !self.wanted.iter().any(Wanted::moves) && self.moved_threads().next().is_none()
    }

    fn managed(&self) -> usize {
        self.wanted.iter().filter(|w| w.irq.is_some_and(|irq| irq.managed)).count()
    }

    /// The queues of each CPU now.
    fn by_cpu(&self) -> BTreeMap<u32, u32> {
        count(self.now_and_then.iter().map(|(now, _)| *now))
    }

    /// A CPU has more queues than any would have.
    fn is_crowded(&self) -> bool {
        let most = |counts: BTreeMap<u32, u32>| counts.into_values().max().unwrap_or(0);
        most(self.by_cpu()) > most(count(self.now_and_then.iter().map(|(_, then)| *then)))
    }

    /// The distances from the NIC's node now, and how short they could be.
    fn distances(&self, ev: &Evidence) -> Option<(u32, u32)> {
        let node = self.nic.node?;
        let of = |cpu: u32| ev.host.cpu(cpu).map_or(0, |c| ev.host.distance(node, c.node));
        Some(self.now_and_then.iter().fold((0, 0), |(now, then), &(a, b)| (now + of(a), then + of(b))))
    }

    fn is_far(&self, ev: &Evidence) -> bool {
        self.distances(ev).is_some_and(|(now, then)| now > then)
    }

    /// Adds what puts every queue into its place; what the kernel keeps becomes advice.
    fn fix(&self, ev: &Evidence, mut outcome: Outcome) -> Outcome {
        for wanted in self.wanted.iter().filter(|w| w.moves()) {
            let Some(irq) = wanted.irq else { continue };
            let knob = Knob::IrqAffinity { irq: wanted.number };
            let (old, new) = (knob.cpus_value(&irq.affinity), knob.cpus_value(&CpuSet::single(wanted.cpu)));
            outcome = outcome.set(knob, old, new);
        }
        for thread in self.moved_threads() {
            let knob = Knob::NapiThreadAffinity { nic: self.nic.name.clone(), napi: thread.napi.id, pid: thread.pid };
            let old = thread.napi.cpus.clone().unwrap_or_default();
            let (old, new) = (knob.cpus_value(&old), knob.cpus_value(&CpuSet::single(thread.cpu)));
            outcome = outcome.set(knob, old, new);
        }
        let managed = self.managed();
        if managed > 0 {
            outcome = outcome
                .advise(format!("# {managed} of them the kernel places itself; ethtool -L changes how many there are"));
        }
        if let Some(pid) = ev.host.irqbalance_pid {
            outcome = outcome
                .risk(format!("irqbalance (process {pid}) will move them again: stop it first (check irqbalance)"));
        }
        outcome
    }
}

fn is_kept(ev: &Evidence, irq: u32) -> bool {
    ev.host.irq(irq).is_some_and(|irq| irq.managed)
}

fn count(cpus: impl Iterator<Item = u32>) -> BTreeMap<u32, u32> {
    cpus.fold(BTreeMap::new(), |mut counts, cpu| {
        *counts.entry(cpu).or_default() += 1;
        counts
    })
}

/// Every queue of the ports has its place already.
pub(super) fn all_placed(ev: &Evidence) -> bool {
    Layout::of_ports(&ev.host).is_none_or(|layout| layout.nics.iter().all(|nic| Queues::of(ev, nic).is_placed()))
}

pub(super) fn queue_irqs(ev: &Evidence) -> Vec<Outcome> {
    let Some(layout) = Layout::of_ports(&ev.host) else { return Vec::new() };
    layout.nics.iter().map(|nic| served(ev, nic).on(&nic.nic.name)).collect()
}

fn served(ev: &Evidence, layout: &NicLayout<'_>) -> Outcome {
    let nic = layout.nic;
    let queues = Queues::of(ev, layout);
    // What has no interrupts may have threads that can be placed.
    if let Some(why) = why_unplaced(nic).filter(|_| queues.threads.is_empty()) {
        let why = format!("{}: {why}.", nic.name);
        return match nic.irq_source {
            IrqSource::Virtual | IrqSource::Elsewhere => Outcome::not_applicable(why),
            IrqSource::Names | IrqSource::Order | IrqSource::NotFound => Outcome::unknown(why),
        };
    }
    let by_cpu = queues.by_cpu();
    let of = |number: usize, what: &str| format!("{number} {what}{}", if number == 1 { "" } else { "s" });
    let saw = format!(
        "{} on {}; near the NIC: {}",
        of(queues.receive, "receive queue"),
        of(by_cpu.len(), "CPU"),
        of(queues.near, "usable CPU")
    );
    let mut seen = vec![saw];
    if nic.irq_source == IrqSource::Order {
        seen.push("the names of the interrupts do not tell their queues: taken in their order".to_owned());
    }
    let with = |outcome: Outcome| seen.iter().fold(outcome, Outcome::saw);
    if queues.is_placed() {
        return with(Outcome::good("The interrupts of the queues are spread over the CPUs."));
    }
    let alone = by_cpu.len() == 1 && queues.now_and_then.len() > 1;
    if queues.is_crowded() {
        let why = "Queues whose interrupts go to one core are served one after the other, while other cores have nothing to do.";
        let outcome = with(if alone { Outcome::bad(why) } else { Outcome::improve(why) });
        let fullest = by_cpu.iter().max_by_key(|(_, queues)| **queues);
        let outcome = match fullest {
            Some((cpu, queues)) => outcome.saw(format!("core {cpu} serves {queues} queues")),
            None => outcome,
        };
        return queues.fix(ev, outcome);
    }
    if queues.is_far(ev) {
        return with(Outcome::good("The queues are spread; the check far-node says to which nodes."));
    }
    let loose: Vec<&Wanted<'_>> =
        queues.wanted.iter().filter(|w| w.moves() && w.irq.is_some_and(|irq| irq.affinity.len() != 1)).collect();
    let outcome = match loose.first() {
        Some(first) => with(Outcome::improve(
            "An interrupt that may go to several CPUs can move at any time, and RPS, XPS and the caches do not follow it.",
        ))
        .saw(format!(
            "{} of {} interrupts may go to several CPUs (IRQ {} to CPU {})",
            loose.len(),
            queues.wanted.len(),
            first.number,
            first.irq.map_or_else(String::new, |irq| irq.affinity.to_string())
        )),
        None if queues.wanted.iter().any(Wanted::moves) => with(Outcome::improve(
            "Queues share physical cores, or CPUs with other interfaces, while others have nothing to do.",
        )),
        None => with(Outcome::improve("NAPI threads may run on other CPUs than those of their queues, and the caches do not follow them.")),
    };
    queues.fix(ev, outcome)
}

pub(super) fn far_node(ev: &Evidence) -> Vec<Outcome> {
    if !place::has_nodes(&ev.host) {
        return Vec::new();
    }
    let Some(layout) = Layout::of_ports(&ev.host) else { return Vec::new() };
    layout.nics.iter().filter_map(|nic| far(ev, &layout, nic)).collect()
}

fn far(ev: &Evidence, all: &Layout<'_>, layout: &NicLayout<'_>) -> Option<Outcome> {
    let node = layout.nic.node?;
    let queues = Queues::of(ev, layout);
    if queues.now_and_then.is_empty() {
        return None;
    }
    let elsewhere = |cpu: u32| ev.host.cpu(cpu).is_some_and(|c| c.node != node);
    let count = queues.now_and_then.iter().filter(|(now, _)| elsewhere(*now)).count();
    let saw = format!(
        "{count} of {} receive queues interrupt another node than the NIC's (node {node})",
        queues.now_and_then.len()
    );
    let with = |outcome: Outcome| {
        let outcome = outcome.on(&layout.nic.name).saw(&saw);
        if all.cores.has_cpus_on(node) { outcome } else { outcome.saw(format!("no CPU of node {node} is usable")) }
    };
    if queues.is_far(ev) {
        let why = "A packet that is handled on the far node is fetched over the link between the sockets, and so are its buffers.";
        return Some(queues.fix(ev, with(Outcome::improve(why))));
    }
    Some(with(Outcome::good(if count == 0 {
        "The interrupts stay on the NIC's node."
    } else {
        "They are as near as the CPUs in use allow."
    })))
}
