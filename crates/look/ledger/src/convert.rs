//! From what was read to the input of the arithmetic.

use std::collections::BTreeMap;

use host::{
    Root,
    interface::Link,
    neighbours::{self, NeighbourKey},
    stack::{
        Chain, ChainKey, Counted, LossClass, NicLosses, Rule, RuleKey, Rules, Socket, SocketKey, SocketKind,
        StackCounters, Verdict, XdpCount,
    },
};
use model::xdp::XdpMode;
use sys::ethtool::Ethtool;

use crate::input::{Interface, InterfaceXdp, NicLoss, QdiscDone, Room, RuleLoss, SocketLoss, XdpDone};

/// Files read beside the stack's own counters.
#[derive(Debug, Clone, Default)]
pub(crate) struct Machine {
    /// Packets lost at full backlogs by the flow limit, all CPUs.
    pub(crate) flow_limited: u64,
    /// Interfaces that stand on others.
    pub(crate) stacked: Vec<u32>,
    /// Virtual links that receive by NAPI.
    pub(crate) napi: Vec<u32>,
    pub(crate) room: Room,
}

/// A packet that waits for a neighbour takes at least so many bytes of the queue's room.
const LEAST_WAITING_BYTES: u64 = 512;

/// Neighbours that have not answered yet, times the packets that may wait for each.
fn neighbour_room(root: &Root, links: &BTreeMap<u32, Link>) -> u64 {
    let room = |(key, n): (NeighbourKey, u64)| {
        let name = &links.get(&key.ifindex)?.name;
        let family = if key.v6 { "ipv6" } else { "ipv4" };
        let bytes = root.read_trimmed(&format!("proc/sys/net/{family}/neigh/{name}/unres_qlen_bytes")).ok()?;
        Some(n.saturating_mul(bytes.parse::<u64>().ok()? / LEAST_WAITING_BYTES))
    };
    neighbours::unanswered().unwrap_or_default().into_iter().filter_map(room).sum()
}

/// A tun device counts a packet as sent when its program reads it; until then it waits in a ring of this length.
fn tun_room(root: &Root, links: &BTreeMap<u32, Link>) -> u64 {
    let room = |link: &Link| -> Option<u64> {
        let length = root.read_trimmed(&format!("sys/class/net/{}/tx_queue_len", link.name)).ok()?;
        let queues = root.list(&format!("sys/class/net/{}/queues", link.name)).ok()?;
        let queues = queues.iter().filter(|q| q.starts_with("tx-")).count() as u64;
        Some(length.parse::<u64>().ok()?.saturating_mul(queues))
    };
    links.values().filter(|l| l.kind == "tun").filter_map(room).sum()
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
            room: Room { neighbours: neighbour_room(root, &stack.links), tun: tun_room(root, &stack.links) },
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
            stats: link.stats,
            nic: nic.map_or_else(Vec::new, nic_losses),
            xdp: InterfaceXdp {
                native: native.is_some(),
                generic: link.xdp.iter().any(|(mode, _)| *mode == XdpMode::Generic),
                done: nic.and_then(|n| xdp_done(n, native.map(|(_, id)| *id))),
                ..InterfaceXdp::default()
            },
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
    // virtio_net counts what XDP dropped among the drops of the queue.
    let by_xdp = |l: &host::stack::NicLoss| match (nic.driver.as_str(), l.tx, l.counted, l.queue) {
        ("virtio_net", false, Counted::InLink, Some(queue)) => {
            nic.xdp.get(&queue).and_then(|counts| counts.get(&XdpCount::Drops)).copied().unwrap_or(0)
        }
        _ => 0,
    };
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
        packets: l.packets.saturating_sub(by_xdp(l)),
        in_stats: l.counted == Counted::InLink,
        tx: l.tx,
    };
    counts.map(one).filter(|l| l.packets > 0).collect()
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
        nested: nic.driver == "virtio_net",
    })
}

/// Rules and policies that dropped, as far as they count; and those that drop and do not count.
pub(crate) fn rules(stack: &StackCounters) -> (Vec<RuleLoss>, Vec<RuleLoss>) {
    let Some(rules) = &stack.rules else { return Default::default() };
    let hook = |chain: &ChainKey| match rules.hooks(chain).as_slice() {
        [one] => (*one).to_owned(),
        _ => String::new(),
    };
    let by_rule = |(key, rule): (&RuleKey, &Rule)| RuleLoss {
        hook: hook(&key.chain),
        family: key.chain.family.clone(),
        chain: format!("{}/{}", key.chain.table, key.chain.chain),
        rule: if rule.text.is_empty() { format!("rule {}", key.handle) } else { rule.text.clone() },
        packets: rule.packets.unwrap_or(0),
        taken: rule.verdict == Verdict::Synproxy,
    };
    let by_policy = |(key, chain): (&ChainKey, &Chain)| RuleLoss {
        hook: chain.hook.clone().unwrap_or_default(),
        family: key.family.clone(),
        chain: format!("{}/{}", key.table, key.chain),
        rule: "policy drop".into(),
        packets: chain.policy_packets.unwrap_or(0),
        taken: false,
    };
    let decides = |r: &Rule| r.verdict.loses() || r.verdict == Verdict::Synproxy;
    let counted = rules.rules.iter().filter(|(_, r)| r.exact && decides(r) && r.named.is_none()).map(by_rule);
    let counted = counted.chain(shared_counters(rules));
    let policies = || rules.chains.iter().filter(|(_, c)| c.policy_drop);
    let counted = counted.chain(policies().filter(|(_, c)| c.policy_packets.is_some()).map(by_policy));
    let uncounted = rules.rules.iter().filter(|(_, r)| !r.exact && r.verdict.loses()).map(by_rule);
    let uncounted = uncounted.chain(policies().filter(|(_, c)| c.policy_packets.is_none()).map(by_policy));
    (counted.filter(|r| r.packets > 0).collect(), uncounted.collect())
}

/// Rules that share a counter.
type Users<'a> = Vec<(&'a RuleKey, &'a Rule)>;

/// Drops of rules that share a named counter: one loss for each counter, with the comment that all of its rules have.
fn shared_counters(rules: &Rules) -> Vec<RuleLoss> {
    let mut users: BTreeMap<(&str, &str, &str), Users<'_>> = BTreeMap::new();
    for (key, rule) in &rules.rules {
        if let Some(name) = rule.named.as_deref().filter(|_| rule.exact) {
            users.entry((&key.chain.family, &key.chain.table, name)).or_default().push((key, rule));
        }
    }
    let one = |((family, table, name), users): (_, Users<'_>)| {
        let mut hooks: Vec<&str> = users.iter().flat_map(|(key, _)| rules.hooks(&key.chain)).collect();
        hooks.sort_unstable();
        hooks.dedup();
        let comment = |rule: &Rule| {
            let (_, rest) = rule.text.rsplit_once(" comment \"")?;
            rest.strip_suffix('"').map(str::to_owned)
        };
        let first = users.first().and_then(|(_, rule)| comment(rule));
        let first = first.filter(|f| users.iter().all(|(_, rule)| comment(rule).as_ref() == Some(f)));
        RuleLoss {
            hook: match hooks.as_slice() {
                [hook] => (*hook).to_owned(),
                _ => String::new(),
            },
            family: str::to_owned(family),
            chain: str::to_owned(table),
            rule: match first {
                Some(comment) => format!("{comment} (counter {name})"),
                None => format!("{} rules with the counter {name}", users.len()),
            },
            packets: users.first().and_then(|(_, rule)| rule.packets).unwrap_or(0),
            taken: false,
        }
    };
    users.into_iter().map(one).collect()
}

/// Arrivals of other protocols between two readings.
pub(crate) fn others(
    before: Option<&BTreeMap<u16, u64>>,
    now: Option<&BTreeMap<u16, u64>>,
) -> Option<BTreeMap<u16, u64>> {
    let before = before?;
    let since =
        |(ethertype, n): (&u16, &u64)| (*ethertype, n.saturating_sub(before.get(ethertype).copied().unwrap_or(0)));
    Some(now?.iter().map(since).collect())
}

/// Listeners whose queue of connections that wait to be accepted is full.
pub(crate) fn full_listeners(now: &StackCounters) -> Vec<SocketLoss> {
    let full = |s: &&Socket| s.kind == SocketKind::TcpListener && s.receive_queue > s.send_queue;
    let one = |s: &Socket| SocketLoss {
        inode: s.inode,
        what: format!(
            "TCP {}, {} wait, at most {} may",
            s.local.map_or_else(String::new, |l| l.to_string()),
            s.receive_queue,
            s.send_queue
        ),
        process: s.owner.as_ref().map(|o| format!("{}[{}]", o.comm, o.pid)),
        ..SocketLoss::default()
    };
    now.sockets.values().filter(full).map(one).collect()
}

/// Sockets that lost packets, or whose process may be the cause of a traced drop.
pub(crate) fn sockets(stack: &StackCounters, links: &BTreeMap<u32, Link>) -> Vec<SocketLoss> {
    let one = |(key, s): (&SocketKey, &Socket)| {
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

#[cfg(test)]
mod stack_tests;
