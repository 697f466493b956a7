//! The stack between driver and program: MTU, socket buffers, offloads, netfilter, queueing disciplines, accounting.

use std::collections::BTreeSet;

use host::{
    knob::Knob,
    picture::Nic,
    setting::{self, Missing, conntrack, nft, qdisc},
};
use model::doctor::Role;

use super::or_unknown;
use crate::{
    check::{Check, Outcome},
    evidence::Evidence,
};

/// Jumbo frames.
const JUMBO: u32 = 9000;
/// The least MTU of IPv6 (RFC 8200).
const LEAST_MTU: u32 = 1280;
/// What a socket may ask for on a machine like any other, and on a fast or busy one, in bytes.
const BUFFER: u64 = 4 << 20;
const LARGE_BUFFER: u64 = 16 << 20;
/// The kernel's default of a socket that asks for nothing.
const DEFAULT_BUFFER: u64 = 212_992;
/// What a socket gets that asks for nothing where such have lost packets.
const LARGE_DEFAULT: u64 = 1 << 20;
/// From here on a link is fast, in Mbit/s.
const FAST_MBPS: u32 = 10_000;

/// The checks of this group.
pub(super) const CHECKS: &[Check] = &[
    Check {
        id: "mtu",
        group: "stack",
        asks: "Is the MTU as large as the network allows?",
        reads: "mtu of each interface",
        fix: "9000 on a cluster; 1500 where it is below 1280",
        risk: "every node and switch of that network must have it, or large frames vanish",
        roles: &[],
        run: mtu,
    },
    Check {
        id: "socket-buffers",
        group: "stack",
        asks: "May sockets have buffers large enough for a burst?",
        reads: "net.core.rmem_max, wmem_max, rmem_default, wmem_default; RcvbufErrors of UDP",
        fix: "the maxima to 4 MiB, to 16 MiB on a cluster, a capture or 10 Gbit/s; rmem_default to 1 MiB where packets were lost",
        risk: "a program may take more memory; a default applies to every socket opened later",
        roles: &[],
        run: socket_buffers,
    },
    Check {
        id: "tcp-buffers",
        group: "stack",
        asks: "May TCP's windows grow to what the links need?",
        reads: "net.ipv4.tcp_rmem, tcp_wmem",
        fix: "the third numbers: at least 6 and 4 MiB (the kernel's), 16 MiB on a cluster or 10 Gbit/s",
        risk: "connections may take more memory, within tcp_mem",
        roles: &[Role::Server, Role::Cluster],
        run: tcp_buffers,
    },
    Check {
        id: "lro",
        group: "stack",
        asks: "Is LRO off where packets must stay as they came?",
        reads: "ethtool -k (rx-lro), forwarding, bridge ports",
        fix: "ethtool -K rx-lro off",
        risk: "none on a router; a server loses a little speed against GRO",
        roles: &[],
        run: lro,
    },
    Check {
        id: "offloads",
        group: "stack",
        asks: "Do GRO, GSO, TSO and checksum offload fit the role?",
        reads: "ethtool -k",
        fix: "on; for a capture rx-gro off, for it would see merged packets",
        risk: "a broken driver or card may corrupt packets with an offload that somebody switched off for that",
        roles: &[],
        run: offloads,
    },
    Check {
        id: "netfilter",
        group: "stack",
        asks: "Are netfilter and conntrack in the way where nobody needs them?",
        reads: "nft list ruleset, the connection table, net.bridge.bridge-nf-call-iptables",
        fix: "bridge-nf-call-iptables 0; on a closed cluster by hand: nft flush ruleset; on a router: notrack",
        risk: "without rules the machine is open: only on a network whose members trust each other; containers need the bridge's hook",
        roles: &[],
        run: |ev| or_unknown(netfilter(ev)),
    },
    Check {
        id: "qdisc",
        group: "stack",
        asks: "Does the queueing discipline neither delay nor lock all transmit queues into one?",
        reads: "the kernel's list of queueing disciplines (rtnetlink)",
        fix: "tc qdisc replace dev NIC root mq, by hand",
        risk: "limits and priorities that the old one enforced are gone",
        roles: &[],
        run: |ev| or_unknown(qdiscs(ev)),
    },
    Check {
        id: "accounting",
        group: "stack",
        asks: "Does the kernel count more than anybody reads?",
        reads: "net.netfilter.nf_conntrack_acct, nf_conntrack_timestamp, kernel.sched_schedstats, kernel.task_delayacct",
        fix: "each to 0",
        risk: "whatever reads these numbers reads none any more",
        roles: &[],
        run: accounting,
    },
];

fn mtu(ev: &Evidence) -> Vec<Outcome> {
    ev.ports()
        .map(|nic| frame_size(ev, nic).on(&nic.name).saw(format!("MTU {}", nic.mtu)).holds("MTU", nic.mtu))
        .collect()
}

fn frame_size(ev: &Evidence, nic: &Nic) -> Outcome {
    let set = |o: Outcome, to: u32| o.set(Knob::Mtu { nic: nic.name.clone() }, nic.mtu.to_string(), to.to_string());
    if nic.mtu < LEAST_MTU {
        return set(
            Outcome::bad("IPv6 does not run below an MTU of 1280, and small frames cost as much work as large ones."),
            1500,
        );
    }
    if ev.role == Role::Cluster && nic.mtu < JUMBO && nic.speed_mbps.is_none_or(|s| s >= 1000) {
        let why = "A frame of 9000 bytes costs little more work than one of 1500: six times the data for each packet handled.";
        return set(Outcome::improve(why), JUMBO);
    }
    Outcome::good("Fits the role.")
}

/// Whether a port is fast, or the role wants large buffers whatever the speed.
fn wants_large(ev: &Evidence) -> bool {
    matches!(ev.role, Role::Cluster | Role::Capture)
        || ev.ports().any(|n| n.speed_mbps.is_some_and(|mbps| mbps >= FAST_MBPS))
}

fn socket_buffers(ev: &Evidence) -> Vec<Outcome> {
    let names = ["rmem_max", "wmem_max", "rmem_default", "wmem_default"];
    let values = names.map(|name| ev.sysctl_number(&format!("net/core/{name}")));
    if values[0].is_none() {
        return vec![Outcome::unknown(
            "net.core.rmem_max is missing (a copy that lacks it, or another network namespace than the first).",
        )];
    }
    let errors = ev.text("proc/net/snmp").and_then(|text| counter(&text, "Udp", "RcvbufErrors")).unwrap_or(0);
    let least = if wants_large(ev) { LARGE_BUFFER } else { BUFFER };
    let least_default = if errors > 0 { LARGE_DEFAULT } else { DEFAULT_BUFFER };
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
        saw.push(format!("{errors} datagrams found their socket's buffer full since boot"));
    }
    let seen = |o: Outcome| saw.iter().fold(o, Outcome::saw);
    if low.is_empty() {
        return vec![seen(Outcome::good("Buffers may be large enough."))];
    }
    let why = "A program that is late by some milliseconds loses what its socket's buffer cannot hold, and cannot ask for more.";
    let outcome = seen(if errors > 0 { Outcome::bad(why) } else { Outcome::improve(why) });
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
        return Outcome::unknown(format!("net.ipv4.{name} is missing.")).on(name);
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

fn lro(ev: &Evidence) -> Vec<Outcome> {
    let forwards = ev.role.forwards()
        || ["ipv4/ip_forward", "ipv6/conf/all/forwarding"]
            .iter()
            .any(|s| ev.sysctl_number(&format!("net/{s}")).is_some_and(|v| v > 0));
    let of = |nic: &Nic| {
        let lro = nic.features.get("rx-lro")?;
        let bridged = ev.root.exists(&format!("sys/class/net/{}/brport", nic.name));
        let saw = format!("rx-lro {}", if lro.on { "on" } else { "off" });
        let off = |o: Outcome| {
            let knob = Knob::Feature { nic: nic.name.clone(), name: "rx-lro".to_owned() };
            if lro.fixed { o.advise("# the driver does not let it be switched off") } else { o.set(knob, "on", "off") }
        };
        let outcome = if lro.on && (forwards || bridged) {
            off(Outcome::bad(
                "LRO joins packets so that they cannot be parted again as they were: what is forwarded is damaged or dropped.",
            ))
        } else if lro.on && ev.role == Role::Capture {
            off(Outcome::improve("The capture sees packets that never were on the wire: LRO joined them."))
        } else {
            Outcome::good("Nothing that is forwarded is joined.")
        };
        Some(outcome.on(&nic.name).saw(saw))
    };
    ev.ports().filter_map(of).collect()
}

/// The offloads that should be on, with the reason.
const WANTED: [(&str, &str); 5] = [
    ("rx-gro", "merges packets of a flow before the stack handles them"),
    ("tx-generic-segmentation", "lets the stack handle large packets and cut them late"),
    ("tx-tcp-segmentation", "lets the NIC cut them"),
    ("tx-scatter-gather", "needed by the segmentation offloads"),
    ("rx-checksum", "the NIC checks what the CPU would have to"),
];

fn offloads(ev: &Evidence) -> Vec<Outcome> {
    ev.ports().filter(|n| !n.features.is_empty()).map(|nic| offload(ev, nic).on(&nic.name)).collect()
}

fn offload(ev: &Evidence, nic: &Nic) -> Outcome {
    let knob = |name: &str| Knob::Feature { nic: nic.name.clone(), name: name.to_owned() };
    if ev.role == Role::Capture {
        let joined: Vec<&str> = ["rx-gro", "rx-gro-hw"]
            .into_iter()
            .filter(|name| nic.features.get(*name).is_some_and(|f| f.on && !f.fixed))
            .collect();
        if joined.is_empty() {
            return Outcome::good("The capture sees packets as they came.");
        }
        let why = "GRO joins packets before the taps: the capture shows frames that never were on the wire.";
        let outcome = Outcome::improve(why).saw(format!("on: {}", joined.join(", ")));
        return joined.iter().fold(outcome, |o, name| o.set(knob(name), "on", "off"));
    }
    let off: Vec<(&str, &str)> =
        WANTED.into_iter().filter(|(name, _)| nic.features.get(*name).is_some_and(|f| !f.on && !f.fixed)).collect();
    if off.is_empty() {
        return Outcome::good("The offloads that fit are on.");
    }
    let outcome =
        Outcome::improve("The CPU does for each packet what the NIC could do, or what could be done once for many.");
    off.iter().fold(outcome, |o, (name, what)| o.saw(format!("{name} is off: it {what}")).set(knob(name), "off", "on"))
}

fn netfilter(ev: &Evidence) -> Result<Vec<Outcome>, Missing> {
    let rules = nft::rule_count(&nft::ruleset(&ev.root)?);
    let tracked = conntrack::read(&ev.root)?.map_or(0, |c| c.count);
    let saw = format!("{rules} nftables rules, {tracked} connections tracked");
    let mut answers = Vec::new();
    let hook = "net/bridge/bridge-nf-call-iptables";
    if ev.role == Role::Router && ev.sysctl_number(hook) == Some(1) {
        let why = "Every bridged frame takes the way through the IP rules as well.";
        let outcome = Outcome::improve(why).on("bridge").saw("net.bridge.bridge-nf-call-iptables = 1");
        answers.push(outcome.set(Knob::Sysctl { path: hook.to_owned() }, "1", "0"));
    }
    answers.push(match ev.role {
        Role::Cluster if rules > 0 || tracked > 0 => {
            let why = "On a closed network between nodes that trust each other, each packet pays for rules that stop nobody.";
            Outcome::improve(why).saw(saw).advise("nft flush ruleset  # only if nobody else can reach this network")
        }
        Role::Router if tracked > 0 => {
            let why = "A router that only forwards needs no connection table: each packet pays for a look-up, and a full table drops.";
            let table = "nft add table inet raw; nft add chain inet raw pre '{ type filter hook prerouting priority raw; }'";
            Outcome::improve(why).saw(saw).advise(table).advise("nft add rule inet raw pre notrack  # not with NAT or stateful rules")
        }
        _ => Outcome::good("Rules and tracking fit the role.").saw(saw),
    });
    Ok(answers)
}

/// Disciplines that hold packets back.
const SHAPERS: [&str; 6] = ["tbf", "htb", "hfsc", "cbq", "cake", "drr"];

fn qdiscs(ev: &Evidence) -> Result<Vec<Outcome>, Missing> {
    let all = qdisc::read(&ev.root)?;
    let of = |nic: &Nic| {
        let own: Vec<&qdisc::Qdisc> = all.iter().filter(|q| q.ifindex == nic.index && !q.is_ingress).collect();
        let root = own.iter().find(|q| q.is_root)?;
        let kinds: BTreeSet<&str> = own.iter().map(|q| q.kind.as_str()).collect();
        let saw = format!("{} at the root of {} transmit queues", root.kind, nic.tx_queues.len());
        let mq = format!("tc qdisc replace dev {} root mq", nic.name);
        let one_lock = nic.tx_queues.len() > 1 && !["mq", "mqprio", "noqueue", "taprio"].contains(&root.kind.as_str());
        let outcome = if kinds.contains("netem") {
            let command = format!("tc qdisc del dev {} root", nic.name);
            Outcome::bad("netem delays and drops on purpose: it is there for tests.").advise(command)
        } else if let Some(shaper) = SHAPERS.iter().find(|s| kinds.contains(**s)) {
            let why = "A shaper holds packets back and takes one lock for all cores.";
            match ev.role {
                Role::Cluster => Outcome::improve(why).saw(format!("{shaper} shapes")).advise(mq),
                _ if one_lock => Outcome::improve(why)
                    .saw(format!("{shaper} shapes"))
                    .advise("# if its limits are needed: one under each queue of mq, or an EDT rate limiter with fq"),
                _ => Outcome::good("A shaper, and one queue: somebody wants it so."),
            }
        } else if one_lock {
            Outcome::improve("One discipline for all transmit queues is one lock for all cores.").advise(mq)
        } else {
            Outcome::good("Nothing holds packets back, and each queue has a lock of its own.")
        };
        Some(outcome.on(&nic.name).saw(saw).holds("qdisc", &root.kind))
    };
    Ok(ev.ports().filter_map(of).collect())
}

fn accounting(ev: &Evidence) -> Vec<Outcome> {
    let rows = [
        ("net/netfilter/nf_conntrack_acct", "counts packets and bytes of every connection"),
        ("net/netfilter/nf_conntrack_timestamp", "notes begin and end of every connection"),
        ("kernel/sched_schedstats", "times every wake-up of every task"),
        ("kernel/task_delayacct", "times what every task waits for"),
    ];
    let values = rows.map(|(path, _)| ev.sysctl_number(path));
    if values.iter().all(Option::is_none) {
        return match setting::kept(&ev.root) {
            Ok(()) => Vec::new(),
            Err(why) => vec![Outcome::unknown(why.to_string())],
        };
    }
    let on: Vec<(&str, &str, u64)> =
        rows.iter().zip(values).filter_map(|(&(path, what), v)| Some((path, what, v?))).filter(|r| r.2 > 0).collect();
    if on.is_empty() {
        return vec![Outcome::good("No accounting beyond the kernel's own counters.")];
    }
    let outcome = Outcome::improve("Each packet or each wake-up pays for numbers that mostly nobody reads.");
    vec![on.iter().fold(outcome, |o, (path, what, value)| {
        let knob = Knob::Sysctl { path: (*path).to_owned() };
        o.saw(format!("{} = {value}: {what}", path.replace('/', "."))).set(knob, value.to_string(), "0")
    })]
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
