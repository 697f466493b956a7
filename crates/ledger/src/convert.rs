//! From what was read to the input of the arithmetic.

use std::collections::BTreeMap;

use bpf::{
    drop_reasons::DropReasons,
    drops::{DropCount, DropRead, XdpLoss, XdpLossKind},
    ring_sockets::{RingKind, RingSocket},
};
use host::{
    Root,
    stack::{Counted, Link, LossClass, NicLosses, SocketKey, SocketKind, StackCounters, Verdict, XdpCount, XdpMode},
    symbols::KernelSymbols,
};
use sys::ethtool::Ethtool;

use crate::input::{Drop, Interface, NicLoss, QdiscDone, RuleLoss, SocketLoss, XdpDone, XdpFailure};

/// Subsystems of drop reasons share a total.
const SUBSYSTEMS: u32 = u32::MAX;

/// What is read beside the stack's own counters.
#[derive(Debug, Clone, Default)]
pub(crate) struct Machine {
    /// Packets lost at full backlogs by the flow limit, all CPUs.
    pub(crate) flow_limited: u64,
    /// Interfaces that stand on others.
    pub(crate) stacked: Vec<u32>,
    /// Virtual links that receive by NAPI.
    pub(crate) napi: Vec<u32>,
    /// Packets that may wait for answers to ARP.
    pub(crate) neighbour_room: u64,
}

/// A packet that waits for a neighbour takes at least so many bytes of the queue's room.
const LEAST_WAITING_BYTES: u64 = 512;

/// Neighbours that have not answered yet (flags 0 in /proc/net/arp), times the packets that may wait for each.
fn neighbour_room(root: &Root) -> u64 {
    let table = root.read("proc/net/arp").unwrap_or_default();
    let unanswered = table.lines().skip(1).filter(|l| l.split_ascii_whitespace().nth(2) == Some("0x0")).count() as u64;
    if unanswered == 0 {
        return 0;
    }
    let bytes = root.read_trimmed("proc/sys/net/ipv4/neigh/default/unres_qlen_bytes").ok();
    let bytes: u64 = bytes.and_then(|text| text.parse().ok()).unwrap_or(0);
    unanswered.saturating_mul(bytes / LEAST_WAITING_BYTES)
}

impl Machine {
    pub(crate) fn read(root: &Root, stack: &StackCounters) -> Self {
        let softnet = host::counters::softnet(&root.read("proc/net/softnet_stat").unwrap_or_default(), 0..u32::MAX);
        let stands_on = |name: &str| {
            root.list(&format!("sys/class/net/{name}")).is_ok_and(|names| names.iter().any(|n| n.starts_with("lower_")))
        };
        let mut ethtool = None;
        let mut gro = |name: &str| {
            let ethtool = match &mut ethtool {
                Some(ethtool) => ethtool,
                unopened => unopened.insert(Ethtool::open().ok()?),
            };
            ethtool.features(name).ok()??.iter().find(|f| f.name == "rx-gro").map(|f| f.on)
        };
        let links = || stack.links.iter();
        let native = |l: &Link| l.xdp.iter().any(|(mode, _)| *mode == XdpMode::Native);
        Self {
            flow_limited: softnet.values().map(|s| u64::from(s.flow_limited)).sum(),
            stacked: links().filter(|(_, l)| l.kind == "bridge" || stands_on(&l.name)).map(|(&i, _)| i).collect(),
            napi: links()
                .filter(|(_, l)| l.kind == "veth" && (native(l) || gro(&l.name) == Some(true)))
                .map(|(&i, _)| i)
                .collect(),
            neighbour_room: neighbour_room(root),
        }
    }
}

/// The interfaces of an interval: `stack` is a difference, `before` the reading at its beginning.
pub(crate) fn interfaces(
    stack: &StackCounters,
    before: &StackCounters,
    machine: &Machine,
    wanted: &BTreeMap<u32, String>,
) -> Vec<Interface> {
    let one = |(&index, link): (&u32, &Link)| {
        let nic = stack.nics.get(&index);
        let root = stack.qdiscs.iter().find(|(key, _)| key.ifindex == index && key.is_root());
        let ingress = stack.qdiscs.iter().filter(|(key, _)| key.ifindex == index && key.is_ingress());
        let native = link.xdp.iter().find(|(mode, _)| *mode != XdpMode::Generic);
        Interface {
            index,
            name: link.name.clone(),
            kind: if link.name == "lo" { "lo".into() } else { link.kind.clone() },
            chosen: wanted.is_empty() || wanted.contains_key(&index),
            stacked: machine.stacked.contains(&index),
            bridge_port: link.bridge_port.is_some(),
            napi: machine.napi.contains(&index),
            native_xdp: native.is_some(),
            stats: link.stats,
            nic: nic.map_or_else(Vec::new, nic_losses),
            xdp: nic.and_then(|n| xdp_done(n, native.map(|(_, id)| *id))),
            qdisc: root.map(|(key, q)| QdiscDone {
                kind: q.kind.clone(),
                drops: q.drops,
                waited: before.qdiscs.get(key).map_or(0, |q| q.queued_packets.into()),
                waits: q.queued_packets.into(),
            }),
            ingress_drops: ingress.map(|(_, q)| q.drops).sum(),
        }
    };
    stack.links.iter().map(one).collect()
}

fn nic_losses(nic: &NicLosses) -> Vec<NicLoss> {
    let counts = nic.losses.iter().filter(|l| l.counted != Counted::Pressure && l.packets > 0);
    let one = |l: &host::stack::NicLoss| NicLoss {
        queue: l.queue,
        words: match l.class {
            LossClass::Missed => "the NIC's own memory was full",
            LossClass::NoBuffer => "no free descriptor or memory",
            LossClass::Error => "damaged, or the device failed",
            LossClass::Other => "other limits of the driver",
        }
        .into(),
        counter: l.name.clone(),
        packets: l.packets,
        in_stats: l.counted == Counted::InLink,
        tx: l.tx,
    };
    counts.map(one).collect()
}

fn xdp_done(nic: &NicLosses, program: Option<u32>) -> Option<XdpDone> {
    let total = |what| nic.xdp_total(what).unwrap_or(0);
    nic.xdp_total(XdpCount::Drops)?;
    let (tx, errors) = (total(XdpCount::Tx), total(XdpCount::TxErrors));
    Some(XdpDone {
        dropped: total(XdpCount::Drops),
        // veth counts what was sent; the others what was to be.
        tx: if nic.driver == "veth" { tx } else { tx.saturating_sub(errors) },
        tx_errors: errors,
        redirected: total(XdpCount::Redirects),
        redirect_errors: total(XdpCount::RedirectErrors),
        program,
    })
}

/// Rules and policies that dropped, as far as they count.
pub(crate) fn rules(stack: &StackCounters) -> Vec<RuleLoss> {
    let Some(rules) = &stack.rules else { return Vec::new() };
    let hook = |chain| match rules.hooks(chain).as_slice() {
        [one] => (*one).to_owned(),
        _ => String::new(),
    };
    let counted = rules.rules.iter().filter(|(_, r)| r.exact && (r.verdict.loses() || r.verdict == Verdict::Synproxy));
    let by_rule = counted.map(|(key, rule)| RuleLoss {
        hook: hook(&key.chain),
        family: key.chain.family.clone(),
        chain: format!("{}/{}", key.chain.table, key.chain.chain),
        rule: if rule.text.is_empty() { format!("rule {}", key.handle) } else { rule.text.clone() },
        packets: rule.packets.unwrap_or(0),
        taken: rule.verdict == Verdict::Synproxy,
    });
    let policies = rules.chains.iter().filter(|(_, c)| c.policy_drop).filter_map(|(key, chain)| {
        Some(RuleLoss {
            hook: chain.hook.clone().unwrap_or_default(),
            family: key.family.clone(),
            chain: format!("{}/{}", key.table, key.chain),
            rule: "policy drop".into(),
            packets: chain.policy_packets?,
            taken: false,
        })
    });
    by_rule.chain(policies).filter(|r| r.packets > 0).collect()
}

/// What arrived of other protocols between two readings.
pub(crate) fn others(
    before: Option<&BTreeMap<u16, u64>>,
    now: Option<&BTreeMap<u16, u64>>,
) -> Option<BTreeMap<u16, u64>> {
    let before = before?;
    let since =
        |(ethertype, n): (&u16, &u64)| (*ethertype, n.saturating_sub(before.get(ethertype).copied().unwrap_or(0)));
    Some(now?.iter().map(since).collect())
}

/// Sockets that lost packets, or whose process may be the cause of a traced drop.
pub(crate) fn sockets(stack: &StackCounters, links: &BTreeMap<u32, Link>) -> Vec<SocketLoss> {
    let one = |(key, s): (&SocketKey, &host::stack::Socket)| {
        let on = links.get(&s.ifindex).map_or_else(|| "all interfaces".to_owned(), |l| l.name.clone());
        let local = s.local.map_or_else(String::new, |l| l.to_string());
        let what = match s.kind {
            SocketKind::Packet if s.packet.as_ref().is_some_and(|p| p.ring_version.is_some()) => {
                format!("AF_PACKET ring on {on}")
            }
            SocketKind::Packet => format!("AF_PACKET on {on}"),
            SocketKind::Udp => format!("UDP {local}"),
            SocketKind::Raw => format!("raw {local}"),
            SocketKind::Tcp | SocketKind::TcpListener => format!("TCP {local}"),
        };
        SocketLoss {
            cookie: match key {
                SocketKey::Cookie(cookie) => *cookie,
                SocketKey::Inode(_) => 0,
            },
            inode: s.inode,
            packet: s.kind == SocketKind::Packet,
            xdp: false,
            what,
            process: s.owner.as_ref().map(|o| format!("{}[{}]", o.comm, o.pid)),
            packets: s.drops,
        }
    };
    stack.sockets.iter().filter(|(_, s)| s.drops > 0 || s.owner.is_some()).map(one).collect()
}

/// What packet taps and AF_XDP sockets of this namespace lost between two readings. A counter that went back was asked for by
/// its owner and began anew.
pub(crate) fn rings(
    before: &[RingSocket],
    now: &[RingSocket],
    netns: u32,
    links: &BTreeMap<u32, Link>,
) -> Vec<SocketLoss> {
    let since = |now: u64, before: u64| if now >= before { now - before } else { now };
    let one = |s: &RingSocket| {
        let earlier = before.iter().find(|b| b.inode == s.inode);
        let on = links.get(&s.ifindex).map_or_else(|| "all interfaces".to_owned(), |l| l.name.clone());
        let lost = |s: &RingSocket| s.lost + s.receive_ring_full;
        SocketLoss {
            cookie: s.cookie,
            inode: u32::try_from(s.inode).unwrap_or(0),
            packet: s.kind != RingKind::Xdp,
            xdp: s.kind == RingKind::Xdp,
            what: match s.kind {
                RingKind::Packet => format!("AF_PACKET on {on}"),
                RingKind::PacketRing => format!("AF_PACKET ring on {on}"),
                RingKind::Xdp => format!("AF_XDP on {on} queue {}", s.queue),
            },
            process: Some(format!("{}[{}]", s.comm, s.pid)),
            packets: since(lost(s), earlier.map_or(0, lost)),
        }
    };
    now.iter().filter(|s| s.netns == netns).map(one).collect()
}

/// The drops of this namespace between two readings, scaled so that those of a reason add up to its exact total.
pub(crate) fn drops(before: &DropRead, now: &DropRead, netns: u32) -> Vec<DropCount> {
    let key =
        |d: &DropCount| (d.netns, d.ifindex, d.reason, d.location, d.protocol, d.socket, d.socket_inode, d.receiver);
    let earlier: BTreeMap<_, u64> = before.counts.iter().map(|d| (key(d), d.packets)).collect();
    let totals: BTreeMap<u32, u64> = before.by_reason.iter().copied().collect();
    let mut since: Vec<DropCount> = now.counts.clone();
    for drop in &mut since {
        drop.packets = drop.packets.saturating_sub(earlier.get(&key(drop)).copied().unwrap_or(0));
    }
    let mut attributed: BTreeMap<u32, u64> = BTreeMap::new();
    for drop in &since {
        *attributed.entry(drop.reason).or_default() += drop.packets;
    }
    for &(reason, total) in &now.by_reason {
        let exact = total.saturating_sub(totals.get(&reason).copied().unwrap_or(0));
        let looked_at = attributed.get(&reason).copied().unwrap_or(0);
        if reason != SUBSYSTEMS && looked_at > 0 && exact != looked_at {
            for drop in since.iter_mut().filter(|d| d.reason == reason) {
                drop.packets = (drop.packets as f64 * exact as f64 / looked_at as f64).round() as u64;
            }
        }
    }
    // Socket buffers of no interface and no protocol are messages within the machine (netlink, unix).
    since.retain(|d| d.packets > 0 && d.netns == netns && (d.ifindex != 0 || d.protocol != 0));
    since
}

/// Gives drops the names of their reasons and functions.
pub(crate) fn named(drops: &[DropCount], reasons: &DropReasons, mut symbols: Option<&mut KernelSymbols>) -> Vec<Drop> {
    let one = |d: &DropCount| Drop {
        reason: reasons.name(d.reason).into_owned(),
        function: symbols
            .as_mut()
            .and_then(|s| s.lookup_or_reload(d.location).map(|symbol| symbol.function().to_owned())),
        ifindex: d.ifindex,
        protocol: d.protocol,
        socket: d.socket,
        inode: u32::try_from(d.socket_inode).unwrap_or(0),
        packets: d.packets,
    };
    drops.iter().map(one).collect()
}

/// What XDP lost between two readings on the interfaces of this namespace.
pub(crate) fn xdp_losses(before: &DropRead, now: &DropRead, netns: u32, interfaces: &[Interface]) -> Vec<XdpFailure> {
    let same = |a: &XdpLoss, b: &XdpLoss| XdpLoss { frames: 0, ..*a } == XdpLoss { frames: 0, ..*b };
    let redirecting: Vec<u32> =
        interfaces.iter().filter(|i| i.xdp.is_some_and(|x| x.redirected > 0)).map(|i| i.index).collect();
    let mut failures: Vec<XdpFailure> = Vec::new();
    for loss in &now.xdp {
        let earlier = before.xdp.iter().find(|b| same(b, loss)).map_or(0, |b| b.frames);
        let packets = loss.frames.saturating_sub(earlier);
        let to_cpu = matches!(loss.kind, XdpLossKind::CpuQueueFull { .. } | XdpLossKind::CpuDropped { .. });
        // The CPU map does not tell where a frame came from: it is clear only where one interface redirects.
        let ifindex = match redirecting.as_slice() {
            [one] if to_cpu => *one,
            _ if to_cpu => continue,
            _ => loss.ifindex,
        };
        let sent_errors = || interfaces.iter().any(|i| i.index == ifindex && i.xdp.is_some_and(|x| x.tx_errors > 0));
        if packets == 0
            || (loss.netns != netns && !to_cpu)
            || (loss.kind == XdpLossKind::TransmitRefused && sent_errors())
        {
            continue;
        }
        let failure = failure(loss, ifindex, packets);
        let twin = failures
            .iter_mut()
            .find(|f| (f.ifindex, f.target, &f.words) == (failure.ifindex, failure.target, &failure.words));
        match twin {
            Some(twin) => twin.packets += packets,
            None => failures.push(failure),
        }
    }
    failures
}

fn failure(loss: &XdpLoss, ifindex: u32, packets: u64) -> XdpFailure {
    let why = loss.error().map_or_else(String::new, |e| format!(": {e}"));
    let verdict = |action| match action {
        0 => "aborted".to_owned(),
        3 => "transmit".to_owned(),
        4 => "redirect".to_owned(),
        other => format!("number {other}"),
    };
    let (words, tracepoint, target, after_redirect, among_dropped) = match loss.kind {
        XdpLossKind::Exception { action } => {
            (format!("XDP exception, verdict {}", verdict(action)), "xdp_exception", 0, false, !matches!(action, 3 | 4))
        }
        XdpLossKind::RedirectError { .. } => (format!("XDP redirect failed{why}"), "xdp_redirect_err", 0, false, false),
        XdpLossKind::DeviceRefused { ifindex } => {
            (format!("XDP redirect refused by the device{why}"), "xdp_devmap_xmit", ifindex, true, false)
        }
        XdpLossKind::TransmitRefused => (format!("sent back by XDP, refused{why}"), "xdp_bulk_tx", 0, false, false),
        XdpLossKind::CpuQueueFull { cpu, .. } => {
            (format!("XDP redirect to CPU {cpu}: its queue is full"), "xdp_cpumap_enqueue", 0, true, false)
        }
        XdpLossKind::CpuDropped { cpu, .. } => {
            (format!("XDP redirect to CPU {cpu}: dropped there"), "xdp_cpumap_kthread", 0, true, false)
        }
    };
    XdpFailure { ifindex, target, words, tracepoint: tracepoint.into(), after_redirect, among_dropped, packets }
}

#[cfg(test)]
mod stack_tests;
