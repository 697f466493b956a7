//! A router's fast path as text.

use std::collections::BTreeMap;

use model::{
    counters::{Counter, Row},
    route::{Obstacle, RouteCheck, RouteLost, RouteRates, RouteRulesStatus, RouteStatus, RouteTotals},
    units,
};

use crate::{
    shield::{rule_table, to_the_second},
    table::Look,
};

/// The obstacles with the way out of each.
fn obstacles(of: &[Obstacle], look: Look) -> String {
    items("OBSTACLE", of, look)
}

/// Risks of mode stateful.
fn notes(of: &[Obstacle], look: Look) -> String {
    if of.is_empty() { String::new() } else { items("NOTE", of, look) }
}

fn items(head: &str, of: &[Obstacle], look: Look) -> String {
    // Sentences: as wide as those of a paragraph.
    let look = if look.lines { look } else { Look::plain(look.read_at().min(100)) };
    look.table(&[head, "WHAT", "WHAT TO DO"], of.iter().map(|o| vec![o.code.clone(), o.what.clone(), o.remedy.clone()]))
}

/// Fields that next hops depend on.
fn key(of: &[String]) -> String {
    match of {
        [] => "Next hops depend on the destination only.".to_owned(),
        _ => format!("Next hops depend on the destination and on: {}.", of.join(", ")),
    }
}

/// Why the kernel sends what leaves by these ports, and what to do.
fn cannot_transmit(ports: &[String], look: Look) -> String {
    if ports.is_empty() {
        return String::new();
    }
    let ports = ports.join(", ");
    look.paragraph(&format!(
        "Packets leaving by {ports} go through the kernel: such a port takes no redirected frames (it is down or gone, its driver cannot, or it is a veth whose other end \
         runs no NAPI). On a veth, at the other end: `ip link set PEER up`, `ethtool -K PEER gro off`, then `gro on`."
    ))
}

/// Obstacles for the fast path.
pub fn route_check_text(check: &RouteCheck, look: Look) -> String {
    let mut text = match check.obstacles.as_slice() {
        [] if !check.can_forward() => look.paragraph("Nothing can be forwarded yet: no port takes redirected frames."),
        [] => look.paragraph(&format!("No obstacle to the fast path between {}.", check.ports.join(", "))),
        all => obstacles(all, look),
    };
    text += &notes(&check.notes, look);
    text += &cannot_transmit(&check.cannot_transmit, look);
    text + &look.paragraph(&key(&check.fib_key))
}

pub fn route_text(status: &RouteStatus, look: Look) -> String {
    let mut text = look.paragraph(&format!(
        "Mode {}, run by process {} for {:.0} s. {}",
        status.mode.name(),
        status.pid,
        status.uptime_s,
        key(&status.fib_key)
    ));
    if let Some(why) = &status.fallback {
        let wanted = status.requested.name();
        // What is in the way has its remedy below.
        let again = match status.obstacles.is_empty() {
            true => format!(" `evenkeel route mode {wanted}` tries again."),
            false => String::new(),
        };
        text += &look.paragraph(&format!("Held back from {wanted}: {why}.{again}"));
    }
    if status.fallback.is_none() && status.mode != status.requested {
        let then = status.requested.name();
        text += &look.paragraph(&format!(
            "A trial runs: mode {then} follows if the kernel sends each frame as the fast path would."
        ));
    }
    if status.unverified {
        text += &look.paragraph(
            "Not compared with the kernel: no IP frame that it could forward arrived during the trial. `evenkeel route mode shadow` compares while the kernel forwards.",
        );
    }
    if !status.obstacles.is_empty() {
        text += &obstacles(&status.obstacles, look);
    }
    let silent = status.ports.iter().filter(|port| !port.can_transmit).map(|port| port.interface.clone());
    text += &cannot_transmit(&silent.collect::<Vec<_>>(), look);
    if !status.untraced.is_empty() {
        text += &look.paragraph("Changes of routes and neighbours take effect within milliseconds instead of at once: this kernel does not let some functions be traced (`route status --json` lists them). No action is needed.");
    }
    text += &notes(&status.notes, look);
    if let Some(shadow) = &status.shadow {
        text += &look.paragraph(&format!("{shadow}."));
        shadow.examples.iter().for_each(|example| text += &format!("  {example}\n"));
    }
    let all = status.totals();
    let shown = |counter: &&Counter<RouteTotals>| match counter.row {
        Row::Always(_) => true,
        Row::IfAny(_) => (counter.get)(&all) > 0,
        Row::Hidden => false,
    };
    let mut heads = vec!["FRAMES".to_owned()];
    heads.extend(status.ports.iter().map(|port| format!(">{}", port.interface)));
    let row = |counter: &Counter<RouteTotals>| {
        let (Row::Always(what) | Row::IfAny(what)) = counter.row else { return Vec::new() };
        let up = if counter.label.is_some() { "to the kernel: " } else { "" };
        let mut row = vec![format!("{up}{what}")];
        row.extend(status.ports.iter().map(|port| units::grouped((counter.get)(&port.totals))));
        row
    };
    text += "\n";
    text += &look.table(&heads, RouteTotals::COUNTERS.iter().filter(shown).map(row));
    text += &cpus(status, look);
    if let Some(rules) = &status.rules {
        text += &rules_text(rules, look);
    }
    if !status.events.is_empty() {
        let rows = status.events.iter().map(|moment| vec![moment.timestamp.clone(), moment.what.to_string()]);
        text += "\n";
        text += &look.table(&["WHEN", "WHAT HAPPENED"], rows);
    }
    text
}

/// The CPUs that forward, and what was lost on the way to them.
fn cpus(status: &RouteStatus, look: Look) -> String {
    let mut of: BTreeMap<u32, [u64; 3]> = BTreeMap::new();
    for cpu in status.ports.iter().flat_map(|port| &port.cpus) {
        let sums = of.entry(cpu.cpu).or_default();
        [cpu.enqueued, cpu.dequeued, cpu.forwarded].iter().zip(sums).for_each(|(count, sum)| *sum += count);
    }
    let mut text = String::new();
    if let Some(cpus) = &status.cpus {
        text += &match cpus.len() {
            1 => look.paragraph(&format!("CPU {cpus} forwards what the ports receive.")),
            _ => look.paragraph(&format!("CPUs {cpus} forward what the ports receive.")),
        };
    }
    if !of.is_empty() {
        let row = |(cpu, sums): (&u32, &[u64; 3])| {
            [cpu.to_string()].into_iter().chain(sums.iter().map(|sum| units::grouped(*sum))).collect::<Vec<_>>()
        };
        text += "\n";
        text += &look.table(&[">CPU", ">HANDED ON", ">TAKEN", ">FORWARDED"], of.iter().map(row));
    }
    for port in &status.ports {
        for counter in RouteLost::COUNTERS {
            let lost = (counter.get)(&port.lost.unwrap_or_default());
            if let (1.., Row::Always(why) | Row::IfAny(why)) = (lost, counter.row) {
                let frames = units::grouped(lost);
                text += &look.paragraph(&format!("{}: lost frames: {frames}. {why}.", port.interface));
            }
        }
    }
    if status.cpus.is_some() && status.ports.iter().any(|port| port.lost.is_none()) {
        text += &look.paragraph("Frames lost on the way to these CPUs are not known: this kernel does not tell.");
    }
    text
}

/// The rules before the fast path, and what became of the frames that came to them.
fn rules_text(rules: &RouteRulesStatus, look: Look) -> String {
    let mut text = String::from("\n");
    text += &look.paragraph(&format!(
        "Rules of {} since {}, active in each mode on frames that the ports receive. They {}.",
        rules.file,
        to_the_second(&rules.loaded),
        if rules.pinned { "stay when the process ends" } else { "go with the process" }
    ));
    if let Some(refused) = &rules.reload_error {
        text += &format!("the last reload was refused: {refused}\n");
    }
    for port in &rules.detached_ports {
        text += &look.paragraph(&format!("warning: no rules are active on {port}: the program is gone"));
    }
    text += "\n";
    let totals = &rules.totals;
    let rows = [
        ("passed".to_owned(), totals.passed),
        ("dropped".to_owned(), totals.dropped),
        (format!("by default ({})", rules.default), totals.by_default),
        (format!("malformed ({})", rules.malformed), totals.malformed),
        ("beyond limits (drop)".to_owned(), totals.limited),
        ("not IP (pass)".to_owned(), totals.not_ip),
    ];
    let rows = rows.into_iter().map(|(what, frames)| vec![what, units::grouped(frames)]);
    text += &look.table(&["FRAMES AND RULES", ">SINCE THE START"], rows);
    text += "\n";
    text + &rule_table(&rules.rules, false, look)
}

/// A line: frames forwarded and frames of the slow path in the interval of `status`.
pub fn route_line(status: &RouteStatus) -> String {
    let all = status.rates.as_ref().map(RouteRates::sum).unwrap_or_default();
    format!(
        "{}  forwarded {}  up to the kernel {}  asked {}",
        status.mode.name(),
        units::pps(all.forwarded_pps),
        units::pps(all.slow_path_pps),
        units::pps(all.fib_lookup_pps)
    )
}
