//! Costs of a guest: an emulated card, too few queues, CPU time that the hypervisor gives to others.

use host::{
    knob::Knob,
    picture::Nic,
    setting::{
        Missing,
        guest::{self, Platform},
    },
};

use super::or_unknown;
use crate::{check::Check, evidence::Evidence, outcome::Outcome};

pub(super) const CHECKS: &[Check] = &[
    Check {
        id: "emulated-nic",
        group: "guest",
        question: "Does the guest's network go through an emulated card where VirtIO would do?",
        reads: "the driver, the card's PCI ids, whether this is a guest (/proc/cpuinfo, /sys/class/dmi/id)",
        fix: "the card's model in the hypervisor's configuration (model=virtio)",
        risk: "the interface gets another name and perhaps another MAC address: change the configuration that names it first",
        roles: &[],
        run: emulated,
    },
    Check {
        id: "virtio-queues",
        group: "guest",
        question: "Has the VirtIO card a queue for each CPU?",
        reads: "ethtool -l, the CPUs that are online",
        fix: "ethtool -L combined to the number of CPUs; the most that is possible is the hypervisor's (queues=N)",
        risk: "the link pauses for a moment, and settings of single queues are lost",
        roles: &[],
        run: virtio_queues,
    },
    Check {
        id: "steal",
        group: "guest",
        question: "Does the hypervisor take CPU time away?",
        reads: "steal in /proc/stat: over the watch on a live machine, and since boot",
        fix: "nothing in the guest: its place on the host",
        risk: "none in the guest",
        roles: &[],
        run: steal,
    },
];

/// Drivers of cards that hypervisors emulate, with the PCI device ids of these.
const EMULATED: [(&str, &[&str]); 6] = [
    ("e1000", &["0x100e", "0x100f", "0x1004"]),
    ("e1000e", &["0x10d3"]),
    ("8139cp", &["0x8139"]),
    ("8139too", &["0x8139"]),
    ("pcnet32", &["0x2000"]),
    ("ne2k-pci", &["0x8029"]),
];
/// Drivers that exist in guests only.
const PARAVIRTUAL: [&str; 6] = ["virtio_net", "vmxnet3", "ena", "gve", "hv_netvsc", "vif"];

/// Recognises a guest by CPU and firmware, or else by a driver that exists in guests only.
fn is_guest(ev: &Evidence) -> Result<bool, Missing> {
    let by_driver =
        ev.host.nics.iter().any(|nic| nic.driver.as_deref().is_some_and(|driver| PARAVIRTUAL.contains(&driver)));
    match guest::read(&ev.root) {
        Ok(Platform::Guest(_)) => Ok(true),
        Ok(Platform::Metal) => Ok(by_driver),
        Err(_) if by_driver => Ok(true),
        Err(why) => Err(why),
    }
}

fn emulated(ev: &Evidence) -> Vec<Outcome> {
    let card =
        |nic: &Nic| EMULATED.iter().find(|(driver, _)| nic.driver.as_deref() == Some(driver)).map(|(_, ids)| *ids);
    let ports: Vec<_> = ev.ports().filter_map(|nic| card(nic).map(|ids| (nic, ids))).collect();
    if ports.is_empty() {
        let virtio = ev.ports().filter(|nic| nic.driver.as_deref() == Some("virtio_net"));
        let good = |nic: &Nic| {
            Outcome::good("VirtIO hands over packets in batches, without emulating registers.").on(&nic.name)
        };
        return virtio.map(good).collect();
    }
    match is_guest(ev) {
        Ok(true) => ports.into_iter().map(|(nic, ids)| judge_card(ev, nic, ids)).collect(),
        Ok(false) => Vec::new(),
        Err(why) => or_unknown(Err(why)),
    }
}

fn judge_card(ev: &Evidence, nic: &Nic, ids: &[&str]) -> Outcome {
    const WHY: &str = "Each access to a register of an emulated card leaves the guest: in the study that this check follows, \
        a guest routed about 32,000 packets/s of 64 bytes per direction over an emulated E1000 and about 85,000 over VirtIO.";
    let driver = nic.driver.as_deref().unwrap_or_default();
    let id = ev.text(&format!("sys/class/net/{}/device/device", nic.name));
    let outcome = match id.as_deref() {
        Some(id) if ids.contains(&id) => {
            Outcome::bad(WHY).saw(format!("driver {driver}, PCI device {id}: an emulated model"))
        }
        Some(id) => {
            let seen = format!("driver {driver}, PCI device {id}: no model that hypervisors emulate");
            return Outcome::good("A card that is passed through to the guest is not emulated.")
                .on(&nic.name)
                .saw(seen);
        }
        None => Outcome::improve(WHY).saw(format!("driver {driver} in a guest (emulated unless it is passed through)")),
    };
    outcome
        .on(&nic.name)
        .saw("loaded latency over bare metal in that study: +2235 % with E1000, +62 % with VirtIO")
        .holds("card model", driver)
        .advise("# at the hypervisor: give the guest a VirtIO card (QEMU: -device virtio-net-pci; libvirt: <model type='virtio'/>)")
}

fn virtio_queues(ev: &Evidence) -> Vec<Outcome> {
    const WHY: &str =
        "A queue is served by one CPU at a time: with fewer queues than CPUs the rest cannot help with packets.";
    let cpus = ev.host.online().len() as u32;
    let judge = |nic: &Nic| {
        let channels = nic.channels.filter(|c| c.combined_max > 0)?;
        let (now, most) = (channels.combined, channels.combined_max);
        let saw = format!("queue pairs: {now} of at most {most}; CPUs: {cpus}");
        let base = |outcome: Outcome| outcome.on(&nic.name).saw(saw.clone()).holds("queue pairs", now);
        if now >= cpus {
            return Some(base(Outcome::good("Every CPU has a queue.")));
        }
        let mut outcome = base(Outcome::improve(WHY));
        if now < most.min(cpus) {
            let knob = Knob::Channels { nic: nic.name.clone() };
            outcome = outcome.set(knob, now.to_string(), most.min(cpus).to_string());
        }
        if most < cpus {
            let line = format!(
                "# at the hypervisor: {cpus} queues (QEMU: queues={cpus},mq=on; libvirt: <driver queues='{cpus}'/>)"
            );
            outcome = outcome.advise(line);
        }
        Some(outcome)
    };
    ev.ports().filter(|nic| nic.driver.as_deref() == Some("virtio_net")).filter_map(judge).collect()
}

/// Percent of the CPU time below which steal within so short a watch does not count.
const COARSE_PERCENT: f64 = 5.0;

fn steal(ev: &Evidence) -> Vec<Outcome> {
    if matches!(guest::read(&ev.root), Ok(Platform::Metal)) {
        return Vec::new();
    }
    let times = ev.cpu_times();
    if times.is_empty() {
        return vec![ev.lacking("/proc/stat is not there, which counts the time taken by the hypervisor")];
    }
    let sum = |f: fn(&host::counters::CpuTime) -> u64| times.values().map(f).fold(0, u64::saturating_add);
    let all =
        sum(|t| [t.system, t.idle, t.irq, t.softirq, t.steal].into_iter().fold(t.user, u64::saturating_add)).max(1);
    let since_boot = 100.0 * sum(|t| t.steal) as f64 / all as f64;
    let watched = ev.watched.as_ref().filter(|watched| !watched.rates.cores.is_empty()).map(|watched| {
        let cores = &watched.rates.cores;
        cores.iter().map(|core| core.load.steal_percent).sum::<f64>() / cores.len() as f64
    });
    // The watch is short and counts in ticks of 10 ms: a little of it says nothing.
    let percent =
        watched.filter(|&percent| percent >= COARSE_PERCENT).map_or(since_boot, |percent| percent.max(since_boot));
    let why = "Time that the hypervisor gives to other guests is missing to the packets, in pieces of milliseconds in which \
        the rings overflow.";
    let outcome = match percent {
        p if p >= 10.0 => Outcome::bad(why),
        p if p >= 1.0 => Outcome::improve(why),
        _ => Outcome::good("The hypervisor takes less than one percent of the CPU time."),
    };
    let outcome = outcome.saw(format!("{since_boot:.1} % stolen {}, over {} CPUs", ev.since_when(), times.len()));
    let outcome = match watched {
        Some(percent) => outcome.saw(format!("{percent:.1} % stolen during the watch, over all CPUs")),
        None => outcome,
    };
    match percent {
        p if p >= 1.0 => {
            vec![outcome.advise("# at the hypervisor: fewer guests on these CPUs, or CPUs of its own for this one")]
        }
        _ => vec![outcome],
    }
}
