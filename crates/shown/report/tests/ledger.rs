//! A loss ledger as text, at the widths people have. Made-up data: nobody measured any of it.

mod fields;

use fields::fields;
use model::{
    schema::Document,
    stations::{
        Cause, Details, Direction, Entry, Flow, LedgerReport, LossKind, Sample, Share, Side, Station, StationLoss,
        TraceShown,
    },
};
use report::{Look, Paint, ledger_text};
use serde_json::json;

fn entry(what: &str, packets: u64, handed_over: bool) -> Entry {
    Entry { what: what.into(), packets, counter: "a counter".into(), handed_over }
}

fn loss(
    place: &str,
    packets: u64,
    counter: &str,
    traced: Option<u64>,
    causes: Vec<Cause>,
    advice: &str,
) -> StationLoss {
    StationLoss {
        place: place.into(),
        packets,
        share_of_offered: packets as f64 / 1_000_000.0,
        counter: counter.into(),
        traced_only: counter == "traced",
        agrees: traced.is_none_or(|t| t == packets),
        traced,
        causes,
        advice: Some(advice.into()),
        ..StationLoss::default()
    }
}

fn station(name: &str, direction: Direction, losses: Vec<StationLoss>) -> Station {
    let lost = losses.iter().map(|l| l.packets).sum();
    Station { name: name.into(), direction, packets_in: None, packets_out: None, lost, losses }
}

fn made_up() -> LedgerReport {
    let full = Cause {
        reason: "SOCKET_RCVBUFF".into(),
        function: Some("udp_queue_rcv_one_skb".into()),
        interface: Some("eth0".into()),
        protocol: Some("IPv4".into()),
        process: Some("named[812]".into()),
        example: Some(Flow {
            protocol: "UDP".into(),
            source: [198, 18, 0, 1].into(),
            source_port: Some(5000),
            destination: [198, 18, 0, 2].into(),
            destination_port: Some(53),
        }),
        packets: 120_000,
    };
    let intended = |loss: StationLoss| StationLoss { kind: LossKind::Intended, ..loss };
    let dropped = Cause { reason: "NETFILTER_DROP".into(), packets: 1_000, ..Cause::default() };
    let stations = vec![
        station(
            "nic",
            Direction::Receive,
            vec![loss(
                "eth0: no free descriptor in the ring",
                30_000,
                "rx_missed_errors",
                None,
                vec![],
                "The core behind this queue is too slow, or the ring too short: `evenkeel spread`, `ethtool -G IFACE rx N`.",
            )],
        ),
        station(
            "netfilter",
            Direction::Forward,
            vec![intended(loss(
                "dropped by rules or policies without a counter",
                1_000,
                "traced",
                Some(1_000),
                vec![dropped],
                "Put `counter` into the rules to see which: `nft list ruleset`.",
            ))],
        ),
        station(
            "udp",
            Direction::Receive,
            vec![loss(
                "socket buffer full",
                120_000,
                "Udp.RcvbufErrors",
                Some(118_000),
                vec![full],
                "The program reads too slowly: give it CPU time, or a larger SO_RCVBUF (net.core.rmem_max).",
            )],
        ),
    ];
    LedgerReport {
        timestamp: "2026-01-02T03:04:05.678Z".into(),
        interval_s: 1.0,
        hostname: "box".into(),
        kernel: "6.18.0".into(),
        netns: 4_026_531_840,
        interfaces: vec!["eth0".into()],
        offered: 1_000_000,
        delivered: 849_000,
        lost: 151_000,
        unexplained: 0,
        receive: Side {
            offered: vec![
                entry("arrived on eth0", 980_000, false),
                entry("arrived on other interfaces", 15_000, false),
            ],
            delivered: vec![entry("UDP, read by programs", 244_000, false), entry("forwarded by IP", 600_000, true)],
            lost: 151_000,
            ..Side::default()
        },
        transmit: Side {
            offered: vec![
                entry("sent by programs and the kernel through IP", 5_000, false),
                entry("forwarded by IP", 600_000, true),
            ],
            delivered: vec![entry("left by eth1", 605_000, false)],
            ..Side::default()
        },
        waiting: 0,
        intended: 1_000,
        copies_lost: 0,
        stations,
        trace: Some(TraceShown {
            events: 121_000,
            in_namespace: 120_500,
            examined: 9_000,
            cost_ns: 6_000_000,
            cost_share: 0.003,
            sampling: 16,
            sampled: true,
            precision: 0.0207,
        }),
        notes: vec![
            "where counter and trace differ, both are shown: the counter's number is the one that is added up".into(),
        ],
    }
}

fn text(report: &LedgerReport, look: Look) -> String {
    ledger_text(report, look, Paint::forced(false), false)
}

#[test]
fn colour_adds_nothing_but_itself() {
    let painted = ledger_text(&made_up(), Look::plain(80), Paint::forced(true), false);
    assert!(painted.contains("\x1b[31m120 000\x1b[0m"), "{painted}");
    let mut plain = painted;
    for code in ["\x1b[31m", "\x1b[33m", "\x1b[32m", "\x1b[1m", "\x1b[0m"] {
        plain = plain.replace(code, "");
    }
    assert_eq!(plain, text(&made_up(), Look::plain(80)));
}

#[test]
fn details_show_whose_packets_they_were() {
    let mut report = made_up();
    let share = |what: &str| vec![Share { what: what.into(), packets: 120_000 }];
    report.stations[2].losses[0].details = Some(Details {
        targets: share("UDP 198.18.0.2:53"),
        sources: share("198.18.0.1"),
        sample: Some(Sample {
            text: "IP 198.18.0.1.5000 > 198.18.0.2.53: UDP, length 18, ttl 64".into(),
            length: 60,
            hex: "4500002e00000000401100".into(),
            network_header: 0,
        }),
        stack: vec!["udp_queue_rcv_one_skb".into(), "udp_unicast_rcv_skb".into()],
    });
    let text = ledger_text(&report, Look::plain(100), Paint::forced(false), true);
    for words in
        ["to: UDP 198.18.0.2:53 (120 000)", "from: 198.18.0.1", "0x0000:  4500 002e", "udp_queue_rcv_one_skb < udp_uni"]
    {
        assert!(text.contains(words), "{words}: {text}");
    }
    assert!(!self::text(&report, Look::plain(100)).contains("0x0000"));
}

#[test]
fn a_ledger_as_text() {
    insta::assert_snapshot!("ledger_80", text(&made_up(), Look { width: 80, lines: true }));
    insta::assert_snapshot!("ledger_pipe", text(&made_up(), Look::plain(200)));
}

#[test]
fn a_quiet_box_says_so() {
    let quiet = LedgerReport { hostname: "box".into(), interval_s: 1.0, ..LedgerReport::default() };
    let text = text(&quiet, Look::plain(80));
    assert!(text.contains("Quiet: no packet arrived, left or was lost."), "{text}");
    assert!(!text.contains("What to do"), "{text}");
}

#[test]
fn no_line_is_wider_than_the_page() {
    for width in [40, 60, 80, 120] {
        for line in text(&made_up(), Look::plain(width)).lines().skip(1) {
            assert!(line.chars().count() <= usize::from(width), "{width}: {line}");
        }
    }
}

/// Fields may be added; one that goes away or changes its meaning makes a new version of the schema.
#[test]
fn the_schema_is_stable() {
    insta::assert_snapshot!("schema_ledger_1", fields(&json!(Document::new("ledger", 1, made_up()))));
}

#[test]
fn what_was_meant_and_what_was_lost_are_two_rows() {
    let mut report = made_up();
    let loss = &mut report.stations.iter_mut().find(|s| !s.losses.is_empty()).expect("a loss").losses[0];
    loss.kind = LossKind::Intended;
    let [dropped, lost] = report.dropped_and_lost(Direction::Receive);
    assert!(dropped > 0 && dropped + lost == report.receive.lost, "{dropped} and {lost}");
    let text = self::text(&report, Look::plain(120));
    let row = |name: &str| text.lines().find(|l| l.contains(name)).unwrap_or_else(|| panic!("{name} in\n{text}"));
    assert!(row("- dropped on purpose").contains(&model::units::grouped(dropped)), "{text}");
    assert!(row("- lost").contains(&model::units::grouped(lost)), "{text}");
}
