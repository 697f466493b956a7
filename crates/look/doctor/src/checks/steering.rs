//! Steering of packets: RPS, XPS, the table and the key of RSS, and irqbalance that moves the interrupts.

use host::{
    knob::Knob,
    picture::{Nic, Rss},
    placement::{self, Layout, NicLayout, Xps},
};
use model::{CpuSet, doctor::Role, units::counted};

use crate::{check::Check, evidence::Evidence, outcome::Outcome, place};

pub(super) const CHECKS: &[Check] = &[
    Check {
        id: "rps",
        group: "queues",
        question: "Does a NIC with one receive queue share the work by RPS?",
        reads: "queues, rps_cpus",
        fix: "rps_cpus: the other cores of the NIC's node, as evenkeel spread plans it",
        risk: "each packet costs an interrupt to another core: worth it only where one core is too slow",
        roles: &[],
        run: rps,
    },
    Check {
        id: "xps",
        group: "queues",
        question: "Has each core a transmit queue of its own?",
        reads: "xps_cpus of each transmit queue",
        fix: "xps_cpus: each queue the CPU of its interrupt and those nearest to it, as evenkeel spread plans it",
        risk: "packets of a flow in flight may be overtaken at the moment of the change",
        roles: &[],
        run: xps,
    },
    Check {
        id: "rss-table",
        group: "queues",
        question: "Does RSS deal to every receive queue alike?",
        reads: "ethtool -x (indirection table)",
        fix: "the table: every queue in turn",
        risk: "flows move to other queues at the moment of the change; a table made on purpose is lost",
        roles: &[],
        run: rss_table,
    },
    Check {
        id: "rss-key",
        group: "queues",
        question: "Is the RSS key one that spreads?",
        reads: "ethtool -x (hash key)",
        fix: "ethtool -X hkey with a random key, by hand",
        risk: "flows move to other queues at the moment of the change",
        roles: &[],
        run: rss_key,
    },
    Check {
        id: "irqbalance",
        group: "queues",
        question: "Does irqbalance move the interrupts of the NIC's queues?",
        reads: "running processes, NICs with several queues",
        fix: "systemctl disable --now irqbalance, then evenkeel spread apply",
        risk: "interrupts of other devices stay where they are now",
        roles: &[],
        run: irqbalance,
    },
];

fn rps(ev: &Evidence) -> Vec<Outcome> {
    let Some(layout) = Layout::of_ports(&ev.host) else { return Vec::new() };
    layout.nics.iter().filter(|l| l.nic.rx_queues.len() == 1).filter_map(|nic| steering(ev, &layout, nic)).collect()
}

fn steering(ev: &Evidence, all: &Layout<'_>, layout: &NicLayout<'_>) -> Option<Outcome> {
    let nic = layout.nic;
    let queue = nic.rx_queues.first()?;
    let near = place::near(&ev.host, nic);
    if let Some(cpus) = ev.host.fast_path_cpus(&nic.name) {
        let saw = format!("evenkeel route deals its flows to CPU {cpus}, RPS on {}", shown(&queue.rps_cpus));
        if queue.rps_cpus.is_empty() {
            return Some(Outcome::good("The cores share the work of the queue.").on(&nic.name).saw(saw));
        }
        let knob = Knob::RpsCpus { nic: nic.name.clone(), queue: 0 };
        let (old, new) = (knob.cpus_value(&queue.rps_cpus), knob.cpus_value(&CpuSet::new()));
        let why = "A router's fast path has dealt these flows already: RPS moves them to another core once more.";
        return Some(Outcome::improve(why).on(&nic.name).saw(saw).set(knob, old, new));
    }
    let wanted = placement::rps_cpus(nic, &all.cores, &layout.cpu_by_queue());
    if wanted.is_empty() {
        return None;
    }
    let saw = format!(
        "one receive queue, {} near it, RPS on {}",
        counted(near.len() as u64, "core", "cores"),
        shown(&queue.rps_cpus)
    );
    if queue.rps_cpus == wanted {
        return Some(Outcome::good("The cores share the work of the queue.").on(&nic.name).saw(saw));
    }
    let knob = Knob::RpsCpus { nic: nic.name.clone(), queue: 0 };
    let (old, new) = (knob.cpus_value(&queue.rps_cpus), knob.cpus_value(&wanted));
    let why = if queue.rps_cpus.is_empty() {
        "The core that serves the only queue does all the work of the stack as well, while the others have nothing to do."
    } else {
        "The work behind the only queue belongs to the cores near the NIC, without the one that serves the queue."
    };
    Some(Outcome::improve(why).on(&nic.name).saw(saw).set(knob, old, new))
}

fn shown(cpus: &CpuSet) -> String {
    if cpus.is_empty() { "none".to_owned() } else { cpus.to_string() }
}

fn xps(ev: &Evidence) -> Vec<Outcome> {
    let Some(layout) = Layout::of_ports(&ev.host) else { return Vec::new() };
    layout.nics.iter().filter_map(|nic| transmit(ev, nic)).collect()
}

fn transmit(ev: &Evidence, layout: &NicLayout<'_>) -> Option<Outcome> {
    let nic = layout.nic;
    let cpu_by_queue = layout.cpu_by_queue();
    let masks = match placement::xps(&ev.host, nic, &cpu_by_queue) {
        Xps::NotHere => return None,
        Xps::Unknown if cpu_by_queue.is_empty() => return None,
        Xps::Unknown => {
            let why = "Which interrupt serves which transmit queue is not known (several may share one).";
            return Some(Outcome::not_applicable(why).on(&nic.name));
        }
        Xps::Masks(masks) => masks,
    };
    let now: Vec<&CpuSet> = nic.tx_queues.iter().filter_map(|q| q.xps_cpus.as_ref()).collect();
    let set = now.iter().filter(|m| !m.is_empty()).count();
    let saw = format!("{set} of {} transmit queues have cores", nic.tx_queues.len());
    let wrong: Vec<(u32, &CpuSet, &CpuSet)> =
        (0..).zip(now).zip(&masks).filter(|((_, now), new)| now != new).map(|((n, now), new)| (n, now, new)).collect();
    if wrong.is_empty() {
        return Some(Outcome::good("Cores transmit through queues of their own.").on(&nic.name).saw(saw));
    }
    let why = if set == 0 {
        "Without XPS the queue is chosen by hash: cores meet at a queue's lock, and completions come to other cores."
    } else {
        "Cores transmit through queues whose completions come to other cores, farther away than need be."
    };
    let mut outcome = Outcome::improve(why).on(&nic.name).saw(saw);
    if set > 0 {
        outcome =
            outcome.saw(format!("{} of them have other cores than those nearest to their interrupt", wrong.len()));
    }
    Some(wrong.into_iter().fold(outcome, |outcome, (queue, now, new)| {
        let knob = Knob::XpsCpus { nic: nic.name.clone(), queue };
        let (old, new) = (knob.cpus_value(now), knob.cpus_value(new));
        outcome.set(knob, old, new)
    }))
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
    let saw = format!("{} table entries over {used} of {queues} queues, {least} to {most} each", rss.indirection.len());
    // A table smaller than the number of queues, or not a multiple of it, cannot do better than one apart.
    let fair = used == queues.min(rss.indirection.len()) && (most <= least + 1 || most <= 2 * least);
    if fair {
        return Some(Outcome::good("The hash reaches every queue alike.").on(&nic.name).saw(saw));
    }
    let text = |table: &mut dyn Iterator<Item = usize>| table.map(|q| q.to_string()).collect::<Vec<_>>().join(" ");
    let old = text(&mut rss.indirection.iter().map(|&q| q as usize));
    let new = text(&mut (0..rss.indirection.len()).map(|slot| slot % queues));
    let why = "A queue without table entries gets no flows, and one with more than its share overflows first.";
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
    let several: Vec<&str> = ev.ports().filter(|n| place::receive_queues(n) > 1).map(|n| n.name.as_str()).collect();
    let Some(pid) = ev.host.irqbalance_pid else {
        return vec![Outcome::good("irqbalance moves no interrupts.").saw("irqbalance does not run")];
    };
    let saw = format!("irqbalance runs (process {pid})");
    if several.is_empty() {
        return vec![Outcome::good("No NIC here has more than one queue for it to move.").saw(saw)];
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
