//! Records of the kernel programs, as input of the arithmetic.

use std::collections::BTreeMap;

use bpf::{
    RingKind, RingSocket,
    drop_reasons::DropReasons,
    drops::{DropCount, DropDetail, DropRead, TraceCost, XdpLoss, XdpLossKind},
};
use host::{interface::Link, symbols::KernelSymbols};
use model::units;

use crate::{
    filter::Filter,
    input::{Detail, Drop, Interface, SocketLoss, XdpFailure},
    placing::was_sent,
};

/// Subsystems of drop reasons share a total; theirs begin here.
const SUBSYSTEMS: u32 = 256;
/// The verdict of a program.
const XDP_REDIRECT: u32 = 4;
/// Exceptions beyond the failed redirects are sampling noise up to this share.
const ECHO_SHARE: f64 = 0.05;

/// Losses of packet taps and AF_XDP sockets of this namespace between two readings. Where a counter went back, its owner read it, which resets it
/// ([`bpf::RingSockets::forgets`]), and both start anew.
pub(crate) fn rings(
    before: &[RingSocket],
    now: &[RingSocket],
    netns: u32,
    links: &BTreeMap<u32, Link>,
) -> Vec<SocketLoss> {
    let one = |s: &RingSocket| {
        let earlier = before.iter().find(|b| b.inode == s.inode);
        let on = links.get(&s.ifindex).map_or_else(|| "all interfaces".to_owned(), |l| l.name.clone());
        let lost = |s: &RingSocket| s.lost + s.receive_ring_full;
        let anew = earlier.is_some_and(|b| s.received < b.received || lost(s) < lost(b));
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
            packets: lost(s) - earlier.filter(|_| !anew).map_or(0, lost),
        }
    };
    now.iter().filter(|s| s.netns == netns).map(one).collect()
}

/// The drops of this namespace between two readings, scaled so that the looks at a reason stand for all drops of it. What the
/// looks found outside of what is traced, or had no room for, is in the scale and not in the drops.
pub(crate) fn drops(before: &DropRead, now: &DropRead, netns: u32) -> Vec<DropCount> {
    let key = |d: &DropCount| {
        (d.netns, d.ifindex, d.reason, d.location, d.protocol, d.socket, d.socket_inode, d.receiver, d.kind)
    };
    let earlier: BTreeMap<_, u64> = before.counts.iter().map(|d| (key(d), d.packets)).collect();
    let all = since(&before.by_reason, &now.by_reason);
    let looked_at = since(&before.looked_at, &now.looked_at);
    let mut drops: Vec<DropCount> = now.counts.clone();
    for drop in &mut drops {
        drop.packets = drop.packets.saturating_sub(earlier.get(&key(drop)).copied().unwrap_or(0));
        let reason = (all.get(&drop.reason), looked_at.get(&drop.reason));
        if let (Some(&all), Some(&looked_at)) = reason
            && drop.reason < SUBSYSTEMS
            && all != looked_at
            && looked_at > 0
        {
            drop.packets = (drop.packets as f64 * all as f64 / looked_at as f64).round() as u64;
        }
    }
    // Socket buffers of no interface and no protocol are messages within the machine (netlink, unix).
    drops.retain(|d| d.packets > 0 && d.netns == netns && (d.ifindex != 0 || d.protocol != 0));
    drops
}

fn since(before: &[(u32, u64)], now: &[(u32, u64)]) -> BTreeMap<u32, u64> {
    let before: BTreeMap<u32, u64> = before.iter().copied().collect();
    now.iter().map(|&(reason, n)| (reason, n.saturating_sub(before.get(&reason).copied().unwrap_or(0)))).collect()
}

/// Records that the trace had no room for between two readings, in words.
pub(crate) fn crowded(before: &DropRead, now: &DropRead) -> Option<String> {
    let grown = |get: fn(&TraceCost) -> u64| get(&now.cost).saturating_sub(get(&before.cost));
    let (nameless, lost) = (grown(|c| c.without_socket), grown(|c| c.untracked));
    let nameless = nameless.saturating_sub(lost);
    (nameless + lost > 0).then(|| {
        format!(
            "more kinds of drops than the trace tells apart: the socket of {} drops is not named, and {} have no cause",
            units::grouped(nameless),
            units::grouped(lost)
        )
    })
}

/// The names of reasons and functions.
pub(crate) struct Names {
    pub(crate) reasons: DropReasons,
    pub(crate) symbols: Option<KernelSymbols>,
}

impl Names {
    fn reason(&self, reason: u32) -> String {
        self.reasons.name(reason).into_owned()
    }

    fn function(&mut self, address: u64) -> Option<String> {
        Some(self.symbols.as_mut()?.lookup_or_reload(address)?.function().to_owned())
    }
}

/// Gives drops the names of their reasons and functions.
pub(crate) fn named(drops: &[DropCount], names: &mut Names) -> Vec<Drop> {
    let one = |d: &DropCount| Drop {
        reason: names.reason(d.reason),
        function: names.function(d.location),
        ifindex: d.ifindex,
        protocol: d.protocol,
        socket: d.socket,
        inode: u32::try_from(d.socket_inode).unwrap_or(0),
        kind: d.kind,
        last: d.last,
        packets: d.packets,
    };
    drops.iter().map(one).filter(|drop| !was_sent(drop)).collect()
}

/// Whose packets of this namespace were dropped between two readings, as far as the filter wants them.
pub(crate) fn details(
    before: &DropRead,
    now: &DropRead,
    netns: u32,
    filter: Option<&Filter>,
    names: &mut Names,
) -> Vec<Detail> {
    let key = |d: &DropDetail| (d.netns, d.ifindex, d.reason, d.location, d.protocol, d.kind, d.flow);
    let earlier: BTreeMap<_, u64> = before.details.iter().map(|d| (key(d), d.packets)).collect();
    let mut details = Vec::new();
    for detail in now.details.iter().filter(|d| d.netns == netns && (d.ifindex != 0 || d.protocol != 0)) {
        // Where it became less, another one had its room meanwhile.
        let before = earlier.get(&key(detail)).copied().filter(|&n| n <= detail.packets).unwrap_or(0);
        let wanted =
            filter.is_none_or(|f| f.matches(&detail.bytes, detail.link_header, detail.protocol, detail.length));
        if detail.packets == before || !wanted {
            continue;
        }
        let stack: Vec<String> =
            detail.stack.iter().map(|&a| names.function(a).unwrap_or_else(|| format!("{a:#x}"))).collect();
        let drop = Drop {
            reason: names.reason(detail.reason),
            function: names.function(detail.location),
            ifindex: detail.ifindex,
            protocol: detail.protocol,
            kind: detail.kind,
            last: detail.flow,
            packets: detail.packets - before,
            ..Drop::default()
        };
        if was_sent(&drop) {
            continue;
        }
        details.push(Detail {
            drop,
            bytes: detail.bytes.clone(),
            link_header: detail.link_header,
            length: detail.length,
            stack: without_tracing(stack),
        });
    }
    details
}

/// The functions of the tracing itself are innermost, and of no interest.
fn without_tracing(mut stack: Vec<String>) -> Vec<String> {
    const TRACING: [&str; 7] =
        ["bpf_", "__bpf_", "__traceiter", "trace_kfree_skb", "kfree_skb", "sk_skb_reason_drop", "__kfree_skb"];
    let own = stack.iter().take_while(|f| TRACING.iter().any(|t| f.starts_with(t))).count();
    stack.drain(..own);
    stack
}

/// Losses of XDP between two readings on the interfaces of this namespace.
/// `queues`: the interface whose frames go by a CPU map, by the map's number.
pub(crate) fn xdp_losses(
    before: &DropRead,
    now: &DropRead,
    netns: u32,
    interfaces: &[Interface],
    queues: &BTreeMap<u32, u32>,
) -> Vec<XdpFailure> {
    let same = |a: &XdpLoss, b: &XdpLoss| XdpLoss { frames: 0, ..*a } == XdpLoss { frames: 0, ..*b };
    let redirects = |i: &&Interface| i.xdp.routed.is_none() && i.xdp.done.is_some_and(|x| x.redirected > 0);
    let redirecting: Vec<u32> = interfaces.iter().filter(redirects).map(|i| i.index).collect();
    let mut failures: Vec<XdpFailure> = Vec::new();
    let earlier = |loss: &XdpLoss| before.xdp.iter().find(|b| same(b, loss)).map_or(0, |b| b.frames);
    let since = |loss: &XdpLoss| XdpLoss { frames: loss.frames.saturating_sub(earlier(loss)), ..*loss };
    let mut losses: Vec<XdpLoss> = now.xdp.iter().map(since).collect();
    leave_echoes_out(&mut losses);
    for loss in &losses {
        let packets = loss.frames;
        let to_cpu = match loss.kind {
            XdpLossKind::CpuQueueFull { map, .. }
            | XdpLossKind::CpuNoBuffer { map, .. }
            | XdpLossKind::CpuProgramDropped { map, .. } => Some(map),
            _ => None,
        };
        // The CPU map does not tell where a frame came from: it is clear where the map is known, or one interface redirects whose maps
        // are not. Others of this machine, in other network namespaces, have CPU maps too.
        let ifindex = match (to_cpu.map(|map| queues.get(&map)), redirecting.as_slice()) {
            (None, _) => loss.ifindex,
            (Some(Some(known)), _) => *known,
            (Some(None), [one]) => *one,
            (Some(None), _) => continue,
        };
        let to_cpu = to_cpu.is_some();
        let sent_errors =
            || interfaces.iter().any(|i| i.index == ifindex && i.xdp.done.is_some_and(|x| x.tx_errors > 0));
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

/// Some drivers (Intel's) raise an exception of the verdict for a redirect that failed, which has told of itself already. Sampling
/// leaves a little of the exceptions that means nothing.
fn leave_echoes_out(losses: &mut [XdpLoss]) {
    let place = |l: &XdpLoss| (l.program, l.netns, l.ifindex);
    let mut failed: BTreeMap<_, u64> = BTreeMap::new();
    for loss in losses.iter().filter(|l| matches!(l.kind, XdpLossKind::RedirectError { .. })) {
        *failed.entry(place(loss)).or_default() += loss.frames;
    }
    for loss in losses.iter_mut().filter(|l| l.kind == XdpLossKind::Exception { action: XDP_REDIRECT }) {
        let failed = failed.get(&place(loss)).copied().unwrap_or(0);
        let rest = loss.frames.saturating_sub(failed);
        loss.frames = if rest as f64 <= ECHO_SHARE * failed as f64 { 0 } else { rest };
    }
}

fn failure(loss: &XdpLoss, ifindex: u32, packets: u64) -> XdpFailure {
    let why = loss.error().map_or_else(String::new, |e| format!(": {e}"));
    let verdict = |action| match action {
        0 => "aborted".to_owned(),
        3 => "transmit".to_owned(),
        XDP_REDIRECT => "redirect".to_owned(),
        other => format!("number {other}"),
    };
    let (words, tracepoint, target, after_redirect, among_dropped) = match loss.kind {
        XdpLossKind::Exception { action } => (
            format!("XDP exception, verdict {}", verdict(action)),
            "xdp_exception",
            0,
            false,
            !matches!(action, 3 | XDP_REDIRECT),
        ),
        XdpLossKind::RedirectError { .. } => (format!("XDP redirect failed{why}"), "xdp_redirect_err", 0, false, false),
        XdpLossKind::DeviceRefused { ifindex } => {
            (format!("XDP redirect refused by the device{why}"), "xdp_devmap_xmit", ifindex, true, false)
        }
        XdpLossKind::TransmitRefused => (format!("sent back by XDP, refused{why}"), "xdp_bulk_tx", 0, false, false),
        XdpLossKind::CpuQueueFull { cpu, .. } => {
            (format!("XDP redirect to CPU {cpu}: its queue is full"), "xdp_cpumap_enqueue", 0, true, false)
        }
        XdpLossKind::CpuNoBuffer { cpu, .. } => {
            (format!("XDP redirect to CPU {cpu}: no memory there"), "xdp_cpumap_kthread", 0, true, false)
        }
        XdpLossKind::CpuProgramDropped { cpu, .. } => {
            (format!("dropped by the CPU map's program on CPU {cpu}"), "xdp_cpumap_kthread", 0, true, false)
        }
    };
    let before_cpu = matches!(loss.kind, XdpLossKind::CpuQueueFull { .. } | XdpLossKind::CpuNoBuffer { .. });
    let tracepoint = tracepoint.into();
    XdpFailure { ifindex, target, words, tracepoint, after_redirect, before_cpu, among_dropped, packets }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::input::{InterfaceXdp, Routed, XdpDone};

    fn ring(received: u64, lost: u64) -> RingSocket {
        RingSocket {
            kind: RingKind::PacketRing,
            inode: 7,
            cookie: 0,
            netns: 1,
            pid: 1,
            comm: "ek".into(),
            ifindex: 0,
            queue: 0,
            received,
            lost,
            receive_ring_full: 0,
            fill_ring_empty: 0,
        }
    }

    #[test]
    fn a_ring_that_began_anew_lost_what_it_shows() {
        let lost = |before, now| rings(&[before], &[now], 1, &BTreeMap::new())[0].packets;
        assert_eq!(lost(ring(100, 500), ring(200, 700)), 200);
        assert_eq!(lost(ring(100, 500), ring(90, 500)), 500);
        assert_eq!(lost(ring(100, 500), ring(100, 40)), 40);
    }

    fn drop(netns: u32, packets: u64) -> DropCount {
        DropCount {
            netns,
            ifindex: 1,
            reason: 3,
            location: 0,
            protocol: 0x0800,
            socket: 0,
            socket_inode: 0,
            receiver: false,
            kind: bpf::drops::DropKind::Other,
            last: None,
            packets,
            segments: packets,
            bytes: 0,
        }
    }

    #[test]
    fn what_had_no_room_is_not_added_to_what_had() {
        let read = |events, looked_at| DropRead {
            counts: vec![drop(1, 1)],
            by_reason: vec![(3, events)],
            looked_at: vec![(3, looked_at)],
            ..DropRead::default()
        };
        let packets = |now: &DropRead| drops(&DropRead::default(), now, 1).iter().map(|d| d.packets).sum::<u64>();
        assert_eq!(packets(&read(10_001, 10_001)), 1);
        // One in 64 is looked at, each look stands for 64; some are younger than the last look.
        assert_eq!(packets(&DropRead { counts: vec![drop(1, 640), drop(2, 6400)], ..read(7744, 7040) }), 704);
    }

    #[test]
    fn too_many_kinds_are_reported() {
        let cost = |without_socket, untracked| TraceCost { without_socket, untracked, ..TraceCost::default() };
        let read = |cost| DropRead { cost, ..DropRead::default() };
        assert_eq!(crowded(&read(cost(5, 1)), &read(cost(5, 1))), None);
        let words = crowded(&read(cost(5, 1)), &read(cost(1010, 6))).unwrap();
        assert!(words.contains("of 1 000 drops") && words.contains("and 5 have"), "{words}");
    }

    #[test]
    fn a_loss_on_the_way_to_a_cpu_belongs_to_the_interface_whose_map_it_is() {
        let full = |map| lost(XdpLossKind::CpuQueueFull { cpu: 1, map }, 0, 0, u64::from(map));
        let now = DropRead { xdp: vec![full(30), full(40)], ..DropRead::default() };
        let interface = |index, routed| Interface {
            index,
            xdp: InterfaceXdp {
                routed,
                done: Some(XdpDone { redirected: 9, ..XdpDone::default() }),
                ..InterfaceXdp::default()
            },
            ..Interface::default()
        };
        let of = |interfaces: &[Interface]| {
            let losses = xdp_losses(&DropRead::default(), &now, 1, interfaces, &BTreeMap::from([(30, 2)]));
            losses.iter().map(|loss| (loss.ifindex, loss.packets)).collect::<Vec<_>>()
        };
        let routed = Some(Routed::default());
        assert_eq!(of(&[interface(2, routed), interface(3, routed)]), [(2, 30)]);
        assert_eq!(of(&[interface(2, routed), interface(4, None)]), [(2, 30), (4, 40)]);
        assert_eq!(of(&[interface(4, None), interface(5, None)]), [(2, 30)]);
    }

    fn lost(kind: XdpLossKind, program: u32, errno: i32, frames: u64) -> XdpLoss {
        XdpLoss { kind, program, netns: 1, ifindex: 2, errno, frames }
    }

    #[test]
    fn a_failed_redirect_that_raises_an_exception_too_is_lost_once() {
        let error = XdpLossKind::RedirectError { map: 4, index: 0 };
        let exception = XdpLossKind::Exception { action: XDP_REDIRECT };
        let packets = |xdp: Vec<XdpLoss>| {
            let now = DropRead { xdp, ..DropRead::default() };
            xdp_losses(&DropRead::default(), &now, 1, &[], &BTreeMap::new()).iter().map(|f| f.packets).sum::<u64>()
        };
        let errors = || [lost(error, 9, 28, 600), lost(error, 9, 100, 400)];
        assert_eq!(packets(errors().into()), 1000);
        assert_eq!(packets([&errors()[..], &[lost(exception, 9, 0, 1000)]].concat()), 1000);
        assert_eq!(packets([&errors()[..], &[lost(exception, 9, 0, 1500)]].concat()), 1500);
        assert_eq!(packets([&errors()[..], &[lost(exception, 8, 0, 1000)]].concat()), 2000);
    }
}
