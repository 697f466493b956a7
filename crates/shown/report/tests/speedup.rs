//! The cost of communication as the user reads it: text at two widths, and a page that needs no network.

mod fields;
mod page;

use fields::fields;
use model::{
    run::Machine,
    speedup::{Estimate, Exchange, Fitting, Interval, Law, LinkSpeedup, Point, SCHEMA, Series, Times},
};
use report::{Look, speedup_page, speedup_text};
use serde_json::json;

const NODES: [u32; 4] = [1, 2, 4, 8];

/// Nobody measured this.
fn series(by: &str, exchange: Exchange, square_s: f64) -> Series {
    let times = Times { divided_s: 0.019, serial_s: 0.001, square_s };
    let point = |nodes| {
        let (fitted_s, off) = (times.seconds(nodes), if nodes == 4 { 1.02 } else { 1.0 });
        Point {
            nodes,
            rounds_s: vec![fitted_s * off; 3],
            seconds: fitted_s * off,
            exchange_rounds_s: vec![square_s * f64::from(nodes * nodes); 3],
            exchange_s: square_s * f64::from(nodes * nodes),
            exchange_ratio_to_tcp: (by == "link" && nodes > 1).then_some(0.75),
            speedup: times.alone_s() / (fitted_s * off),
            fitted_s,
            residual: off - 1.0,
        }
    };
    let law: Law = times.shares();
    let around = |value: f64| Interval { low: 0.9 * value, high: 1.1 * value };
    let open = |value: Option<f64>| Interval { low: value.map(|v| 0.9 * v), high: value.map(|v| 1.1 * v) };
    let estimate = Estimate {
        a: around(law.a),
        n: around(law.n),
        best_nodes: open(law.best_nodes()),
        greatest: open(law.greatest()),
        draws: 1000,
        fit: 1000,
    };
    Series {
        transport: by.into(),
        exchange,
        points: NODES.map(point).to_vec(),
        fitting: Fitting {
            divided_s: times.divided_s,
            serial_s: times.serial_s,
            square_s,
            law: Some(law),
            misfit: None,
            best_nodes: law.best_nodes(),
            greatest: law.greatest(),
            estimate,
        },
    }
}

fn run() -> LinkSpeedup {
    LinkSpeedup {
        nodes: Vec::new(),
        disturbed: None,
        timestamp: "2026-01-02T03:04:05Z".into(),
        machine: Machine { hostname: "made-up".into(), kernel: "6.1.0".into(), ..Machine::default() },
        load_average: 0.25,
        rounds: 3,
        steps: 10,
        step_s: 0.02,
        serial_share: 0.05,
        bytes: 8192,
        series: vec![
            series("link", Exchange::AllReduce, 30e-6),
            series("tcp", Exchange::AllReduce, 40e-6),
            series("link", Exchange::Neighbour, 5e-6),
            series("tcp", Exchange::Neighbour, 0.0),
        ],
        notes: vec!["A note".into()],
    }
}

/// The same, with a model that does not fit in the third series.
fn misfitting() -> LinkSpeedup {
    let mut run = run();
    let fitting = &mut run.series[2].fitting;
    let misfit = Times { divided_s: 0.019, serial_s: 0.001, square_s: -1e-6 }.law().unwrap_err();
    (fitting.law, fitting.best_nodes, fitting.greatest) = (None, None, None);
    (fitting.square_s, fitting.misfit) = (-1e-6, Some(misfit.to_string()));
    fitting.estimate.n = Interval { low: -1e-4, high: 1e-5 };
    run
}

#[test]
fn speedup_as_text() {
    insta::assert_snapshot!("speedup_80", speedup_text(&misfitting(), Look { width: 80, lines: true }));
    insta::assert_snapshot!("speedup_pipe", speedup_text(&run(), Look::plain(200)));
}

#[test]
fn no_line_is_wider_than_the_page() {
    for width in [80, 100, 200] {
        for run in [run(), misfitting()] {
            for line in speedup_text(&run, Look::plain(width)).lines() {
                assert!(line.chars().count() <= usize::from(width), "{width}: {line}");
            }
        }
    }
}

#[test]
fn the_page_stands_alone_and_plots_over_nodes_and_over_n() {
    let page = speedup_page(&run()).unwrap();
    let charts = ["nodes-all", "times-all", "network-all-link", "network-all-tcp", "nodes-near", "network-near-link"];
    page::stands_alone(&page, &charts);
    assert!(!page.contains("network-near-tcp"), "no axis of n goes around 0");
    assert!(page.contains("computing is emulated by waiting"));
    assert!(page.contains("0 (0 to 0)") && page.contains(">no bound<"), "n of nothing, and no best number");
    for curve in ["link, model", "TCP, measured", "without communication", "N = 8, measured"] {
        assert!(page.contains(curve), "{curve}");
    }
}

#[test]
fn a_model_that_does_not_fit_is_reported_with_its_residuals() {
    let run = misfitting();
    for shown in [speedup_page(&run).unwrap(), speedup_text(&run, Look::plain(400))] {
        assert!(shown.contains("the model does not fit") && shown.contains("no fit"));
        assert!(shown.contains("N = 4: +2.0 %"), "{shown}");
    }
    page::stands_alone(&speedup_page(&run).unwrap(), &["nodes-near", "times-near"]);
}

#[test]
fn three_points_say_nothing_of_the_model() {
    let mut run = run();
    assert!(!speedup_text(&run, Look::plain(200)).contains("three unknowns exactly"));
    run.series[0].points.truncate(3);
    assert!(
        speedup_text(&run, Look::plain(200))
            .contains("all-reduce over link: three numbers of nodes give the three unknowns exactly")
    );
}

#[test]
fn what_a_run_says_cannot_become_markup() {
    let mut run = run();
    run.machine.hostname = "<script>alert(1)</script>".into();
    run.series[0].transport = "</script><b>".into();
    let page = speedup_page(&run).unwrap();
    assert!(!page.contains("<script>alert(1)") && !page.contains("</script><b>"));
}

/// Fields may be added; one that goes away or changes its meaning makes a new version of the schema.
#[test]
fn the_schema_is_stable() {
    let mut run = run();
    run.series.truncate(1);
    run.series[0].points.truncate(1);
    insta::assert_snapshot!(
        "schema_link_speedup_1",
        fields(&json!(model::schema::Document::new("link.speedup", SCHEMA, run)))
    );
}
