//! From a picture of the machine and the user's wishes to changes, each with its reason. Pure.

use std::collections::BTreeMap;

use host::{
    Host,
    knob::{Change, Direction, Knob, Plan},
    picture::{Nic, QueueRole},
};
use model::{Classified, CpuSet, ErrorClass};
use serde::{Deserialize, Serialize};

use crate::{
    options::{Options, Steer},
    place::Cores,
    seats::{Seat, queue_irqs, seats},
    steer,
    summary::NicSummary,
};

/// Wishes that this machine cannot fulfil.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum PlanError {
    /// There is no such interface.
    #[error("there is no interface `{name}`; this machine has {known}")]
    NoSuchNic {
        /// The name given.
        name: String,
        /// The names there are.
        known: String,
    },
    /// Nothing to spread.
    #[error("no interface has queue interrupts of its own here; name one (such as a veth) to steer it by RPS")]
    NoQueues,
    /// A CPU that the machine does not have.
    #[error("there is no CPU {cpu}: this machine has {known}")]
    NoSuchCpu {
        /// The number given.
        cpu: u32,
        /// The CPUs there are.
        known: CpuSet,
    },
    /// No CPU is left.
    #[error(
        "no CPU is left for network work: online are {online}, {} isolated; widen --cpus or shorten --except",
        if isolated.is_empty() { "none".to_owned() } else { isolated.to_string() }
    )]
    NoCpus {
        /// The CPUs that are online.
        online: CpuSet,
        /// The CPUs that are isolated.
        isolated: CpuSet,
    },
}

impl Classified for PlanError {
    fn class(&self) -> ErrorClass {
        match self {
            Self::NoSuchCpu { .. } | Self::NoCpus { .. } => ErrorClass::Usage,
            Self::NoSuchNic { .. } | Self::NoQueues => ErrorClass::Lacking,
        }
    }
}

/// One line of the plan's table: a setting, what it is, what it is to be, and why. Lines that change nothing are there too.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Row {
    /// The interface.
    pub nic: String,
    /// The setting, such as `rxtx 3 IRQ 45`.
    pub what: String,
    /// Its value now, for people.
    pub now: String,
    /// Its value to be, for people.
    pub new: String,
    /// Why.
    pub why: String,
    /// Whether the plan changes it.
    pub changes: bool,
}

/// A plan with its table.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct SpreadPlan {
    /// The changes and the warnings.
    #[serde(flatten)]
    pub plan: Plan,
    /// The table.
    pub rows: Vec<Row>,
    /// Each NIC in a few numbers.
    pub nics: Vec<NicSummary>,
}

impl SpreadPlan {
    /// Adds a line, and a change where old and new differ.
    pub(crate) fn set(&mut self, nic: &str, what: String, knob: Knob, old: String, new: String, why: String) {
        let changes = !knob.same(&old, &new);
        self.rows.push(Row {
            nic: nic.to_owned(),
            what,
            now: knob.shown(&old),
            new: knob.shown(&new),
            why: why.clone(),
            changes,
        });
        if changes {
            self.plan.changes.push(Change { knob, old, new, reason: why });
        }
    }

    /// Adds a line for something that stays as it is.
    fn keep(&mut self, nic: &str, what: String, now: String, why: String) {
        self.rows.push(Row { nic: nic.to_owned(), what, new: now.clone(), now, why, changes: false });
    }

    pub(crate) fn warn(&mut self, warning: String) {
        if !self.plan.warnings.contains(&warning) {
            self.plan.warnings.push(warning);
        }
    }
}

/// Where the queues of one NIC go: the CPU of each.
pub(crate) type Homes = BTreeMap<u32, u32>;

/// Makes the plan.
pub fn plan(host: &Host, options: &Options) -> Result<SpreadPlan, PlanError> {
    let nics = chosen(host, options)?;
    let allowed = allowed(host, options)?;
    let mut out = SpreadPlan::default();
    warn_of_surroundings(host, options, &mut out);
    let mut cores = Cores::new(&host.cpus, &allowed);
    for cpu in pinned_elsewhere(host, &nics) {
        cores.occupy(cpu);
    }
    let seats = seats(host, &nics, &mut cores);
    let mut placed_irqs = BTreeMap::new();
    for (nic, seats) in nics.into_iter().zip(seats) {
        for failure in &nic.unanswered {
            out.warn(format!("{failure}; taken as not known"));
        }
        device_settings(nic, options, &mut out);
        if seats.is_empty() {
            out.warn(format!(
                "{}: has no interrupts of its own: its packets are handled on the CPU that sends them; RPS or threaded \
                 NAPI moves them",
                nic.name
            ));
        }
        let homes = seats.iter().map(|(queue, seat)| (*queue, seat.cpu)).collect();
        place_queues(host, nic, &seats, &mut placed_irqs, &mut out);
        out.nics.extend(NicSummary::of(nic, &seats, &cores));
        steer::threads(nic, options, &homes, &mut out);
        steer::rps(nic, options, &cores, &homes, &mut out);
        steer::xps(host, nic, options, &homes, &mut out);
        steer::flow_tables(nic, options, &mut out);
    }
    Ok(out)
}

fn chosen<'a>(host: &'a Host, options: &Options) -> Result<Vec<&'a Nic>, PlanError> {
    if options.nics.is_empty() {
        let nics: Vec<&Nic> =
            host.nics.iter().filter(|n| n.irqs.iter().any(|i| i.role != QueueRole::Control)).collect();
        return if nics.is_empty() { Err(PlanError::NoQueues) } else { Ok(nics) };
    }
    let known = || host.nics.iter().map(|n| n.name.as_str()).collect::<Vec<_>>().join(", ");
    let mut names: Vec<&String> = Vec::new();
    options.nics.iter().for_each(|n| {
        if !names.contains(&n) {
            names.push(n);
        }
    });
    let find =
        |name: &String| host.nic(name).ok_or_else(|| PlanError::NoSuchNic { name: name.clone(), known: known() });
    names.into_iter().map(find).collect()
}

/// The CPUs that may do network work: online, not isolated, named by --cpus, not named by --except.
pub fn allowed(host: &Host, options: &Options) -> Result<CpuSet, PlanError> {
    let known: CpuSet = host.cpus.iter().map(|c| c.id).collect();
    let named = options.cpus.iter().flat_map(CpuSet::iter).chain(options.except.iter());
    if let Some(cpu) = named.into_iter().find(|&c| !known.contains(c)) {
        return Err(PlanError::NoSuchCpu { cpu, known });
    }
    let (online, isolated) = (host.online(), isolated(host));
    let mut allowed = online.difference(&isolated).difference(&options.except);
    if let Some(cpus) = &options.cpus {
        allowed = allowed.intersection(cpus);
    }
    if allowed.is_empty() { Err(PlanError::NoCpus { online, isolated }) } else { Ok(allowed) }
}

fn isolated(host: &Host) -> CpuSet {
    host.cpus.iter().filter(|c| c.isolated).map(|c| c.id).collect()
}

fn warn_of_surroundings(host: &Host, options: &Options, out: &mut SpreadPlan) {
    if let Some(pid) = host.irqbalance_pid {
        out.warn(format!(
            "irqbalance (process {pid}) is running and rewrites interrupt affinities every 10 s; stop it first: \
             systemctl disable --now irqbalance"
        ));
    }
    let left_out = match &options.cpus {
        Some(cpus) => isolated(host).intersection(cpus),
        None => isolated(host),
    };
    if !left_out.is_empty() {
        out.warn(format!("isolated from the scheduler and therefore left out: CPU {left_out}"));
    }
}

/// The CPUs to which queues of the other NICs are pinned: they are loaded already.
fn pinned_elsewhere(host: &Host, nics: &[&Nic]) -> Vec<u32> {
    let mut irqs: Vec<u32> = host
        .nics
        .iter()
        .filter(|n| !nics.iter().any(|chosen| chosen.name == n.name))
        .flat_map(|n| n.irqs.iter().filter(|i| i.role != QueueRole::Control).map(|i| i.irq))
        .collect();
    irqs.sort_unstable();
    irqs.dedup();
    let pinned = |irq: u32| host.irq(irq).filter(|i| i.affinity.len() == 1).and_then(|i| i.affinity.first());
    irqs.into_iter().filter_map(pinned).collect()
}

/// Ring sizes and coalescing; they come first, since some drivers reset the queues and their interrupts for them.
fn device_settings(nic: &Nic, options: &Options, out: &mut SpreadPlan) {
    let name = &nic.name;
    if options.max_rings {
        match nic.rings {
            Some(rings) => {
                for (direction, now, max) in
                    [(Direction::Rx, rings.rx, rings.rx_max), (Direction::Tx, rings.tx, rings.tx_max)]
                {
                    let knob = Knob::Ring { nic: name.clone(), direction };
                    let what = format!("{} ring", direction.as_str());
                    out.set(name, what, knob, now.to_string(), max.max(now).to_string(), "the largest size".into());
                }
            }
            None => out.warn(format!("{name}: the driver does not say its ring sizes; left as they are")),
        }
    }
    for (field, value) in &options.coalesce {
        match steer::coalescing_now(nic, *field) {
            Some(now) => {
                let knob = Knob::Coalesce { nic: name.clone(), field: *field };
                out.set(name, field.as_str().to_owned(), knob, now, value.clone(), "as asked".into());
            }
            None => out.warn(format!("{name}: the driver has no coalescing setting {}; left out", field.as_str())),
        }
    }
}

/// The lines and changes of the interrupts of one NIC.
fn place_queues(
    host: &Host,
    nic: &Nic,
    seats: &BTreeMap<u32, Seat>,
    placed: &mut BTreeMap<u32, (u32, String)>,
    out: &mut SpreadPlan,
) {
    for (queue, irqs) in queue_irqs(nic) {
        let Some(seat) = seats.get(&queue) else { continue };
        for (number, role) in irqs {
            let what = format!("{} IRQ {number}", role_text(role));
            place_irq(host, nic, number, what, seat.cpu, &seat.why, placed, out);
        }
    }
}

#[allow(clippy::too_many_arguments)]
fn place_irq(
    host: &Host,
    nic: &Nic,
    number: u32,
    what: String,
    cpu: u32,
    reason: &str,
    placed: &mut BTreeMap<u32, (u32, String)>,
    out: &mut SpreadPlan,
) {
    let Some(irq) = host.irq(number) else {
        out.warn(format!("{}: interrupt {number} is not in /proc/interrupts; left out", nic.name));
        return;
    };
    let now = irq.affinity.to_string();
    if irq.affinity.is_empty() {
        out.warn(format!(
            "{}: no smp_affinity_list in proc/irq/{number}: where its interrupts may go now is not known",
            nic.name
        ));
    }
    if irq.managed {
        out.warn(format!(
            "{}: the kernel manages the affinity of some interrupts itself (IRQ {number} …); they stay where they are",
            nic.name
        ));
        return out.keep(&nic.name, what, now, "managed by the kernel, cannot be written".into());
    }
    if let Some((_, other)) = placed.get(&number) {
        return out.keep(&nic.name, what, cpu.to_string(), format!("one line with {other}, see there"));
    }
    placed.insert(number, (cpu, nic.name.clone()));
    let mut why = reason.to_owned();
    if irq.actions.len() > 1 {
        out.warn(format!(
            "interrupt line {number} is shared by {}: they move together, and cannot be spread apart",
            irq.actions.join(", ")
        ));
        why.push_str("; a shared line");
    }
    let new = CpuSet::single(cpu).to_mask();
    out.set(&nic.name, what, Knob::IrqAffinity { irq: number }, irq.affinity.to_mask(), new, why);
}

/// `rx 3`, `tx 3`, `rxtx 3`.
pub(crate) fn role_text(role: QueueRole) -> String {
    match role {
        QueueRole::Rx(q) => format!("rx {q}"),
        QueueRole::Tx(q) => format!("tx {q}"),
        QueueRole::RxTx(q) => format!("rxtx {q}"),
        QueueRole::Control => "control".to_owned(),
    }
}

/// Whether steering is wanted, given that it helps here.
pub(crate) fn wanted(steer: Steer, helps: bool) -> bool {
    match steer {
        Steer::Auto => helps,
        Steer::On => true,
        Steer::Off => false,
    }
}
