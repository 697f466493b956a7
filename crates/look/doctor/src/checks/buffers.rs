//! The buffers of sockets: what programs may ask for, and how far TCP's windows may grow.

use host::knob::Knob;
use model::doctor::Role;

use crate::{check::Check, evidence::Evidence, outcome::Outcome};

/// Largest buffer that a socket may ask for on a machine like any other, and on a fast or busy one, in bytes.
const BUFFER: u64 = 4 << 20;
const LARGE_BUFFER: u64 = 16 << 20;
/// The kernel's default of a socket that asks for nothing.
const DEFAULT_BUFFER: u64 = 212_992;
/// Default buffer where sockets that ask for none have lost packets.
const LARGE_DEFAULT: u64 = 1 << 20;
/// From here on a link is fast, in Mbit/s.
const FAST_MBPS: u32 = 10_000;

pub(super) const CHECKS: &[Check] = &[
    Check {
        id: "socket-buffers",
        group: "stack",
        question: "May sockets have buffers large enough for a burst?",
        reads: "net.core.rmem_max, wmem_max, rmem_default, wmem_default; RcvbufErrors of UDP",
        fix: "the maxima to 4 MiB, to 16 MiB on a cluster, a capture or 10 Gbit/s; rmem_default to 1 MiB where packets were lost",
        risk: "a program may take more memory; a default applies to every socket opened later",
        roles: &[],
        run: socket_buffers,
    },
    Check {
        id: "tcp-buffers",
        group: "stack",
        question: "May TCP's windows grow to what the links need?",
        reads: "net.ipv4.tcp_rmem, tcp_wmem",
        fix: "the third numbers: at least 6 and 4 MiB (the kernel's), 16 MiB on a cluster or 10 Gbit/s",
        risk: "connections may take more memory, within tcp_mem",
        roles: &[Role::Server, Role::Cluster],
        run: tcp_buffers,
    },
];

/// A port is fast, or the role wants large buffers whatever the speed.
fn wants_large(ev: &Evidence) -> bool {
    matches!(ev.role, Role::Cluster | Role::Capture)
        || ev.ports().any(|n| n.speed_mbps.is_some_and(|mbps| mbps >= FAST_MBPS))
}

fn socket_buffers(ev: &Evidence) -> Vec<Outcome> {
    let names = ["rmem_max", "wmem_max", "rmem_default", "wmem_default"];
    let values = names.map(|name| ev.sysctl_number(&format!("net/core/{name}")));
    if values[0].is_none() {
        return vec![ev.lacking("net.core.rmem_max is missing (another network namespace than the first).")];
    }
    let full = |root: &host::Root| counter(&root.read("proc/net/snmp").ok()?, "Udp", "RcvbufErrors");
    let (errors, now) = (ev.since(full).unwrap_or(0), ev.grown(full));
    let since = ev.since_when();
    let least = if wants_large(ev) { LARGE_BUFFER } else { BUFFER };
    let least_default = if errors > 0 && ev.counts(now) { LARGE_DEFAULT } else { DEFAULT_BUFFER };
    let low: Vec<(&str, u64, u64)> = names
        .iter()
        .zip(values)
        .zip([least, least, least_default, DEFAULT_BUFFER])
        .filter_map(|((&name, value), least)| Some((name, value?, least)))
        .filter(|(_, value, least)| value < least)
        .collect();
    let known = names.iter().zip(values).filter_map(|(name, value)| Some(format!("{name} {}", value?)));
    let mut saw = vec![known.collect::<Vec<_>>().join(", ")];
    if errors > 0 {
        saw.push(match now {
            Some(now) => format!("{now} datagrams found their socket's buffer full while watched, {errors} {since}"),
            None => format!("{errors} datagrams found their socket's buffer full {since}"),
        });
    }
    let seen = |o: Outcome| saw.iter().fold(o, Outcome::saw);
    if low.is_empty() {
        return vec![seen(Outcome::good("Buffers may be large enough."))];
    }
    let why = "A program that is late by some milliseconds loses what its socket's buffer cannot hold, and cannot ask for more.";
    let outcome =
        seen(if errors > 0 && now.is_none_or(|now| now > 0) { Outcome::bad(why) } else { Outcome::improve(why) });
    let set = |o: Outcome, &(name, value, least): &(&str, u64, u64)| {
        o.set(Knob::Sysctl { path: format!("net/core/{name}") }, value.to_string(), least.to_string())
    };
    vec![low.iter().fold(outcome, set)]
}

/// A field of /proc/net/snmp: a line of names and one of values, both with the protocol in front.
fn counter(text: &str, protocol: &str, name: &str) -> Option<u64> {
    let mut lines = text.lines().filter_map(|line| line.strip_prefix(protocol)?.strip_prefix(':'));
    let at = lines.next()?.split_whitespace().position(|word| word == name)?;
    lines.next()?.split_whitespace().nth(at)?.parse().ok()
}

fn tcp_buffers(ev: &Evidence) -> Vec<Outcome> {
    let fast = ev.role == Role::Cluster || ev.ports().any(|n| n.speed_mbps.is_some_and(|mbps| mbps >= FAST_MBPS));
    let rows =
        [("tcp_rmem", if fast { 16 << 20 } else { 6 << 20 }), ("tcp_wmem", if fast { 16 << 20 } else { 4 << 20 })];
    rows.iter().map(|&(name, least)| window(ev, name, least)).collect()
}

fn window(ev: &Evidence, name: &str, least: u64) -> Outcome {
    let text = ev.sysctl(&format!("net/ipv4/{name}")).unwrap_or_default();
    let values: Vec<u64> = text.split_whitespace().filter_map(|w| w.parse().ok()).collect();
    let &[small, default, max] = values.as_slice() else {
        return ev.lacking(&format!("net.ipv4.{name} is missing.")).on(name);
    };
    let saw = format!("net.ipv4.{name} = {small} {default} {max}");
    let set = |o: Outcome, new: [u64; 3]| {
        let new = new.map(|n| n.to_string()).join(" ");
        o.on(name).saw(&saw).set(Knob::Sysctl { path: format!("net/ipv4/{name}") }, text.clone(), new)
    };
    if small > default || default > max {
        let why = "The three numbers are least, default and most: out of order, connections begin larger than they may become.";
        return set(Outcome::bad(why), [small.min(default), default.min(max.max(least)), max.max(least)]);
    }
    if max < least {
        let why = "The window that TCP may offer or fill bounds what one connection carries: bandwidth times round-trip time.";
        return set(Outcome::improve(why), [small, default, least]);
    }
    Outcome::good("TCP's windows may grow.").on(name).saw(saw)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_counter_by_name() {
        let text =
            "Ip: Forwarding\nIp: 1\nUdp: InDatagrams NoPorts InErrors OutDatagrams RcvbufErrors\nUdp: 9 8 7 6 5\n";
        assert_eq!(counter(text, "Udp", "RcvbufErrors"), Some(5));
        assert_eq!(counter(text, "Udp", "Nothing"), None);
        assert_eq!(counter("", "Udp", "RcvbufErrors"), None);
    }
}
