//! What was lost where: every loss once, from its counter where there is one, with the causes that were traced.

use std::collections::BTreeMap;

use host::counters::LinkStats;
use model::stations::{
    Cause,
    Direction::{self, Forward, Receive, Transmit},
    StationLoss,
};

use crate::{
    input::{Drop, Interface, Interval, RuleLoss, SocketLoss, XdpFailure},
    places::{HOLDS, PLACES, Place, Stage, UNNAMED, place, place_of},
};

/// Counters and trace may differ by this share before that is said: they are not read in the same instant.
const EDGE_SHARE: f64 = 0.005;
/// And by so many packets.
const EDGE_PACKETS: f64 = 16.0;
/// More causes than this are not worth a line.
const MOST_CAUSES: usize = 6;

/// A loss and where it belongs.
#[derive(Debug, Clone, PartialEq)]
pub struct Found {
    /// The station.
    pub station: &'static str,
    /// The way it lies on.
    pub direction: Direction,
    /// Which equation it is in; none: netfilter drops of an unknown hook.
    pub stage: Option<Stage>,
    /// The interface it is bound to; 0 for none.
    pub ifindex: u32,
    /// The loss itself.
    pub loss: StationLoss,
}

/// The drops that the trace told, by place.
struct Traced<'a> {
    by_place: BTreeMap<&'static str, Vec<&'a Drop>>,
    ran: bool,
    precision: f64,
    interval: &'a Interval,
}

impl<'a> Traced<'a> {
    fn new(interval: &'a Interval) -> Self {
        let mut by_place: BTreeMap<&'static str, Vec<&'a Drop>> = BTreeMap::new();
        for drop in interval.drops.iter().flatten() {
            by_place.entry(place_of(&drop.reason, drop.function.as_deref()).id).or_default().push(drop);
        }
        Self { by_place, ran: interval.drops.is_some(), precision: interval.precision, interval }
    }

    /// The drops of a place, on one interface if that is not 0.
    fn at(&self, id: &str, ifindex: u32) -> Vec<&'a Drop> {
        let all = self.by_place.get(id).map_or(&[][..], Vec::as_slice);
        all.iter().copied().filter(|d| ifindex == 0 || d.ifindex == ifindex).collect()
    }

    fn sum(&self, id: &str, ifindex: u32) -> u64 {
        packets(&self.at(id, ifindex))
    }

    /// How far counter and trace may be apart.
    fn tolerance(&self, of: u64) -> f64 {
        let of = of as f64;
        // The fewer of all drops a place has, the fewer of its own were looked at.
        let sampled = if self.interval.weight > 1.0 { 1.96 * (of * self.interval.weight).sqrt() } else { 0.0 };
        EDGE_PACKETS + of * EDGE_SHARE + sampled.max(of * self.precision)
    }

    /// A loss out of a counter (none: there is none) and the drops that were traced of it.
    fn loss(
        &self,
        words: String,
        counter: Option<(String, u64)>,
        drops: &[&Drop],
        expects: bool,
        advice: &str,
    ) -> StationLoss {
        let traced = packets(drops);
        let counted = counter.as_ref().map_or(0, |(_, n)| *n);
        let tolerance = self.tolerance(counted.max(traced));
        let over = counter.is_none() || (traced as f64) > counted as f64 + tolerance;
        let apart = (counted as f64 - traced as f64).abs() > tolerance;
        let comparable = self.ran && expects && counted > 0;
        StationLoss {
            place: words,
            packets: if over { traced } else { counted },
            counter: match counter {
                Some((name, n)) if n > 0 || !over => name,
                _ => "traced".into(),
            },
            traced_only: over && counted == 0,
            traced: (self.ran && expects).then_some(traced),
            agrees: !(comparable && apart),
            causes: self.causes(drops),
            advice: (!advice.is_empty()).then(|| advice.to_owned()),
            ..StationLoss::default()
        }
    }

    fn causes(&self, drops: &[&Drop]) -> Vec<Cause> {
        let mut causes: Vec<Cause> = Vec::new();
        for drop in drops.iter().filter(|d| d.packets > 0) {
            let cause = Cause {
                reason: drop.reason.clone(),
                function: drop.function.clone(),
                interface: self.interval.interfaces.iter().find(|i| i.index == drop.ifindex).map(|i| i.name.clone()),
                protocol: protocol(drop.protocol),
                process: self.process(drop),
                packets: 0,
            };
            match causes.iter_mut().find(|c| Cause { packets: 0, ..(*c).clone() } == cause) {
                Some(same) => same.packets += drop.packets,
                None => causes.push(Cause { packets: drop.packets, ..cause }),
            }
        }
        causes.sort_by_key(|c| std::cmp::Reverse(c.packets));
        causes.truncate(MOST_CAUSES);
        causes
    }

    fn process(&self, drop: &Drop) -> Option<String> {
        let same = |s: &&SocketLoss| {
            (drop.socket != 0 && s.cookie == drop.socket) || (drop.inode != 0 && s.inode == drop.inode)
        };
        self.interval.sockets.iter().find(same).and_then(|s| s.process.clone())
    }
}

fn packets(drops: &[&Drop]) -> u64 {
    drops.iter().map(|d| d.packets).sum()
}

fn protocol(ethertype: u16) -> Option<String> {
    Some(match ethertype {
        0 => return None,
        0x0800 => "IPv4".into(),
        0x86dd => "IPv6".into(),
        0x0806 => "ARP".into(),
        other => format!("{other:#06x}"),
    })
}

/// Every loss of the interval, in the order in which a packet meets the stations.
pub fn losses(interval: &Interval) -> Vec<Found> {
    let traced = Traced::new(interval);
    let mut found = Vec::new();
    for interface in interval.interfaces.iter().filter(|i| !i.stacked) {
        nic(interface, &traced, &mut found);
        xdp(interface, &traced, &mut found);
    }
    for p in PLACES {
        match p.id {
            "xdp-native" => {} // see xdp()
            "veth-ring" => veth_ring(p, &traced, &mut found),
            "backlog" => backlog(p, &traced, &mut found),
            "tap" => taps(p, &traced, &mut found),
            "conntrack" => conntrack(p, interval, &mut found),
            "netfilter" => netfilter(p, &traced, &mut found),
            "qdisc" | "device" => by_interface(p, &traced, &mut found),
            _ => simple(p, &traced, &mut found),
        }
    }
    simple(UNNAMED, &traced, &mut found);
    found.retain(|f| f.loss.packets > 0);
    found
}

fn push(found: &mut Vec<Found>, p: &Place, stage: Option<Stage>, ifindex: u32, loss: StationLoss) {
    found.push(Found { station: p.station, direction: p.direction, stage, ifindex, loss });
}

/// Whether the trace sees what the counters of a place count. A listener without room counts connection requests that the kernel
/// then frees without a word.
fn comparable(p: &Place) -> bool {
    !p.reasons.is_empty() && p.id != "listen-overflow"
}

/// A place whose counters are the protocols' or which has none.
fn simple(p: &'static Place, traced: &Traced<'_>, found: &mut Vec<Found>) {
    let interval = traced.interval;
    let mut names: Vec<&str> = Vec::new();
    let mut counted = 0;
    for &name in p.counters {
        let n = match name {
            "link.rx_otherhost_dropped" => interval.interfaces.iter().map(|i| i.stats.rx_otherhost_dropped).sum(),
            _ => interval.protocols.get(name),
        };
        if n > 0 {
            names.push(name.trim_start_matches("link."));
        }
        counted += n;
    }
    let mut words = p.words;
    let held = HOLDS.iter().find(|(id, _)| *id == p.id).map_or(&[][..], |(_, held)| held);
    for id in held {
        counted -=
            found.iter().filter(|f| f.loss.place == place(id).words).map(|f| f.loss.packets).sum::<u64>().min(counted);
    }
    if p.id == "ttl" {
        return ttl(p, traced, found);
    }
    if p.id == "ip-header" && !traced.ran {
        words = "bad IP header, or TTL expired";
    }
    let counter = match p.id {
        "tc-ingress" => {
            Some(("drops of the ingress qdisc".to_owned(), interval.interfaces.iter().map(|i| i.ingress_drops).sum()))
        }
        "unhandled" if !traced.ran => {
            Some(("rx_nohandler".to_owned(), interval.interfaces.iter().map(|i| i.stats.rx_nohandler).sum()))
        }
        _ => (!p.counters.is_empty()).then(|| (names.join(" + "), counted)),
    };
    let mut loss = traced.loss(words.to_owned(), counter, &traced.at(p.id, 0), comparable(p), p.advice);
    if p.id == "udp-buffer" && loss.causes.is_empty() {
        // Without the trace the sockets themselves tell.
        let lost = interval.sockets.iter().filter(|s| !s.packet && !s.xdp && s.packets > 0);
        loss.causes.extend(lost.map(|s| Cause {
            reason: s.what.clone(),
            process: s.process.clone(),
            packets: s.packets,
            ..Cause::default()
        }));
        loss.causes.sort_by_key(|c| std::cmp::Reverse(c.packets));
        loss.causes.truncate(MOST_CAUSES);
    }
    push(found, p, Some(p.stage), 0, loss);
}

/// The counter of bad headers holds expired TTLs as well; the trace tells the two apart.
fn ttl(p: &'static Place, traced: &Traced<'_>, found: &mut Vec<Found>) {
    let protocols = &traced.interval.protocols;
    let headers = place("ip-header").counters.iter().map(|name| protocols.get(name)).sum::<u64>();
    let headers = headers.saturating_sub(protocols.get("IpExt.InCsumErrors"));
    let drops = traced.at(p.id, 0);
    let (expired, bad) = (packets(&drops), traced.sum("ip-header", 0));
    let share = if expired == 0 { 0.0 } else { expired as f64 / (expired + bad) as f64 };
    let counter = Some(("InHdrErrors, split by the trace".to_owned(), (headers as f64 * share).round() as u64));
    push(found, p, Some(p.stage), 0, traced.loss(p.words.to_owned(), counter, &drops, true, p.advice));
}

/// Words, counter, how to get it, advice.
type NicRow = (&'static str, &'static str, fn(&LinkStats) -> u64, &'static str);

const SLOW: &str =
    "The core behind this queue is too slow, or the ring too short: `evenkeel spread`, `ethtool -G IFACE rx N`.";
const WIRE: &str = "Damaged before it arrived: cable, optics, duplex or MTU; `ethtool -S IFACE`.";

const NIC: [NicRow; 6] = [
    ("damaged on the wire", "rx_crc_errors", |s| s.rx_crc_errors, WIRE),
    ("badly framed", "rx_frame_errors", |s| s.rx_frame_errors, WIRE),
    ("wrong length", "rx_length_errors", |s| s.rx_length_errors, WIRE),
    ("overrun in the NIC", "rx_over_errors", |s| s.rx_over_errors, SLOW),
    ("NIC's FIFO full", "rx_fifo_errors", |s| s.rx_fifo_errors, SLOW),
    ("no free descriptor in the ring", "rx_missed_errors", |s| s.rx_missed_errors, SLOW),
];

fn nic(interface: &Interface, traced: &Traced<'_>, found: &mut Vec<Found>) {
    let s = &interface.stats;
    let mut row = |words: &str, counter: String, packets: u64, stage: Stage, advice: &str| {
        let causes = interface.nic.iter().filter(|l| l.in_stats && !l.tx && l.packets > 0).map(|l| Cause {
            reason: l.words.clone(),
            function: Some(l.counter.clone()),
            interface: Some(match l.queue {
                Some(queue) => format!("{} queue {queue}", interface.name),
                None => interface.name.clone(),
            }),
            packets: l.packets,
            ..Cause::default()
        });
        let loss = StationLoss {
            place: format!("{}: {words}", interface.name),
            packets,
            counter,
            agrees: true,
            causes: if advice == WIRE { Vec::new() } else { causes.collect() },
            advice: Some(advice.to_owned()),
            ..StationLoss::default()
        };
        found.push(Found { station: "nic", direction: Receive, stage: Some(stage), ifindex: interface.index, loss });
    };
    let mut kinds = 0;
    for (words, counter, get, advice) in NIC {
        if counter != "rx_missed_errors" {
            kinds += get(s);
        }
        row(words, counter.to_owned(), get(s), Stage::Wire, advice);
    }
    row("damaged otherwise", "rx_errors".to_owned(), s.rx_errors.saturating_sub(kinds), Stage::Wire, WIRE);
    for loss in interface.nic.iter().filter(|l| !l.in_stats && !l.tx) {
        let queue = loss.queue.map_or_else(String::new, |q| format!(" (queue {q})"));
        row(&format!("{}{queue}", loss.words), loss.counter.clone(), loss.packets, Stage::Wire, SLOW);
    }
    let advice = "`ethtool -S` of the interface tells more.";
    let dropped = driver_drops(interface, traced);
    if interface.kind == "veth" {
        // A veth counts here what it lost of what it had taken, and what the other end's XDP sent and found no room.
        let taken: u64 = interface.nic.iter().filter(|l| l.in_stats && !l.tx).map(|l| l.packets).sum();
        let inside = taken.saturating_sub(traced_xdp(interface, traced)).min(dropped);
        row("driver", "rx_dropped".to_owned(), inside, Stage::Driver, advice);
        let words = "receive ring of the veth full, sent there by XDP";
        row(words, "rx_dropped".to_owned(), dropped - inside, Stage::Wire, place("veth-ring").advice);
    } else {
        let words = if traced.ran { "driver" } else { "driver or stack" };
        let stage = if interface.xdp.is_some_and(|x| x.nested) { Stage::Driver } else { Stage::Wire };
        row(words, "rx_dropped".to_owned(), dropped, stage, advice);
    }
}

/// Frames that XDP lost before the driver counted them as sent or redirected, as its tracepoints tell.
fn traced_xdp(interface: &Interface, traced: &Traced<'_>) -> u64 {
    failures(interface, traced).filter(|f| !f.after_redirect && !f.among_dropped).map(|f| f.packets).sum()
}

/// What of `rx_dropped` the driver lost itself: not the stack behind it, nor XDP.
fn driver_drops(interface: &Interface, traced: &Traced<'_>) -> u64 {
    let stack = traced.sum("backlog", interface.index) + traced.sum("unhandled", interface.index);
    let xdp = match interface.xdp {
        Some(done) if done.nested => done.dropped,
        _ => traced_xdp(interface, traced),
    };
    let counted_apart = interface.xdp.map_or(0, |x| x.redirect_errors);
    if counts_by_backlog(interface) {
        return 0; // its rx_dropped is the backlog's
    }
    let rest = interface.stats.rx_dropped.saturating_sub(stack + xdp.saturating_sub(counted_apart));
    // Readings at different moments and samples leave a little that means nothing.
    if (rest as f64) <= traced.tolerance(stack + xdp) && stack + xdp > 0 { 0 } else { rest }
}

/// Whether the interface hands its packets to a backlog and counts them only if there is room.
fn counts_by_backlog(interface: &Interface) -> bool {
    interface.kind == "lo" || (interface.kind == "veth" && !interface.napi)
}

fn failures<'a>(interface: &'a Interface, traced: &Traced<'a>) -> impl Iterator<Item = &'a XdpFailure> {
    traced.interval.xdp_losses.iter().filter(|f| f.ifindex == interface.index)
}

fn xdp(interface: &Interface, traced: &Traced<'_>, found: &mut Vec<Found>) {
    // The trace sees what a driver dropped on a program's verdict; where the driver counts it, that is the number.
    let verdicts = traced.at("xdp-native", interface.index);
    if interface.xdp.is_none() {
        let p = place("xdp-native");
        let words = format!("{}: {}", interface.name, p.words);
        push(found, p, Some(p.stage), interface.index, traced.loss(words, None, &verdicts, true, p.advice));
    }
    let mut row = row_of(interface, found);
    if let Some(done) = interface.xdp {
        let program = done.program.map_or_else(String::new, |id| format!(" {id}"));
        let exceptions = failures(interface, traced).filter(|f| f.among_dropped).map(|f| Cause {
            reason: f.words.clone(),
            function: Some(f.tracepoint.clone()),
            interface: Some(interface.name.clone()),
            packets: f.packets,
            ..Cause::default()
        });
        let of = done.program.map_or_else(String::new, |id| format!(" id {id}"));
        let aborted = failures(interface, traced).any(|f| f.among_dropped);
        let words = format!("dropped by the XDP program{program}");
        let failed = if done.nested { traced_xdp(interface, traced) } else { 0 };
        row(
            words,
            "the driver's xdp_drops".into(),
            done.dropped.saturating_sub(failed),
            exceptions.collect(),
            &match done.program {
                _ if aborted => {
                    format!("XDP_ABORTED means an error within the program: `bpftool prog show{of}` names it.")
                }
                _ => format!("The program's verdict: `bpftool prog show{of}` names it."),
            },
        );
        row(
            "sent back by XDP, not taken by the driver".into(),
            "the driver's xdp_tx_errors".into(),
            done.tx_errors,
            Vec::new(),
            "Its transmit queue is full; of a veth: `ethtool -K PEER gro on` at the other end, or an XDP program there.",
        );
    }
    let told: u64 = failures(interface, traced).filter(|f| !f.among_dropped).map(|f| f.packets).sum();
    let counted = interface.xdp.map_or(0, |x| x.redirect_errors);
    if counted > told && (counted - told) as f64 > traced.tolerance(counted) {
        row(
            "XDP redirect failed".into(),
            "the driver's redirect errors".into(),
            counted - told,
            Vec::new(),
            "See `bpftool prog tracelog` or run with the trace.",
        );
    }
    let full = traced.interval.sockets.iter().filter(|s| s.xdp && s.packets > 0);
    let sockets: Vec<Cause> = full
        .map(|s| Cause { reason: s.what.clone(), process: s.process.clone(), packets: s.packets, ..Cause::default() })
        .collect();
    for failure in failures(interface, traced).filter(|f| !f.among_dropped) {
        let target = traced.interval.interfaces.iter().find(|i| i.index == failure.target && failure.target != 0);
        let words = target.map_or_else(|| failure.words.clone(), |t| format!("{} ({})", failure.words, t.name));
        row(
            words,
            format!("traced: {}", failure.tracepoint),
            failure.packets,
            if failure.target == 0 { sockets.clone() } else { Vec::new() },
            if failure.target == 0 && !sockets.is_empty() {
                "The program behind the AF_XDP socket reads too slowly: give it a core of its own and larger rings, or more queues and sockets."
            } else {
                "The target is down (`ip link set TARGET up`), full, or a veth whose other end has neither GRO nor an XDP program: `ethtool -K PEER gro on` there."
            },
        );
    }
}

/// Enters a loss of an interface's XDP program: words, counter, packets, causes, advice.
fn row_of<'a>(
    interface: &'a Interface,
    found: &'a mut Vec<Found>,
) -> impl FnMut(String, String, u64, Vec<Cause>, &str) + 'a {
    move |words, counter, packets, causes, advice| {
        let loss = StationLoss {
            place: format!("{}: {words}", interface.name),
            packets,
            traced_only: counter.starts_with("traced"),
            counter,
            agrees: true,
            causes,
            advice: Some(advice.to_owned()),
            ..StationLoss::default()
        };
        let stage = Some(Stage::Driver);
        found.push(Found { station: "xdp", direction: Receive, stage, ifindex: interface.index, loss });
    }
}

/// What a veth lost in its own transmit it has counted itself; the rest is what its other end sent and found no room here.
fn veth_ring(p: &'static Place, traced: &Traced<'_>, found: &mut Vec<Found>) {
    for interface in &traced.interval.interfaces {
        let drops = traced.at(p.id, interface.index);
        let mut loss = traced.loss(format!("{}: {}", interface.name, p.words), None, &drops, true, p.advice);
        loss.packets = loss.packets.saturating_sub(interface.stats.tx_dropped);
        push(found, p, Some(p.stage), interface.index, loss);
    }
}

fn backlog(p: &'static Place, traced: &Traced<'_>, found: &mut Vec<Found>) {
    let mut limited = traced.interval.flow_limited;
    for interface in &traced.interval.interfaces {
        let drops = traced.at(p.id, interface.index);
        let by_backlog = counts_by_backlog(interface);
        let counter = by_backlog.then(|| {
            let others = traced.sum("unhandled", interface.index);
            ("rx_dropped, softnet_stat".to_owned(), interface.stats.rx_dropped.saturating_sub(others))
        });
        let words = format!("{}: {}", interface.name, p.words);
        let mut loss = traced.loss(words, counter, &drops, true, p.advice);
        let flow_limit = limited.min(loss.packets);
        limited -= flow_limit;
        if flow_limit > 0 {
            loss.place = format!("{}, {flow_limit} of them by the flow limit", loss.place);
        }
        let stage = if by_backlog { Stage::Wire } else { Stage::Link };
        push(found, p, Some(stage), interface.index, loss);
    }
}

fn taps(p: &'static Place, traced: &Traced<'_>, found: &mut Vec<Found>) {
    let interval = traced.interval;
    let drops = traced.at(p.id, 0);
    let lossy: Vec<&SocketLoss> = interval.sockets.iter().filter(|s| s.packet && s.packets > 0).collect();
    // The trace cannot see all of them: where the packet goes on, the kernel drops no buffer of its own.
    let counter = interval.rings_known.then(|| ("tp_drops".to_owned(), lossy.iter().map(|s| s.packets).sum()));
    let mut loss = match counter {
        Some(counter) => traced.loss(p.words.to_owned(), Some(counter), &[], false, p.advice),
        None => traced.loss(p.words.to_owned(), None, &drops, true, p.advice),
    };
    let cause = |s: &&SocketLoss| Cause {
        reason: s.what.clone(),
        process: s.process.clone(),
        packets: s.packets,
        ..Cause::default()
    };
    loss.causes.extend(lossy.iter().map(cause));
    loss.causes.sort_by_key(|c| std::cmp::Reverse(c.packets));
    loss.causes.truncate(MOST_CAUSES);
    push(found, p, Some(p.stage), 0, loss);
}

fn conntrack(p: &'static Place, interval: &Interval, found: &mut Vec<Found>) {
    let Some(c) = interval.conntrack else { return };
    // A clash that was not solved counts as both; each alone means another failure.
    let loss = StationLoss {
        place: format!("{} ({} of {} entries in use)", p.words, c.entries, c.max),
        packets: c.drop.max(c.insert_failed),
        counter: "nf_conntrack: drop, insert_failed".into(),
        agrees: true,
        advice: Some(p.advice.to_owned()),
        ..StationLoss::default()
    };
    push(found, p, Some(p.stage), 0, loss);
}

fn netfilter(p: &'static Place, traced: &Traced<'_>, found: &mut Vec<Found>) {
    let drops = traced.at(p.id, 0);
    let told = packets(&drops);
    let mut known: u64 = found.iter().filter(|f| f.station == "conntrack").map(|f| f.loss.packets).sum();
    let mut rules: Vec<&RuleLoss> = traced.interval.rules.iter().filter(|r| !r.taken && r.packets > 0).collect();
    known += rules.iter().map(|r| r.packets).sum::<u64>();
    let tolerance = traced.tolerance(told.max(known));
    let agrees = !traced.ran || known as f64 <= told as f64 + tolerance;
    rules.sort_by_key(|r| std::cmp::Reverse(r.packets));
    for rule in rules {
        let (stage, direction) = hook(rule);
        let loss = StationLoss {
            place: format!("{} {}: {}", rule.family, rule.chain, rule.rule),
            packets: rule.packets,
            counter: if rule.hook.is_empty() {
                "the rule's counter".into()
            } else {
                format!("counter of the rule, hook {}", rule.hook)
            },
            traced: traced.ran.then_some(told),
            agrees,
            advice: Some("A rule's verdict: meant, or a rule to change.".into()),
            ..StationLoss::default()
        };
        found.push(Found { station: p.station, direction, stage, ifindex: 0, loss });
    }
    // What is left was dropped by rules without counters, or by policies.
    if told as f64 > known as f64 + if known > 0 { tolerance } else { 0.0 } {
        // Only on the way from a local sender a packet has no interface yet.
        let (local, others): (Vec<&Drop>, Vec<&Drop>) = drops.into_iter().partition(|d| d.ifindex == 0);
        let output = |r: &&RuleLoss| r.hook == "output" && r.family != "bridge";
        let counted: u64 = traced.interval.rules.iter().filter(|r| !r.taken).filter(output).map(|r| r.packets).sum();
        let sent_here = packets(&local).saturating_sub(counted).min(told - known);
        let words = format!("{}, output hook", p.words);
        let mut loss = traced.loss(words, None, &local, true, p.advice);
        (loss.packets, loss.traced) = (sent_here, Some(sent_here));
        found.push(Found { station: p.station, direction: Transmit, stage: Some(Stage::Ip), ifindex: 0, loss });
        let known = known + sent_here;
        let mut loss = traced.loss(p.words.to_owned(), None, &others, true, p.advice);
        loss.packets = told - known;
        loss.traced = Some(told - known);
        push(found, p, None, 0, loss);
    }
}

/// Where a hook lies.
fn hook(rule: &RuleLoss) -> (Option<Stage>, Direction) {
    match (rule.family.as_str(), rule.hook.as_str()) {
        (_, "ingress") => (Some(Stage::Link), Receive),
        (_, "egress") => (Some(Stage::Out), Transmit),
        ("bridge", "output" | "postrouting") => (Some(Stage::Bridge), Transmit),
        ("bridge", _) => (Some(Stage::Bridge), Receive),
        ("arp", _) => (Some(Stage::Other), Receive),
        (_, "forward") => (Some(Stage::Ip), Forward),
        (_, "output") => (Some(Stage::Ip), Transmit),
        (_, "postrouting") => (Some(Stage::Postrouting), Transmit),
        (_, "prerouting" | "input") => (Some(Stage::Ip), Receive),
        _ => (None, Receive),
    }
}

/// Losses of the transmit side, interface by interface.
fn by_interface(p: &'static Place, traced: &Traced<'_>, found: &mut Vec<Found>) {
    let mut covered = Vec::new();
    for interface in &traced.interval.interfaces {
        let drops = traced.at(p.id, interface.index);
        let (words, counter) = match p.id {
            "qdisc" => {
                // Without a queue the device's counter holds what was dropped in its place.
                let Some(qdisc) = interface.qdisc.as_ref().filter(|q| q.kind != "noqueue") else {
                    covered.push(interface.index);
                    continue;
                };
                (format!("{}: {} {}", interface.name, qdisc.kind, p.words), ("drops of the qdisc", qdisc.drops))
            }
            _ => {
                let refused =
                    traced.interval.xdp_losses.iter().filter(|f| f.after_redirect && f.target == interface.index);
                let refused: u64 = refused.map(|f| f.packets).sum();
                let driver: u64 = interface.nic.iter().filter(|l| l.tx && !l.in_stats).map(|l| l.packets).sum();
                // A veth counts here what its own XDP program sent back in vain.
                let back = if interface.kind == "veth" { interface.xdp.map_or(0, |x| x.tx_errors) } else { 0 };
                let n =
                    (interface.stats.tx_dropped + interface.stats.tx_errors).saturating_sub(refused + back) + driver;
                (format!("{}: {}", interface.name, p.words), ("tx_dropped, tx_errors", n))
            }
        };
        covered.push(interface.index);
        // Who drops at the driver mostly gives no reason: only the queue is compared.
        let counter = Some((counter.0.to_owned(), counter.1));
        let loss = traced.loss(words, counter, &drops, p.id == "qdisc", p.advice);
        push(found, p, Some(p.stage), interface.index, loss);
    }
    // Drops whose interface the kernel no longer knew, or that has no queue of its own.
    let rest: Vec<&Drop> = traced.at(p.id, 0).into_iter().filter(|d| !covered.contains(&d.ifindex)).collect();
    push(found, p, Some(p.stage), 0, traced.loss(p.words.to_owned(), None, &rest, true, p.advice));
}
