//! A run of `bench flood` as one self-contained page: what clients notice, over the rate of the flood.

use model::{
    bench::Delays,
    flood::{FloodMode, FloodPoint, FloodRun, UNTOUCHED_P99_NS},
    units,
};

use crate::{
    chart::{
        Dash, Look, Mark,
        columns::significant,
        lines::{self, Dot, Line},
        plane::{Across, Up},
        rows,
        scale::{Scale, number},
    },
    flood,
    page::{Html, Page, PageError, Section},
};

/// The page: one HTML text that loads nothing from anywhere, charts included.
pub fn flood_page(run: &FloodRun) -> Result<String, PageError> {
    let setup = &run.setup;
    let of_host = |p: &FloodPoint| p.host_percent(&setup.host_cpus);
    let ms = |get: fn(&Delays) -> u64| move |p: &FloodPoint| Some(get(p.clients.connect.as_ref()?) as f64 / 1e6);
    let success = |p: &FloodPoint| Some(100.0 * p.clients.success_ratio());
    let goodput = |p: &FloodPoint| Some(p.clients.goodput_per_s());
    let answered = |p: &FloodPoint| Some(p.answered_pps() / 1e6);
    let section = |heading: &str, what: &str, chart| Section::new(2, heading, what, chart);
    let charts = [
        section(
            "Success",
            &format!("Clients with an answer in time, of {} at each rate of the flood.", setup.connects),
            chart(run, "success", &success, "%", Kind::Percent(100.0)),
        ),
        section(
            "Time to connect, percentile 99",
            "Of the clients that connected in time; logarithmic. What is above the dashed line, 5 ms, is noticed.",
            chart(run, "p99", &ms(|d| d.p99_ns), "ms", Kind::Delay),
        ),
        section(
            "Goodput",
            &format!("Answers to clients per second, of {} asked for.", setup.connects_per_s),
            chart(run, "goodput", &goodput, "answers/s", Kind::PerSecond),
        ),
        section(
            "Time to connect, median",
            "Of the same clients; logarithmic.",
            chart(run, "p50", &ms(|d| d.p50_ns), "ms", Kind::Delay),
        ),
        section(
            "Flood answered",
            "SYN-ACKs per second to spoofed sources, counted at the far end of the link.",
            chart(run, "answered", &answered, "Mpps", Kind::Mpps),
        ),
        section(
            "Load of the host",
            "Busy time of the host's cores, 100 % for each.",
            chart(run, "host", &of_host, "%", Kind::Percent(100.0 * setup.host_cpus.len().max(1) as f64)),
        ),
    ];
    let mut page = Page::new("bench flood", "What clients notice of a SYN flood", (&run.machine, &run.timestamp), "");
    let main = &mut page.main;
    if run.partial {
        main.warn("Partial:", "the run was broken off.");
    }
    main.conclude_all(&flood::conclusion(run), run.modes.iter().any(flood::is_void));
    let mut charts = charts.into_iter().peekable();
    while charts.peek().is_some() {
        main.pair(false, charts.by_ref().take(2));
    }
    main.heading(2, "Every rate");
    for mode in &run.modes {
        main.details(true, &mode.name, Some(mode.what.clone()), &rates(run, mode));
    }
    page.end(flood::conditions(run))
}

/// The rates of a protection, where frames of the flood ended, and which clients failed.
fn rates(run: &FloodRun, mode: &FloodMode) -> Html {
    let wide = ["ARRIVED", "ANSWERED", flood::LOWER_BOUND, "GOODPUT", "RETRIES", "CPU", "CLIENTS"];
    let heads = flood::HEADS.map(|head| match head.trim_start_matches('>') {
        head if wide.contains(&head) => format!(">>{head}"),
        head => format!(">{head}"),
    });
    let mut html = Html::default();
    html.settings(&mode.settings);
    html.table(&heads, mode.points.iter().map(|point| flood::row(run, point)));
    let lines =
        |of: fn(&FloodPoint) -> [Option<String>; 2]| mode.points.iter().flat_map(of).flatten().collect::<Vec<_>>();
    for (what, lines) in [
        ("Where frames of the flood ended that got no answer:", lines(|p| [flood::ends(p), flood::late(p)])),
        ("Clients that failed:", lines(|p| [flood::failures(p), flood::others(p)])),
    ] {
        if !lines.is_empty() {
            html.quiet(what);
            html.list("ul", &lines);
        }
    }
    html
}

/// The colour of a protection: the same in every chart.
fn colour(mode: &FloodMode) -> &'static str {
    match mode.key.as_str() {
        "none" => "#8a949e",
        "plain" => "#2f7fc1",
        "cookies" => "#00a3a3",
        "nft-ingress" => "#e08214",
        "synproxy" => "#c2334d",
        "shield" => "#1a9850",
        "gateway" => "#7b5ea7",
        "gateway-ring" => "#a6611a",
        _ => "#7a838c",
    }
}

fn mark(mode: &FloodMode) -> Mark {
    match mode.key.as_str() {
        "none" => Mark::Cross,
        "plain" => Mark::Square,
        "cookies" => Mark::Diamond,
        "nft-ingress" => Mark::Up,
        "synproxy" => Mark::Down,
        "gateway" => Mark::Star,
        "gateway-ring" => Mark::Plus,
        _ => Mark::Circle,
    }
}

#[derive(Clone, Copy)]
enum Kind {
    /// Up to so much.
    Percent(f64),
    /// Milliseconds, logarithmic.
    Delay,
    /// A number in a second, from zero.
    PerSecond,
    /// Million packets in a second, from zero.
    Mpps,
}

impl Kind {
    fn axis(self, values: &[f64]) -> Up {
        let (scale, name): (Scale, fn(f64) -> String) = match self {
            Self::Percent(most) => (Scale::linear(-0.02 * most, 1.03 * most), |v| format!("{} %", number(v))),
            Self::Delay => (Scale::log(values.iter().copied()), delay),
            Self::PerSecond => (Scale::from_zero(values.iter().copied(), 5), |v| format!("{}/s", number(v))),
            Self::Mpps => (Scale::from_zero(values.iter().copied(), 5), |mpps| rows::rate(1e6 * mpps)),
        };
        Up { scale, name, title: None }
    }
}

/// Milliseconds as an axis names them.
fn delay(ms: f64) -> String {
    if ms < 0.995 { format!("{} µs", number(1e3 * ms)) } else { format!("{} ms", number(ms)) }
}

/// The rate that was asked for, as the axis has it: rates lie too far apart for a scale.
fn rate(point: &FloodPoint) -> String {
    match point.intended_pps {
        None => "max".to_owned(),
        Some(0.0) => "none".to_owned(),
        Some(pps) if pps < 1e6 => format!("{} k/s", pps / 1e3),
        Some(pps) => format!("{} M/s", pps / 1e6),
    }
}

/// A line for each protection over the rates.
fn chart(run: &FloodRun, id: &str, value: &dyn Fn(&FloodPoint) -> Option<f64>, unit: &str, kind: Kind) -> String {
    let mut rates: Vec<(f64, String)> =
        run.modes.iter().flat_map(|m| &m.points).map(|p| (p.intended_pps.unwrap_or(f64::INFINITY), rate(p))).collect();
    rates.sort_by(|a, b| a.0.total_cmp(&b.0));
    rates.dedup();
    let dot = |p: &FloodPoint| {
        let (x, y) = (rates.iter().position(|(_, name)| *name == rate(p))?, value(p)?);
        let tip = format!("{} {unit} at {} offered", significant(y), units::pps(p.offered_pps()));
        Some(Dot { x: x as f64, y, tip })
    };
    let lines = run.modes.iter().map(|mode| Line {
        name: mode.name.clone(),
        look: Look { colour: colour(mode), dash: Dash::Solid, mark: mark(mode) },
        dots: mode.points.iter().filter_map(dot).collect(),
    });
    let lines: Vec<Line> = lines.filter(|line| !line.dots.is_empty()).collect();
    let goal = (id == "p99").then_some(UNTOUCHED_P99_NS as f64 / 1e6);
    let values: Vec<f64> = lines.iter().flat_map(|l| &l.dots).map(|d| d.y).chain(goal).collect();
    let across = Across::Names(rates.iter().map(|(_, name)| name.clone()).collect());
    let label = "Lines: one for each protection over the rate of the flood; the figures are in the tables of rates";
    lines::chart(id, label, &across, &kind.axis(&values), &lines, goal)
}
