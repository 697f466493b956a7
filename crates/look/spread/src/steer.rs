//! The settings after the interrupts: NAPI threads, RPS, XPS, and the tables of RFS.

use host::{
    Host,
    knob::{CoalesceField, Knob},
    picture::Nic,
    placement::{self, Cores, CpuByQueue, Xps},
};
use model::CpuSet;

use crate::{
    options::{Options, Steer},
    rows::SpreadPlan,
};

/// Turns threaded NAPI on or off when asked, and pins the threads there are to the CPU of their queue.
pub(crate) fn threads(nic: &Nic, options: &Options, cpu_by_queue: &CpuByQueue, out: &mut SpreadPlan) {
    let name = &nic.name;
    let one_zero = |on: bool| if on { "1" } else { "0" }.to_owned();
    if let Some(on) = options.threaded {
        match nic.threaded {
            Some(now) => {
                let knob = Knob::NapiThreaded { nic: name.clone() };
                out.set(name, "threaded NAPI".into(), knob, one_zero(now), one_zero(on), "as asked".into());
                let all = nic.napis.iter().filter_map(|n| n.cpus.as_ref()).map(CpuSet::len).max();
                let pinned = nic.napis.iter().filter_map(|n| Some((n.pid?, n.cpus.as_ref()?)));
                let pinned: Vec<_> = pinned.filter(|(_, cpus)| cpus.len() == 1 || Some(cpus.len()) < all).collect();
                if !on && now && !pinned.is_empty() {
                    let list: Vec<String> = pinned.iter().map(|(pid, cpus)| format!("{pid} on {cpus}")).collect();
                    out.warn(format!(
                        "{name}: its NAPI threads end, and their pinning ({}) with them: `undo` makes new threads, not \
                         pinned; `spread apply --threaded on` pins those to the CPUs of their queues",
                        list.join(", ")
                    ));
                }
                if on && !now {
                    out.warn(format!(
                        "{name}: its NAPI threads exist once threaded NAPI is on; `apply` pins them then"
                    ));
                }
            }
            None => out.warn(format!("{name}: this kernel or driver has no threaded NAPI; left out")),
        }
        if !on {
            return;
        }
    }
    let threads = placement::threads(nic, cpu_by_queue);
    for thread in &threads {
        let knob = Knob::NapiThreadAffinity { nic: name.clone(), napi: thread.napi.id, pid: thread.pid };
        let old = thread.napi.cpus.clone().unwrap_or_default();
        let (old, new) = (knob.cpus_value(&old), knob.cpus_value(&CpuSet::single(thread.cpu)));
        let why = format!("with its queue {}", thread.queue);
        out.set(name, format!("NAPI thread {}", thread.pid), knob, old, new, why);
    }
    if threads.iter().any(|thread| thread.guessed) {
        out.warn(format!(
            "{name}: the kernel does not say which thread serves which queue; taken in the order of their NAPI ids"
        ));
    }
}

/// Receive packet steering: the one queue of a NIC over the other cores, or, when asked for, the cores without a queue
/// shared out among the queues.
pub(crate) fn rps(
    host: &Host,
    nic: &Nic,
    options: &Options,
    cores: &Cores<'_>,
    cpu_by_queue: &CpuByQueue,
    out: &mut SpreadPlan,
) {
    let queues = nic.rx_queues.len();
    if queues == 0 {
        return;
    }
    if let Some(cpus) = host.fast_path_cpus(&nic.name) {
        return rps_beside_router(nic, options, cpus, out);
    }
    let free = placement::rps_cpus(nic, cores, cpu_by_queue);
    let helps = queues == 1 && !free.is_empty();
    let on = options.rps.is_wanted(helps);
    if !on && options.rps == Steer::Auto {
        return;
    }
    if on && free.is_empty() {
        return out.warn(format!("{}: RPS has no CPU to steer to: each has a queue of its own", nic.name));
    }
    for (queue, rx) in nic.rx_queues.iter().enumerate() {
        let share: CpuSet = free.iter().skip(queue).step_by(queues).collect();
        let (new, why) = match (on, share.is_empty()) {
            (false, _) => (CpuSet::new(), "RPS off, as asked".to_owned()),
            (true, true) => continue,
            (true, false) if queues == 1 && cpu_by_queue.is_empty() => {
                (share, "its one queue fans out over all cores: it has no interrupt of its own".to_owned())
            }
            (true, false) if queues == 1 => (share, "its one queue fans out over the other cores".to_owned()),
            (true, false) => {
                let own = cpu_by_queue.get(&(queue as u32)).copied();
                (share.union(&own.into_iter().collect()), "its share of the cores without a queue".to_owned())
            }
        };
        let knob = Knob::RpsCpus { nic: nic.name.clone(), queue: queue as u32 };
        out.set(&nic.name, format!("rx {queue} RPS"), knob, rx.rps_cpus.to_mask(), new.to_mask(), why);
    }
}

/// A router's fast path deals the flows of this interface already: RPS would move them once more, off the CPU that they were dealt to.
fn rps_beside_router(nic: &Nic, options: &Options, cpus: &CpuSet, out: &mut SpreadPlan) {
    if options.rps == Steer::On {
        out.warn(format!(
            "{}: no RPS, as evenkeel route deals its flows to CPU {cpus}; `evenkeel route cpus none` ends that",
            nic.name
        ));
    }
    for (queue, rx) in nic.rx_queues.iter().enumerate() {
        let knob = Knob::RpsCpus { nic: nic.name.clone(), queue: queue as u32 };
        let why = format!("evenkeel route deals its flows to CPU {cpus}");
        out.set(&nic.name, format!("rx {queue} RPS"), knob, rx.rps_cpus.to_mask(), CpuSet::new().to_mask(), why);
    }
}

/// Binds transmit queues to CPUs: each to the CPU of its interrupt, and every other online CPU to the nearest queue, so
/// that no CPU is without one.
pub(crate) fn xps(host: &Host, nic: &Nic, options: &Options, cpu_by_queue: &CpuByQueue, out: &mut SpreadPlan) {
    let now: Vec<&CpuSet> = nic.tx_queues.iter().filter_map(|q| q.xps_cpus.as_ref()).collect();
    let masks = match placement::xps(host, nic, cpu_by_queue) {
        Xps::NotHere if options.xps == Steer::On => {
            return out.warn(format!(
                "{}: XPS takes several transmit queues and a driver that supports it; left out",
                nic.name
            ));
        }
        Xps::NotHere => return,
        _ if options.xps == Steer::Off => vec![CpuSet::new(); now.len()],
        // What is to be said of such a card is said already.
        Xps::Unknown if cpu_by_queue.is_empty() && options.xps == Steer::Auto => return,
        Xps::Unknown => {
            return out.warn(format!(
                "{}: which interrupt serves which of its transmit queues is not known (several may share one); XPS left out",
                nic.name
            ));
        }
        Xps::Masks(masks) => masks,
    };
    for (queue, (now, new)) in now.into_iter().zip(masks).enumerate() {
        let why = match (options.xps, new.len()) {
            (Steer::Off, _) => "XPS off, as asked",
            (_, 1) => "the CPU of its queue",
            _ => "the CPU of its queue, and those nearest",
        };
        let knob = Knob::XpsCpus { nic: nic.name.clone(), queue: queue as u32 };
        out.set(&nic.name, format!("tx {queue} XPS"), knob, now.to_mask(), new.to_mask(), why.into());
    }
}

/// The tables of receive flow steering, when asked for: the machine's, and an equal part of it per receive queue.
pub(crate) fn flow_tables(nic: &Nic, options: &Options, out: &mut SpreadPlan) {
    let Some(entries) = options.rfs else { return };
    // The kernel rounds both up to a power of two; so that nothing reads back differently, it is done here.
    let round = |n: u32| if n == 0 { 0 } else { n.checked_next_power_of_two().unwrap_or(1 << 31) };
    let entries = round(entries);
    let per_queue = if entries == 0 { 0 } else { (entries / nic.rx_queues.len().max(1) as u32).max(1) };
    if !out.plan.changes.iter().any(|c| c.knob == Knob::RfsEntries) {
        let now = options.rfs_now.map_or_else(|| "unknown".to_owned(), |n| n.to_string());
        let why = "socket flows of the whole machine, as asked".to_owned();
        out.set("all", "RFS socket flows".into(), Knob::RfsEntries, now, entries.to_string(), why);
    }
    for (queue, rx) in nic.rx_queues.iter().enumerate() {
        let knob = Knob::RpsFlowCnt { nic: nic.name.clone(), queue: queue as u32 };
        let (old, new) = (rx.rps_flow_cnt.to_string(), round(per_queue).to_string());
        out.set(&nic.name, format!("rx {queue} RFS"), knob, old, new, "its part of the flows".into());
    }
}

/// A setting of coalescing now, as ethtool writes it.
pub(crate) fn coalescing_now(nic: &Nic, field: CoalesceField) -> Option<String> {
    let c = nic.coalescing?;
    let switch = |on: bool| if on { "on" } else { "off" }.to_owned();
    match field {
        CoalesceField::AdaptiveRx => c.adaptive_rx.map(switch),
        CoalesceField::AdaptiveTx => c.adaptive_tx.map(switch),
        CoalesceField::RxUsecs => c.rx_usecs.map(|n| n.to_string()),
        CoalesceField::RxFrames => c.rx_frames.map(|n| n.to_string()),
        CoalesceField::TxUsecs => c.tx_usecs.map(|n| n.to_string()),
        CoalesceField::TxFrames => c.tx_frames.map(|n| n.to_string()),
    }
}
