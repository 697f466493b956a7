//! The ways in which a router can forward, as one self-contained page.

use model::{
    route_compare::{Configuration, RouteCompare},
    sweep::Setup,
    units,
};

use crate::{
    chart::{
        Room,
        columns::{self, Column, Columns},
        once,
        rows::{self, Axis, Bars},
    },
    load_areas,
    page::{Html, Page, PageError, Section},
    route_compare as figures,
};

const BY_CORES: [&str; 2] = ["#2f7fc1", "#e08214"];
const BLUE: &str = "#2f7fc1";
const GREEN: &str = "#7a9a01";
const RED: &str = "#c2334d";
const GREY: &str = "#8a8f98";

/// The page: one HTML text that loads nothing from anywhere, charts included.
pub fn route_compare_page(run: &RouteCompare) -> Result<String, PageError> {
    let setups: Vec<&Setup> = run.configurations.iter().map(|w| &w.setup).collect();
    let areas = load_areas::areas(&setups);
    let heading = "What each way to forward lets through, and what it costs";
    let mut page = Page::new("route compare", heading, (&run.machine, &run.timestamp), "");
    let main = &mut page.main;
    // What each way lets through on the first bed, and the rest.
    let (first, rest) = match run.conclusion.split_once(". ") {
        Some((first, rest)) => (format!("{first}."), rest),
        None => (run.conclusion.clone(), ""),
    };
    main.conclude(first, run.configurations.iter().all(|configuration| configuration.setup.ceilings_pps.is_empty()));
    if !rest.is_empty() {
        main.say(rest);
    }
    for left in &run.skipped {
        main.warn(&format!("Left out, {}:", left.what), format_args!("{}.", left.reason));
    }
    // A narrow page has room for the others alone.
    let narrow = |head: &str| !figures::FIRST_TO_GO.contains(&head.to_uppercase().as_str());
    let heads = figures::figures().map(|(head, _)| format!("{}{head}", if narrow(head) { ">" } else { ">>" }));
    let heads: Vec<String> = ["Way".to_owned()].into_iter().chain(heads).collect();
    let row = |configuration: &Configuration| {
        let cells = figures::figures().map(|(_, cell)| cell(configuration).unwrap_or_else(|| "\u{2013}".into()));
        [configuration.setup.name.clone()].into_iter().chain(cells).collect::<Vec<_>>()
    };
    main.table(&heads, run.configurations.iter().map(row));
    main.quiet(figures::legend(run));
    let about =
        "Never measured by evenkeel: packets beside the throughput above, memory beside its column of that name.";
    main.published(about, &load_areas::SOURCES, &run.sources);
    main.pair(true, charts(run));
    main.heading(2, "CPU time over the load");
    main.quiet(
        "Share of the time of the box's cores by class of work (areas), and what came out of the box (line), over the offered load.",
    );
    main.push(load_areas::legend(&areas));
    let panel = |s: &&Setup| Section::new(3, &s.name, &s.what, load_areas::panel(&setups, s, &areas));
    main.pair(false, setups.iter().map(panel));
    let costs = figures::costs(run);
    if !costs.is_empty() {
        main.heading(2, "What a packet costs");
        main.quiet(format_args!("{}: mean (lowest-highest).", figures::COSTS_OF_WHAT));
        let costed: Vec<&Setup> = figures::costed(run).into_iter().map(|configuration| &configuration.setup).collect();
        load_areas::costs(main, &costed, costs);
    }
    main.heading(2, "Loads");
    for configuration in &run.configurations {
        let mut loads = Html::default();
        loads.settings(&configuration.setup.settings);
        load_areas::steps(&mut loads, &configuration.setup.steps, false);
        let throughput = figures::throughput(configuration);
        let more = throughput.map_or_else(|| "no throughput".to_owned(), |pps| format!("throughput {pps}"));
        main.details(false, &configuration.setup.name, Some(more), &loads);
    }
    page.end(figures::conditions(run))
}

fn charts(run: &RouteCompare) -> Vec<Section> {
    let median = "Packets per second: the median of the rounds, with the lowest and the highest. Hatched: the tester was the limit, and the way does at least this.";
    let delays = format!(
        "At {} of each way's own throughput: the round trip of probes, and the one-way delay of the load itself; then the delay at one load for all, the same share of what no program forwards.",
        units::percent(run.latency_load)
    );
    let taken = "Socket buffers and pages on the box's cores for each packet that came out, at the same load. The conditions say how they are counted.";
    let mut all = vec![Section::new(2, "Throughput", median, throughput(run))];
    all.extend(latency(run).map(|chart| Section::new(2, "Latency", delays, chart)));
    all.extend(memory(run).map(|chart| Section::new(2, "Memory of each packet", taken, chart)));
    all
}

/// The name of a way without its cores.
fn mode(configuration: &Configuration) -> String {
    configuration.setup.name.split(',').next().unwrap_or_default().to_owned()
}

/// The throughput of each way, a colour for each number of cores, with the range of the rounds.
fn throughput(run: &RouteCompare) -> String {
    let names = once(run.configurations.iter().map(mode));
    let kpps = |pps: f64| pps / 1e3;
    let column = |configuration: &Configuration| Column {
        over: mode(configuration),
        value: kpps(configuration.setup.ceiling_pps),
        interval: range(&configuration.setup.ceilings_pps).map(|(low, high)| (kpps(low), kpps(high))),
        hatched: figures::is_least(configuration),
    };
    let series = run.beds.iter().map(|bed| Columns {
        name: if bed.cores == 1 { "one core".into() } else { format!("{} cores", bed.cores) },
        colour: BY_CORES[(bed.cores as usize).saturating_sub(1) % BY_CORES.len()],
        columns: run.configurations.iter().filter(|w| w.cores == bed.cores).map(column).collect(),
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

fn bars(
    run: &RouteCompare,
    name: &str,
    colour: &'static str,
    of: impl Fn(&Configuration) -> Option<(f64, String)>,
) -> Bars {
    let bar = |configuration: &Configuration| {
        of(configuration).map_or((None, "\u{2013}".into()), |(value, text)| (Some(value), text))
    };
    Bars::new(name, colour, run.configurations.iter().map(bar))
}

fn names(run: &RouteCompare) -> Vec<String> {
    run.configurations.iter().map(|w| w.setup.name.clone()).collect()
}

/// Round trips and delays of each way; none without any.
fn latency(run: &RouteCompare) -> Option<String> {
    let delay = |ns: Option<f64>| ns.map(|ns| (ns, units::nanoseconds(ns)));
    let series = [
        bars(run, "round trip", BLUE, |w| delay(w.round_trip_ns)),
        bars(run, "delay, median", GREEN, |w| delay(w.delay_p50_ns)),
        bars(run, "delay, percentile 99", RED, |w| delay(w.delay_p99_ns)),
        bars(run, "delay at one load for all, percentile 99", GREY, |w| delay(w.reference_p99_ns)),
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
    let some = run.configurations.iter().any(|w| w.allocations.is_some());
    some.then(|| rows::chart("memory", label, Room::Half, &names(run), &series, Axis::Numbers("")))
}
