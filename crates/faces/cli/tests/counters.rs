//! The pages list the counters and metrics that there are: each by its name, and none besides.

use std::{
    collections::BTreeSet,
    fmt::Debug,
    fs,
    net::Ipv4Addr,
    path::{Path, PathBuf},
};

use bpf::LinkCounts;
use model::{
    counters::{Counter, Row},
    link::{LinkDelivery, LinkRefused},
    route::{RouteLost, RoutePort, RouteStatus, RouteTotals},
    shield::Totals,
    shield_event::Measure,
};
use rules::{Prefix, detect::DetectConfig, tables::RuleCount};
use serde::Serialize;
use serve::metrics::{Metrics, Notation};
use shield::detect::Detector;

type Names = BTreeSet<String>;

fn docs() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../../docs")
}

/// The text of a page between a mark and its end.
fn marked(page: &str, mark: &str) -> String {
    let text = fs::read_to_string(docs().join(page)).unwrap();
    let (begin, end) = (format!("<!-- {mark} -->\n"), format!("<!-- /{mark} -->"));
    let inside = text.split_once(&begin).and_then(|(_, rest)| rest.split_once(&end));
    inside.unwrap_or_else(|| panic!("{page} lacks the marks of {mark}")).0.trim().to_owned()
}

/// Words in code style in the first cell of each row.
fn first_cells(table: &str) -> Names {
    let cells = table.lines().filter_map(|line| line.strip_prefix("| ")?.split(" | ").next());
    cells.flat_map(quoted).collect()
}

/// Words in code style.
fn quoted(text: &str) -> Vec<String> {
    text.split('`').skip(1).step_by(2).map(ToOwned::to_owned).collect()
}

/// Fields of a struct of numbers.
fn fields(counts: &impl Debug) -> Names {
    let text = format!("{counts:#?}");
    text.lines().filter_map(|line| Some(line.split_once(": ")?.0.trim().to_owned())).collect()
}

/// Keys of an object in JSON, behind the key that holds it.
fn keys(holder: &str, object: &impl Serialize) -> Names {
    let value = serde_json::to_value(object).unwrap();
    value.as_object().unwrap().keys().map(|key| format!("{holder}.{key}")).collect()
}

/// Rows for a page: name, metric without `prefix`, and the sentence about the count; of counters that share a sentence the row of text.
fn rows<T>(prefix: &str, counters: &[Counter<T>]) -> Vec<String> {
    let row = |counter: &Counter<T>| {
        let metric = counter.metric.strip_prefix(prefix).expect("the prefix of the feature");
        let label = counter.label.map_or_else(String::new, |(label, _)| format!("{{{label}}}"));
        let text = match (counter.label, counter.row) {
            (Some(_), Row::Always(text) | Row::IfAny(text)) => text.trim(),
            _ => counter.help,
        };
        format!("| `{}` | `{metric}_total{label}` | {text} |", counter.name)
    };
    counters.iter().map(row).collect()
}

#[track_caller]
fn holds(page: &str, mark: &str, rows: &[String]) {
    let wanted = rows.join("\n");
    let table = marked(page, mark);
    let table = table.splitn(3, '\n').nth(2).expect("a head, a line and rows");
    assert!(table == wanted, "{page} is not in step; put this below the head of its table `{mark}`:\n{wanted}");
}

/// Names of samples.
fn families(metrics: &Metrics) -> Names {
    let text = metrics.text(Notation::Text);
    let name = |line: &str| Some(line.strip_prefix("# TYPE ")?.split(' ').next()?.to_owned());
    text.lines().filter_map(name).collect()
}

fn of_shield() -> Names {
    let threshold = [(Measure::Packets, 1.0), (Measure::Bits, 1.0)].into();
    let prefix = Prefix { address: Ipv4Addr::new(198, 18, 0, 0).into(), len: 24 };
    let detector = Detector::new(DetectConfig { threshold, ..DetectConfig::default() }, &[prefix]);
    let rules = [("a".to_owned(), RuleCount::default())];
    families(&shield::metrics::metrics("eth0", &Totals::default(), &rules, Some(&detector)))
}

fn of_route() -> Names {
    let port = RoutePort { lost: Some(RouteLost::default()), ..RoutePort::default() };
    families(&route::outputs::metrics(&RouteStatus { ports: vec![port], ..RouteStatus::default() }))
}

/// Of `families` those that are no counters of the tables, without `prefix`.
fn others<'a>(families: &Names, prefix: &str, counters: impl Iterator<Item = &'a str>) -> Names {
    let counted: Names = counters.map(|metric| format!("{metric}_total")).collect();
    families.difference(&counted).filter_map(|name| name.strip_prefix(prefix)).map(ToOwned::to_owned).collect()
}

#[test]
fn the_shield() {
    let (page, prefix) = ("run/shield-mitigation.md", "evenkeel_shield_");
    holds(page, "counters of shield", &rows(prefix, Totals::COUNTERS));
    let others = others(&of_shield(), prefix, Totals::COUNTERS.iter().map(|counter| counter.metric));
    assert_eq!(first_cells(&marked(page, "metrics of shield")), others);
}

#[test]
fn the_router() {
    let (page, prefix) = ("run/route.md", "evenkeel_route_");
    let rows = [rows(prefix, RouteTotals::COUNTERS), rows(prefix, RouteLost::COUNTERS)].concat();
    holds(page, "counters of route", &rows);
    let lost = RouteLost::COUNTERS.iter().map(|counter| counter.metric);
    let counted = RouteTotals::COUNTERS.iter().map(|counter| counter.metric).chain(lost);
    assert_eq!(first_cells(&marked(page, "metrics of route")), others(&of_route(), prefix, counted));
}

#[test]
fn link() {
    let names = keys("delivery", &LinkDelivery::default()).into_iter().chain(keys("refused", &LinkRefused::default()));
    assert_eq!(first_cells(&marked("run/link.md", "counters of link")), names.collect());
    let mut of_any_protocol = fields(&LinkCounts::default());
    assert!(of_any_protocol.remove("kind"), "the reason of messages alone");
    let named: Names = quoted(&marked("protocol/link-builders.md", "counters of the hook")).into_iter().collect();
    assert_eq!(named, of_any_protocol);
}

fn pages(folder: &Path, found: &mut Vec<PathBuf>) {
    for entry in fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        match path.is_dir() {
            true => pages(&path, found),
            false if path.extension().is_some_and(|end| end == "md") => found.push(path),
            false => {}
        }
    }
}

#[test]
fn no_page_names_a_metric_that_does_not_exist() {
    let (mut found, mut wrong) = (Vec::new(), Vec::new());
    pages(&docs(), &mut found);
    let (families, mut named) = (&of_shield() | &of_route(), 0);
    for page in found {
        for line in fs::read_to_string(&page).unwrap().lines() {
            // A table of renamed metrics has the name of today in its last column.
            let cells =
                line.trim_end_matches(" |").rsplit_once(" | ").filter(|(before, _)| before.contains("evenkeel_"));
            let text = cells.map_or(line, |(_, now)| now);
            let words = text.split(|c: char| !(c.is_ascii_alphanumeric() || c == '_'));
            let metrics =
                words.filter(|word| word.starts_with("evenkeel_shield_") || word.starts_with("evenkeel_route_"));
            for metric in metrics.filter(|word| !word.ends_with('_')) {
                named += 1;
                if !families.contains(metric) {
                    wrong.push(format!("{}: {metric}", page.display()));
                }
            }
        }
    }
    assert!(wrong.is_empty() && named > 5, "{named} are named: {wrong:#?}");
}
