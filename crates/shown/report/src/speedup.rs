//! Cost of communication as nodes are added, as text.

use model::{
    speedup::{Exchange, Interval, LinkSpeedup, Point, Series},
    units,
};

use crate::{conditions, table::Look};

/// Origin of the figures: over all of them.
pub(crate) fn emulated(run: &LinkSpeedup) -> &'static str {
    match run.nodes.as_slice() {
        [] => "Nodes are namespaces of this machine: computing is emulated by waiting, and exchanges share its CPUs.",
        _ => {
            "Nodes are machines: computing is emulated by waiting, and what an exchange costs is their cost and that of the link."
        }
    }
}
/// The columns of the points.
pub(crate) const POINTS: [&str; 8] =
    ["OVER", ">NODES", ">STEP", ">EXCHANGE", ">OF TCP", ">SPEED-UP", ">MODEL", ">RESIDUAL"];
/// Unknowns of the model: as many points lie on it, whatever they are.
const UNKNOWNS: usize = 3;
const NONE: &str = "\u{2013}";

pub fn speedup_text(run: &LinkSpeedup, look: Look) -> String {
    let mut text = conditions::disturbed(run.disturbed.as_deref(), look);
    text += &look.paragraph(&headline(run));
    text += &look.paragraph(emulated(run));
    for exchange in exchanges(run) {
        let of = of(run, exchange);
        text.push('\n');
        text += &look.paragraph(&format!("{}:", title(exchange, run.bytes)));
        let rows = of.iter().flat_map(|series| series.points.iter().map(|point| cells(series, point)));
        text += &look.table(&POINTS, rows);
        text.push('\n');
        text += &look.paragraph(&format!("Its model, {FORMULA}, with 95 % intervals ({SYMBOLS}):"));
        let heads = of.iter().map(|series| format!(">{}", carrier(&series.transport).to_uppercase()));
        let heads: Vec<String> = [String::new()].into_iter().chain(heads).collect();
        text += &look.table(&heads, model_rows(&of));
        for remark in of.iter().flat_map(|series| remarks(series)) {
            text.push('\n');
            text += &look.paragraph(&remark);
        }
    }
    text.push('\n');
    text + &conditions::paragraphs(&conditions_of(run), look)
}

/// The result in a sentence: the number of nodes at which a step is shortest, by exchange and carrier.
pub(crate) fn headline(run: &LinkSpeedup) -> String {
    let one = |series: &Series| {
        let by = carrier(&series.transport);
        let between = series.fitting.estimate.best_nodes;
        let (low, high) = (between.low, between.high);
        match (series.fitting.best_nodes, low, high) {
            _ if series.fitting.law.is_none() => format!("no fit over {by}"),
            (Some(best), Some(low), Some(high)) => format!("{best:.0} nodes over {by} ({low:.1}-{high:.1})"),
            (Some(best), Some(low), None) => format!("{best:.0} nodes over {by} (at least {low:.1})"),
            (Some(best), ..) => format!("{best:.0} nodes over {by}"),
            (None, ..) => format!("each further node helps over {by}"),
        }
    };
    let of_exchange = |exchange| {
        let all: Vec<String> = of(run, exchange).into_iter().map(one).collect();
        format!("{}: {}", exchange_words(exchange), all.join(", "))
    };
    let all: Vec<String> = exchanges(run).into_iter().map(of_exchange).collect();
    format!("Best number of nodes (95 % intervals). {}.", all.join(". "))
}

fn exchange_words(exchange: Exchange) -> &'static str {
    match exchange {
        Exchange::AllReduce => "All-reduce",
        Exchange::Neighbour => "Nearest neighbours",
    }
}

/// Meaning of the law's symbols.
pub(crate) const SYMBOLS: &str = "S: speed-up with N nodes; a: serial share of the work; n: cost of communication";

pub(crate) fn of(run: &LinkSpeedup, exchange: Exchange) -> Vec<&Series> {
    run.series.iter().filter(|series| series.exchange == exchange).collect()
}

pub(crate) const FORMULA: &str = "S(N) = N / ((1 - a) + a N + n N\u{b3})";

/// The exchanges of a run, each once.
pub(crate) fn exchanges(run: &LinkSpeedup) -> Vec<Exchange> {
    let mut all: Vec<Exchange> = run.series.iter().map(|series| series.exchange).collect();
    all.dedup();
    all
}

pub(crate) fn title(exchange: Exchange, bytes: u32) -> String {
    let unit = if bytes == 1 { "byte" } else { "bytes" };
    let bytes = units::grouped(u64::from(bytes));
    match exchange {
        Exchange::AllReduce => format!("All-reduce, {bytes} {unit} from each node to each other one"),
        Exchange::Neighbour => format!("Nearest neighbours, {bytes} {unit} to both sides in a ring"),
    }
}

/// The carrier as people write it.
pub(crate) fn carrier(by: &str) -> &str {
    if by == "tcp" { "TCP" } else { by }
}

/// The cells of a number of nodes.
pub(crate) fn cells(series: &Series, point: &Point) -> [String; 8] {
    [
        carrier(&series.transport).to_owned(),
        point.nodes.to_string(),
        units::nanoseconds(1e9 * point.seconds),
        if point.nodes == 1 { NONE.to_owned() } else { units::nanoseconds(1e9 * point.exchange_s) },
        point.exchange_ratio_to_tcp.map_or_else(|| NONE.to_owned(), |ratio| format!("{ratio:.2}")),
        format!("{:.2}", point.speedup),
        format!("{:.2}", point.speedup * point.seconds / point.fitted_s),
        signed(point.residual),
    ]
}

/// The rows of a model: what, then the value of each carrier with its interval.
pub(crate) fn model_rows(of: &[&Series]) -> Vec<Vec<String>> {
    let row = |what: &str, value: &dyn Fn(&Series) -> Option<String>| {
        let values = of.iter().map(|series| value(series).unwrap_or_else(|| "no fit".to_owned()));
        [what.to_owned()].into_iter().chain(values).collect()
    };
    let bound = |value: Option<f64>, digits: usize| value.map_or("no bound".to_owned(), |v| format!("{v:.digits$}"));
    let open = |series: &Series, value: Option<f64>, of: Interval<Option<f64>>, digits: usize| {
        let whole = || match (value, of.low, of.high) {
            (None, None, None) => bound(None, digits),
            _ => format!("{} ({} to {})", bound(value, digits), bound(of.low, digits), bound(of.high, digits)),
        };
        series.fitting.law.map(|_| whole())
    };
    vec![
        row("a, not divided", &|series| {
            let (law, between) = (series.fitting.law?, series.fitting.estimate.a);
            Some(format!("{:.3} ({:.3} to {:.3})", law.a, between.low, between.high))
        }),
        row("n, network", &|series| {
            let (law, between) = (series.fitting.law?, series.fitting.estimate.n);
            Some(format!("{} ({} to {})", small(law.n), small(between.low), small(between.high)))
        }),
        row("best N", &|series| open(series, series.fitting.best_nodes, series.fitting.estimate.best_nodes, 1)),
        row("greatest S", &|series| open(series, series.fitting.greatest, series.fitting.estimate.greatest, 2)),
        row("largest residual", &|series| {
            let largest = series.points.iter().map(|point| point.residual.abs()).fold(0.0, f64::max);
            Some(units::percent(largest))
        }),
    ]
}

/// A small number by its power of ten.
fn small(n: f64) -> String {
    if n == 0.0 { "0".to_owned() } else { format!("{n:.1e}") }
}

/// Caveats of a fit: no model, n not distinguishable from 0, extrapolated.
pub(crate) fn remarks(series: &Series) -> Vec<String> {
    let who = format!("{} over {}", series.exchange.words(), carrier(&series.transport));
    let (fitting, n) = (&series.fitting, series.fitting.estimate.n);
    if let Some(misfit) = &fitting.misfit {
        let residuals = series.points.iter().map(|p| format!("N = {}: {}", p.nodes, signed(p.residual)));
        let residuals = residuals.collect::<Vec<_>>().join(", ");
        return vec![format!(
            "{who}: {misfit}. n is {:.1e} to {:.1e} (95 %). Residuals: {residuals}. More rounds (--repeats) tell noise from a model that does not hold.",
            n.low, n.high
        )];
    }
    let most = series.points.iter().map(|point| f64::from(point.nodes)).fold(0.0, f64::max);
    let beyond = fitting.best_nodes.filter(|&best| best > most);
    let all = [
        (series.points.len() <= UNKNOWNS).then(|| {
            "three numbers of nodes give the three unknowns exactly, so residuals of 0 do not say that the model fits; measure more (--nodes)".to_owned()
        }),
        (n.low <= 0.0).then(|| "n cannot be told from 0, so there may be no best number of nodes".to_owned()),
        beyond.map(|best| {
            format!("the best number, {best:.1}, is beyond the {most:.0} nodes that were measured; the model alone says it")
        }),
    ];
    all.into_iter().flatten().map(|remark| format!("{who}: {remark}.")).collect()
}

/// A share in percent with its sign; 0 has none.
fn signed(share: f64) -> String {
    let tenths = (1000.0 * share).round();
    if tenths == 0.0 { "0.0 %".to_owned() } else { format!("{:+.1} %", tenths / 10.0) }
}

/// Conditions of the figures.
pub(crate) fn conditions_of(run: &LinkSpeedup) -> conditions::Conditions {
    let serial = units::percent(run.serial_share);
    let mut all = vec![
        conditions::machine(&run.machine),
        (
            "Work",
            format!("{} a step on one node, of which {serial} is not divided", units::nanoseconds(1e9 * run.step_s)),
        ),
        (
            "Rounds",
            format!(
                "{} of {} steps; a figure is the median of the rounds, and a ratio that of the rounds' ratios",
                run.rounds, run.steps
            ),
        ),
        ("Load average at the beginning", format!("{:.2}", run.load_average)),
    ];
    all.extend(run.notes.iter().map(|note| ("Note", note.clone())));
    all
}
