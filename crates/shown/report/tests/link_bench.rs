//! Messages over link as the user reads them: the headline, and a page that needs no network.

mod page;
mod text;

use model::{
    link_bench::{Conditions, LinkBench, PingRound, Pings, Receive, Transfer},
    route_compare::Skipped,
    run::Machine,
    sources,
};
use report::{Look, link_bench_page, link_bench_text};
use text::unwrapped;

/// Nobody measured this.
fn pings(by: &str, receive: Receive, bytes: u32, p50_us: u64, over_tcp: Option<f64>) -> Pings {
    let round = PingRound { samples: 1000, min_ns: 500 * p50_us, p50_ns: 1000 * p50_us, p99_ns: 200_000 * p50_us };
    Pings {
        transport: by.into(),
        receive,
        bytes,
        beside_transfer: false,
        conditions: conditions(1500, true, None),
        rounds: vec![round],
        p50_ns: round.p50_ns as f64,
        p99_ns: round.p99_ns as f64,
        ratio_to_tcp: over_tcp,
    }
}

fn conditions(mtu: u32, offloads: bool, lost_per_million: Option<u32>) -> Conditions {
    Conditions { mtu, offloads, tcp_rmem: None, lost_per_million }
}

fn transfer(by: &str, conditions: Conditions, over_tcp: Option<f64>) -> Transfer {
    Transfer {
        transport: by.into(),
        bytes: 90_000_000,
        conditions,
        rounds_s: vec![1.5],
        seconds: 1.5,
        ratio_to_tcp: over_tcp,
    }
}

fn run(transfers: Vec<Transfer>) -> LinkBench {
    let sizes = [64, 5000].into_iter();
    let of = |bytes| {
        [
            pings("link", Receive::Polling, bytes, 12, Some(0.55)),
            pings("link", Receive::Sleeping, bytes, 40, Some(0.75)),
            pings("tcp", Receive::Spinning, bytes, 21, None),
            pings("tcp", Receive::Sleeping, bytes, 55, None),
            pings("broker", Receive::Spinning, bytes, 8000, None),
            pings("broker", Receive::Sleeping, bytes, 340, None),
        ]
    };
    LinkBench {
        timestamp: "2026-01-02T03:04:05Z".into(),
        machine: Machine { hostname: "made-up".into(), kernel: "6.1.0".into(), ..Machine::default() },
        disturbed: None,
        peer_machine: None,
        load_average: 0.25,
        cores: Vec::new(),
        rounds: 1,
        pings: sizes.flat_map(of).collect(),
        transfers,
        incasts: Vec::new(),
        crowds: Vec::new(),
        skipped: vec![Skipped { what: "UDP polling in the call".into(), reason: "there is nothing to poll".into() }],
        notes: vec!["A note".into()],
        sources: sources::cluster_figures(),
    }
}

#[test]
fn the_headline_is_of_the_plain_link_and_names_it() {
    let transfers = vec![
        transfer("link", conditions(1500, true, None), Some(0.03)),
        transfer("broker", conditions(1500, false, None), Some(0.5)),
        transfer("link", conditions(9000, false, None), Some(0.6)),
        transfer("link", conditions(1500, false, Some(0)), Some(0.7)),
        transfer("link", conditions(1500, false, Some(10_000)), Some(8.0)),
        transfer("link", conditions(1500, false, None), Some(0.25)),
    ];
    let sentence = "A round trip of 64 bytes over link takes 0.55 of TCP&#39;s time while polling, 0.75 of TCP&#39;s time asleep; a transfer has \
                25.0 % of TCP&#39;s rate (MTU 1500, no offloads).";
    let run = run(transfers);
    let page = link_bench_page(&run).unwrap();
    assert!(page.contains(sentence), "{page}");
    assert!(unwrapped(&link_bench_text(&run, Look::plain(400))).starts_with(&sentence.replace("&#39;", "'")));
}

#[test]
fn between_two_machines_the_headline_names_the_link_as_it_is() {
    let run = run(vec![transfer("link", conditions(1400, true, None), Some(0.5))]);
    let text = unwrapped(&link_bench_text(&run, Look::plain(400)));
    assert!(text.contains("a transfer has 50.0 % of TCP's rate (MTU 1400)."), "{text}");
}

#[test]
fn the_page_stands_alone_and_its_headings_are_plain_words() {
    let page = link_bench_page(&run(vec![transfer("link", conditions(1500, false, None), Some(0.5))])).unwrap();
    page::stands_alone(&page, &["there-polling-64", "there-asleep-64", "there-polling-5000", "transfer"]);
    assert!(page.contains("<div class=\"pair top\">"), "charts of other heights begin at one height");
    assert!(!page.contains('`'), "marks of a terminal's text");
    assert!(page.contains("What link run needs is in the table alone."));
}
