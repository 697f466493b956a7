//! The equations: what was offered, what was delivered by which way, and what no counter explains.

use model::stations::{Direction::Transmit, Entry, LossKind, Side};

use crate::{
    input::{Interface, Interval, Routed, XdpFailure},
    places::Stage,
    stations::Found,
};

/// The way of frames that this program's own router forwarded.
const ROUTED: &str = "forwarded by evenkeel's fast path";

/// Both directions of an interval.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Balance {
    /// From the wire to the socket or to the hand-over.
    pub receive: Side,
    /// From the sender or the hand-over to the wire.
    pub transmit: Side,
    /// Packets that passed each station: name, came in, went on.
    pub passed: Vec<(&'static str, u64, u64)>,
}

/// Sums over a list of losses. Packets that ended without a loss behind InDelivers were delivered; those before it stand in the equations as lost,
/// and in the books as delivered. Copies are no packets of the books.
struct Lost<'a>(Vec<&'a Found>);

impl Lost<'_> {
    fn at(&self, stage: Stage) -> i64 {
        self.0.iter().filter(|f| f.stage == Some(stage)).map(|f| f.loss.packets as i64).sum()
    }

    fn on(&self, stage: Stage, interface: &Interface) -> i64 {
        let here = |f: &&&Found| f.stage == Some(stage) && f.ifindex == interface.index;
        self.0.iter().filter(here).map(|f| f.loss.packets as i64).sum()
    }

    /// Losses between IP's two counters of local senders: by rules of the output hook.
    fn output(&self) -> i64 {
        let here = |f: &&&Found| f.stage == Some(Stage::Ip) && f.direction == Transmit;
        self.0.iter().filter(here).map(|f| f.loss.packets as i64).sum()
    }

    /// Losses at the postrouting hook, which lies before or behind IP's last counter.
    fn postrouting(&self) -> i64 {
        let here = |f: &&&Found| f.stage == Some(Stage::Postrouting);
        self.0.iter().filter(here).map(|f| f.loss.packets as i64).sum()
    }

    /// Drops of netfilter whose hook nobody told.
    fn unplaced(&self) -> i64 {
        self.0.iter().filter(|f| f.stage.is_none()).map(|f| f.loss.packets as i64).sum()
    }
}

/// Counters of IPv4 and IPv6 together.
struct Ip {
    received: i64,
    delivered: i64,
    requested: i64,
    transmitted: i64,
    fragments_joined: i64,
    /// Packets more by cutting some into fragments.
    fragments_made: i64,
    /// The counter of what leaves IP is that of Linux 6.7, behind the postrouting hook and after cutting. The estimate for older
    /// kernels stands before both.
    counted_last: bool,
    /// Packets that GRO may have joined to others at most: IP counts their segments by ECN field.
    joined_at_most: i64,
    /// Multicast and broadcast packets sent, which the kernel also hands to its own receivers.
    looped_at_most: i64,
}

impl Ip {
    fn of(interval: &Interval) -> Self {
        let p = &interval.protocols;
        let both = |name: &str| (p.get(&format!("Ip.{name}")) + p.get(&format!("Ip6.{name}"))) as i64;
        let segments = |group: &str| {
            ["InNoECTPkts", "InECT1Pkts", "InECT0Pkts", "InCEPkts"]
                .map(|n| p.get(&format!("{group}.{n}")))
                .iter()
                .sum::<u64>()
        };
        let joined = |group: &str, received: u64| segments(group).saturating_sub(received) as i64;
        // Kernels before 6.7 do not count what leaves IP; they count what is forwarded behind the hook, and with IPv4 as a request, too (ip_output in
        // net/ipv4/ip_output.c; IPv6 counts requests in ip6_xmit).
        let counted_last = p.all.contains_key("Ip.OutTransmits");
        let counted_twice = if counted_last { 0 } else { p.get("Ip.ForwDatagrams") as i64 };
        let requested = (both("OutRequests") - counted_twice).max(0);
        let transmitted = if counted_last {
            both("OutTransmits")
        } else {
            both("OutForwDatagrams") + p.get("Ip.ForwDatagrams") as i64 + requested
        };
        Self {
            received: both("InReceives"),
            delivered: both("InDelivers"),
            requested,
            transmitted,
            fragments_joined: both("ReasmReqds") - both("ReasmOKs"),
            fragments_made: both("FragCreates") - both("FragOKs"),
            counted_last,
            joined_at_most: joined("IpExt", p.get("Ip.InReceives")) + joined("Ip6", p.get("Ip6.InReceives")),
            looped_at_most: (p.get("IpExt.OutMcastPkts") + p.get("IpExt.OutBcastPkts") + p.get("Ip6.OutMcastPkts"))
                as i64,
        }
    }
}

fn entry(what: impl Into<String>, packets: i64, counter: impl Into<String>) -> Entry {
    Entry { what: what.into(), packets: packets.max(0) as u64, counter: counter.into(), handed_over: false }
}

fn handed(what: &str, packets: i64, counter: &str) -> Entry {
    Entry { handed_over: true, ..entry(what, packets, counter) }
}

pub fn balance(interval: &Interval, found: &[Found]) -> Balance {
    let early = |f: &&Found| f.loss.kind == LossKind::Harmless && f.stage != Some(Stage::Local);
    let lost = Lost(found.iter().filter(|f| f.loss.kind.is_loss() || early(f)).collect());
    let unwanted: i64 = found.iter().filter(early).map(|f| f.loss.packets as i64).sum();
    let ip = Ip::of(interval);
    let mut b = Balance::default();

    // The wire and the drivers.
    let mut to_ip = 0; // frames on their way to a protocol
    let mut to_bridge = 0;
    let (mut xdp_sent, mut xdp_redirected, mut routed) = (0, 0, 0);
    let (mut arrived, mut into_stack) = (0, 0);
    for i in &interval.interfaces {
        if i.stacked {
            // Frames that a bridge hands to its own host come back into the stack.
            if i.kind == "bridge" {
                to_ip += i.stats.rx_packets as i64;
                to_bridge -= i.stats.rx_packets as i64;
            }
            continue;
        }
        let received = i.stats.rx_packets as i64;
        let offered = received + lost.on(Stage::Wire, i);
        arrived += offered;
        offered_on(&mut b.receive.offered, i, offered);
        let (sent, redirected) = xdp_ways(i, interval);
        xdp_sent += sent;
        xdp_redirected += redirected;
        routed += routed_on(i, interval);
        let stack = received - lost.on(Stage::Driver, i) - sent - redirected;
        into_stack += stack;
        *(if i.bridge_port { &mut to_bridge } else { &mut to_ip }) += stack;
    }
    b.passed.push(("nic", arrived as u64, interval_rx(interval)));

    // From the drivers to a protocol. Losses of this stage on a bridge's ports belong to the bridge.
    let port_losses: i64 = interval.interfaces.iter().filter(|i| i.bridge_port).map(|i| lost.on(Stage::Link, i)).sum();
    let others: i64 = interval.others.iter().flatten().map(|(_, &n)| n as i64).sum();
    let mut link = to_ip - (lost.at(Stage::Link) - port_losses) - ip.received - others;
    let joined = link.clamp(0, ip.joined_at_most);
    let looped = (-link).clamp(0, ip.looped_at_most);
    link += looped - joined;

    // The bridge: what came in by a port goes up, is lost, or goes to other ports.
    let attempts = |i: &Interface| {
        let waits = i.qdisc.as_ref().map_or(0, |q| q.waits as i64 - q.waited as i64);
        i.stats.tx_packets as i64 + lost.on(Stage::Device, i) + waits
    };
    let ports_sent: i64 = interval.interfaces.iter().filter(|i| i.bridge_port).map(attempts).sum();
    let own: i64 = interval.interfaces.iter().filter(|i| i.kind == "bridge").map(|i| i.stats.tx_packets as i64).sum();
    let mut bridge = to_bridge - lost.at(Stage::Bridge) - port_losses;
    let bridged = bridge.clamp(0, (ports_sent - own).max(0));
    bridge -= bridged;

    // IP: both what arrived and what was made here goes in; what is delivered and transmitted comes out.
    let taken: i64 = interval.netfilter.rules.iter().filter(|r| r.taken).map(|r| r.packets as i64).sum();
    let kept_fragments = ip.fragments_joined - stage_of(found, "fragments");
    let joined_fragments = kept_fragments.max(0);
    let (cut_inside, cut_outside) = if ip.counted_last { (ip.fragments_made, 0) } else { (0, ip.fragments_made) };
    let (post_inside, post_outside) = if ip.counted_last { (lost.postrouting(), 0) } else { (0, lost.postrouting()) };
    let mut inner = ip.received + ip.requested + cut_inside
        - lost.at(Stage::Ip)
        - post_inside
        - taken
        - kept_fragments
        - ip.delivered
        - ip.transmitted;

    // The way out.
    let devices: i64 = interval.interfaces.iter().filter(|i| !i.stacked).map(attempts).sum();
    let on_stacked: i64 =
        interval.interfaces.iter().filter(|i| i.stacked).map(|i| lost.on(Stage::Device, i)).sum::<i64>();
    let reached = devices
        + on_stacked
        + lost
            .0
            .iter()
            .filter(|f| f.stage == Some(Stage::Device) && f.ifindex == 0)
            .map(|f| f.loss.packets as i64)
            .sum::<i64>();
    let known = ip.transmitted + cut_outside + bridged - lost.at(Stage::Out) - post_outside;
    let mut out = known - reached; // positive: missing; negative: sent past IP

    // Netfilter's drops of an unknown hook are where packets are missing.
    let mut unplaced = lost.unplaced();
    let mut place = |residual: &mut i64| {
        let part = unplaced.min((*residual).max(0));
        unplaced -= part;
        *residual -= part;
        part
    };
    place(&mut inner);
    place(&mut bridge);
    let unplaced_out = place(&mut out);
    place(&mut link);

    // What waits for an answer to ARP is seen by no counter, nor is what waited before and is given up now.
    let wait_neighbour = out.clamp(0, interval.room.neighbours as i64);
    let waited_neighbour = (-out).clamp(0, stage_of(found, "neighbour-failed"));
    out += waited_neighbour - wait_neighbour;
    let wait_tun = out.clamp(0, interval.room.tun as i64);
    out -= wait_tun;

    // What IP transmitted beyond what was made here was forwarded.
    let surviving = ip.requested - lost.output();
    let reached_hook = ip.transmitted - cut_inside + post_inside;
    let forwarded = (reached_hook - surviving).max(0);
    // Local packets that IP was asked to send and did not transmit were lost at the output hook, wherever they were counted.
    let unseen_output = (surviving - reached_hook).max(0);

    let past_ip = (-out).max(0);
    let redirect_handed = xdp_redirected.min(past_ip);
    let routed = routed.min(redirect_handed);
    let missing_out = out.max(0);
    // Generic XDP has no counter of what it sends back or redirects: what IP misses went past IP.
    let generic = interval.interfaces.iter().any(|i| i.xdp.generic);
    let generic_handed = if generic { link.clamp(0, past_ip - redirect_handed) } else { 0 };

    local(&mut b.receive.delivered, interval, &lost, &ip);
    let r = &mut b.receive;
    r.delivered.push(handed("forwarded by IP", forwarded, "OutTransmits - OutRequests"));
    r.delivered.push(handed("forwarded by a bridge", bridged, "ports' counters"));
    r.delivered.push(handed(ROUTED, routed, "`evenkeel route status`"));
    let other_redirects = redirect_handed - routed;
    r.delivered.push(handed("redirected by XDP to an interface", other_redirects, "the driver's xdp_redirect"));
    r.delivered.push(handed("sent back or redirected by generic XDP", generic_handed, "worked out"));
    r.delivered.push(entry(
        "redirected by XDP (AF_XDP, other CPUs)",
        xdp_redirected - redirect_handed,
        "the driver's xdp_redirect",
    ));
    r.delivered.push(entry("sent back by XDP", xdp_sent, "the driver's xdp_tx"));
    r.delivered.push(entry("taken by synproxy", taken, "counter of the rule"));
    let of_others = r.delivered.len();
    for (ethertype, &packets) in interval.others.iter().flatten() {
        r.delivered.push(entry(protocol_name(*ethertype), packets as i64, "counted by a socket of this program"));
    }
    // The sockets of this program have counted them.
    let refused = take(&mut r.delivered[of_others..], lost.at(Stage::Other));
    take(&mut r.delivered, refused);
    r.delivered.push(entry("joined to others by GRO", joined, "In*ECT*Pkts, InReceives"));
    r.delivered.push(entry("fragments joined, or waiting for the rest", joined_fragments, "ReasmReqds - ReasmOKs"));
    r.offered.push(entry("fragments that waited since before", -kept_fragments, "ReasmReqds - ReasmOKs"));
    r.offered.push(entry("own multicast and broadcast, heard here", looped, "OutMcastPkts, OutBcastPkts"));
    let received_ip = lost.at(Stage::Ip) - lost.output() - unseen_output;
    let stages = [Stage::Wire, Stage::Driver, Stage::Link, Stage::Bridge, Stage::Local, Stage::Other];
    let before = (lost.at(Stage::Local) - ip.delivered).max(0);
    r.offered.push(entry("delivered before, lost now", before, "see the sockets"));
    let sum: i64 = stages.iter().map(|&s| lost.at(s)).sum();
    r.delivered.push(entry("not for this host", unwanted, "see what ended without a loss"));
    r.lost = (sum + received_ip + lost.unplaced() - unplaced_out - unwanted).max(0) as u64;

    let t = &mut b.transmit;
    t.offered.push(entry("sent by programs and the kernel through IP", ip.requested, "OutRequests"));
    t.offered.push(handed("forwarded by IP", forwarded, "OutTransmits - OutRequests"));
    t.offered.push(handed("forwarded by a bridge", bridged, "ports' counters"));
    t.offered.push(handed(ROUTED, routed, "`evenkeel route status`"));
    t.offered.push(handed("redirected by XDP", other_redirects, "the driver's xdp_redirect"));
    t.offered.push(handed("sent back or redirected by generic XDP", generic_handed, "worked out"));
    let what = "sent without IP (ARP, packet sockets, AF_XDP, copies), or made by segmentation";
    t.offered.push(entry(what, past_ip - redirect_handed - generic_handed, "the interfaces' counters less IP's"));
    t.offered.push(entry("waited for a neighbour since before", waited_neighbour, "worked out"));
    t.waiting.push(entry("waiting for a neighbour's answer", wait_neighbour, "worked out; `ip neigh` shows it"));
    t.waiting.push(entry("waiting for the program behind a tun device", wait_tun, "worked out"));
    t.offered.push(entry("fragments made on the way", ip.fragments_made, "FragCreates - FragOKs"));
    let mut waiting = 0;
    for i in interval.interfaces.iter().filter(|i| !i.stacked) {
        left_by(&mut t.delivered, i, i.stats.tx_packets as i64);
        waiting += attempts(i) - lost.on(Stage::Device, i) - i.stats.tx_packets as i64;
    }
    t.waiting.push(entry("waiting in a queue", waiting, "backlog of the qdiscs"));
    t.offered.push(entry("waited in a queue since before", -waiting, "backlog of the qdiscs"));
    t.lost = (lost.output()
        + unseen_output
        + lost.at(Stage::Out)
        + lost.postrouting()
        + lost.at(Stage::Device)
        + unplaced_out)
        .max(0) as u64;
    t.unexplained = missing_out;

    for side in [&mut b.receive, &mut b.transmit] {
        side.offered.retain(|e| e.packets > 0);
        side.delivered.retain(|e| e.packets > 0);
        side.waiting.retain(|e| e.packets > 0);
    }
    b.receive.unexplained = rest(&b.receive);
    b.transmit.unexplained = rest(&b.transmit);
    b.passed.push(("xdp", interval_rx(interval), into_stack.max(0) as u64));
    b.passed.push(("ip", ip.received.max(0) as u64, (ip.delivered + forwarded).max(0) as u64));
    b.passed.push(("transmit", reached.max(0) as u64, b.transmit.delivered_packets()));
    b
}

/// Packets offered that are neither delivered nor lost nor waiting.
fn rest(side: &Side) -> i64 {
    let known = side.delivered_packets() + side.waiting_packets() + side.lost;
    side.offered_packets() as i64 - known as i64
}

fn interval_rx(interval: &Interval) -> u64 {
    interval.interfaces.iter().filter(|i| !i.stacked).map(|i| i.stats.rx_packets).sum()
}

fn offered_on(entries: &mut Vec<Entry>, interface: &Interface, packets: i64) {
    add(entries, interface, packets, "arrived on", "rx_packets and losses before it");
}

fn left_by(entries: &mut Vec<Entry>, interface: &Interface, packets: i64) {
    add(entries, interface, packets, "left by", "tx_packets");
}

/// An entry per interface that was asked for, and one for all others.
fn add(entries: &mut Vec<Entry>, interface: &Interface, packets: i64, verb: &str, counter: &str) {
    let name = if interface.chosen { interface.name.as_str() } else { "other interfaces" };
    let what = format!("{verb} {name}");
    match entries.iter_mut().find(|e| e.what == what) {
        Some(same) => same.packets += packets.max(0) as u64,
        None => entries.push(entry(what, packets, counter)),
    }
}

/// Frames of an interface's XDP program that were lost in a certain way.
fn xdp_lost(interface: &Interface, interval: &Interval, lost: impl Fn(&XdpFailure) -> bool) -> u64 {
    interval.trace.xdp_losses.iter().filter(|f| f.ifindex == interface.index && lost(f)).map(|f| f.packets).sum()
}

/// Frames that the fast path forwarded and that the way out took.
fn routed_on(interface: &Interface, interval: &Interval) -> i64 {
    let failed =
        |f: &XdpFailure| (f.after_redirect && !f.before_cpu) || f.tracepoint == "xdp_redirect_err" || f.among_dropped;
    let forwarded = interface.xdp.routed.map_or(0, |routed| routed.forwarded);
    forwarded.saturating_sub(xdp_lost(interface, interval, failed)) as i64
}

/// Frames that the fast path handed to another CPU, and that went up to the kernel there: the driver has counted them as redirected.
fn came_back(interface: &Interface, interval: &Interval) -> u64 {
    let Some(Routed { forwarded, handed }) = interface.xdp.routed else { return 0 };
    handed.saturating_sub(forwarded + xdp_lost(interface, interval, |f| f.before_cpu))
}

/// Frames that an interface's XDP program sent back, and that it redirected, less those that were lost on that way.
fn xdp_ways(interface: &Interface, interval: &Interval) -> (i64, i64) {
    // Where the driver does not count, or not what a program behind it does, the fast path does.
    let done = interface.xdp.done.filter(|_| interface.xdp.routed.is_none() || !interface.xdp.generic);
    let Some(done) = done else { return (0, routed_on(interface, interval)) };
    let at_once = |tracepoint: &str| match done.nested {
        true => xdp_lost(interface, interval, |f| !f.after_redirect && !f.among_dropped && f.tracepoint == tracepoint),
        false => 0,
    };
    let failed = xdp_lost(interface, interval, |f| f.after_redirect)
        + at_once("xdp_redirect_err")
        + came_back(interface, interval);
    (done.tx.saturating_sub(at_once("xdp_exception")) as i64, done.redirected.saturating_sub(failed) as i64)
}

fn stage_of(found: &[Found], id: &str) -> i64 {
    let words = crate::places::place(id).words;
    found.iter().filter(|f| f.loss.place == words).map(|f| f.loss.packets as i64).sum()
}

fn protocol_name(ethertype: u16) -> String {
    match ethertype {
        0x0806 => "ARP".into(),
        0x0004 => "802.2 (spanning tree and the like)".into(),
        other => format!("protocol {other:#06x}"),
    }
}

/// Takes `packets` out of the largest entries; what is left.
fn take(entries: &mut [Entry], mut packets: i64) -> i64 {
    while packets > 0 {
        let Some(most) =
            entries.iter_mut().filter(|e| !e.handed_over).max_by_key(|e| e.packets).filter(|e| e.packets > 0)
        else {
            return packets;
        };
        let part = packets.min(most.packets as i64);
        most.packets -= part as u64;
        packets -= part;
    }
    0
}

/// The ways to a socket. IP counts the delivery, then the protocols may still lose it.
fn local(entries: &mut Vec<Entry>, interval: &Interval, lost: &Lost<'_>, ip: &Ip) {
    let p = &interval.protocols;
    let of = |station: &str| -> i64 {
        lost.0
            .iter()
            .filter(|f| f.station == station && f.stage == Some(Stage::Local))
            .map(|f| f.loss.packets as i64)
            .sum()
    };
    let mut left = (ip.delivered - lost.at(Stage::Local)).max(0);
    let mut way = |what: &str, packets: i64, counter: &str| {
        let packets = packets.clamp(0, left);
        left -= packets;
        entries.push(entry(what, packets, counter));
    };
    way("TCP", p.get("Tcp.InSegs") as i64 - of("tcp"), "InSegs less losses");
    way("ICMP", (p.get("Icmp.InMsgs") + p.get("Icmp6.InMsgs")) as i64 - of("icmp"), "InMsgs less losses");
    way("UDP, read by programs", (p.get("Udp.InDatagrams") + p.get("Udp6.InDatagrams")) as i64, "InDatagrams");
    way("UDP waiting to be read, other IP protocols", i64::MAX, "InDelivers less the others");
}
