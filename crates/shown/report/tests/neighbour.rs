//! The page of a run beside noisy neighbours.

mod page;

use model::{
    bench::{
        FrameSpec,
        neighbour::{Boxed, Condition, Disturbed, Measure, NeighbourRun, Reading, costs},
    },
    run::Machine,
    sources,
};
use report::neighbour_page;

fn run(conclusions: &[&str]) -> NeighbourRun {
    NeighbourRun {
        timestamp: "2026-01-02T03:04:05Z".into(),
        version: "0".into(),
        machine: Machine::default(),
        load_average: 0.25,
        preset: "quick".into(),
        frame: FrameSpec::Size { bytes: 64 },
        cores: Vec::new(),
        rounds: 3,
        trial_s: 1.0,
        seed: 7,
        stolen: 0,
        boxes: Vec::new(),
        partial: None,
        skipped: vec!["cache on sibling: there is none".into()],
        conclusions: conclusions.iter().map(|&sentences| sentences.to_owned()).collect(),
        notes: Vec::new(),
        sources: Vec::new(),
    }
}

#[test]
fn the_verdict_stands_first_and_is_amber_where_there_is_none() {
    let judged =
        run(&["router, cpu on box: one-way delay +1 ms (+80 %)", "router, io on box: nothing could be judged"]);
    let page = neighbour_page(&judged).unwrap();
    let (verdict, skipped) = (page.find("class=\"conclusion\""), page.find("Left out"));
    assert!(verdict.is_some() && verdict < skipped, "{verdict:?} {skipped:?}");
    assert!(page.contains("cpu on box: one-way delay +1 ms (+80 %).</p>"));
    let partial = NeighbourRun { partial: Some("interrupted".into()), ..judged };
    let unjudged = run(&["router, io on box: nothing could be judged"]);
    for void in [partial, unjudged, run(&[])] {
        let page = neighbour_page(&void).unwrap();
        assert!(page.contains("class=\"conclusion void\""), "{:?}", void.conclusions);
    }
    assert!(neighbour_page(&run(&[])).unwrap().contains("No verdict: no neighbour was measured."));
}

/// Nobody measured this: three rounds, each measure so many times that of a quiet box.
fn readings(times: f64) -> Vec<Reading> {
    let value = |measure: Measure| match measure {
        Measure::Loss => 0.0004 * times,
        Measure::Waiting => 0.02 * times,
        Measure::Median | Measure::IdleTrip => 25_000.0 * times,
        Measure::P99 | Measure::Max => 90_000.0 * times * times,
        Measure::Jitter | Measure::LoadedTrip => 60_000.0 * times,
        Measure::Cpu => 700.0 * times,
    };
    let round = |off: f64| Reading {
        values: Measure::ALL.into_iter().map(|measure| (measure, off * value(measure))).collect(),
        neighbour_cpus: 0.98,
        ..Reading::default()
    };
    [1.0, 1.04, 0.97].map(round).to_vec()
}

fn disturbed(neighbour: Option<&str>, remedy: &str, times: f64) -> Disturbed {
    let readings = readings(times);
    let condition = Condition {
        neighbour: neighbour.map(str::to_owned),
        on: neighbour.map(|_| "box".to_owned()),
        cpus: neighbour.map(|_| "2".to_owned()),
        remedy: remedy.into(),
    };
    let costs = costs(&self::readings(1.0), &readings);
    let gains = if remedy == "none" { Vec::new() } else { costs.clone() };
    Disturbed { condition, readings, costs, remedy: gains }
}

/// The quiet box once more: other rounds, the same mean.
fn again() -> Disturbed {
    let mut readings = readings(1.0);
    readings.reverse();
    let costs = costs(&self::readings(1.0), &readings);
    Disturbed { costs, readings, ..disturbed(None, "none", 1.0) }
}

fn boxed(key: &str) -> Boxed {
    let mut quiet = readings(1.0);
    quiet[0].values.remove(&Measure::Loss);
    quiet[0].missing.push("loss: a hypervisor took more than 2 % of a core in 3 trials".into());
    Boxed {
        key: key.into(),
        name: key.into(),
        what: "Made-up.".into(),
        throughput_pps: 812_000.0,
        tester_limited: true,
        rate_pps: 406_000.0,
        quiet,
        rows: vec![
            again(),
            disturbed(Some("memory:1024"), "none", 2.0),
            disturbed(Some("memory:1024"), "threaded-napi", 1.2),
            disturbed(Some("cpu:1"), "none", 12.0),
            disturbed(Some("cpu:1"), "nice", 1.5),
        ],
    }
}

fn whole() -> NeighbourRun {
    let sentences = [
        "router, quiet again: no cost beyond chance",
        "router, cpu:1 on box: delay, 99 % +13.0 ms (+14300 %), waiting for the CPU +22.0 points",
    ];
    NeighbourRun {
        boxes: vec![boxed("router"), boxed("stateful")],
        sources: sources::neighbour_figures(),
        notes: vec!["`quiet again` is the quiet box measured twice in each round".into()],
        machine: Machine { hostname: "made-up".into(), kernel: "6.1.0".into(), ..Machine::default() },
        ..run(&sentences)
    }
}

#[test]
fn the_page_stands_alone_and_has_the_charts_of_each_box() {
    let page = neighbour_page(&whole()).unwrap();
    page::stands_alone(&page, &["router-loss", "router-delay99", "stateful-idleroundtrip"]);
    // Of each box six rows of nine measures beside the quiet one or no remedy, of which those of the quiet box are chance.
    for part in ["<summary>54 beyond chance</summary>", "<summary>9 that may be chance</summary>"] {
        assert_eq!(page.matches(part).count(), 2, "{part}");
    }
    assert!(page.contains("<details open>") && page.contains("<h3>Delay, 99 %</h3>") && !page.contains('`'));
    assert!(page.contains("<code>quiet again</code> is the quiet box") && page.contains(">logarithmic</li>"));
    assert!(page.contains("<td class=\"group\" colspan=\"6\">cpu:1 on box, nice, beside no remedy</td>"));
    assert!(page.contains("<dt>Frames</dt><dd>64 bytes</dd>"));
    let unjudged = NeighbourRun { boxes: vec![Boxed { rows: vec![again()], ..boxed("router") }], ..whole() };
    assert!(neighbour_page(&unjudged).unwrap().contains("No difference is beyond chance."));
}
