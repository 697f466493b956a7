//! A loss ledger as text, at the widths people have. Made-up data: nobody measured any of it.

use model::{
    schema::Document,
    stations::{Cause, Direction, Entry, LedgerReport, Side, Station, StationLoss, TraceShown},
};
use report::{Look, ledger_text};

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
        packets: 120_000,
    };
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
            vec![loss(
                "dropped by rules or policies without a counter",
                1_000,
                "traced",
                Some(1_000),
                vec![dropped],
                "Put `counter` into the rules to see which: `nft list ruleset`.",
            )],
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
        when: "2026-01-02T03:04:05.678Z".into(),
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
            unexplained: 0,
        },
        transmit: Side {
            offered: vec![
                entry("sent by programs and the kernel through IP", 5_000, false),
                entry("forwarded by IP", 600_000, true),
            ],
            delivered: vec![entry("left by eth1", 605_000, false)],
            lost: 0,
            unexplained: 0,
        },
        stations,
        trace: Some(TraceShown {
            events: 121_000,
            seen: 9_000,
            cost_ns: 6_000_000,
            cost_share: 0.003,
            sampling: 16,
            backed_off: true,
            precision: 0.0207,
        }),
        notes: vec![
            "where counter and trace differ, both are shown: the counter's number is the one that is added up".into(),
        ],
    }
}

#[test]
fn a_ledger_as_text() {
    insta::assert_snapshot!("ledger_80", ledger_text(&made_up(), Look { width: 80, lines: true }));
    insta::assert_snapshot!("ledger_pipe", ledger_text(&made_up(), Look::plain(200)));
}

#[test]
fn a_quiet_box_says_so() {
    let quiet = LedgerReport { hostname: "box".into(), interval_s: 1.0, ..LedgerReport::default() };
    let text = ledger_text(&quiet, Look::plain(80));
    assert!(text.contains("Quiet: no packet arrived, left or was lost."), "{text}");
    assert!(!text.contains("What to do"), "{text}");
}

#[test]
fn no_line_is_wider_than_the_page() {
    for width in [60, 80, 120] {
        for line in ledger_text(&made_up(), Look::plain(width)).lines().skip(1) {
            assert!(line.chars().count() <= usize::from(width), "{width}: {line}");
        }
    }
}

/// Fields may be added; one that goes away or changes its meaning makes a new version of the schema.
#[test]
fn the_schema_is_stable() {
    insta::assert_json_snapshot!("schema_ledger_1", Document::new("ledger", 1, made_up()));
}
