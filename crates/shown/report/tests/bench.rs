//! A run of the bench as the user reads it.

mod composed_bench;
mod fields;
mod page;

use composed_bench::{frames, run};
use fields::fields;
use model::{
    bench::{BenchRun, Point, SCHEMA, Status, Unfinished, Verdict, compare},
    compare::Comparison,
    schema::Document,
};
use report::{BenchCsv, BenchView, Look, bench_compare_text, bench_csv, bench_page, bench_text};
use serde_json::json;

/// A run with only the first kinds of frames and modes.
fn small(modes: usize, points: usize) -> BenchRun {
    let mut run = run();
    run.modes.truncate(modes);
    run.modes.iter_mut().for_each(|m| m.points.truncate(points));
    run
}

#[test]
fn a_run_as_text() {
    // Of each kind of frames one, those that others have published, and the longest, at which the tester is the limit.
    let mut some = run();
    some.modes.iter_mut().for_each(|mode| mode.points = [0, 2, 6, 7, 8].map(|at| mode.points[at].clone()).into());
    insta::assert_snapshot!("bench_80", bench_text(&some, BenchView::default(), Look { width: 80, lines: true }));
    let everything = BenchView { every_load: true, steps: true, trials: true };
    insta::assert_snapshot!("bench_200_all", bench_text(&small(2, 1), everything, Look::plain(200)));
}

#[test]
fn a_page_of_one_frame_size_has_bars_from_zero_in_one_unit() {
    let page = bench_page(&small(2, 1)).unwrap();
    let theory = page.rsplit("Against what could be offered").next().expect("the section");
    let theory = theory.split("</svg>").next().unwrap_or_default();
    assert!(!theory.contains("logarithmic") && !theory.contains("1 000 kpps"), "{theory}");
    assert!(bench_page(&small(2, 3)).unwrap().contains("on a logarithmic axis, beside the most"));
}

#[test]
fn no_line_is_wider_than_the_page() {
    for width in [80, 100, 120, 200] {
        for line in bench_text(&run(), BenchView::default(), Look::plain(width)).lines() {
            assert!(line.chars().count() <= usize::from(width), "{width}: {line}");
        }
    }
}

#[test]
fn a_run_as_csv() {
    insta::assert_snapshot!("bench_results_csv", bench_csv(&small(1, 1), BenchCsv::Results).unwrap());
    insta::assert_snapshot!("bench_trials_csv", bench_csv(&small(1, 1), BenchCsv::Trials).unwrap());
}

#[test]
fn csv_has_as_many_fields_in_every_row() {
    for which in [BenchCsv::Results, BenchCsv::Trials] {
        let mut odd = run();
        odd.modes[0].points[0].trials[0].purpose = "a \"quoted\", and\nbroken purpose".into();
        let text = bench_csv(&odd, which).unwrap();
        // The reader refuses rows of differing lengths.
        let rows = csv::Reader::from_reader(text.as_bytes()).records().map(Result::unwrap).count();
        assert!(rows > 100, "{rows}");
    }
}

#[test]
fn a_limited_tester_gives_no_throughput() {
    let mut run = small(1, 1);
    let throughput = run.modes[0].points[0].throughput.as_mut().unwrap();
    throughput.verdict = Verdict::TesterLimited { ceiling_pps: 900e3 };
    let text = bench_text(&run, BenchView::default(), Look::plain(200));
    assert!(text.contains("tester-limited (ceiling 900 kpps)"), "{text}");
    assert!(text.lines().any(|l| l.starts_with("64") && l.contains(">= 844 kpps")), "{text}");
    assert!(!text.contains("of the router's rate"), "no filter's cost from a bound: {text}");
}

#[test]
fn a_run_without_a_throughput_is_void_on_its_page_and_has_no_charts() {
    let mut run = small(1, 1);
    let good = bench_page(&run).unwrap();
    assert!(good.contains("class=\"conclusion\"") && good.contains("id=\"theory\""));
    // One size: bars, not lines of one dot.
    let theory = good.split("id=\"theory\"").nth(1).and_then(|rest| rest.split("</figure>").next()).unwrap();
    assert!(theory.contains("<rect") && !theory.contains("<circle"), "{theory}");
    let point = &mut run.modes[0].points[0];
    point.throughput.as_mut().unwrap().verdict = Verdict::Unfinished { reason: "stopped after 9 s".into() };
    let void = bench_page(&run).unwrap();
    assert!(void.contains("class=\"conclusion void\"") && void.contains("stopped after 9 s"));
    assert!(!void.contains("id=\"theory\"") && !void.contains("id=\"rates\""));
}

#[test]
fn a_void_run_is_a_reason_and_no_table_of_dashes() {
    let mut run = small(1, 1);
    let point = &mut run.modes[0].points[0];
    let reason = "10 trials in a row were void: others used the cores".to_owned();
    let throughput = model::bench::Throughput { verdict: Verdict::Void { reason }, ..point.throughput.take().unwrap() };
    *point = Point { throughput: Some(throughput), ..Point::new(frames()[0].clone()) };
    let shown = |run: &BenchRun| bench_text(run, BenchView::default(), Look::plain(200));
    for ceiling_pps in [None, Some(845e3)] {
        run.modes[0].points[0].ceiling_pps = ceiling_pps;
        let text = shown(&run);
        assert!(text.contains("throughput at 64: void: 10 trials in a row were void"), "{text}");
        assert_eq!(text.contains("845 kpps"), ceiling_pps.is_some(), "{text}");
        assert!(!text.contains("throughput (RFC 2544") && !text.contains("ublished by others"), "{text}");
        assert!(!text.lines().any(|line| line.starts_with("64") && line.contains(" - ")), "{text}");
    }
    // A bound that was found before the time was over is a figure.
    let verdict = Verdict::Unfinished { reason: "stopped after 9 s".into() };
    run.modes[0].points[0].throughput.as_mut().unwrap().verdict = verdict;
    assert!(shown(&run).contains("throughput (RFC 2544"), "{}", shown(&run));
}

#[test]
fn what_is_missing_is_no_fault() {
    let mut partial = run();
    let begun = Unfinished { mode: "stateful".into(), frame: frames()[1].clone(), test: "latency".into(), trials: 3 };
    partial.status =
        Status::Partial { reason: "interrupted; 30 of 36 points are missing".into(), begun: Some(begun.clone()) };
    partial.modes[0].points = frames().into_iter().map(Point::new).collect();
    partial.modes[1].points[0].throughput.as_mut().unwrap().verdict = Verdict::Nothing;
    partial.modes[1].points[0].throughput.as_mut().unwrap().results[0].lower_pps = None;
    partial.modes[2].points.clear();
    partial.setup.goals.clear();
    partial.sources.clear();
    let text = bench_text(&partial, BenchView { every_load: true, steps: true, trials: true }, Look::plain(80));
    assert!(text.contains("PARTIAL: interrupted"), "{text}");
    let step = "begun and not finished: stateful, 128, latency, with 3 trials";
    assert!(text.contains(&format!("PARTIAL: {step}")), "{text}");
    assert!(text.contains("nothing"), "{text}");
    let csv = bench_csv(&partial, BenchCsv::Results).unwrap();
    let row = "stateful,128,128,82,latency,interrupted; 30 of 36 points are missing,,partial run: begun and not finished,trials,3";
    assert_eq!(csv.lines().nth(1), Some(row));
    assert!(csv.lines().count() > 2 && !bench_csv(&run(), BenchCsv::Results).unwrap().contains("partial"));
    let page = bench_page(&partial).unwrap();
    assert!(page.contains("<strong>Partial:</strong> interrupted") && page.contains(step));
    partial.modes.clear();
    let page = bench_page(&partial).unwrap();
    assert!(page.contains("Conditions") && page.contains("No throughput was found") && !page.contains("id=\"rates\""));
    assert!(bench_text(&partial, BenchView::default(), Look::plain(80)).contains("Machine"));
}

#[test]
fn the_page_stands_alone() {
    let charts = ["rates", "bits", "theory", "published", "round-trips", "one-way", "over-load", "jitter"];
    let page = bench_page(&run()).unwrap();
    page::stands_alone(&page, &charts);
    page::stands_alone(&page, &["cpu-frames", "cpu-classes", "loss-router", "loss-xdp-fib"]);
}

#[test]
fn the_page_has_the_charts_of_the_study() {
    let page = bench_page(&run()).unwrap();
    let chart = |id: &str| page.split(id).nth(1).and_then(|rest| rest.split("</figure>").next()).unwrap();
    assert!(chart("id=\"rates\"").contains(">500 kpps<") && chart("id=\"rates\"").contains(">2.5 Mpps<"));
    assert!(chart("id=\"bits\"").contains(">10 Gbit/s<") && chart("id=\"loss-router\"").contains(">2 Mpps<"));
    let bars = page.split("id=\"cpu-frames\"").nth(1).and_then(|rest| rest.split("</figure>").next()).unwrap();
    assert_eq!(bars.matches("<li>").count(), 4, "bars of four modes");
    assert!(page.contains(report::PUBLISHED) && page.contains("pfSense on KVM, 2017"));
    assert!(page.contains("void: pacing missed by 2.1 %"));
}

#[test]
fn what_a_run_says_cannot_become_markup() {
    let mut run = small(2, 2);
    run.machine.hostname = "<script>alert(1)</script>".into();
    run.modes[0].name = "</script><b>".into();
    run.modes[0].points[0].trials[0].purpose = "<i>why</i>".into();
    let page = bench_page(&run).unwrap();
    for markup in ["<script>alert(1)", "</script><b>", "<i>why</i>"] {
        assert!(!page.contains(markup), "{markup}");
    }
}

#[test]
fn a_real_port_has_a_line_rate() {
    let mut run = small(1, 1);
    run.setup.line_bits_per_s = Some(10e9);
    let text = bench_text(&run, BenchView::default(), Look::plain(200));
    // 10 Gbit/s carry 14.88 million frames of 64 bytes in each direction.
    assert!(text.contains("OF THE LINE") && text.contains("Line rate: 10.0 Gbit/s"), "{text}");
    assert!(bench_csv(&run, BenchCsv::Results).unwrap().contains("line rate,units/s,29761905"));
}

/// A run, and one with a throughput that is higher by a fifth and shorter round trips under load.
fn two_runs() -> Comparison<compare::Row> {
    let mut faster = small(2, 2);
    faster.machine.kernel = "6.18.0".into();
    for point in faster.modes.iter_mut().flat_map(|m| &mut m.points) {
        let found = &mut point.throughput.as_mut().unwrap().results[0];
        found.lower_pps = found.lower_pps.map(|pps| 1.2 * pps);
        found.upper_pps = found.upper_pps.map(|pps| 1.2 * pps);
        point.latency[4].series_ns.iter_mut().for_each(|ns| *ns *= 0.8);
    }
    let runs = [("old.json".to_owned(), small(2, 2)), ("new.json".to_owned(), faster)];
    compare::compare(&runs)
}

#[test]
fn runs_side_by_side() {
    let compared = two_runs();
    insta::assert_snapshot!("bench_compare_80", bench_compare_text(&compared, Look { width: 80, lines: true }));
    let document = Document::new("bench.compare", compare::SCHEMA, compared);
    let text = serde_json::to_string(&document).unwrap();
    let back = serde_json::from_str::<Document<Comparison<compare::Row>>>(&text).unwrap();
    assert_eq!(bench_compare_text(&back.body, Look::plain(100)), bench_compare_text(&document.body, Look::plain(100)));
}

/// Fields may be added; one that goes away or changes its meaning makes a new version of the schema.
#[test]
fn the_schema_is_stable() {
    let mut run = small(1, 1);
    run.modes[0].points[0].trials.truncate(1);
    run.sources.truncate(1);
    let document = Document::new("bench", SCHEMA, run);
    insta::assert_snapshot!("schema_bench_1", fields(&json!(document)));
    let text = serde_json::to_string(&document).unwrap();
    let back = serde_json::from_str::<Document<BenchRun>>(&text).unwrap();
    // Floating-point numbers may come back with another last digit; the page shows none of it.
    let page =
        |run: &BenchRun| bench_text(run, BenchView { every_load: true, steps: true, trials: true }, Look::plain(200));
    assert_eq!((back.schema.as_str(), page(&back.body)), ("evenkeel.bench/1", page(&document.body)));
}

#[test]
fn the_testers_own_ceiling_is_no_row_of_dashes() {
    let mut run = small(2, 2);
    let mut wire = run.modes[0].clone();
    (wire.key, wire.name) = ("wire".to_owned(), "no box".to_owned());
    wire.points.iter_mut().for_each(|p| *p = Point { ceiling_pps: Some(2e6), ..Point::new(p.frame.clone()) });
    run.modes.insert(0, wire);
    let text = bench_text(&run, BenchView::default(), Look::plain(120));
    let heads = text.lines().find(|l| l.starts_with("FRAME")).unwrap();
    assert!(heads.contains("router") && heads.contains("(ceiling)") && !heads.contains("wire"), "{heads}");
    let page = bench_page(&run).unwrap();
    let heads = page.lines().find(|l| l.contains("<th>Frame</th>")).unwrap();
    assert!(heads.contains("Router") && !heads.contains("no box"), "{heads}");
    let opened = page.lines().skip_while(|l| *l != "<details open>").nth(1).unwrap();
    assert!(opened.contains("Router") && page.matches("<details open>").count() == 1, "{opened}");
}
