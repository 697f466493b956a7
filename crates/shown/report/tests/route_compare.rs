//! A comparison of ways to forward as the user reads it: text at several widths, and a page that needs no network.

mod page;

use std::collections::BTreeMap;

use model::{
    bench::{Goal, Verdict},
    profile::Class,
    route_compare::{Allocations, Bed, Configuration, Round, RouteCompare, Skipped},
    run::{Arrangement, CoreRole, Machine, Sharing},
    sources,
    sweep::{Gain, Setup, Step},
};
use report::{Look, route_compare_page, route_compare_text};

fn step(pps: f64, memory: f64) -> Step {
    Step {
        intended_pps: pps,
        offered_pps: pps,
        forwarded_pps: 0.99 * pps,
        loss_ratio: 0.01,
        classes: BTreeMap::from([(Class::Memory, memory), (Class::Ip, 60.0 - memory), (Class::Idle, 15.0)]),
        receiver_percent: 25.0,
        stat_idle_percent: 15.0,
        samples: 997,
        ..Step::default()
    }
}

/// Nobody measured this.
fn way(mode: &str, cores: u32, pps: f64, memory: f64) -> Configuration {
    let name = format!("{mode}, {} core", if cores == 1 { "one" } else { "two" });
    let verdict = if mode == "routed" { Verdict::TesterLimited { ceiling_pps: pps } } else { Verdict::Measured };
    let round = Round {
        throughput_pps: Some(pps),
        fails_at_pps: Some(1.03 * pps),
        verdict,
        latency: None,
        latency_at_reference: None,
        allocations: None,
    };
    Configuration {
        mode: mode.into(),
        cores,
        setup: Setup {
            key: format!("{mode}-{cores}"),
            name,
            what: format!("Made-up: {mode}."),
            settings: vec!["net.ipv4.ip_forward = 1".into()],
            ceiling_pps: pps,
            ceilings_pps: vec![pps, 1.01 * pps],
            at_ceiling: vec![step(pps, memory); 2],
            steps: vec![step(0.5 * pps, memory), step(pps, memory)],
        },
        gain: (mode != "none").then_some(Gain { ratio: 2.5, lowest: 2.4, highest: 2.6, significant: mode == "routed" }),
        round_trip_ns: Some(21_000.0),
        delay_p50_ns: Some(6_500.0),
        delay_p99_ns: Some(61_000.0),
        reference_p50_ns: Some(5_500.0),
        reference_p99_ns: Some(51_000.0),
        allocations: Some(Allocations { packets: 100_000, pages: 0.25, pool_pages: 0.0, socket_buffers: 1.0 }),
        rounds: vec![round; 2],
    }
}

fn bed(cores: u32) -> Bed {
    let role = CoreRole { cpus: [1].into_iter().collect(), role: "box under test".into() };
    let arrangement = Arrangement { sharing: Sharing::Apart, roles: vec![role] };
    Bed { cores, arrangement, ceiling_pps: Some(4e6) }
}

fn run(cores: u32) -> RouteCompare {
    let of = |n| [way("none", n, 8e5, 20.0), way("standard", n, 7.9e5, 21.0), way("routed", n, 2e6, 0.5)];
    RouteCompare {
        timestamp: "2026-01-02T03:04:05Z".into(),
        version: "0".into(),
        machine: Machine { hostname: "made-up".into(), kernel: "6.1.0".into(), ..Machine::default() },
        frame_bytes: 64,
        flows: 256,
        goal: Goal {
            name: "0.1 %".into(),
            loss_ratio: 0.001,
            exceed_ratio: 0.5,
            initial_s: 0.3,
            trial_s: 0.3,
            sum_s: 0.9,
            width: 0.03,
            longest_s: 5.0,
        },
        rounds: 2,
        latency_load: 0.5,
        seconds_per_step: 1.0,
        frequency_hz: 997,
        beds: (1..=cores).map(bed).collect(),
        configurations: (1..=cores).flat_map(of).collect(),
        skipped: vec![Skipped { what: "with the second core".into(), reason: "there is none".into() }],
        allocations_method: "Made up.".into(),
        sources: sources::router_figures(),
        conclusion: "Nobody measured this.".into(),
        notes: vec!["A note".into()],
    }
}

#[test]
fn no_line_of_the_text_is_wider_than_the_page() {
    for width in [80, 100, 120, 200] {
        for cores in [1, 2] {
            let text = route_compare_text(&run(cores), Look::plain(width));
            for line in text.lines().filter(|l| !l.contains("Orlova")) {
                assert!(line.chars().count() <= usize::from(width), "{width}: {line}");
            }
        }
    }
}

#[test]
fn the_text_has_each_way_with_its_figures_and_what_was_left_out() {
    let text = route_compare_text(&run(1), Look::plain(200));
    let line = |start: &str| text.lines().find(|l| l.starts_with(start)).unwrap_or_default().to_owned();
    for cell in ["800 kpps", "21.0 µs", "6.50 µs", "61.0 µs", "33.3 %", "0.250", "1.000"] {
        assert!(line("none, one core").contains(cell), "{cell}: {}", line("none, one core"));
    }
    // What bears no verdict stands in brackets, and a rate at which the tester was the limit is a lower bound.
    assert!(line("standard, one core").contains("(+150 %)"), "{text}");
    assert!(line("routed, one core").contains(">= 2.00 Mpps") && !line("routed, one core").contains("(+"), "{text}");
    assert!(text.contains("Left out, with the second core: there is none.") && text.contains("450 kpps"), "{text}");
    let without = RouteCompare { configurations: Vec::new(), sources: Vec::new(), ..run(1) };
    assert!(!route_compare_text(&without, Look::plain(200)).contains("450 kpps"));
}

#[test]
fn the_page_stands_alone_and_has_a_panel_for_each_way() {
    for cores in [1, 2] {
        let run = run(cores);
        let page = route_compare_page(&run).unwrap();
        let panels: Vec<String> = run.configurations.iter().map(|w| format!("sweep-{}", w.setup.key)).collect();
        let mut charts: Vec<&str> = panels.iter().map(String::as_str).collect();
        charts.extend(["throughput", "latency", "memory"]);
        page::stands_alone(&page, &charts);
        assert!(page.contains(report::PUBLISHED) && page.contains("660 kpps (+47 %)"));
        assert!(page.contains("Left out, with the second core"));
        // Charts of other heights beside each other begin at one height.
        assert!(page.contains("<div class=\"pair top\">\n<section>\n<h2>Throughput"));
        assert!(page.contains("class=\"conclusion\"") && page.contains(">500 kpps<") && page.contains(">2 Mpps<"));
    }
}

#[test]
fn a_way_without_figures_is_no_fault_and_no_markup() {
    let mut run = run(1);
    let way = &mut run.configurations[1];
    way.setup = Setup {
        ceiling_pps: 0.0,
        ceilings_pps: Vec::new(),
        at_ceiling: Vec::new(),
        steps: Vec::new(),
        what: "<script>alert(1)</script>".into(),
        ..way.setup.clone()
    };
    (way.gain, way.round_trip_ns, way.allocations) = (None, None, None);
    (way.delay_p50_ns, way.delay_p99_ns) = (None, None);
    (way.reference_p50_ns, way.reference_p99_ns) = (None, None);
    let page = route_compare_page(&run).unwrap();
    page::stands_alone(&page, &["throughput", "latency", "memory", "sweep-none-1"]);
    assert!(page.contains("no throughput") && page.contains("class=\"conclusion\""));
    let mut nothing = run.clone();
    nothing.configurations.iter_mut().for_each(|way| way.setup.ceilings_pps.clear());
    assert!(route_compare_page(&nothing).unwrap().contains("class=\"conclusion void\""));
    let text = route_compare_text(&run, Look::plain(200));
    assert!(text.lines().any(|l| l.starts_with("standard, one core") && l.matches(" -").count() >= 6), "{text}");
    // The others have their costs all the same.
    assert!(
        text.lines().any(|l| l.starts_with("CLASS") && l.contains("ROUTED-1") && !l.contains("STANDARD-1")),
        "{text}"
    );
}
