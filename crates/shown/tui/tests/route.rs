//! The view of a router drawn into memory, at the sizes people have.

mod drawn;

use std::time::Duration;

use drawn::screen;
use model::route::{
    Obstacle, PortCounters, RouteEvent, RouteLost, RouteMode, RouteMoment, RoutePort, RouteRates, RouteStatus,
    RouteTotals,
};
use ratatui::crossterm::event::{KeyCode, KeyEvent};
use tui::{
    live::{Reaction, Screen},
    route::{Act, View},
};

fn port(interface: &str, n: u64) -> RoutePort {
    let totals = RouteTotals {
        forwarded: 1_204_000 * n,
        fib_lookups: 1_200 * n,
        other_mac: 7,
        no_neighbour: 1_310 * n,
        hop_limit: 40 * n,
        too_big: 3 * n,
        ..RouteTotals::default()
    };
    let counters = PortCounters {
        rx_packets: 1_205_360 * n,
        rx_bytes: 1_205_360 * n * 512,
        tx_packets: 980_000 * n,
        tx_bytes: 980_000 * n * 512,
    };
    RoutePort {
        interface: interface.into(),
        xdp: "native".into(),
        can_transmit: true,
        reattached: 0,
        totals,
        counters,
        lost: None,
        cpus: Vec::new(),
    }
}

#[test]
fn a_tiny_terminal_tells_how_many_ports_it_shows() {
    let mut view = View::new(Duration::from_secs(1), false, |_: Act| {});
    view.push(status(1));
    let text = screen(&view, 40, 8);
    assert!(text.contains("PORT 1/3"), "{text}");
    assert!(!screen(&view, 80, 24).contains("PORT 1/"));
}

fn status(n: u64) -> RouteStatus {
    let at = |second: u32, what| RouteMoment { timestamp: format!("2026-01-02T03:04:{second:02}.678Z"), what };
    let mode = |mode, why: &str| RouteEvent::Mode { mode, reason: why.into() };
    RouteStatus {
        pid: 1234,
        mode: RouteMode::Routed,
        requested: RouteMode::Routed,
        timestamp: "2026-01-02T03:04:45.678Z".into(),
        ports: vec![port("eth0", n), port("wan-uplink-north", 2 * n), port("eth2", n / 2)],
        events: vec![
            at(1, mode(RouteMode::Shadow, "the start")),
            at(4, mode(RouteMode::Routed, "the shadow agreed with the kernel")),
        ],
        ..RouteStatus::default()
    }
}

fn running() -> RouteStatus {
    let (before, now) = (status(2), status(4));
    RouteStatus { rates: Some(RouteRates::between(&before, &now, 1.0)), ..now }
}

fn fell_back() -> RouteStatus {
    let obstacle = Obstacle {
        code: "netfilter".into(),
        what: "nftables filters forward (table ip t, chain f)".into(),
        remedy: "take the rules away, write them for the shield (`evenkeel shield run`), or stay in mode standard"
            .into(),
    };
    let mut status = running();
    status.mode = RouteMode::Standard;
    status.fallback = Some(obstacle.what.clone());
    status.ports[2].can_transmit = false;
    let what = RouteEvent::Obstacle(obstacle.clone());
    status.events.push(RouteMoment { timestamp: "2026-01-02T03:04:44.000Z".into(), what });
    status.obstacles = vec![obstacle];
    status
}

fn drawn(width: u16, height: u16, status: &RouteStatus) -> String {
    let mut view = View::new(Duration::from_secs(1), false, |_| ());
    for part in [0.1, 0.5, 1.0] {
        let mut status = status.clone();
        status.rates.iter_mut().flat_map(|rates| &mut rates.ports).for_each(|port| port.forwarded_pps *= part);
        view.push(status);
    }
    screen(&view, width, height)
}

#[test]
fn frames_that_are_lost_on_the_way_to_a_cpu_are_seen() {
    let mut status = running();
    status.cpus = model::CpuSet::parse_list("2-3").ok();
    assert!(!drawn(80, 24, &status).contains("Lost"));
    status.ports[0].lost = Some(RouteLost { queue_full: 1200, no_memory: 30, not_sent: 4 });
    assert!(drawn(80, 24, &status).contains("Lost on the way to CPU 2-3: 1 234."));
}

#[test]
fn a_router_at_the_sizes_people_have() {
    for (width, height) in [(80, 24), (200, 50), (60, 20)] {
        insta::assert_snapshot!(format!("route_{width}x{height}"), drawn(width, height, &running()));
    }
    for (width, height) in [(80, 24), (60, 20)] {
        insta::assert_snapshot!(format!("route_fallback_{width}x{height}"), drawn(width, height, &fell_back()));
    }
}

#[test]
fn no_size_breaks_it_and_no_rate_is_cut() {
    let mut many = running();
    many.ports = (0..64).map(|n| port(&format!("eth{n}"), n)).collect();
    many.rates = Some(RouteRates::between(&RouteStatus { ports: Vec::new(), ..many.clone() }, &many, 1.0));
    for width in [1, 2, 10, 30, 40, 54, 60, 72, 75, 80, 103, 120] {
        for height in [1, 2, 3, 5, 6, 10, 15, 20, 24, 40] {
            drawn(width, height, &many);
            drawn(width, height, &fell_back());
            let text = drawn(width, height, &running());
            if width >= 40 && height >= 10 {
                assert!(text.contains("8.43 Mpps") && text.contains("FORWARDED"), "{width}x{height}\n{text}");
            }
            if width >= 60 && height >= 10 {
                assert!(text.contains("2.41 Mpps") && text.contains("99.9 %"), "{width}x{height}\n{text}");
            }
        }
    }
}

#[test]
fn a_trial_and_a_router_without_an_interval_say_so() {
    let trial = RouteStatus { mode: RouteMode::Shadow, ..running() };
    assert!(drawn(80, 24, &trial).contains("A trial: routed follows"));
    let text = drawn(80, 24, &RouteStatus { rates: None, ..running() });
    assert!(text.contains("eth0") && text.contains("0 pps"), "{text}");
    let stays = RouteStatus { mode: RouteMode::Standard, requested: RouteMode::Standard, ..running() };
    assert!(drawn(80, 24, &stays).contains("as asked for"));
}

#[test]
fn keys_switch_hold_and_end_after_a_clear_yes() {
    let mut acts = Vec::new();
    let mut view = View::new(Duration::from_secs(1), false, |act| acts.push(act));
    view.push(running());
    let keys = screen(&view, 80, 24);
    for (key, after) in [('s', Reaction::Redraw), ('f', Reaction::Redraw), ('q', Reaction::Redraw)] {
        assert_eq!(view.key(KeyEvent::from(KeyCode::Char(key))), after);
    }
    assert!(screen(&view, 80, 24).contains("y/N"));
    assert_eq!(view.key(KeyEvent::from(KeyCode::Char('n'))), Reaction::Redraw);
    assert_eq!(screen(&view, 80, 24), keys, "it goes on");
    view.key(KeyEvent::from(KeyCode::Char('h')));
    for width in [40, 60, 80] {
        let shown = screen(&view, width, 24);
        for part in ["q end the fast path", "s mode standard", "f fast path again", "? less help"] {
            assert!(shown.contains(part), "{part} in {width} columns: {shown}");
        }
    }
    view.key(KeyEvent::from(KeyCode::Char('q')));
    assert_eq!(view.key(KeyEvent::from(KeyCode::Char('y'))), Reaction::Quit);
    assert_eq!(acts, [Act::Standard, Act::Back]);
}
