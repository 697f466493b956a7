//! `evenkeel ledger` on boxes where one loss could be taken for two, or for none: hooks before and behind IP's counters,
//! fragments, neighbours that do not answer, routes that refuse, generic XDP.

use std::{net::UdpSocket, thread, time::Duration};

use bpf::{XdpDrop, XdpMode};

use testbed::{
    alone,
    losses::{BOX, Found, LOADS, Load, RECEIVER, Road, SENDER, road},
    skip,
};

const EVENKEEL: &str = env!("CARGO_BIN_EXE_evenkeel");

/// A load that any machine carries.
const EASY: Load = LOADS[0];

/// Measures one load on a fresh box.
fn lab(tag: &str, prepare: impl FnOnce(&Road), send: impl Fn(&Road) -> u64) -> Option<(Found, u64)> {
    let _alone = alone();
    let road = road(EVENKEEL, tag)?;
    prepare(&road);
    Some(road.measure(|| send(&road)))
}

/// Datagrams from the box itself, 20 a millisecond at most: the trace counts each, and does not sample. Those that a rule refuses are errors for their
/// sender.
fn from_inside(road: &Road, port: u16, bytes: usize) -> u64 {
    let send = || {
        let socket = UdpSocket::bind("0.0.0.0:0").expect("a port");
        for _ in 0..100 {
            for _ in 0..20 {
                let _ = socket.send_to(&vec![0; bytes], (RECEIVER, port));
            }
            thread::sleep(Duration::from_millis(1));
        }
    };
    road.entry.run(send);
    2_000
}

#[test]
fn a_rule_behind_routing_loses_each_packet_once() {
    for counter in ["counter", ""] {
        let rules = format!(
            "table ip ekt {{\n chain way {{\n type filter hook postrouting priority 0;\n udp dport 9 {counter} drop\n }}\n }}\n"
        );
        let Some((found, sent)) = lab("ekpost", |road| road.entry.nft(&rules), |road| road.send_udp(RECEIVER, 9, EASY))
        else {
            return;
        };
        found.holds("netfilter", "", if counter.is_empty() { "NETFILTER_DROP" } else { "postrouting" }, sent);
    }
}

#[test]
fn a_rule_for_what_is_sent_here_is_on_the_transmit_side() {
    let rules = "table ip ekt {\n chain way {\n type filter hook output priority 0;\n udp dport 77 drop\n }\n }\n";
    let both = |road: &Road| {
        road.send_udp(RECEIVER, 9, EASY);
        from_inside(road, 77, 18)
    };
    let Some((found, sent)) = lab("ekoutp", |road| road.entry.nft(rules), both) else { return };
    found.holds("netfilter", "output hook", "NETFILTER_DROP", sent);
    assert!(found.report.receive.lost * 1000 <= sent, "{}", found.shown());
    let apart = found.report.transmit.lost.abs_diff(sent) as f64;
    assert!(apart <= found.precision() * sent as f64, "{}", found.shown());
}

#[test]
fn fragments_made_here_are_not_forwarded_ones() {
    let Some((found, sent)) = lab("ekcut", |_| {}, |road| from_inside(road, 9, 3_000)) else { return };
    found.closes();
    let ways = &found.report.transmit.offered;
    assert!(ways.iter().any(|e| e.what.contains("fragments made") && e.packets >= 2 * sent), "{}", found.shown());
    assert!(!found.report.receive.delivered.iter().any(|e| e.what.contains("forwarded")), "{}", found.shown());
}

#[test]
fn a_neighbour_that_does_not_answer() {
    let send = |road: &Road| road.send_udp("198.19.0.77", 9, EASY);
    let Some((found, sent)) = lab("ekneig", |_| {}, send) else { return };
    found.closes();
    // Some of them still wait, and are nowhere else.
    let lost = found.packets("neighbour", "");
    assert!(lost > sent / 2 && found.report.waiting > 0, "{}", found.shown());
    // The questions themselves go past IP, and hide as many.
    assert!((sent - 5..=sent).contains(&(lost + found.report.waiting)), "{}", found.shown());
    assert!(found.report.delivered * 10 < sent, "{}", found.shown());
    assert!(found.names("neighbour", "", "NEIGH_QUEUEFULL"), "{}", found.shown());
}

#[test]
fn a_route_that_refuses() {
    let prepare = |road: &Road| {
        road.entry.output("ip route add blackhole 203.0.113.0/24");
    };
    let Some((found, sent)) = lab("ekhole", prepare, |road| road.send_udp("203.0.113.9", 9, EASY)) else { return };
    found.holds("ip", "a route refuses it", "NOT_SPECIFIED", sent);
}

#[test]
fn a_device_whose_other_end_is_down_loses_each_packet_once() {
    let prepare = |road: &Road| {
        road.to.output(&format!("ip link set {} down", road.to.interface()));
    };
    let Some((found, sent)) = lab("ekpeer", prepare, |road| road.send_udp(RECEIVER, 9, EASY)) else { return };
    found.holds("transmit", "not sent by the device", "tx_dropped", sent);
    assert_eq!(found.packets("qdisc", ""), 0, "{}", found.shown());
}

#[test]
fn the_table_of_connections_refuses_what_is_invalid() {
    let rules = "table ip ekt {\n chain way {\n type filter hook prerouting priority 0;\n ct state invalid counter drop\n }\n }\n";
    let send = |road: &Road| {
        let mut frame = road.udp_frame(SENDER, BOX, 9);
        // A UDP length beyond the packet.
        frame[38..40].copy_from_slice(&2_000u16.to_be_bytes());
        road.send_frame(&frame, EASY)
    };
    let Some((found, sent)) = lab("ekinva", |road| road.entry.nft(rules), send) else { return };
    found.holds("netfilter", "ct state", "counter", sent);
}

#[test]
fn generic_xdp_without_a_loss_changes_nothing() {
    let _alone = alone();
    let Some(road) = road(EVENKEEL, "ekxgen") else { return };
    // On the way out, where it sees nothing of what comes in.
    let attach = || XdpDrop::attach(road.exit.interface(), XdpMode::Generic);
    let program = match road.entry.run(attach) {
        Ok(program) => program,
        Err(e) => return skip(e),
    };
    let (found, sent) = road.measure(|| road.send_udp(RECEIVER, 9, EASY));
    found.closes();
    assert!(found.report.lost * 1000 <= sent, "{}", found.shown());
    drop(program);
}
