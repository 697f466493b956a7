//! The stack between driver and program: MTU, socket buffers, offloads, netfilter, queueing disciplines, accounting.

use std::collections::BTreeSet;

use host::{
    knob::Knob,
    picture::Nic,
    setting::{self, Missing, conntrack, nft, qdisc},
};
use model::doctor::Role;

use super::or_unknown;
use crate::{check::Check, evidence::Evidence, outcome::Outcome};

const JUMBO: u32 = 9000;
/// The least MTU of IPv6 (RFC 8200).
const LEAST_MTU: u32 = 1280;
pub(super) const CHECKS: &[Check] = &[
    Check {
        id: "mtu",
        group: "stack",
        question: "Is the MTU as large as the network allows?",
        reads: "mtu of each interface",
        fix: "9000 on a cluster, by hand; 1500 where it is below 1280",
        risk: "every node and switch of that network must have it, or large frames vanish",
        roles: &[],
        run: mtu,
    },
    Check {
        id: "lro",
        group: "stack",
        question: "Is LRO off where packets must stay as they came?",
        reads: "ethtool -k (rx-lro), forwarding, bridge ports",
        fix: "ethtool -K rx-lro off",
        risk: "none on a router; a server loses a little speed against GRO",
        roles: &[],
        run: lro,
    },
    Check {
        id: "offloads",
        group: "stack",
        question: "Do GRO, GSO, TSO and checksum offload fit the role?",
        reads: "ethtool -k",
        fix: "on; for a capture rx-gro off, for it would see merged packets",
        risk: "a broken driver or card may corrupt packets with an offload that somebody switched off for that",
        roles: &[],
        run: offloads,
    },
    Check {
        id: "netfilter",
        group: "stack",
        question: "Do netfilter and conntrack cost packets time without being needed?",
        reads: "nft list ruleset, the connection table, net.bridge.bridge-nf-call-iptables",
        fix: "bridge-nf-call-iptables 0; on a closed cluster by hand: nft flush ruleset; on a router: notrack",
        risk: "without rules the machine is open: only on a network whose members trust each other; containers need the bridge's hook",
        roles: &[],
        run: |ev| or_unknown(netfilter(ev)),
    },
    Check {
        id: "qdisc",
        group: "stack",
        question: "Does the queueing discipline neither delay nor lock all transmit queues into one?",
        reads: "the kernel's list of queueing disciplines (rtnetlink)",
        fix: "tc qdisc replace dev NIC root mq, by hand",
        risk: "limits and priorities that the old one enforced are gone",
        roles: &[],
        run: |ev| or_unknown(qdiscs(ev)),
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
        // Not by --fix: a switch between that does not know of it makes the machine unreachable for large frames.
        return Outcome::improve(why)
            .advise(format!("ip link set dev {} mtu {JUMBO}  # after every switch and node of that network", nic.name))
            .advise("ping -M do -s 8972 PEER  # must be answered");
    }
    Outcome::good("Fits the role.")
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
    // Before those that need it.
    ("tx-scatter-gather", "needed by the segmentation offloads"),
    ("rx-gro", "merges packets of a flow before the stack handles them"),
    ("tx-generic-segmentation", "lets the stack handle large packets and cut them late"),
    ("tx-tcp-segmentation", "lets the NIC cut them"),
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

/// The interface is a port of a bridge. (A copy has these, and not the bridge's own folder.)
fn is_port(ev: &Evidence, nic: &Nic) -> bool {
    ev.number(&format!("sys/class/net/{}/brport/port_no", nic.name)).is_some()
        || nic.driver.as_deref() == Some("bridge")
}

fn netfilter(ev: &Evidence) -> Result<Vec<Outcome>, Missing> {
    let rules = nft::rule_count(&nft::ruleset(&ev.root)?);
    let tracked = conntrack::read(&ev.root)?.map_or(0, |c| c.count);
    let saw = format!("nftables rules: {rules}; connections tracked: {tracked}");
    let mut answers = Vec::new();
    let hook = "net/bridge/bridge-nf-call-iptables";
    // The hook is the machine's; where no bridge is, it costs nothing.
    let is_bridge = |nic: &Nic| ev.root.exists(&format!("sys/class/net/{}/bridge", nic.name)) || is_port(ev, nic);
    if ev.role == Role::Router && ev.sysctl_number(hook) == Some(1) && ev.host.nics.iter().any(is_bridge) {
        let why = "Every bridged frame passes the IP rules as well.";
        let outcome = Outcome::improve(why).on("bridge").saw("net.bridge.bridge-nf-call-iptables = 1");
        // Containers and libvirt's networks rely on the hook: there it is their owner's decision.
        let owned = |nic: &Nic| {
            ["docker", "br-", "cni", "virbr", "lxcbr", "lxdbr", "kube"].iter().any(|p| nic.name.starts_with(p))
        };
        answers.push(match ev.host.nics.iter().find(|nic| owned(nic)) {
            Some(nic) => Outcome::good("Containers or guests need it: their rules judge bridged frames.")
                .on("bridge")
                .saw(format!("net.bridge.bridge-nf-call-iptables = 1, and {} is there", nic.name)),
            None => outcome.set(Knob::Sysctl { path: hook.to_owned() }, "1", "0"),
        });
    }
    answers.push(match ev.role {
        Role::Cluster if rules > 0 || tracked > 0 => {
            let why = "On a closed network of trusted nodes the rules cost time for each packet.";
            let outcome = Outcome::improve(why).saw(saw);
            // A way out is a way in: such a cluster is not closed.
            match setting::has_default_route(&ev.root) {
                Ok(false) => outcome.advise("nft flush ruleset  # only if nobody else can reach this network"),
                _ => outcome
                    .saw("a default route: the network is not closed")
                    .advise("# keep the rules; notrack and accept first what comes by the interface of the cluster alone"),
            }
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
                _ => Outcome::good("The shaper was configured, and the device has one queue."),
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
