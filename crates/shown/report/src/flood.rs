//! A run of `bench flood` as text.

use std::fmt::Write;

use model::{
    bench::Delays,
    flood::{Clients, FloodMode, FloodPoint, FloodRun, UNTOUCHED_P99_NS, UNTOUCHED_SUCCESS},
    units,
};

use crate::{
    conditions::{self, Conditions},
    table::Look,
};

/// Losses named in a row of the table.
const LOSSES_MAX: usize = 3;

/// The whole run: conclusion, a table for each protection, conditions.
pub fn flood_text(run: &FloodRun, look: Look) -> String {
    let mut out = String::new();
    for line in conclusion(run) {
        out.push_str(&look.paragraph(&line));
    }
    for mode in &run.modes {
        let _ = write!(out, "\n{}", look.paragraph(&format!("{}: {}", mode.name, mode.what)));
        for line in &mode.settings {
            let _ = writeln!(out, "  {line}");
        }
        out.push_str(&look.table(&HEADS, mode.points.iter().map(|p| row(run, p))));
        for point in &mode.points {
            for line in [ends(point), late(point), failures(point), others(point)].into_iter().flatten() {
                let _ = writeln!(out, "  {line}");
            }
        }
    }
    out + "\n" + &conditions::paragraphs(&conditions(run), look)
}

/// The head of the least share that chance leaves possible.
pub(crate) const LOWER_BOUND: &str = "95 % LOWER BOUND";

pub(crate) const HEADS: [&str; 11] = [
    ">FLOOD",
    ">ARRIVED",
    ">ANSWERED",
    ">SUCCESS",
    ">95 % LOWER BOUND",
    ">GOODPUT",
    ">p50",
    ">p99",
    ">RETRIES",
    ">CPU",
    ">CLIENTS",
];

pub(crate) fn row(run: &FloodRun, point: &FloodPoint) -> Vec<String> {
    let clients = &point.clients;
    let delay = |get: fn(&Delays) -> u64| {
        clients.connect.as_ref().map_or_else(|| "-".to_owned(), |d| units::nanoseconds(get(d) as f64))
    };
    vec![
        offered(point),
        units::pps(point.arrived_pps()),
        units::pps(point.answered_pps()),
        success(point),
        surely(point),
        format!("{:.0}/s", clients.goodput_per_s()),
        delay(|d| d.p50_ns),
        delay(|d| d.p99_ns),
        clients.segment_retransmits.to_string(),
        point.host_percent(&run.setup.host_cpus).map_or_else(|| "-".to_owned(), |p| format!("{p:.0} %")),
        clients.cpu_percent.map_or_else(|| "-".to_owned(), |p| format!("{p:.0} %")),
    ]
}

/// The share of clients that had their answer: never rounded up to all of them.
pub(crate) fn success(point: &FloodPoint) -> String {
    percent(point.clients.success_ratio())
}

/// A share, never rounded up to all.
pub(crate) fn percent(share: f64) -> String {
    // What is a whole tenth stays one, whatever binary fractions make of it.
    format!("{:.1} %", (1000.0 * share + 1e-6).floor() / 10.0)
}

/// The least share that chance leaves possible: one digit more, since 99.9 % is the question.
fn surely(point: &FloodPoint) -> String {
    lower_bound(point.clients.success_interval().0)
}

fn lower_bound(share: f64) -> String {
    format!("{:.2} %", (10_000.0 * share + 1e-6).floor() / 100.0)
}

/// The part of the clients' failures that losses in the queue before the protection explain; none without failures.
pub(crate) fn failures(point: &FloodPoint) -> Option<String> {
    let clients = &point.clients;
    let failed = clients.attempted.saturating_sub(clients.completed);
    if failed == 0 {
        return None;
    }
    let rate = offered(point);
    Some(match (clients.lost_in_queue, clients.failed_beyond_the_queue()) {
        (Some(lost), Some(0)) => format!(
            "{rate}: {failed} clients failed; the queue before the protection lost {lost} packets of theirs, which may be why in all cases"
        ),
        (Some(lost), Some(beyond)) => format!(
            "{rate}: {failed} clients failed; the queue before the protection lost {lost} packets of theirs, so that {beyond} at least failed \
             for another reason"
        ),
        _ => format!("{rate}: {failed} clients failed; whose packets were lost before the protection nobody counts"),
    })
}

/// The rate that was offered; that of the maximum is marked.
pub(crate) fn offered(point: &FloodPoint) -> String {
    let rate = units::pps(point.offered_pps());
    if point.intended_pps.is_none() { format!("max {rate}") } else { rate }
}

/// Fate of the frames of a point that got no answer; none if all got one.
pub(crate) fn ends(point: &FloodPoint) -> Option<String> {
    let share = |n: i64| units::percent(n as f64 / point.offered.max(1) as f64);
    let mut losses: Vec<_> = point.losses.iter().collect();
    losses.sort_by_key(|l| std::cmp::Reverse(l.packets));
    let mut parts: Vec<String> =
        losses.iter().take(LOSSES_MAX).map(|l| format!("{} {}", share(l.packets.cast_signed()), l.place)).collect();
    if losses.len() > LOSSES_MAX {
        let rest: u64 = losses.iter().skip(LOSSES_MAX).map(|l| l.packets).sum();
        parts.push(format!("{} elsewhere", share(rest.cast_signed())));
    }
    // Frames that were under way when the counters were read are no finding.
    if point.unexplained.unsigned_abs() * 1000 > point.offered {
        parts.push(format!("{} unexplained", share(point.unexplained)));
    }
    (point.offered > 0 && !parts.is_empty()).then(|| format!("{}: {}", offered(point), parts.join(", ")))
}

/// Answers that came only after the flood had ended; none if they are few.
pub(crate) fn late(point: &FloodPoint) -> Option<String> {
    let share = point.answered_late as f64 / point.offered.max(1) as f64;
    (share > 0.001).then(|| {
        let rate = offered(point);
        format!(
            "{rate}: {} of the frames were answered only after the flood had ended, and are not in ANSWERED",
            units::percent(share)
        )
    })
}

/// Other programs that had the cores; none without any.
pub(crate) fn others(point: &FloodPoint) -> Option<String> {
    (!point.others.is_empty())
        .then(|| format!("{}: other programs ran on these cores and may be why: {}", offered(point), point.others))
}

/// A sentence for each protection.
pub(crate) fn conclusion(run: &FloodRun) -> Vec<String> {
    let at_most = |mode: &FloodMode| mode.points.last().map_or(0.0, |p| p.clients.success_ratio());
    let mut modes: Vec<&FloodMode> = run.modes.iter().collect();
    // Verdicts first, then what is void; each by the share that was served at its maximum.
    modes.sort_by(|a, b| is_void(a).cmp(&is_void(b)).then(at_most(b).total_cmp(&at_most(a))));
    let mut all: Vec<String> = modes.into_iter().map(|mode| sentence(run, mode)).collect();
    if run.modes.len() > 1 && run.modes.iter().any(|m| m.points.last().is_some_and(|p| p.intended_pps.is_none())) {
        all.push("Each maximum is another rate: that which the flood reached against this protection.".to_owned());
    }
    all
}

/// True if clients noticed something without any flood, or at the lowest rate where none was tried without one: the machine may be at
/// fault, and nothing is known of the protection.
pub(crate) fn is_void(mode: &FloodMode) -> bool {
    mode.untouched_pps().is_none()
}

fn sentence(run: &FloodRun, mode: &FloodMode) -> String {
    let end = mode.points.last().map_or_else(String::new, |last| {
        let p99 = last.clients.connect.as_ref().map(|c| units::nanoseconds(c.p99_ns as f64));
        let p99 = p99.map_or_else(String::new, |p99| format!(", p99 connect {p99}"));
        let rate = units::pps(last.offered_pps());
        let at = if last.intended_pps.is_none() { format!("At the maximum, {rate}") } else { format!("At {rate}") };
        format!(" {at}: {} served{p99}.", success(last))
    });
    // What so many clients can show at best.
    let best = Clients { attempted: run.setup.connects, completed: run.setup.connects, ..Clients::default() };
    let least = best.success_interval().0;
    let sure = match least < UNTOUCHED_SUCCESS {
        true => format!(
            " ({} clients can show no more than {}; 3 000 can show 99.9 %)",
            units::grouped(run.setup.connects.into()),
            lower_bound(least)
        ),
        false => String::new(),
    };
    match mode.untouched_pps() {
        Some(0.0) => format!("{}: clients notice every flood that was tried.{end}", mode.name),
        Some(pps) => format!("{}: clients notice nothing up to {}{sure}.{end}", mode.name, units::pps(pps)),
        None => format!("Void: {}: {}.{end}", mode.name, void_because(mode)),
    }
}

/// The conditions without a flood that a protection did not hold.
fn void_because(mode: &FloodMode) -> String {
    let Some(lowest) = mode.points.first() else { return "nothing was measured".to_owned() };
    if lowest.intended_pps != Some(0.0) {
        return format!(
            "clients notice {}, the lowest rate, and nothing was measured without a flood (add 0 to --rates)",
            units::pps(lowest.offered_pps())
        );
    }
    let served = lowest.clients.success_ratio();
    let failed = (served < UNTOUCHED_SUCCESS).then(|| format!("{} failed", percent(1.0 - served)));
    let p99_ns = lowest.clients.connect.as_ref().map(|c| c.p99_ns).filter(|ns| *ns > UNTOUCHED_P99_NS);
    let slow = p99_ns.map(|ns| {
        let [p99, most] = [ns, UNTOUCHED_P99_NS].map(|ns| units::nanoseconds(ns as f64));
        format!("p99 connect {p99} is above {most}")
    });
    let others = match lowest.others.as_str() {
        "" => String::new(),
        others => format!(" (others used these CPUs: {others})"),
    };
    let why: Vec<String> = [failed, slow].into_iter().flatten().collect();
    format!("{} without any flood{others}", why.join(", and "))
}

pub(crate) fn conditions(run: &FloodRun) -> Conditions {
    let setup = &run.setup;
    let mut all = vec![
        conditions::machine(&run.machine),
        conditions::cores(&setup.arrangement),
        (
            "Overload",
            "real: the flood does not wait for the host. What the host's core does not take from the queue of its interface (256 frames) \
             is lost before XDP, for the flood and the clients alike"
                .to_owned(),
        ),
        (
            "Flood",
            format!(
                "TCP SYNs of {} bytes to the server's port, each from an address of {} and a port drawn anew, {} ms before the first client",
                setup.frame_bytes, setup.flood_sources, setup.lead_ms
            ),
        ),
        (
            "Clients",
            format!(
                "over the same link and queue: {} connections at each rate, {:.0} begun each second, each from an address of {} that the \
                 host has never met; connect, 64 bytes to the server, 256 back, within {} ms. What is not done then has failed; the \
                 kernel repeats a SYN after 1 s",
                setup.connects, setup.connects_per_s, setup.client_sources, setup.timeout_ms
            ),
        ),
        (
            "Columns",
            "FLOOD: frames offered. ARRIVED: frames that found a place in the queue. ANSWERED: spoofed SYNs that got a SYN-ACK during the \
             flood, counted at the far end. SUCCESS: clients with an answer in time; its lower bound is the least share that chance leaves \
             possible. GOODPUT: answers per second. p50, p99: time to connect, of the clients that connected. RETRIES: segments that the \
             clients' kernel sent again, at the earliest after 0.2 s. CPU: the host's cores, 100 % each. CLIENTS: what the clients took of \
             their core, which is part of CPU where they share one with the host. Clients notice nothing if 99.9 % succeed and p99 is at \
             most 5 ms"
                .to_owned(),
        ),
        ("Begun", run.timestamp.clone()),
    ];
    if run.partial {
        all.push(("Partial", "the run was broken off".to_owned()));
    }
    all
}
