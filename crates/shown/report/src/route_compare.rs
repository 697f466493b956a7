//! The ways in which a router can forward, beside each other, as text.

use std::fmt::Write;

use model::{
    profile::Class,
    route_compare::{Configuration, RouteCompare},
    sweep::{Gain, Setup, Step},
    units,
};

use crate::{
    conditions::{self, Conditions},
    sweep,
    table::Look,
};

/// Classes with a column of their own, besides idle.
const COLUMNS_MAX: usize = 4;
/// The heading of the table of costs.
pub(crate) const COSTS_OF_WHAT: &str =
    "CPU time of the box's cores per packet that came out, in nanoseconds, at the throughput of each way";
/// Columns that a narrow page gives up, one after the other.
pub(crate) const FIRST_TO_GO: [&str; 4] = ["DELAY P50", "POOL PAGES", "PAGES", "DELAY P99"];

/// The whole comparison: conclusion, the ways side by side, costs, CPU time over the load, published figures, conditions.
pub fn route_compare_text(run: &RouteCompare, look: Look) -> String {
    let mut out = look.paragraph(&run.conclusion);
    let heads: Vec<String> = figures().map(|(head, _)| format!(">{}", head.to_uppercase())).collect();
    let heads: Vec<&str> = ["WAY"].into_iter().chain(heads.iter().map(String::as_str)).collect();
    let rows = run.configurations.iter().map(|configuration| {
        let cells = figures().map(|(_, cell)| cell(configuration).unwrap_or_else(|| "-".into()));
        [configuration.setup.name.clone()].into_iter().chain(cells).collect()
    });
    let _ = write!(out, "\n{}", look.table_within(&heads, rows.collect(), &FIRST_TO_GO));
    out += &look.paragraph(&legend(run));
    for left in &run.skipped {
        out += &look.paragraph(&format!("Left out, {}: {}.", left.what, left.reason));
    }
    let costs = costs(run);
    if !costs.is_empty() {
        let _ = write!(out, "\n{}", look.paragraph(COSTS_OF_WHAT));
        let heads = costed(run).into_iter().map(|w| format!(">{}", w.setup.key.to_uppercase()));
        let heads: Vec<String> = ["CLASS".to_owned()].into_iter().chain(heads).collect();
        let row = |(class, all): (String, Vec<sweep::Range>)| {
            [class].into_iter().chain(all.into_iter().map(|range| format!("{:.0}", range[1]))).collect::<Vec<_>>()
        };
        out += &look.table(&heads, costs.into_iter().map(row));
    }
    let setups: Vec<&Setup> = run.configurations.iter().map(|w| &w.setup).collect();
    out += &sweep::step_tables(&setups, COLUMNS_MAX, look);
    out += &sweep::published(&run.sources, look);
    out + "\n" + &conditions::paragraphs(&conditions(run), look)
}

/// A figure of a way, as it is shown; none where there is none.
type Cell = fn(&Configuration) -> Option<String>;

/// The columns of the table of ways.
pub(crate) fn figures() -> impl Iterator<Item = (&'static str, Cell)> {
    let columns: [(&'static str, Cell); 11] = [
        ("throughput", throughput),
        ("beside none", |configuration| configuration.gain.as_ref().map(beside)),
        ("round trip", |configuration| configuration.round_trip_ns.map(units::nanoseconds)),
        ("delay p50", |configuration| configuration.delay_p50_ns.map(units::nanoseconds)),
        ("delay p99", |configuration| configuration.delay_p99_ns.map(units::nanoseconds)),
        ("same p50", |configuration| configuration.reference_p50_ns.map(units::nanoseconds)),
        ("same p99", |configuration| configuration.reference_p99_ns.map(units::nanoseconds)),
        ("memory", |configuration| memory_percent(configuration).map(|percent| format!("{percent:.1} %"))),
        ("pages", |configuration| configuration.allocations.map(|a| each(a.pages))),
        ("pool pages", |configuration| configuration.allocations.map(|a| each(a.pool_pages))),
        ("skbs", |configuration| configuration.allocations.map(|a| each(a.socket_buffers))),
    ];
    columns.into_iter()
}

/// The meaning of the columns.
pub(crate) fn legend(run: &RouteCompare) -> String {
    format!(
        "Throughput: the highest load that loses at most {}, median of {} {}. Beside none: beside no program on as many cores, in brackets without a verdict. Round trip and delay (one way) at \
         {} of it; same: the delay at {} of what no program forwards, one load for all. Memory: memory management as a share of the box's own work, at the throughput. Pages, pool pages and socket buffers (skbs) for \
         each packet that came out, at {} of it.",
        units::percent(run.goal.loss_ratio),
        run.rounds,
        if run.rounds == 1 { "round" } else { "rounds" },
        units::percent(run.latency_load),
        units::percent(run.latency_load),
        units::percent(run.latency_load)
    )
}

/// The gain, in brackets where the rounds bear no verdict.
fn beside(gain: &Gain) -> String {
    let percent = format!("{:+.0} %", 100.0 * (gain.ratio - 1.0));
    if gain.significant { percent } else { format!("({percent})") }
}

/// The throughput of a way; none without one.
pub(crate) fn throughput(configuration: &Configuration) -> Option<String> {
    let least = if is_least(configuration) { ">= " } else { "" };
    (!configuration.setup.ceilings_pps.is_empty())
        .then(|| format!("{least}{}", units::pps(configuration.setup.ceiling_pps)))
}

/// True if the tester was the limit in a round: then the rate is a lower bound.
pub(crate) fn is_least(configuration: &Configuration) -> bool {
    configuration.rounds.iter().any(|r| matches!(r.verdict, model::bench::Verdict::TesterLimited { .. }))
}

/// Memory management as a share of the box's own work at the throughput, in percent.
pub(crate) fn memory_percent(configuration: &Configuration) -> Option<f64> {
    let of = |part: fn(&Step) -> f64| Some(configuration.setup.ns_per_packet(configuration.cores, part)?[1]);
    let (memory, all) = (of(|s| s.percent(Class::Memory))?, of(Step::busy_percent)?);
    (all > 0.0).then(|| 100.0 * memory / all)
}

/// A number for each packet.
pub(crate) fn each(number: f64) -> String {
    format!("{number:.3}")
}

/// The ways of which the CPU time at the throughput is known.
pub(crate) fn costed(run: &RouteCompare) -> Vec<&Configuration> {
    run.configurations.iter().filter(|w| w.setup.ns_per_packet(w.cores, Step::busy_percent).is_some()).collect()
}

/// Nanoseconds per packet by class, of each of [`costed`].
pub(crate) fn costs(run: &RouteCompare) -> Vec<(String, Vec<sweep::Range>)> {
    let setups: Vec<(&Setup, u32)> = costed(run).into_iter().map(|w| (&w.setup, w.cores)).collect();
    if setups.is_empty() { Vec::new() } else { sweep::costs(&setups) }
}

fn rounds(configuration: &Configuration) -> String {
    let found = configuration.rounds.iter().map(|r| r.throughput_pps.map_or_else(|| "none".to_owned(), units::pps));
    format!("{}: {}", configuration.setup.name, found.collect::<Vec<_>>().join(", "))
}

pub(crate) fn conditions(run: &RouteCompare) -> Conditions {
    let mut all = vec![conditions::machine(&run.machine)];
    for bed in &run.beds {
        let (what, text) = conditions::cores(&bed.arrangement);
        let ceiling = bed.ceiling_pps.map_or_else(|| "not measured".to_owned(), units::pps);
        all.push((what, format!("{text}; the tester's own ceiling: {ceiling}")));
    }
    all.extend([
        (
            "Load",
            format!(
                "UDP frames of {} bytes of {} flows in turn, one way; CPU time over the load: {} per load",
                run.frame_bytes,
                run.flows,
                units::nanoseconds(run.seconds_per_step * 1e9)
            ),
        ),
        ("Samples", format!("{} a second of each of the box's cores", run.frequency_hz)),
        ("Rounds", run.configurations.iter().map(rounds).collect::<Vec<_>>().join("; ")),
        ("Pages and socket buffers", run.allocations_method.clone()),
    ]);
    all.extend(run.notes.iter().map(|note| ("Note", note.clone())));
    all
}
