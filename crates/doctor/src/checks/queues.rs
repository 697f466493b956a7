//! Queues and who serves them: how many, which cores, how evenly.

use std::collections::BTreeMap;

use host::{
    knob::Knob,
    picture::{Nic, Rss},
};
use model::{CpuSet, doctor::Role};

use crate::{
    check::{Check, Outcome},
    evidence::Evidence,
    place,
};

/// The busiest queue or core may have so many times the mean.
const UNEVEN: f64 = 2.0;
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
    Check {
        id: "rps",
        group: "queues",
        asks: "Does a NIC with one receive queue share the work by RPS?",
        reads: "queues, rps_cpus",
        fix: "rps_cpus: the other cores of the NIC's node",
        risk: "each packet costs an interrupt to another core: worth it only where one core is too slow",
        roles: &[Role::Router, Role::Firewall, Role::Capture, Role::Server],
        run: rps,
    },
    Check {
        id: "xps",
        group: "queues",
        asks: "Has each core a transmit queue of its own?",
        reads: "xps_cpus of each transmit queue",
        fix: "xps_cpus: the near cores dealt over the queues",
        risk: "packets of a flow in flight may be overtaken at the moment of the change",
        roles: &[Role::Router, Role::Firewall, Role::Server, Role::Cluster],
        run: xps,
    },
    Check {
        id: "rss-table",
        group: "queues",
        asks: "Does RSS deal to every receive queue alike?",
        reads: "ethtool -x (indirection table)",
        fix: "the table: every queue in turn",
        risk: "flows move to other queues at the moment of the change; a table made on purpose is lost",
        roles: &[],
        run: rss_table,
    },
    Check {
        id: "rss-key",
        group: "queues",
        asks: "Is the RSS key one that spreads?",
        reads: "ethtool -x (hash key)",
        fix: "ethtool -X hkey with a random key, by hand",
        risk: "flows move to other queues at the moment of the change",
        roles: &[],
        run: rss_key,
    },
    Check {
        id: "irqbalance",
        group: "queues",
        asks: "Does irqbalance move the interrupts of the NIC's queues?",
        reads: "running processes, NICs with several queues",
        fix: "systemctl disable --now irqbalance, then evenkeel spread apply",
        risk: "interrupts of other devices stay where they are now",
        roles: &[],
        run: irqbalance,
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
        balance(ratio, format!("the busiest of {} queues has {ratio:.1} times the mean ({what})", values.len()))
            .on(&nic.name),
    )
}

fn uneven_cores(ev: &Evidence) -> Option<Outcome> {
    let cores = &ev.watched.as_ref()?.rates.cores;
    let values: Vec<f64> = cores.iter().map(|c| c.softnet_processed_pps).collect();
    let ratio = unevenness(&values)?;
    if values.iter().sum::<f64>() < ENOUGH_PPS {
        return Some(Outcome::not_applicable("Too little traffic to tell."));
    }
    Some(balance(
        ratio,
        format!("the busiest of {} cores has {ratio:.1} times the mean (packets while watched)", values.len()),
    ))
}

fn balance(ratio: f64, saw: String) -> Outcome {
    if ratio <= UNEVEN {
        return Outcome::good("The work is shared.").saw(saw);
    }
    Outcome::improve("The busiest core is full first, and packets are lost while the others have time.")
        .saw(saw)
        .advise("evenkeel spread plan")
        .advise("# one heavy flow stays on one queue whatever the hash: then RPS or fanout, not RSS")
}

fn rps(ev: &Evidence) -> Vec<Outcome> {
    ev.ports().filter(|n| n.rx_queues.len() == 1).filter_map(|nic| steering(ev, nic)).collect()
}

fn steering(ev: &Evidence, nic: &Nic) -> Option<Outcome> {
    let queue = nic.rx_queues.first()?;
    let near = place::near(&ev.host, nic);
    if near.len() < 2 {
        return None;
    }
    let saw = format!("one receive queue, {} cores near it, RPS on {}", near.len(), shown(&queue.rps_cpus));
    if !queue.rps_cpus.is_empty() {
        return Some(Outcome::good("The cores share the work behind the queue.").on(&nic.name).saw(saw));
    }
    let irq_cpu = place::receive_irqs(nic).next().and_then(|(_, irq)| place::goes_to(&ev.host, irq));
    let others: CpuSet = near.iter().copied().filter(|&cpu| Some(cpu) != irq_cpu).collect();
    let knob = Knob::RpsCpus { nic: nic.name.clone(), queue: 0 };
    let (old, new) = (knob.cpus_value(&queue.rps_cpus), knob.cpus_value(&others));
    let why = "The core that serves the only queue does all the work of the stack as well, while the others have nothing to do.";
    Some(Outcome::improve(why).on(&nic.name).saw(saw).set(knob, old, new))
}

fn shown(cpus: &CpuSet) -> String {
    if cpus.is_empty() { "none".to_owned() } else { cpus.to_string() }
}

fn xps(ev: &Evidence) -> Vec<Outcome> {
    ev.ports().filter(|n| n.tx_queues.len() > 1).filter_map(|nic| transmit(ev, nic)).collect()
}

fn transmit(ev: &Evidence, nic: &Nic) -> Option<Outcome> {
    let masks: Vec<&CpuSet> = nic.tx_queues.iter().filter_map(|q| q.xps_cpus.as_ref()).collect();
    if masks.is_empty() {
        return None;
    }
    let set = masks.iter().filter(|m| !m.is_empty()).count();
    let saw = format!("{set} of {} transmit queues have cores", nic.tx_queues.len());
    if set > 0 {
        return Some(Outcome::good("Cores transmit through queues of their own.").on(&nic.name).saw(saw));
    }
    let why =
        "Without XPS the queue is chosen by hash: cores meet at a queue's lock, and completions come to other cores.";
    let mut outcome = Outcome::improve(why).on(&nic.name).saw(saw);
    let online: Vec<u32> = ev.host.online().iter().collect();
    let queues = masks.len();
    for (n, mask) in masks.iter().enumerate() {
        let own: CpuSet = online.iter().copied().skip(n).step_by(queues).collect();
        let knob = Knob::XpsCpus { nic: nic.name.clone(), queue: u32::try_from(n).ok()? };
        let (old, new) = (knob.cpus_value(mask), knob.cpus_value(&own));
        if !own.is_empty() {
            outcome = outcome.set(knob, old, new);
        }
    }
    Some(outcome)
}

fn rss_table(ev: &Evidence) -> Vec<Outcome> {
    ev.ports().filter_map(|nic| dealing(nic, nic.rss.as_ref()?)).collect()
}

fn dealing(nic: &Nic, rss: &Rss) -> Option<Outcome> {
    let queues = nic.rx_queues.len();
    if queues < 2 || rss.indirection.len() < 2 {
        return None;
    }
    let mut slots = vec![0u32; queues];
    for &queue in &rss.indirection {
        *slots.get_mut(queue as usize)? += 1;
    }
    let used = slots.iter().filter(|&&n| n > 0).count();
    let (most, least) = (*slots.iter().max()?, *slots.iter().min()?);
    let saw = format!("{} slots over {used} of {queues} queues, {least} to {most} each", rss.indirection.len());
    // A table smaller than the number of queues, or not a multiple of it, cannot do better than one apart.
    let fair = used == queues.min(rss.indirection.len()) && (most <= least + 1 || most <= 2 * least);
    if fair {
        return Some(Outcome::good("The hash reaches every queue alike.").on(&nic.name).saw(saw));
    }
    let text = |table: &mut dyn Iterator<Item = usize>| table.map(|q| q.to_string()).collect::<Vec<_>>().join(" ");
    let old = text(&mut rss.indirection.iter().map(|&q| q as usize));
    let new = text(&mut (0..rss.indirection.len()).map(|slot| slot % queues));
    let why = "A queue that gets no slots gets no flows, and one with more than its share is full first.";
    Some(Outcome::improve(why).on(&nic.name).saw(saw).set(Knob::RssIndirection { nic: nic.name.clone() }, old, new))
}

fn rss_key(ev: &Evidence) -> Vec<Outcome> {
    ev.ports().filter(|n| n.rx_queues.len() > 1).filter_map(|nic| hashing(ev, nic, &nic.rss.as_ref()?.key)).collect()
}

fn hashing(ev: &Evidence, nic: &Nic, key: &[u8]) -> Option<Outcome> {
    let first = *key.first()?;
    if key.iter().all(|&b| b == first) {
        let why = if first == 0 {
            "With a key of zeros every flow has the same hash, and one queue gets all of them."
        } else {
            "A key of one repeated byte makes few different hashes, so that many flows meet in one queue."
        };
        let command = format!(
            "ethtool -X {} hkey $(od -An -tx1 -N{} /dev/urandom | tr -s ' \\n' : | sed 's/^://;s/:$//')",
            nic.name,
            key.len()
        );
        let saw = format!("{} bytes of {first:02x}", key.len());
        return Some(Outcome::bad(why).on(&nic.name).saw(saw).advise(command));
    }
    // A copy made with --anonymize has no key; one whose two halves repeat sends both directions to one queue.
    let symmetric = key.len() >= 4 && key.chunks_exact(2).all(|pair| pair == &key[..2]);
    let saw =
        format!("{} bytes, {}", key.len(), if symmetric { "the same for both directions" } else { "not symmetric" });
    let why = match (ev.role, symmetric) {
        (Role::Capture | Role::Firewall, true) => "Both directions of a flow reach one queue.",
        _ => "The key spreads flows.",
    };
    Some(Outcome::good(why).on(&nic.name).saw(saw))
}

fn irqbalance(ev: &Evidence) -> Vec<Outcome> {
    let several: Vec<&str> =
        ev.ports().filter(|n| place::receive_irqs(n).count() > 1).map(|n| n.name.as_str()).collect();
    let Some(pid) = ev.host.irqbalance_pid else {
        return vec![Outcome::good("Nobody moves interrupts behind your back.").saw("irqbalance does not run")];
    };
    let saw = format!("irqbalance runs (process {pid})");
    if several.is_empty() {
        return vec![Outcome::good("No NIC here has queues that it could mix up.").saw(saw)];
    }
    let saw = format!("{saw}; {} with several queues: {}", several.len(), several.join(", "));
    let fights = &ev.rewritten;
    let why = "It counts interrupts and not packets, moves queues to cores that were idle a moment ago, and undoes any spreading.";
    let advice = |o: Outcome| {
        o.advise("systemctl disable --now irqbalance")
            .advise("evenkeel spread apply")
            .advise("# or keep it for other devices: IRQBALANCE_ARGS with --banirq for each of the NIC's interrupts")
    };
    if !fights.is_empty() {
        let outcome = fights.iter().fold(Outcome::bad(why).saw(saw), Outcome::saw);
        return vec![advice(outcome)];
    }
    match ev.role {
        Role::Server | Role::Cluster => {
            vec![Outcome::good("On a machine with other work its choices are mostly good enough.").saw(saw)]
        }
        Role::Router | Role::Firewall | Role::Capture => vec![advice(Outcome::improve(why).saw(saw))],
    }
}
