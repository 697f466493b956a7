//! Losses by station: every loss once, from its counter where there is one, with the causes that were traced.

mod details;
mod interface;
mod netfilter;
mod traced;

use model::stations::{Cause, Direction, StationLoss};

use self::{
    interface::{backlog, by_generic_shield, by_interface, nic, veth_ring, xdp},
    netfilter::netfilter,
    traced::{CAUSES_MAX, Traced, packets},
};
use crate::{
    advice::{Known, filled, of_reason},
    input::{Interval, SocketLoss},
    places::{HOLDS, PLACES, Place, Stage, UNNAMED, place},
};

/// A loss and where it belongs.
#[derive(Debug, Clone, PartialEq)]
pub struct Found {
    pub station: &'static str,
    /// The way it lies on.
    pub direction: Direction,
    /// Equation that it belongs to; none: netfilter drops of an unknown hook.
    pub stage: Option<Stage>,
    /// The interface it is bound to; 0 for none.
    pub ifindex: u32,
    pub loss: StationLoss,
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

/// The trace sees what the counters of a place count. A listener without room counts connection requests that the kernel
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
            "link.rx_nohandler" => interval.interfaces.iter().map(|i| i.stats.rx_nohandler).sum(),
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
        _ => (!p.counters.is_empty()).then(|| (names.join(" + "), counted)),
    };
    let mut loss = traced.loss(words.to_owned(), counter, &traced.at(p.id, 0), comparable(p), p);
    if p.id == "udp-buffer" && loss.causes.is_empty() {
        // Without the trace the sockets themselves tell.
        let sockets = interval.sockets.iter().filter(|s| s.what.starts_with("UDP") && s.packets > 0);
        by_socket(&mut loss, p, traced.ran, sockets);
    }
    if p.id == "xdp-generic" {
        loss.advice = by_generic_shield(interval).or(loss.advice);
    }
    if p.id == "listen-overflow" && loss.packets > 0 {
        // The kernel frees such a request without a word.
        by_socket(&mut loss, p, traced.ran, interval.full_listeners.iter());
    }
    if p.id == UNNAMED.id {
        loss.advice = of_reason(&loss.causes).or(loss.advice);
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
    push(found, p, Some(p.stage), 0, traced.loss(p.words.to_owned(), counter, &drops, true, p));
}

fn taps(p: &'static Place, traced: &Traced<'_>, found: &mut Vec<Found>) {
    let interval = traced.interval;
    let drops = traced.at(p.id, 0);
    let lossy: Vec<&SocketLoss> = interval.sockets.iter().filter(|s| s.packet && s.packets > 0).collect();
    // The trace cannot see all of them: where the packet goes on, the kernel drops no buffer of its own.
    let counter = interval.rings_known.then(|| ("tp_drops".to_owned(), lossy.iter().map(|s| s.packets).sum()));
    let mut loss = match counter {
        Some(counter) => traced.loss(p.words.to_owned(), Some(counter), &[], false, p),
        None => traced.loss(p.words.to_owned(), None, &drops, true, p),
    };
    by_socket(&mut loss, p, traced.ran, lossy.into_iter());
    push(found, p, Some(p.stage), 0, loss);
}

/// Names the sockets that lost packets, and their processes, in the causes and in the advice.
fn by_socket<'a>(loss: &mut StationLoss, p: &Place, ran: bool, sockets: impl Iterator<Item = &'a SocketLoss>) {
    loss.causes.extend(sockets.map(|s| Cause {
        reason: s.what.clone(),
        process: s.process.clone(),
        packets: s.packets,
        ..Cause::default()
    }));
    loss.causes.sort_by_key(|c| std::cmp::Reverse(c.packets));
    loss.causes.truncate(CAUSES_MAX);
    let (causes, packets) = (&loss.causes, loss.packets);
    let known = Known { causes, details: loss.details.as_ref(), traced: ran, packets };
    loss.advice = (!p.advice.is_empty()).then(|| filled(p.advice, known));
}

fn conntrack(p: &'static Place, interval: &Interval, found: &mut Vec<Found>) {
    let Some(c) = interval.netfilter.conntrack else { return };
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
