//! The ways in which a router can forward, beside each other, as text.

use std::fmt::Write;

use model::{
    profile::Class,
    route_compare::{RouteCompare, Way},
    sweep::{Gain, Setup, Step},
    units,
};

use crate::{
    conditions::{self, Conditions},
    sweep,
    table::Look,
};

/// Classes with a column of their own, besides idle.
const COLUMNS: usize = 4;
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
    let rows = run.ways.iter().map(|way| {
        let cells = figures().map(|(_, cell)| cell(way).unwrap_or_else(|| "-".into()));
        [way.setup.name.clone()].into_iter().chain(cells).collect()
    });
    let _ = write!(out, "\n{}", look.table_within(&heads, rows.collect(), &FIRST_TO_GO));
    out += &look.paragraph(&legend(run));
    for left in &run.left_out {
        out += &look.paragraph(&format!("Left out, {}: {}.", left.what, left.why));
    }
    let costs = costs(run);
    if !costs.is_empty() {
        let _ = write!(out, "\n{}", look.paragraph(COSTS_OF_WHAT));
        let heads: Vec<String> = costed(run).iter().map(|w| format!(">{}", w.setup.key.to_uppercase())).collect();
        let heads: Vec<&str> = ["CLASS"].into_iter().chain(heads.iter().map(String::as_str)).collect();
        let row = |(class, all): (String, Vec<sweep::Range>)| {
            [class].into_iter().chain(all.into_iter().map(|range| format!("{:.0}", range[1]))).collect()
        };
        out += &look.table(&heads, costs.into_iter().map(row));
    }
    let setups: Vec<&Setup> = run.ways.iter().map(|w| &w.setup).collect();
    out += &sweep::step_tables(&setups, COLUMNS, look);
    out += &sweep::published(&run.sources, look);
    out + "\n" + &conditions::paragraphs(&conditions(run), look)
}

/// A figure of a way, as it is shown; none where there is none.
type Cell = fn(&Way) -> Option<String>;

/// The columns of the table of ways.
pub(crate) fn figures() -> impl Iterator<Item = (&'static str, Cell)> {
    let columns: [(&'static str, Cell); 11] = [
        ("throughput", throughput),
        ("beside none", |way| way.gain.as_ref().map(beside)),
        ("round trip", |way| way.round_trip_ns.map(units::nanoseconds)),
        ("delay p50", |way| way.delay_p50_ns.map(units::nanoseconds)),
        ("delay p99", |way| way.delay_p99_ns.map(units::nanoseconds)),
        ("same p50", |way| way.beside_p50_ns.map(units::nanoseconds)),
        ("same p99", |way| way.beside_p99_ns.map(units::nanoseconds)),
        ("memory", |way| memory_percent(way).map(|percent| format!("{percent:.1} %"))),
        ("pages", |way| way.allocations.map(|a| each(a.pages))),
        ("pool pages", |way| way.allocations.map(|a| each(a.pool_pages))),
        ("skbs", |way| way.allocations.map(|a| each(a.socket_buffers))),
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

/// In brackets where the rounds bear no verdict.
fn beside(gain: &Gain) -> String {
    let percent = format!("{:+.0} %", 100.0 * (gain.ratio - 1.0));
    if gain.told { percent } else { format!("({percent})") }
}

/// The throughput of a way; none without one.
pub(crate) fn throughput(way: &Way) -> Option<String> {
    let least = if is_least(way) { ">= " } else { "" };
    (!way.setup.ceilings_pps.is_empty()).then(|| format!("{least}{}", units::pps(way.setup.ceiling_pps)))
}

/// True if the tester was the limit in a round: then the rate is a lower bound.
pub(crate) fn is_least(way: &Way) -> bool {
    way.rounds.iter().any(|r| matches!(r.verdict, model::bench::Verdict::TesterLimited { .. }))
}

/// Memory management as a share of the box's own work at the throughput, in percent.
pub(crate) fn memory_percent(way: &Way) -> Option<f64> {
    let of = |part: fn(&Step) -> f64| Some(way.setup.ns_per_packet(way.cores, part)?[1]);
    let (memory, all) = (of(|s| s.percent(Class::Memory))?, of(Step::busy_percent)?);
    (all > 0.0).then(|| 100.0 * memory / all)
}

/// So many for each packet.
pub(crate) fn each(number: f64) -> String {
    format!("{number:.3}")
}

/// The ways of which the CPU time at the throughput is known.
pub(crate) fn costed(run: &RouteCompare) -> Vec<&Way> {
    run.ways.iter().filter(|w| w.setup.ns_per_packet(w.cores, Step::busy_percent).is_some()).collect()
}

/// Nanoseconds per packet by class, of each of [`costed`].
pub(crate) fn costs(run: &RouteCompare) -> Vec<(String, Vec<sweep::Range>)> {
    let setups: Vec<(&Setup, u32)> = costed(run).into_iter().map(|w| (&w.setup, w.cores)).collect();
    if setups.is_empty() { Vec::new() } else { sweep::costs(&setups) }
}

fn rounds(way: &Way) -> String {
    let found = way.rounds.iter().map(|r| r.throughput_pps.map_or_else(|| "none".to_owned(), units::pps));
    format!("{}: {}", way.setup.name, found.collect::<Vec<_>>().join(", "))
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
        ("Rounds", run.ways.iter().map(rounds).collect::<Vec<_>>().join("; ")),
        ("Pages and socket buffers", run.allocations_method.clone()),
    ]);
    all.extend(run.notes.iter().map(|note| ("Note", note.clone())));
    all
}
