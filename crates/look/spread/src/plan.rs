//! From a picture of the machine and a request to changes, each with its reason. Pure.

use std::collections::BTreeMap;

use host::{
    Host,
    interface::NoInterface,
    knob::{Direction, Knob},
    picture::{IrqSource, Nic, QueueRole},
    placement::{Layout, NicLayout, Wanted, has_queue_irqs, isolated, ports, usable, why_unplaced},
};
use model::CpuSet;

use crate::{options::Options, rows::SpreadPlan, steer, summary::NicSummary};

/// A request that this machine cannot fulfil.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum PlanError {
    #[error(transparent)]
    NoInterface(#[from] NoInterface),
    #[error("no network card is up here{}; name an interface (such as a veth) to steer it by RPS", of_down(.down))]
    NoPorts { down: Vec<String> },
    #[error("there is no CPU {cpu}: this machine has {known}")]
    NoSuchCpu { cpu: u32, known: CpuSet },
    #[error(
        "no CPU is left for network work: online are {online}, {} isolated; widen --cpus or shorten --except",
        if isolated.is_empty() { "none".to_owned() } else { isolated.to_string() }
    )]
    NoCpus { online: CpuSet, isolated: CpuSet },
}

fn of_down(names: &[String]) -> String {
    if names.is_empty() { String::new() } else { format!(" (down: {})", names.join(", ")) }
}

model::classified!(PlanError: Usage, Lacking: NoInterface NoPorts);

pub fn plan(host: &Host, options: &Options) -> Result<SpreadPlan, PlanError> {
    let nics = chosen(host, options)?;
    let allowed = allowed(host, options)?;
    let mut out = SpreadPlan::default();
    warn_of_surroundings(host, options, &mut out);
    let Layout { nics, cores } = Layout::of(host, &nics, &allowed);
    let mut placed_irqs = BTreeMap::new();
    for layout in &nics {
        let nic = layout.nic;
        for failure in &nic.unanswered {
            out.warn(format!("{failure}; taken as not known"));
        }
        device_settings(nic, options, &mut out);
        warn_of_irqs(nic, &mut out);
        let cpu_by_queue = layout.cpu_by_queue();
        place_queues(host, layout, &mut placed_irqs, &mut out);
        out.nics.extend(NicSummary::of(nic, &layout.queue_cpus, &cores));
        steer::threads(nic, options, &cpu_by_queue, &mut out);
        steer::rps(host, nic, options, &cores, &cpu_by_queue, &mut out);
        steer::xps(host, nic, options, &cpu_by_queue, &mut out);
        steer::flow_tables(nic, options, &mut out);
    }
    Ok(out)
}

/// Says what is not known of an interface's interrupts.
fn warn_of_irqs(nic: &Nic, out: &mut SpreadPlan) {
    let name = &nic.name;
    if let Some(why) = why_unplaced(nic) {
        let way = match nic.irq_source {
            IrqSource::NotFound | IrqSource::Names | IrqSource::Order if nic.is_up() => {
                "its queues are left where they are; place them by hand in /proc/irq, or use RPS (--rps on)"
            }
            _ => "RPS or threaded NAPI moves its work",
        };
        out.warn(format!("{name}: {why}; {way}"));
    } else if nic.irq_source == IrqSource::Order {
        out.warn(format!(
            "{name}: the names of its interrupts do not tell which queue each serves; they are taken in their order"
        ));
    }
}

fn chosen<'a>(host: &'a Host, options: &Options) -> Result<Vec<&'a Nic>, PlanError> {
    if options.nics.is_empty() {
        let nics = ports(host);
        if nics.is_empty() {
            let down = host.nics.iter().filter(|n| !n.is_up() && n.bus.is_some()).map(|n| n.name.clone()).collect();
            return Err(PlanError::NoPorts { down });
        }
        return Ok(nics);
    }
    let mut names: Vec<&String> = Vec::new();
    options.nics.iter().for_each(|n| {
        if !names.contains(&n) {
            names.push(n);
        }
    });
    names.into_iter().map(|name| Ok(host.named(name)?)).collect()
}

/// The CPUs that may do network work: online, not isolated, named by --cpus, not named by --except.
pub fn allowed(host: &Host, options: &Options) -> Result<CpuSet, PlanError> {
    let known: CpuSet = host.cpus.iter().map(|c| c.id).collect();
    let named = options.cpus.iter().flat_map(CpuSet::iter).chain(options.except.iter());
    if let Some(cpu) = named.into_iter().find(|&c| !known.contains(c)) {
        return Err(PlanError::NoSuchCpu { cpu, known });
    }
    let mut allowed = usable(host).difference(&options.except);
    if let Some(cpus) = &options.cpus {
        allowed = allowed.intersection(cpus);
    }
    match allowed.is_empty() {
        true => Err(PlanError::NoCpus { online: host.online(), isolated: isolated(host) }),
        false => Ok(allowed),
    }
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
    if host.garbled_irqs > 0 {
        out.warn(format!(
            "{} lines of /proc/interrupts could not be read; interrupts may be missing here",
            host.garbled_irqs
        ));
    }
    if options.nics.is_empty() {
        for nic in host.nics.iter().filter(|n| !n.is_up() && n.bus.is_some() && has_queue_irqs(n)) {
            out.warn(format!("{} is down and left out; name it to place its interrupts all the same", nic.name));
        }
    }
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
fn place_queues(host: &Host, layout: &NicLayout<'_>, placed: &mut BTreeMap<u32, (u32, String)>, out: &mut SpreadPlan) {
    for wanted in layout.wanted(host) {
        let why = layout.queue_cpus.get(&wanted.queue).map_or("", |queue_cpu| queue_cpu.why.as_str());
        place_irq(layout.nic, &wanted, why, placed, out);
    }
}

fn place_irq(
    nic: &Nic,
    wanted: &Wanted<'_>,
    reason: &str,
    placed: &mut BTreeMap<u32, (u32, String)>,
    out: &mut SpreadPlan,
) {
    let (number, cpu) = (wanted.number, wanted.cpu);
    let what = format!("{} IRQ {number}", role_text(wanted.role));
    let Some(irq) = wanted.irq else {
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
