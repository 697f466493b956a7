//! Rates of one interval out of two readings.

use std::collections::BTreeMap;

use model::{
    CoreLoad,
    top::{CoreRates, DropRate, InterfaceRates, QueueRates, TopSample},
};

use super::{Counters, CpuTime, Interrupts, LinkCounters, LinkStats, QueueCounters};
use crate::picture::{Host, Nic, QueueRole};

/// The rates between two readings. `host` says what an interface is and which interrupt serves which queue; an interface that
/// it does not know yet is shown by its counters alone.
///
/// - A counter that went back has either wrapped (32-bit counters) or been reset; after a reset it counted from zero.
/// - An interface or a CPU that is not in both readings has no rate: interfaces are named in the notes.
pub fn delta(host: &Host, earlier: &Counters, later: &Counters) -> TopSample {
    let interval_s = later.at.saturating_sub(earlier.at).as_secs_f64();
    let rate = Rate(interval_s);
    let irqs = irq_rates(rate, &earlier.interrupts, &later.interrupts);
    let mut notes = later.unread.clone();
    let mut interfaces = Vec::new();
    for (index, now) in &later.links {
        match earlier.links.get(index) {
            Some(before) => interfaces.push(interface(rate, host, before, now, &irqs)),
            None => notes.push(format!("{} appeared during the interval: its rates come with the next one", now.name)),
        }
    }
    for (_, gone) in earlier.links.iter().filter(|(index, _)| !later.links.contains_key(index)) {
        notes.push(format!("{} went away during the interval", gone.name));
    }
    interfaces.sort_by(|a, b| b.traffic_pps().total_cmp(&a.traffic_pps()).then_with(|| a.name.cmp(&b.name)));
    TopSample {
        timestamp: later.when.clone(),
        interval_s,
        hostname: host.hostname.clone(),
        interfaces,
        cores: cores(rate, earlier, later),
        notes,
    }
}

/// Turns a difference into a rate; the field is the interval in seconds.
#[derive(Debug, Clone, Copy)]
struct Rate(f64);

impl Rate {
    fn of(self, count: u64) -> f64 {
        if self.0 > 0.0 { count as f64 / self.0 } else { 0.0 }
    }

    fn between(self, earlier: u64, later: u64) -> f64 {
        self.of(grown(earlier, later))
    }

    fn between_opt(self, earlier: Option<u64>, later: Option<u64>) -> Option<f64> {
        Some(self.between(earlier?, later?))
    }
}

/// The growth of a counter: over a wrap at 32 bits, and from zero after a reset.
fn grown(earlier: u64, later: u64) -> u64 {
    const WRAP: u64 = 1 << 32;
    match later.checked_sub(earlier) {
        Some(n) => n,
        None if earlier < WRAP && earlier - later > WRAP / 2 => later + (WRAP - earlier),
        None => later,
    }
}

/// Rate of an interrupt, and the CPU that handled most of it.
#[derive(Debug, Clone, Copy)]
struct IrqRate {
    per_s: f64,
    cpu: Option<u32>,
}

fn irq_rates(rate: Rate, earlier: &Interrupts, later: &Interrupts) -> BTreeMap<u32, IrqRate> {
    let columns: Vec<Option<usize>> = later.cpus.iter().map(|cpu| earlier.cpus.iter().position(|c| c == cpu)).collect();
    later
        .lines()
        .filter_map(|(irq, now)| {
            let before = earlier.line(irq)?;
            let counts = now.iter().zip(&columns).map(|(&n, column)| column.map_or(0, |c| grown(before[c], n)));
            let (mut sum, mut most, mut cpu) = (0u64, 0, None);
            for (count, &column_cpu) in counts.zip(&later.cpus) {
                sum = sum.saturating_add(count);
                if count > most {
                    (most, cpu) = (count, Some(column_cpu));
                }
            }
            Some((irq, IrqRate { per_s: rate.of(sum), cpu }))
        })
        .collect()
}

fn interface(
    rate: Rate,
    host: &Host,
    before: &LinkCounters,
    now: &LinkCounters,
    irqs: &BTreeMap<u32, IrqRate>,
) -> InterfaceRates {
    let nic = host.nic(&now.name);
    let (b, n) = (&before.stats, &now.stats);
    InterfaceRates {
        name: now.name.clone(),
        driver: nic.and_then(|n| n.driver.clone()),
        is_virtual: nic.is_none_or(|n| n.bus.is_none()),
        state: nic.map(|n| n.operstate.clone()),
        speed_mbps: nic.and_then(|n| n.speed_mbps),
        rx_pps: rate.between(b.rx_packets, n.rx_packets),
        rx_bps: 8.0 * rate.between(b.rx_bytes, n.rx_bytes),
        tx_pps: rate.between(b.tx_packets, n.tx_packets),
        tx_bps: 8.0 * rate.between(b.tx_bytes, n.tx_bytes),
        drops: drops(rate, b, n),
        no_loss: no_loss(rate, b, n),
        queues: queues(rate, host, nic, before, now, irqs),
        coalescing: nic.and_then(|n| n.coalescing),
        route: None,
    }
}

/// A place where packets end: its words, its counter, and the function that reads the counter.
type Place = (&'static str, &'static str, fn(&LinkStats) -> u64);

const PLACES: [Place; 9] = [
    ("damaged on the wire", "rx_crc_errors", |s| s.rx_crc_errors),
    ("badly framed", "rx_frame_errors", |s| s.rx_frame_errors),
    ("wrong length", "rx_length_errors", |s| s.rx_length_errors),
    ("overrun in the NIC", "rx_over_errors", |s| s.rx_over_errors),
    ("NIC's FIFO full", "rx_fifo_errors", |s| s.rx_fifo_errors),
    ("no free descriptor in the ring", "rx_missed_errors", |s| s.rx_missed_errors),
    ("driver or stack", "rx_dropped", |s| s.rx_dropped),
    ("not sent: queue full or refused", "tx_dropped", |s| s.tx_dropped),
    ("not sent: error of the link", "tx_errors", |s| s.tx_errors),
];

/// Places that the ledger calls `no loss`.
const NO_LOSS: [Place; 2] = [
    ("for another host's MAC", "rx_otherhost_dropped", |s| s.rx_otherhost_dropped),
    ("by the backup link of a bond or team", "rx_nohandler", |s| s.rx_nohandler),
];

fn no_loss(rate: Rate, before: &LinkStats, now: &LinkStats) -> Vec<DropRate> {
    let ended = NO_LOSS.iter().map(|&(words, counter, get)| (words, counter, grown(get(before), get(now))));
    ended.filter_map(|(words, counter, n)| drop_rate(rate, words, counter, n)).collect()
}

fn drop_rate(rate: Rate, words: &str, counter: &str, n: u64) -> Option<DropRate> {
    let place = format!("{words} ({counter})");
    (n > 0).then(|| DropRate { place, counter: counter.to_owned(), pps: rate.of(n) })
}

fn drops(rate: Rate, before: &LinkStats, now: &LinkStats) -> Vec<DropRate> {
    let lost = PLACES.iter().map(|&(words, counter, get)| (words, counter, grown(get(before), get(now))));
    // rx_errors is the sum of the kinds of damage and of what the driver has no kind for.
    let kinds =
        |s: &LinkStats| s.rx_crc_errors + s.rx_frame_errors + s.rx_length_errors + s.rx_over_errors + s.rx_fifo_errors;
    let other = grown(before.rx_errors, now.rx_errors).saturating_sub(grown(kinds(before), kinds(now)));
    [("damaged otherwise", "rx_errors", other)]
        .into_iter()
        .chain(lost)
        .filter_map(|(words, counter, n)| drop_rate(rate, words, counter, n))
        .collect()
}

fn queues(
    rate: Rate,
    host: &Host,
    nic: Option<&Nic>,
    before: &LinkCounters,
    now: &LinkCounters,
    irqs: &BTreeMap<u32, IrqRate>,
) -> Vec<QueueRates> {
    let mut found: BTreeMap<u32, QueueRates> = BTreeMap::new();
    for (&n, counters) in &now.queues {
        if let Some(earlier) = before.queues.get(&n) {
            found.insert(n, queue(rate, n, earlier, counters));
        }
    }
    // Some drivers (ixgbe, i40e, ice) have counters for every queue they could have.
    let several = nic.map_or(0, |nic| nic.rx_queues.len().max(nic.tx_queues.len()));
    if several > 0 {
        found.retain(|&n, _| (n as usize) < several);
    }
    let (b, n) = (&before.stats, &now.stats);
    if n.rx_packets != b.rx_packets {
        forget_if_silent(&mut found, |q| [&mut q.rx_pps, &mut q.rx_bps]);
    }
    if n.tx_packets != b.tx_packets {
        forget_if_silent(&mut found, |q| [&mut q.tx_pps, &mut q.tx_bps]);
    }
    // Transmit interrupts first: where both sides have one, the receive side's is shown.
    let mut served: Vec<(bool, u32, u32)> = nic
        .into_iter()
        .flat_map(|nic| &nic.irqs)
        .filter_map(|irq| match irq.role {
            QueueRole::Tx(n) => Some((false, n, irq.irq)),
            QueueRole::Rx(n) | QueueRole::RxTx(n) => Some((true, n, irq.irq)),
            QueueRole::Control => None,
        })
        .collect();
    served.sort_unstable();
    for (_, n, number) in served {
        let entry = found.entry(n).or_insert_with(|| QueueRates { n, ..QueueRates::default() });
        let (picture, measured) = (host.irq(number), irqs.get(&number));
        entry.irq = Some(number);
        entry.irq_rate = measured.map(|m| m.per_s);
        entry.cpu = measured.and_then(|m| m.cpu).or_else(|| picture.and_then(|i| i.effective.as_ref()?.first()));
        entry.affinity = picture.map(|i| i.affinity.clone());
    }
    if several > 1 {
        for n in 0..several as u32 {
            found.entry(n).or_insert_with(|| QueueRates { n, ..QueueRates::default() });
        }
    }
    found.into_values().collect()
}

/// Removes rates of queues where an interface moved packets and none of its queues counted any: the driver does not count these packets (veth counts
/// only what takes its XDP path): that is no rate rather than a rate of 0.
fn forget_if_silent(queues: &mut BTreeMap<u32, QueueRates>, side: fn(&mut QueueRates) -> [&mut Option<f64>; 2]) {
    if queues.values_mut().all(|q| side(q)[0].is_none_or(|pps| pps == 0.0)) {
        for field in queues.values_mut().flat_map(side) {
            *field = None;
        }
    }
}

fn queue(rate: Rate, n: u32, before: &QueueCounters, now: &QueueCounters) -> QueueRates {
    QueueRates {
        n,
        rx_pps: rate.between_opt(before.rx_packets, now.rx_packets),
        rx_bps: rate.between_opt(before.rx_bytes, now.rx_bytes).map(|bytes| 8.0 * bytes),
        tx_pps: rate.between_opt(before.tx_packets, now.tx_packets),
        tx_bps: rate.between_opt(before.tx_bytes, now.tx_bytes).map(|bytes| 8.0 * bytes),
        drops_pps: rate.between_opt(before.drops, now.drops),
        ..QueueRates::default()
    }
}

fn cores(rate: Rate, earlier: &Counters, later: &Counters) -> Vec<CoreRates> {
    let totals = interrupt_totals(&earlier.interrupts, &later.interrupts);
    let mut cores = Vec::new();
    for (&cpu, now) in &later.cpus {
        let Some(before) = earlier.cpus.get(&cpu) else { continue };
        let mut core = CoreRates { load: core_load(cpu, before, now), ..CoreRates::default() };
        if let (Some(b), Some(n)) = (earlier.softirqs.get(&cpu), later.softirqs.get(&cpu)) {
            core.net_rx_per_s = rate.between(b.net_rx, n.net_rx);
            core.net_tx_per_s = rate.between(b.net_tx, n.net_tx);
        }
        if let (Some(b), Some(n)) = (earlier.softnet.get(&cpu), later.softnet.get(&cpu)) {
            // Counters of 32 bits that nobody resets.
            let per_s = |b: u32, n: u32| rate.of(n.wrapping_sub(b).into());
            core.softnet_processed_pps = per_s(b.processed, n.processed);
            core.softnet_dropped_pps = per_s(b.dropped, n.dropped);
            core.softnet_squeezed_per_s = per_s(b.time_squeeze, n.time_squeeze);
            core.flow_limited_pps = per_s(b.flow_limited, n.flow_limited);
            core.backlog = n.backlog;
        }
        if let Some(&(all, devices)) = totals.get(&cpu) {
            core.irqs_per_s = rate.of(all);
            core.device_irqs_per_s = rate.of(devices);
        }
        cores.push(core);
    }
    cores
}

/// All interrupts and those of devices, by CPU.
fn interrupt_totals(earlier: &Interrupts, later: &Interrupts) -> BTreeMap<u32, (u64, u64)> {
    let mut totals = BTreeMap::new();
    for (column, &cpu) in later.cpus.iter().enumerate() {
        let Some(before) = earlier.cpus.iter().position(|&c| c == cpu) else { continue };
        let devices = later
            .lines()
            .filter_map(|(irq, now)| Some(grown(earlier.line(irq)?[before], now[column])))
            .fold(0u64, u64::saturating_add);
        // A sum of 32-bit counters: one of them may have wrapped.
        let (b, n) = (earlier.totals[before], later.totals[column]);
        let all = n.checked_sub(b).unwrap_or_else(|| n.saturating_add(1 << 32).saturating_sub(b)).max(devices);
        totals.insert(cpu, (all, devices));
    }
    totals
}

/// The time of `cpu` between two readings. The busy part is [`CoreLoad::busy_percent`].
pub fn core_load(cpu: u32, before: &CpuTime, now: &CpuTime) -> CoreLoad {
    // Idle time may go back a little (the kernel says so); time itself does not.
    let part = |get: fn(&CpuTime) -> u64| get(now).saturating_sub(get(before)) as f64;
    let (user, system, idle) = (part(|t| t.user), part(|t| t.system), part(|t| t.idle));
    let (irq, softirq, steal) = (part(|t| t.irq), part(|t| t.softirq), part(|t| t.steal));
    let all = user + system + idle + irq + softirq + steal;
    if all == 0.0 {
        return CoreLoad { cpu, idle_percent: 100.0, ..CoreLoad::default() };
    }
    let percent = |ticks: f64| 100.0 * ticks / all;
    CoreLoad {
        cpu,
        user_percent: percent(user),
        system_percent: percent(system),
        irq_percent: percent(irq),
        softirq_percent: percent(softirq),
        steal_percent: percent(steal),
        idle_percent: percent(idle),
    }
}

#[cfg(test)]
mod tests;
