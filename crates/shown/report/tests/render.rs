//! Output for the user: text at two widths, and a page that needs no network.

mod fields;
mod made_up;
mod page;

use fields::fields;
use report::{Look, demo_page, demo_text, top_text};
use serde_json::json;

#[test]
fn demo_as_text() {
    insta::assert_snapshot!("demo_80", demo_text(&made_up::run(2), Look { width: 80, lines: true }));
    insta::assert_snapshot!("demo_200_pipe", demo_text(&made_up::run(4), Look::plain(200)));
}

#[test]
fn top_as_text() {
    insta::assert_snapshot!("top_80", top_text(&made_up::sample(2), Look { width: 80, lines: true }));
    insta::assert_snapshot!("top_200_pipe", top_text(&made_up::sample(4), Look::plain(200)));
}

#[test]
fn no_line_is_wider_than_the_page() {
    for width in [60, 80, 120, 200] {
        let texts =
            [demo_text(&made_up::run(8), Look::plain(width)), top_text(&made_up::sample(8), Look::plain(width))];
        for line in texts.iter().flat_map(|t| t.lines().skip(1)) {
            assert!(line.chars().count() <= usize::from(width), "{width}: {line}");
        }
    }
}

#[test]
fn the_page_stands_alone() {
    for cpus in [4, 64, 256] {
        page::stands_alone(&demo_page(&made_up::run(cpus)).expect("a page"), &["rates", "published", "fates", "heat"]);
    }
}

#[test]
fn the_page_says_whose_figures_are_whose() {
    let page = demo_page(&made_up::run(2)).expect("a page");
    assert!(page.matches(report::PUBLISHED).count() >= 2, "over the chart and over the table");
    assert!(page.contains("Odintsov 2015; i7-3820"));
    assert!(page.contains("Made-up data: with one plain socket"));
    assert_eq!(page.matches("<details").count(), 7, "a ledger for every stage");
}

#[test]
fn one_measurement_has_no_spread() {
    let mut run = made_up::run(2);
    run.stages.iter_mut().for_each(|stage| stage.repeats.count = 1);
    let page = demo_page(&run).expect("a page");
    assert!(page.contains("measured once") && !page.contains("Lowest to highest"));
    assert!(demo_page(&made_up::run(2)).expect("a page").contains("Lowest to highest of"));
}

#[test]
fn what_a_run_says_cannot_become_markup() {
    let mut run = made_up::run(2);
    run.machine.hostname = "<script>alert(1)</script>".into();
    run.stages[0].name = "</script><b>".into();
    let page = demo_page(&run).expect("a page");
    assert!(!page.contains("<script>alert(1)"));
    assert!(!page.contains("</script><b>"));
}

#[test]
fn a_run_without_stages_or_sources_is_no_fault() {
    let mut run = made_up::run(2);
    run.stages.clear();
    run.sources.clear();
    assert!(demo_page(&run).expect("a page").contains("Conditions"));
    assert!(demo_text(&run, Look::plain(80)).contains("STAGE"));
}

/// Fields may be added; one that goes away or changes its meaning makes a new version of the schema.
#[test]
fn the_schemas_are_stable() {
    let top = model::schema::Document::new("top", 1, made_up::sample(1));
    insta::assert_snapshot!("schema_top_1", fields(&json!(top)));
    let mut run = made_up::run(1);
    run.stages.truncate(1);
    run.sources.truncate(1);
    insta::assert_snapshot!("schema_demo_1", fields(&json!(model::schema::Document::new("demo", 1, run))));
    let text = serde_json::to_string(&top).expect("JSON");
    let back: model::schema::Document<model::top::TopSample> = serde_json::from_str(&text).expect("a document");
    assert_eq!(back, top);
}

#[test]
fn a_busy_machine_is_reported_before_everything_else() {
    let mut run = made_up::run(2);
    assert!(!demo_page(&run).expect("a page").contains("The machine was busy"));
    run.disturbed = Some("Other programs took 73 % of the CPUs of this run: cc1 (pid 7)".into());
    assert!(demo_text(&run, Look::plain(200)).starts_with("The machine was busy. Other programs took 73 %"));
    let page = demo_page(&run).expect("a page");
    let (busy, conclusion) = (page.find("The machine was busy"), page.find("class=\"conclusion void\""));
    assert!(busy.is_some() && busy < conclusion, "{busy:?} {conclusion:?}");
}
