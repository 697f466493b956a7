//! Queues and who serves them: how many, which cores, how evenly.

use std::collections::{BTreeMap, BTreeSet};

use host::{knob::Knob, picture::Nic};
use model::CpuSet;

use crate::{
    check::{Check, Outcome},
    evidence::Evidence,
    place,
};

/// The busiest queue or core may have so many times the mean; with two of them less, for one alone has twice the mean.
const UNEVEN: f64 = 2.0;
const UNEVEN_OF_TWO: f64 = 1.6;
/// Fewer packets per second say nothing about balance.
const ENOUGH_PPS: f64 = 1000.0;
/// Fewer interrupts since boot say nothing about balance.
const ENOUGH_IRQS: u64 = 10_000;

/// The checks of this group.
pub(super) const CHECKS: &[Check] = &[
    Check {
        id: "queues",
        group: "queues",
        asks: "Has the NIC as many receive queues as its node has cores for them?",
        reads: "queues, ethtool -l, CPUs and nodes",
        fix: "ethtool -L combined, up to one queue per physical core of the NIC's node",
        risk: "the link pauses while the driver makes its queues anew; interrupts get new affinities",
        roles: &[],
        run: queues,
    },
    Check {
        id: "queue-irqs",
        group: "queues",
        asks: "Does each receive queue interrupt a core of its own?",
        reads: "/proc/irq/N/effective_affinity_list and smp_affinity_list",
        fix: "the affinity of each queue's interrupt: one core of the NIC's node each (as evenkeel spread does)",
        risk: "caches are cold for a moment; a running irqbalance undoes it",
        roles: &[],
        run: queue_irqs,
    },
    Check {
        id: "far-node",
        group: "queues",
        asks: "Do the NIC's interrupts go to its own node?",
        reads: "the device's numa_node, nodes of the CPUs, effective affinities",
        fix: "the affinity of those interrupts: cores of the NIC's node",
        risk: "the near node gets more to do; a running irqbalance undoes it",
        roles: &[],
        run: far_node,
    },
    Check {
        id: "uneven",
        group: "queues",
        asks: "Do the queues and cores get about the same number of packets?",
        reads: "packets per queue and per core while watched; in a copy the queues' interrupts since boot",
        fix: "none by itself: hash more fields (ethtool -N rx-flow-hash), RPS, or evenkeel spread",
        risk: "none: advice only",
        roles: &[],
        run: uneven,
    },
];

/// NICs of hypervisors get their queues from the host: another check looks at these.
fn is_virtio(nic: &Nic) -> bool {
    nic.driver.as_deref() == Some("virtio_net")
}

fn queues(ev: &Evidence) -> Vec<Outcome> {
    ev.ports().filter(|n| !is_virtio(n)).filter_map(|nic| queue_count(ev, nic)).collect()
}

fn queue_count(ev: &Evidence, nic: &Nic) -> Option<Outcome> {
    let cpus = place::near(&ev.host, nic);
    let cores = u32::try_from(place::cores(&ev.host, &cpus)).unwrap_or(u32::MAX);
    let have = u32::try_from(nic.rx_queues.len()).ok().filter(|&n| n > 0)?;
    let max = nic.channels.map_or(have, |c| c.combined_max.max(c.rx_max)).max(have);
    let saw = format!("{have} receive queues of {max} possible, {cores} cores near the NIC");
    let seen = |o: Outcome| o.on(&nic.name).saw(&saw).holds("receive queues", have);
    if have >= cores {
        return Some(seen(Outcome::good("Each core near the NIC can have a queue.")));
    }
    let why = "A queue is served by one core at a time: with fewer queues than cores the others stay idle while packets are lost.";
    let wanted = max.min(cores);
    let combined = nic.channels.filter(|c| c.combined > 0);
    Some(match combined {
        Some(c) if wanted > have => seen(Outcome::improve(why)).set(
            Knob::Channels { nic: nic.name.clone() },
            c.combined.to_string(),
            wanted.to_string(),
        ),
        _ if have == 1 => {
            seen(Outcome::improve(why)).advise("# the NIC has one queue: RPS (check rps), or a NIC with more")
        }
        _ => seen(Outcome::good("The NIC has no more queues to give.")),
    })
}

fn queue_irqs(ev: &Evidence) -> Vec<Outcome> {
    ev.ports().filter_map(|nic| sharing(ev, nic)).collect()
}

fn sharing(ev: &Evidence, nic: &Nic) -> Option<Outcome> {
    let irqs: Vec<(u32, u32)> = place::receive_irqs(nic).collect();
    let near = place::near(&ev.host, nic);
    if irqs.len() < 2 || near.len() < 2 {
        return None;
    }
    let mut by_cpu: BTreeMap<u32, Vec<u32>> = BTreeMap::new();
    for &(queue, irq) in &irqs {
        by_cpu.entry(place::goes_to(&ev.host, irq)?).or_default().push(queue);
    }
    let fair = irqs.len().div_ceil(near.len());
    let most = by_cpu.values().map(Vec::len).max().unwrap_or(0);
    let saw = format!("{} receive queues on {} cores; {} cores are near the NIC", irqs.len(), by_cpu.len(), near.len());
    if most <= fair {
        return Some(Outcome::good("The queues' interrupts are spread.").on(&nic.name).saw(saw));
    }
    let (cpu, queues) = by_cpu.iter().max_by_key(|(_, queues)| queues.len())?;
    let why =
        "Queues whose interrupts go to one core are served one after the other, while other cores have nothing to do.";
    let outcome = if by_cpu.len() == 1 { Outcome::bad(why) } else { Outcome::improve(why) };
    let outcome = outcome.on(&nic.name).saw(saw).saw(format!("core {cpu} serves {} queues", queues.len()));
    Some(dealt(ev, outcome, &irqs, &near))
}

fn far_node(ev: &Evidence) -> Vec<Outcome> {
    if !place::has_nodes(&ev.host) {
        return Vec::new();
    }
    ev.ports().filter_map(|nic| far(ev, nic)).collect()
}

fn far(ev: &Evidence, nic: &Nic) -> Option<Outcome> {
    let node = nic.node?;
    let irqs: Vec<(u32, u32)> = place::receive_irqs(nic).collect();
    let on_node = |cpu: u32| ev.host.cpu(cpu).is_some_and(|c| c.node == node);
    let far: Vec<u32> = irqs
        .iter()
        .filter(|(_, irq)| place::goes_to(&ev.host, *irq).is_some_and(|cpu| !on_node(cpu)))
        .map(|i| i.0)
        .collect();
    let near = place::near(&ev.host, nic);
    if irqs.is_empty() || near.is_empty() {
        return None;
    }
    let saw =
        format!("{} of {} receive queues interrupt another node than the NIC's (node {node})", far.len(), irqs.len());
    if far.is_empty() {
        return Some(Outcome::good("The interrupts stay on the NIC's node.").on(&nic.name).saw(saw));
    }
    let why = "A packet that is handled on the far node is fetched over the link between the sockets, and so are its buffers.";
    Some(dealt(ev, Outcome::improve(why).on(&nic.name).saw(saw), &irqs, &near))
}

/// Adds the affinities that deal the queues over the CPUs; those that the kernel manages become advice.
fn dealt(ev: &Evidence, mut outcome: Outcome, irqs: &[(u32, u32)], cpus: &[u32]) -> Outcome {
    let mut managed = 0;
    for (n, &(_, number)) in irqs.iter().enumerate() {
        let Some(irq) = ev.host.irq(number) else { continue };
        let wanted: CpuSet = std::iter::once(cpus[n % cpus.len()]).collect();
        if irq.managed {
            managed += 1;
        } else if irq.effective.as_ref() != Some(&wanted) || irq.affinity != wanted {
            let knob = Knob::IrqAffinity { irq: number };
            let (old, new) = (knob.cpus_value(&irq.affinity), knob.cpus_value(&wanted));
            outcome = outcome.set(knob, old, new);
        }
    }
    if managed > 0 {
        outcome = outcome
            .advise(format!("# {managed} of them the kernel places itself; ethtool -L changes how many there are"));
    }
    if let Some(pid) = ev.host.irqbalance_pid {
        outcome =
            outcome.risk(format!("irqbalance (process {pid}) will move them again: stop it first (check irqbalance)"));
    }
    outcome
}

fn uneven(ev: &Evidence) -> Vec<Outcome> {
    let mut answers: Vec<Outcome> = ev.ports().filter_map(|nic| uneven_queues(ev, nic)).collect();
    answers.extend(uneven_cores(ev));
    answers
}

/// The busiest against the mean; none when there is nothing to compare.
fn unevenness(values: &[f64]) -> Option<f64> {
    let mean = values.iter().sum::<f64>() / values.len() as f64;
    (values.len() >= 2 && mean > 0.0).then(|| values.iter().copied().fold(0.0, f64::max) / mean)
}

fn uneven_queues(ev: &Evidence, nic: &Nic) -> Option<Outcome> {
    let (values, what) = match &ev.watched {
        Some(watched) => {
            let rates = watched.rates.interfaces.iter().find(|i| i.name == nic.name)?;
            let values: Vec<f64> = rates.queues.iter().filter_map(|q| q.rx_pps).collect();
            (values, "packets/s while watched")
        }
        None => {
            let table = ev.interrupts();
            let sum = |irq: u32| table.line(irq).map(|counts| counts.iter().map(|&n| n as f64).sum::<f64>());
            (place::receive_irqs(nic).filter_map(|(_, irq)| sum(irq)).collect(), "interrupts since boot")
        }
    };
    let enough = if ev.watched.is_some() { ENOUGH_PPS } else { ENOUGH_IRQS as f64 };
    let ratio = unevenness(&values)?;
    if values.iter().sum::<f64>() < enough {
        return Some(Outcome::not_applicable("Too little traffic to tell.").on(&nic.name));
    }
    Some(
        balance(
            ratio,
            values.len(),
            format!("the busiest of {} queues has {ratio:.1} times the mean ({what})", values.len()),
        )
        .on(&nic.name),
    )
}

fn uneven_cores(ev: &Evidence) -> Option<Outcome> {
    let cores = &ev.watched.as_ref()?.rates.cores;
    // Cores that no interrupt and no RPS mask names have nothing to share in.
    let serving = serving(ev);
    let serves = |core: u32| serving.is_empty() || serving.contains(&core);
    let values: Vec<f64> = cores.iter().filter(|c| serves(c.load.cpu)).map(|c| c.softnet_processed_pps).collect();
    let ratio = unevenness(&values)?;
    if values.iter().sum::<f64>() < ENOUGH_PPS {
        return Some(Outcome::not_applicable("Too little traffic to tell."));
    }
    Some(balance(
        ratio,
        values.len(),
        format!("the busiest of {} cores has {ratio:.1} times the mean (packets while watched)", values.len()),
    ))
}

/// The cores that the interrupts and RPS masks of the ports name; empty when one of them could be any core.
fn serving(ev: &Evidence) -> BTreeSet<u32> {
    let named = |nic: &Nic| {
        let steered = nic.rx_queues.iter().flat_map(|queue| queue.rps_cpus.iter()).map(Some);
        let interrupted = place::receive_irqs(nic).map(|(_, irq)| place::goes_to(&ev.host, irq));
        interrupted.chain(steered).collect::<Vec<_>>()
    };
    ev.ports().flat_map(named).collect::<Option<_>>().unwrap_or_default()
}

fn balance(ratio: f64, among: usize, saw: String) -> Outcome {
    if ratio <= if among == 2 { UNEVEN_OF_TWO } else { UNEVEN } {
        return Outcome::good("The work is shared.").saw(saw);
    }
    Outcome::improve("The busiest core is full first, and packets are lost while the others have time.")
        .saw(saw)
        .advise("evenkeel spread plan")
        .advise("# one heavy flow stays on one queue whatever the hash: then RPS or fanout, not RSS")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn two_queues_can_be_uneven_too() {
        let verdict = |values: &[f64]| balance(unevenness(values).unwrap(), values.len(), String::new()).verdict;
        assert!(verdict(&[1000.0, 0.0]).is_finding(), "all on one of two is twice the mean, the most there can be");
        assert!(!verdict(&[700.0, 300.0]).is_finding());
        assert!(!verdict(&[700.0, 300.0, 300.0, 300.0]).is_finding());
        assert!(verdict(&[900.0, 100.0, 100.0, 100.0]).is_finding());
        assert_eq!(unevenness(&[5.0]), None);
        assert_eq!(unevenness(&[0.0, 0.0]), None);
    }
}
