//! CPU of each queue: the plan's, the setting, the effective one, and who rewrote it.

use std::collections::BTreeMap;

use host::{Host, counters::Interrupts, journal::Session, knob::Knob, picture::QueueRole};
use model::CpuSet;
use serde::{Deserialize, Serialize};

use crate::plan::role_text;

/// A queue interrupt and its CPUs.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct StatusRow {
    pub nic: String,
    /// The queue, such as `rxtx 3`.
    pub queue: String,
    pub irq: u32,
    /// The value that evenkeel wrote last and has not undone; none when it wrote nothing.
    pub planned: Option<CpuSet>,
    /// The present value (smp_affinity).
    pub affinity: CpuSet,
    /// The present value as a mask.
    pub mask: String,
    /// Effective CPUs of the interrupt (effective_affinity), where the kernel says.
    pub effective: Option<CpuSet>,
    /// The CPUs that handled interrupts of this queue in the interval, and how many per second each.
    pub interrupts_per_second: BTreeMap<u32, f64>,
    pub finding: Option<String>,
}

/// The table for `nics` (empty: all), from two readings of /proc/interrupts `seconds` apart. Pure.
pub fn status(
    host: &Host,
    sessions: &[Session],
    nics: &[String],
    earlier: &Interrupts,
    later: &Interrupts,
    seconds: f64,
) -> Vec<StatusRow> {
    let planned = planned(sessions);
    let mut rows = Vec::new();
    for nic in host.nics.iter().filter(|n| nics.is_empty() || nics.contains(&n.name)) {
        for i in nic.irqs.iter().filter(|i| i.role != QueueRole::Control) {
            let Some(irq) = host.irq(i.irq) else { continue };
            let rates = rates(i.irq, earlier, later, seconds);
            let planned = planned.get(&i.irq).cloned();
            rows.push(StatusRow {
                nic: nic.name.clone(),
                queue: role_text(i.role),
                irq: i.irq,
                finding: finding(host, planned.as_ref(), &irq.affinity, irq.effective.as_ref(), &rates),
                planned,
                affinity: irq.affinity.clone(),
                mask: irq.affinity.to_mask(),
                effective: irq.effective.clone(),
                interrupts_per_second: rates,
            });
        }
    }
    rows
}

/// The last affinity written for each interrupt by a session that still stands.
fn planned(sessions: &[Session]) -> BTreeMap<u32, CpuSet> {
    let mut planned = BTreeMap::new();
    let standing = sessions.iter().flat_map(|s| &s.steps).filter(|s| s.undone.is_none());
    for step in standing {
        if let Knob::IrqAffinity { irq } = step.change.knob {
            planned.extend(step.change.knob.cpus(step.ours()).map(|cpus| (irq, cpus)));
        }
    }
    planned
}

fn rates(irq: u32, earlier: &Interrupts, later: &Interrupts, seconds: f64) -> BTreeMap<u32, f64> {
    let column = |table: &Interrupts| -> BTreeMap<u32, u64> {
        let counts = table.line(irq).unwrap_or_default();
        table.cpus.iter().copied().zip(counts.iter().copied()).collect()
    };
    let before = column(earlier);
    let rate = |(cpu, now): (u32, u64)| {
        let events = now.saturating_sub(*before.get(&cpu)?);
        (events > 0 && seconds > 0.0).then_some((cpu, events as f64 / seconds))
    };
    column(later).into_iter().filter_map(rate).collect()
}

fn finding(
    host: &Host,
    planned: Option<&CpuSet>,
    affinity: &CpuSet,
    effective: Option<&CpuSet>,
    rates: &BTreeMap<u32, f64>,
) -> Option<String> {
    if let Some(planned) = planned.filter(|w| *w != affinity) {
        let who = match host.irqbalance_pid {
            Some(pid) => format!("irqbalance (process {pid}) probably"),
            None => "somebody".to_owned(),
        };
        return Some(format!("{who} rewrote it: evenkeel set CPU {planned}, now it is CPU {affinity}"));
    }
    if let Some(effective) = effective.filter(|e| !e.is_empty() && e.intersection(affinity).is_empty()) {
        return Some(format!("set to CPU {affinity}, still handled on CPU {effective} until the next interrupt"));
    }
    let elsewhere: CpuSet = rates.keys().copied().filter(|cpu| !affinity.contains(*cpu)).collect();
    (!elsewhere.is_empty()).then(|| format!("interrupts still arrived on CPU {elsewhere}"))
}
