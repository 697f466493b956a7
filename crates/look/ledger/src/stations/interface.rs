//! Losses at an interface: NIC, driver, XDP program, rings, backlog, qdisc.

use host::counters::LinkStats;
use model::stations::{
    Cause,
    Direction::Receive,
    LossKind::{self, Intended, Lost},
    StationLoss,
};

use super::{Found, push, traced::Traced};
use crate::{
    advice::{Known, filled},
    input::{Drop, Interface, Interval, XdpFailure},
    places::{Place, Stage, place},
};

/// Words, counter, how to get it, advice.
type NicRow = (&'static str, &'static str, fn(&LinkStats) -> u64, &'static str);

const SLOW: &str =
    "The core behind this queue is too slow, or the ring too short: `evenkeel spread plan`, `ethtool -G {iface} rx N`.";
const WIRE: &str = "Damaged before it arrived: cable, optics, duplex or MTU; `ethtool -S {iface}`.";

const NIC: [NicRow; 6] = [
    ("damaged on the wire", "rx_crc_errors", |s| s.rx_crc_errors, WIRE),
    ("badly framed", "rx_frame_errors", |s| s.rx_frame_errors, WIRE),
    ("wrong length", "rx_length_errors", |s| s.rx_length_errors, WIRE),
    ("overrun in the NIC", "rx_over_errors", |s| s.rx_over_errors, SLOW),
    ("NIC's FIFO full", "rx_fifo_errors", |s| s.rx_fifo_errors, SLOW),
    ("no free descriptor in the ring", "rx_missed_errors", |s| s.rx_missed_errors, SLOW),
];

pub(super) fn nic(interface: &Interface, traced: &Traced<'_>, found: &mut Vec<Found>) {
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
            advice: Some(advice.replace("{iface}", &interface.name)),
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
    let advice = "`ethtool -S {iface}` tells more.";
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
        let stage = if interface.xdp.done.is_some_and(|x| x.nested) { Stage::Driver } else { Stage::Wire };
        row(words, "rx_dropped".to_owned(), dropped, stage, advice);
    }
}

/// Frames that XDP lost before the driver counted them as sent or redirected, as its tracepoints tell.
fn traced_xdp(interface: &Interface, traced: &Traced<'_>) -> u64 {
    failures(interface, traced).filter(|f| !f.after_redirect && !f.among_dropped).map(|f| f.packets).sum()
}

/// Drops of `rx_dropped` by the driver itself: not by the stack behind it, nor by XDP.
fn driver_drops(interface: &Interface, traced: &Traced<'_>) -> u64 {
    let stack = traced.sum("backlog", interface.index) + traced.unhandled(interface.index);
    let xdp = match interface.xdp.done {
        Some(done) if done.nested => done.dropped,
        _ => traced_xdp(interface, traced),
    };
    let counted_apart = interface.xdp.done.map_or(0, |x| x.redirect_errors);
    if counts_by_backlog(interface) {
        return 0; // its rx_dropped is the backlog's
    }
    let rest = interface.stats.rx_dropped.saturating_sub(stack + xdp.saturating_sub(counted_apart));
    // Readings at different moments and samples leave a little that means nothing.
    if (rest as f64) <= traced.tolerance(stack + xdp) && stack + xdp > 0 { 0 } else { rest }
}

/// The interface hands its packets to a backlog and counts them only if there is room.
fn counts_by_backlog(interface: &Interface) -> bool {
    interface.kind == "lo" || (interface.kind == "veth" && !interface.napi)
}

fn failures<'a>(interface: &'a Interface, traced: &Traced<'a>) -> impl Iterator<Item = &'a XdpFailure> {
    traced.interval.trace.xdp_losses.iter().filter(|f| f.ifindex == interface.index)
}

/// The name of the shield's program in the kernel.
const SHIELD: &str = "ek_shield";

/// Advice about packets that this program's own shield dropped.
fn by_shield(interface: &Interface) -> String {
    format!("The rules of evenkeel's shield drop them: `evenkeel shield status {}` shows which.", interface.name)
}

/// The words of [`by_shield`] where the shield is the one generic XDP program.
pub(super) fn by_generic_shield(interval: &Interval) -> Option<String> {
    let mut generic = interval.interfaces.iter().filter(|i| i.xdp.generic);
    let only = generic.next().filter(|i| i.xdp.name == SHIELD)?;
    generic.next().is_none().then(|| by_shield(only))
}

pub(super) fn xdp(interface: &Interface, traced: &Traced<'_>, found: &mut Vec<Found>) {
    // The trace sees what a driver dropped on a program's verdict; where the driver counts it, that is the number.
    let verdicts = traced.at("xdp-native", interface.index);
    if interface.xdp.done.is_none() {
        let p = place("xdp-native");
        let words = format!("{}: {}", interface.name, p.words);
        let mut loss = traced.loss(words, None, &verdicts, true, p);
        if interface.xdp.name == SHIELD {
            loss.advice = Some(by_shield(interface));
        }
        push(found, p, Some(p.stage), interface.index, loss);
    }
    let mut row = row_of(interface, found);
    if let Some(done) = interface.xdp.done {
        let shield = interface.xdp.name == SHIELD;
        let program = match (done.program, interface.xdp.name.as_str()) {
            (Some(id), "") => format!(" {id}"),
            (Some(id), name) => format!(" {name} (id {id})"),
            (None, _) => String::new(),
        };
        let exceptions = failures(interface, traced).filter(|f| f.among_dropped).map(|f| Cause {
            reason: f.words.clone(),
            function: Some(f.tracepoint.clone()),
            interface: Some(interface.name.clone()),
            packets: f.packets,
            ..Cause::default()
        });
        let of = done.program.map_or_else(String::new, |id| format!(" id {id}"));
        let aborted = failures(interface, traced).any(|f| f.among_dropped);
        let words = match shield {
            true => "dropped by evenkeel's shield".to_owned(),
            false => format!("dropped by the XDP program{program}"),
        };
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
                _ if shield => by_shield(interface),
                _ => format!("The program decided so: `bpftool prog show{of}` names it."),
            },
            // An error within the program is nothing that anybody meant.
            if aborted { Lost } else { Intended },
        );
        row(
            "sent back by XDP, not taken by the driver".into(),
            "the driver's xdp_tx_errors".into(),
            done.tx_errors,
            Vec::new(),
            "Its transmit queue is full. On a veth: `ethtool -K PEER gro off`, then `gro on` at the other end, or an XDP program there.",
            Lost,
        );
    }
    let traced_packets: u64 = failures(interface, traced).filter(|f| !f.among_dropped).map(|f| f.packets).sum();
    let counted = interface.xdp.done.map_or(0, |x| x.redirect_errors);
    if counted > traced_packets && (counted - traced_packets) as f64 > traced.tolerance(counted) {
        row(
            "XDP redirect failed".into(),
            "the driver's redirect errors".into(),
            counted - traced_packets,
            Vec::new(),
            "Run without `--no-trace` to see why.",
            Lost,
        );
    }
    let full = traced.interval.sockets.iter().filter(|s| s.xdp && s.packets > 0);
    let sockets: Vec<Cause> = full
        .map(|s| Cause { reason: s.what.clone(), process: s.process.clone(), packets: s.packets, ..Cause::default() })
        .collect();
    for failure in failures(interface, traced).filter(|f| !f.among_dropped) {
        let target = traced.interval.interfaces.iter().find(|i| i.index == failure.target && failure.target != 0);
        let words = match interface.xdp.routed {
            // Without a target it may also have been meant for an AF_XDP socket.
            Some(_) if failure.target != 0 || failure.before_cpu || sockets.is_empty() => {
                format!("evenkeel's fast path, {}", failure.words)
            }
            _ => failure.words.clone(),
        };
        let words = target.map_or_else(|| words.clone(), |t| format!("{words} ({})", t.name));
        row(
            words,
            format!("traced: {}", failure.tracepoint),
            failure.packets,
            if failure.target == 0 && !failure.before_cpu { sockets.clone() } else { Vec::new() },
            if failure.before_cpu {
                match interface.xdp.routed {
                    Some(_) => {
                        "The CPUs that forward do not keep up: name more (`evenkeel route cpus`); `evenkeel route status` shows what each does."
                    }
                    None => {
                        "That CPU does not keep up with what is redirected to it: redirect to more, or make the CPU map's queues longer."
                    }
                }
            } else if failure.target == 0 && !sockets.is_empty() {
                "The program behind the AF_XDP socket reads too slowly: give it a core of its own and larger rings, or more queues and sockets."
            } else {
                "The target is down (`ip link set TARGET up`), full, or a veth whose other end has neither GRO nor an XDP program: `ethtool -K PEER gro on` there."
            },
            Lost,
        );
    }
}

/// Enters a loss of an interface's XDP program: words, counter, packets, causes, advice, kind.
fn row_of<'a>(
    interface: &'a Interface,
    found: &'a mut Vec<Found>,
) -> impl FnMut(String, String, u64, Vec<Cause>, &str, LossKind) + 'a {
    move |words, counter, packets, causes, advice, kind| {
        let loss = StationLoss {
            place: format!("{}: {words}", interface.name),
            kind,
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

/// Losses of a veth's ring. Those in its own transmit the veth has counted itself; the rest are frames of its other end that found no room here.
pub(super) fn veth_ring(p: &'static Place, traced: &Traced<'_>, found: &mut Vec<Found>) {
    for interface in &traced.interval.interfaces {
        let drops = traced.at(p.id, interface.index);
        let mut loss = traced.loss(format!("{}: {}", interface.name, p.words), None, &drops, true, p);
        loss.packets = loss.packets.saturating_sub(interface.stats.tx_dropped);
        push(found, p, Some(p.stage), interface.index, loss);
    }
}

pub(super) fn backlog(p: &'static Place, traced: &Traced<'_>, found: &mut Vec<Found>) {
    let mut limited = traced.interval.flow_limited;
    for interface in &traced.interval.interfaces {
        let drops = traced.at(p.id, interface.index);
        let by_backlog = counts_by_backlog(interface);
        let counter = by_backlog.then(|| {
            let others = traced.unhandled(interface.index);
            ("rx_dropped, softnet_stat".to_owned(), interface.stats.rx_dropped.saturating_sub(others))
        });
        let words = format!("{}: {}", interface.name, p.words);
        let mut loss = traced.loss(words, counter, &drops, true, p);
        loss.advice = Some(on(p, interface));
        let flow_limit = limited.min(loss.packets);
        limited -= flow_limit;
        if flow_limit > 0 {
            loss.place = format!("{}, {flow_limit} of them by the flow limit", loss.place);
        }
        let stage = if by_backlog { Stage::Wire } else { Stage::Link };
        push(found, p, Some(stage), interface.index, loss);
    }
}

/// The advice of a place for an interface.
fn on(p: &Place, interface: &Interface) -> String {
    let cause = Cause { interface: Some(interface.name.clone()), ..Cause::default() };
    filled(p.advice, Known { causes: &[cause], traced: true, ..Known::default() })
}

/// Losses of the transmit side, interface by interface.
pub(super) fn by_interface(p: &'static Place, traced: &Traced<'_>, found: &mut Vec<Found>) {
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
                    traced.interval.trace.xdp_losses.iter().filter(|f| f.after_redirect && f.target == interface.index);
                let refused: u64 = refused.map(|f| f.packets).sum();
                let driver: u64 = interface.nic.iter().filter(|l| l.tx && !l.in_stats).map(|l| l.packets).sum();
                // A veth counts here what its own XDP program sent back in vain.
                let back = if interface.kind == "veth" { interface.xdp.done.map_or(0, |x| x.tx_errors) } else { 0 };
                let n =
                    (interface.stats.tx_dropped + interface.stats.tx_errors).saturating_sub(refused + back) + driver;
                (format!("{}: {}", interface.name, p.words), ("tx_dropped, tx_errors", n))
            }
        };
        covered.push(interface.index);
        // Who drops at the driver mostly gives no reason: only the queue is compared.
        let counter = Some((counter.0.to_owned(), counter.1));
        let mut loss = traced.loss(words, counter, &drops, p.id == "qdisc", p);
        loss.advice = Some(on(p, interface));
        push(found, p, Some(p.stage), interface.index, loss);
    }
    // Drops whose interface the kernel no longer knew, or that has no queue of its own.
    let rest: Vec<&Drop> = traced.at(p.id, 0).into_iter().filter(|d| !covered.contains(&d.ifindex)).collect();
    push(found, p, Some(p.stage), 0, traced.loss(p.words.to_owned(), None, &rest, true, p));
}
