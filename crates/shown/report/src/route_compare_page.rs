//! The ways in which a router can forward, as one self-contained page.

use askama::Template;
use model::{
    profile::Class,
    route_compare::{RouteCompare, Way},
    sweep::{Setup, Step},
    units,
};

use crate::{
    chart::{
        Room,
        columns::{self, Column, Columns},
        rows::{self, Axis, Bars},
    },
    load_areas,
    page::PageError,
    route_compare as figures, sweep,
};

const BY_CORES: [&str; 2] = ["#2f7fc1", "#e08214"];
const BLUE: &str = "#2f7fc1";
const GREEN: &str = "#7a9a01";
const RED: &str = "#c2334d";
const GREY: &str = "#8a8f98";

#[derive(Template)]
#[template(path = "route_compare.html")]
struct Page<'a> {
    run: &'a RouteCompare,
    throughput: String,
    latency: Option<String>,
    memory: Option<String>,
    heads: Vec<(&'static str, &'static str)>,
    rows: Vec<(&'a Way, Vec<(&'static str, String)>)>,
    meaning: String,
    panels: Vec<(&'a Way, String)>,
    legend: Vec<(&'static str, &'static str)>,
    costed: Vec<&'a Way>,
    costs: Vec<(String, Vec<sweep::Range>)>,
    costs_of_what: &'static str,
    published_title: &'static str,
    conditions: Vec<(&'static str, String)>,
}

/// The page: one HTML text that loads nothing from anywhere, charts included.
///
/// # Errors
/// Only by a fault of the template.
pub fn route_compare_page(run: &RouteCompare) -> Result<String, PageError> {
    let setups: Vec<&Setup> = run.ways.iter().map(|w| &w.setup).collect();
    let areas = load_areas::areas(&setups);
    // A narrow page has room for the others alone.
    let class = |head: &str| match figures::FIRST_TO_GO.contains(&head.to_uppercase().as_str()) {
        true => "n wide",
        false => "n",
    };
    let cells = |way| {
        let all = figures::figures().map(|(head, cell)| (class(head), cell(way).unwrap_or_else(|| "\u{2013}".into())));
        all.collect()
    };
    let page = Page {
        run,
        throughput: throughput(run),
        latency: latency(run),
        memory: memory(run),
        heads: figures::figures().map(|(head, _)| (class(head), head)).collect(),
        rows: run.ways.iter().map(|way| (way, cells(way))).collect(),
        meaning: figures::legend(run),
        panels: run.ways.iter().map(|w| (w, load_areas::panel(&setups, &w.setup, &areas))).collect(),
        legend: load_areas::legend(&areas),
        costed: figures::costed(run),
        costs: figures::costs(run),
        costs_of_what: figures::COSTS_OF_WHAT,
        published_title: crate::page::PUBLISHED,
        conditions: figures::conditions(run),
    };
    Ok(page.render()?)
}

/// The name of a way without its cores.
fn mode(way: &Way) -> String {
    way.setup.name.split(',').next().unwrap_or_default().to_owned()
}

/// The throughput of each way, a colour for each number of cores, with the range of the rounds.
fn throughput(run: &RouteCompare) -> String {
    let mut names: Vec<String> = Vec::new();
    for way in &run.ways {
        if !names.contains(&mode(way)) {
            names.push(mode(way));
        }
    }
    let kpps = |pps: f64| pps / 1e3;
    let column = |way: &Way| Column {
        over: mode(way),
        value: kpps(way.setup.ceiling_pps),
        interval: range(&way.setup.ceilings_pps).map(|(low, high)| (kpps(low), kpps(high))),
        hatched: figures::is_least(way),
    };
    let series = run.beds.iter().map(|bed| Columns {
        name: if bed.cores == 1 { "one core".into() } else { format!("{} cores", bed.cores) },
        colour: BY_CORES[(bed.cores as usize).saturating_sub(1) % BY_CORES.len()],
        columns: run.ways.iter().filter(|w| w.cores == bed.cores).map(column).collect(),
    });
    let label =
        "Columns: throughput of each way to forward, in thousand packets per second; the figures are in the table";
    columns::chart("throughput", label, &names, &series.collect::<Vec<_>>(), "kpps", |kpps| rows::rate(1e3 * kpps))
}

fn range(values: &[f64]) -> Option<(f64, f64)> {
    let low = values.iter().copied().reduce(f64::min)?;
    let high = values.iter().copied().reduce(f64::max)?;
    Some((low, high))
}

fn bars(run: &RouteCompare, name: &str, colour: &'static str, of: impl Fn(&Way) -> Option<(f64, String)>) -> Bars {
    let bar = |way: &Way| of(way).map_or((None, "\u{2013}".into()), |(value, text)| (Some(value), text));
    Bars { name: name.to_owned(), colour, hatched: false, bars: run.ways.iter().map(bar).collect() }
}

fn names(run: &RouteCompare) -> Vec<String> {
    run.ways.iter().map(|w| w.setup.name.clone()).collect()
}

/// Round trips and delays of each way; none without any.
fn latency(run: &RouteCompare) -> Option<String> {
    let delay = |ns: Option<f64>| ns.map(|ns| (ns, units::nanoseconds(ns)));
    let series = [
        bars(run, "round trip", BLUE, |w| delay(w.round_trip_ns)),
        bars(run, "delay, median", GREEN, |w| delay(w.delay_p50_ns)),
        bars(run, "delay, percentile 99", RED, |w| delay(w.delay_p99_ns)),
        bars(run, "delay at one load for all, percentile 99", GREY, |w| delay(w.beside_p99_ns)),
    ];
    let label = "Bars: round trip and one-way delay of each way to forward; the figures are in the table";
    let some = series.iter().any(|s| s.bars.iter().any(|(value, _)| value.is_some()));
    some.then(|| rows::chart("latency", label, Room::Half, &names(run), &series, Axis::Times))
}

/// Memory of each packet, of each way; none where it was not counted.
fn memory(run: &RouteCompare) -> Option<String> {
    let series = [
        bars(run, "socket buffers", RED, |w| {
            w.allocations.map(|a| (a.socket_buffers, figures::each(a.socket_buffers)))
        }),
        bars(run, "pages", BLUE, |w| w.allocations.map(|a| (a.pages, figures::each(a.pages)))),
        bars(run, "pages new to a pool", GREEN, |w| w.allocations.map(|a| (a.pool_pages, figures::each(a.pool_pages)))),
    ];
    let label = "Bars: socket buffers and pages for each forwarded packet, of each way to forward; the figures are in the table";
    let some = run.ways.iter().any(|w| w.allocations.is_some());
    some.then(|| rows::chart("memory", label, Room::Half, &names(run), &series, Axis::Numbers("")))
}

impl Page<'_> {
    /// Whether no way has a throughput.
    fn void(&self) -> bool {
        self.run.ways.iter().all(|way| way.setup.ceilings_pps.is_empty())
    }

    /// What each way lets through on the first bed, and the rest.
    fn headline(&self) -> (String, String) {
        match self.run.conclusion.split_once(". ") {
            Some((first, rest)) => (format!("{first}."), rest.to_owned()),
            None => (self.run.conclusion.clone(), String::new()),
        }
    }

    fn throughput_of(&self, way: &Way) -> String {
        figures::throughput(way).map_or_else(|| "no throughput".to_owned(), |pps| format!("throughput {pps}"))
    }

    fn pps(&self, rate: &f64) -> String {
        units::pps(*rate)
    }

    fn percent(&self, ratio: &f64) -> String {
        units::percent(*ratio)
    }

    fn range(&self, range: &sweep::Range) -> String {
        sweep::range(*range)
    }

    fn own(&self, step: &Step) -> String {
        format!("{:.0}", step.busy_percent())
    }

    fn memory_of(&self, step: &Step) -> String {
        format!("{:.1}", step.percent_of_busy(Class::Memory))
    }

    fn lab(&self, step: &Step) -> String {
        format!("{:.0}", step.receiver_percent)
    }

    fn steal(&self, step: &Step) -> String {
        format!("{:.0}", step.percent(Class::Steal))
    }

    fn idle(&self, step: &Step) -> String {
        format!("{:.0}", step.percent(Class::Idle))
    }
}
