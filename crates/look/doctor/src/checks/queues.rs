//! Queues and who serves them: how many, which cores, how evenly.

use std::collections::{BTreeMap, BTreeSet};

use host::{knob::Knob, picture::Nic};

use super::placing;
use crate::{check::Check, evidence::Evidence, outcome::Outcome, place};

/// The busiest queue or core may have so many times the mean; with two of them less, for one alone has twice the mean.
const UNEVEN: f64 = 2.0;
const UNEVEN_OF_TWO: f64 = 1.6;
/// A core below this load has room for more, however uneven the work is.
const HOT_PERCENT: f64 = 50.0;
/// Fewer packets per second say nothing about balance.
const ENOUGH_PPS: f64 = 1000.0;
/// Fewer interrupts since boot say nothing about balance.
const ENOUGH_IRQS: u64 = 10_000;

pub(super) const CHECKS: &[Check] = &[
    Check {
        id: "queues",
        group: "queues",
        question: "Has the NIC as many receive queues as its node has cores for them?",
        reads: "queues, ethtool -l, CPUs and nodes",
        fix: "ethtool -L combined, up to one queue per physical core of the NIC's node",
        risk: "the link pauses while the driver makes its queues anew; interrupts get new affinities",
        roles: &[],
        run: queues,
    },
    Check {
        id: "queue-irqs",
        group: "queues",
        question: "Has each queue's interrupt one CPU, and the queues different ones?",
        reads: "/proc/irq/N/effective_affinity_list and smp_affinity_list, CPUs and nodes of all ports",
        fix: "the affinity of each queue's interrupt and NAPI thread, as evenkeel spread plans it",
        risk: "caches are cold for a moment; a running irqbalance undoes it",
        roles: &[],
        run: placing::queue_irqs,
    },
    Check {
        id: "far-node",
        group: "queues",
        question: "Do the NIC's interrupts go to its own node?",
        reads: "the device's numa_node, nodes of the CPUs, effective affinities",
        fix: "the affinity of those interrupts: the nearest CPUs that are free, as evenkeel spread plans it",
        risk: "the near node gets more to do; a running irqbalance undoes it",
        roles: &[],
        run: placing::far_node,
    },
    Check {
        id: "uneven",
        group: "queues",
        question: "Do the queues and cores get about the same number of packets?",
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
    let saw = format!("receive queues: {have} of {max} possible; cores near the NIC: {cores}");
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
        _ => seen(Outcome::good("The NIC has no more queues.")),
    })
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
            let mut queues: BTreeMap<u32, f64> = BTreeMap::new();
            for (queue, interrupts) in place::receive_irqs(nic).filter_map(|(queue, irq)| Some((queue, sum(irq)?))) {
                *queues.entry(queue).or_default() += interrupts;
            }
            (queues.into_values().collect(), "interrupts since boot")
        }
    };
    let enough = if ev.watched.is_some() { ENOUGH_PPS } else { ENOUGH_IRQS as f64 };
    let ratio = unevenness(&values)?;
    if values.iter().sum::<f64>() < enough {
        return Some(Outcome::not_applicable("Too little traffic to tell.").on(&nic.name));
    }
    Some(
        balance(
            ev,
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
        ev,
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

/// The load of the busiest core while watched, in percent; none for a copy.
fn busiest(ev: &Evidence) -> Option<f64> {
    let cores = &ev.watched.as_ref()?.rates.cores;
    cores.iter().map(|core| core.load.busy_percent()).reduce(f64::max)
}

/// True if the busiest of `among` has too many times the mean.
fn is_uneven(ratio: f64, among: usize) -> bool {
    ratio > if among == 2 { UNEVEN_OF_TWO } else { UNEVEN }
}

fn balance(ev: &Evidence, ratio: f64, among: usize, saw: String) -> Outcome {
    if !is_uneven(ratio, among) {
        return Outcome::good("The work is shared.").saw(saw);
    }
    let busiest = busiest(ev);
    let saw = busiest.map_or_else(|| saw.clone(), |percent| format!("{saw}; the busiest core is at {percent:.0} %"));
    if busiest.is_some_and(|percent| percent < HOT_PERCENT) {
        return Outcome::good("The work is not shared alike, but no core is short of time.").saw(saw);
    }
    let outcome =
        Outcome::improve("The busiest core is full first, and packets are lost while the others have time.").saw(saw);
    let flows = "# one heavy flow stays on one queue whatever the hash: then RPS or fanout, not RSS";
    match placing::all_placed(ev) {
        true => outcome.advise("# every queue has its CPU: it is the flows that are uneven").advise(flows),
        false => outcome.advise("evenkeel spread plan").advise(flows),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn two_queues_can_be_uneven_too() {
        let uneven = |values: &[f64]| is_uneven(unevenness(values).unwrap(), values.len());
        assert!(uneven(&[1000.0, 0.0]), "all on one of two is twice the mean, the most there can be");
        assert!(!uneven(&[700.0, 300.0]));
        assert!(!uneven(&[700.0, 300.0, 300.0, 300.0]));
        assert!(uneven(&[900.0, 100.0, 100.0, 100.0]));
        assert_eq!(unevenness(&[5.0]), None);
        assert_eq!(unevenness(&[0.0, 0.0]), None);
    }
}
