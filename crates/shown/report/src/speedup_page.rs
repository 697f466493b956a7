//! Cost of communication as nodes are added, as one self-contained page.

use model::{
    speedup::{Exchange, Law, LinkSpeedup, Series},
    units,
};

use crate::{
    chart::{
        Dash, Look, Mark,
        lines::{self, Dot, Line},
        plane::{Across, Up},
        scale::{Scale, number},
    },
    page::{Page, PageError, Section},
    speedup as figures,
};

const BLUE: &str = "#2f7fc1";
const RED: &str = "#c2334d";
const GREY: &str = "#8a949e";
/// The numbers of nodes of a chart over n.
const COLOURS: [&str; 3] = ["#7a9a01", "#d08a00", "#7b5ea7"];
/// A curve has a point at each such part of its axis.
const PARTS: u32 = 60;
/// The axis of n goes so many times below and above that of the fit.
const AROUND: f64 = 30.0;

const POINTS: [&str; 8] = ["Over", ">Nodes", ">Step", ">Exchange", ">Of TCP's", ">Speed-up", ">Model", ">Residual"];

/// The page: one HTML text that loads nothing from anywhere, charts included.
pub fn speedup_page(run: &LinkSpeedup) -> Result<String, PageError> {
    let heading = "What communication costs as nodes are added";
    let mut page = Page::new("link speedup", heading, (&run.machine, &run.timestamp), "");
    let main = &mut page.main;
    main.conclude(figures::headline(run), run.disturbed.is_some());
    main.busy(run.disturbed.as_deref());
    main.warn("Emulated.", figures::emulated(run));
    main.say(format_args!("The model is {}. {}.", figures::FORMULA, figures::SYMBOLS));
    for exchange in figures::exchanges(run) {
        let of = figures::of(run, exchange);
        main.heading(2, figures::title(exchange, run.bytes));
        of.iter().flat_map(|series| figures::remarks(series)).for_each(|remark| main.warn("", remark));
        let carriers = of.iter().map(|series| format!(">{}", figures::carrier(&series.transport)));
        let heads: Vec<String> = ["Model, 95 % intervals".to_owned()].into_iter().chain(carriers).collect();
        main.table(&heads, figures::model_rows(&of));
        main.pair(false, charts(run, exchange, &of));
        main.table(&POINTS, of.iter().flat_map(|s| s.points.iter().map(|point| figures::cells(s, point))));
    }
    page.end(figures::conditions_of(run))
}

fn charts(run: &LinkSpeedup, exchange: Exchange, of: &[&Series]) -> Vec<Section> {
    let key = if exchange == Exchange::AllReduce { "all" } else { "near" };
    let mut all = vec![
        Section::new(3, "Speed-up over the number of nodes", "", over_nodes(run, &format!("nodes-{key}"), of)),
        Section::new(3, "Time of a step", "", times(&format!("times-{key}"), of)),
    ];
    for series in of {
        if let Some(chart) = over_n(&format!("network-{key}-{}", series.transport), series) {
            all.push(Section::new(3, format!("Speed-up over n, {}", figures::carrier(&series.transport)), "", chart));
        }
    }
    all
}

fn colour(series: &Series) -> &'static str {
    if series.transport == "tcp" { RED } else { BLUE }
}

fn curve(colour: &'static str) -> Look {
    Look { colour, dash: Dash::Solid, mark: Mark::None }
}

fn marks(colour: &'static str, series: &Series) -> Look {
    Look { colour, dash: Dash::None, mark: if series.transport == "tcp" { Mark::Diamond } else { Mark::Circle } }
}

/// Points of a curve between two values at equal distances.
fn along(from: f64, to: f64, at: impl Fn(f64) -> f64) -> Vec<Dot> {
    let x = |part| from + (to - from) * f64::from(part) / f64::from(PARTS);
    (0..=PARTS).map(x).map(|x| Dot { x, y: at(x), tip: String::new() }).collect()
}

fn most(of: &[&Series]) -> f64 {
    of.iter().flat_map(|series| &series.points).map(|point| f64::from(point.nodes)).fold(1.0, f64::max)
}

/// The name of a series on the chart, and of what of it.
fn name(series: &Series, what: &str) -> String {
    format!("{}, {what}", figures::carrier(&series.transport))
}

/// The axis of numbers of nodes.
fn nodes_axis(to: f64) -> Across {
    Across::Numbers { scale: Scale::linear(0.0, to), name: number, title: Some("nodes (N)".to_owned()) }
}

/// Measured speed-ups, the curve of each fit beyond them to its best number, and what it would be if nothing were said.
fn over_nodes(run: &LinkSpeedup, id: &str, of: &[&Series]) -> String {
    let most = most(of);
    let best = of.iter().filter_map(|series| series.fitting.best_nodes).fold(most, f64::max);
    let to = (1.25 * best).clamp(most, 2.0 * most).ceil();
    let mut lines = Vec::new();
    for series in of {
        if let Some(law) = series.fitting.law {
            let dots = along(1.0, to, |nodes| law.speedup(nodes));
            lines.push(Line { name: name(series, "model"), look: curve(colour(series)), dots });
        }
        let dot = |p: &model::speedup::Point| Dot {
            x: f64::from(p.nodes),
            y: p.speedup,
            tip: format!("{} nodes: {:.2}, {:+.1} % of the model", p.nodes, p.speedup, 100.0 * p.residual),
        };
        let dots = series.points.iter().map(dot).collect();
        lines.push(Line { name: name(series, "measured"), look: marks(colour(series), series), dots });
    }
    let free = Law { a: run.serial_share, n: 0.0 };
    let look = Look { colour: GREY, dash: Dash::Dotted, mark: Mark::None };
    let dots = along(1.0, to, |nodes| free.speedup(nodes));
    lines.push(Line { name: "without communication".to_owned(), look, dots });
    let label = "Points: measured speed-up over the number of nodes; curves: the model; the figures are in the table";
    lines::chart(id, label, &nodes_axis(to), &from_zero(&lines, "S"), &lines, None)
}

fn from_zero(lines: &[Line], title: &str) -> Up {
    let scale = Scale::from_zero(lines.iter().flat_map(|line| &line.dots).map(|dot| dot.y), 5);
    Up { scale, name: number, title: Some(title.to_owned()) }
}

/// The measured time of a step, that of the fit, and the part of it that is communication.
fn times(id: &str, of: &[&Series]) -> String {
    let ms = |seconds: f64| 1e3 * seconds;
    let mut lines = Vec::new();
    for series in of {
        let dot = |nodes: u32, seconds: f64| Dot {
            x: f64::from(nodes),
            y: ms(seconds),
            tip: format!("{nodes} nodes: {}", units::nanoseconds(1e9 * seconds)),
        };
        let dots = |value: &dyn Fn(&model::speedup::Point) -> f64| {
            series.points.iter().map(|p| dot(p.nodes, value(p))).collect::<Vec<_>>()
        };
        let fit = Look { dash: Dash::Solid, ..curve(colour(series)) };
        lines.push(Line { name: name(series, "fit"), look: fit, dots: dots(&|p| p.fitted_s) });
        let measured = marks(colour(series), series);
        lines.push(Line { name: name(series, "measured"), look: measured, dots: dots(&|p| p.seconds) });
        let look = Look { colour: colour(series), dash: Dash::Dashed, mark: Mark::Plus };
        let dots = dots(&|p| p.exchange_s).into_iter().filter(|dot| dot.x > 1.0).collect();
        lines.push(Line { name: name(series, "exchange alone"), look, dots });
    }
    let label = "Points: milliseconds of a step over the number of nodes; the figures are in the table";
    lines::chart(id, label, &nodes_axis(most(of)), &from_zero(&lines, "ms"), &lines, None)
}

/// The curves of three numbers of nodes over n, with the measured points at the n of the fit; none without such an n.
fn over_n(id: &str, series: &Series) -> Option<String> {
    let law = series.fitting.law.filter(|law| law.n > 0.0)?;
    let points: Vec<_> = series.points.iter().filter(|point| point.nodes > 1).collect();
    let mut chosen = [0, points.len() / 2, points.len().checked_sub(1)?].to_vec();
    chosen.dedup();
    let mut lines = Vec::new();
    for (&at, colour) in chosen.iter().zip(COLOURS) {
        let point = points[at];
        let nodes = f64::from(point.nodes);
        let curve_dots =
            along((law.n / AROUND).ln(), (law.n * AROUND).ln(), |ln| Law { n: ln.exp(), ..law }.speedup(nodes));
        let dots = curve_dots.into_iter().map(|dot| Dot { x: dot.x.exp(), ..dot }).collect();
        lines.push(Line { name: format!("N = {}", point.nodes), look: curve(colour), dots });
        let tip = format!("n {:.1e}: {:.2}", law.n, point.speedup);
        let dots = vec![Dot { x: law.n, y: point.speedup, tip }];
        lines.push(Line { name: format!("N = {}, measured", point.nodes), look: marks(colour, series), dots });
    }
    let scale = Scale::log([law.n / AROUND, law.n * AROUND]);
    let across = Across::Numbers { scale, name: power, title: Some("n, cost of the network".to_owned()) };
    let label = "Curves: the speed-up of three numbers of nodes over the cost of the network; points: as measured";
    Some(lines::chart(id, label, &across, &from_zero(&lines, "S"), &lines, None))
}

/// A number of the axis of n: `2e-4`.
fn power(value: f64) -> String {
    format!("{value:.0e}")
}
