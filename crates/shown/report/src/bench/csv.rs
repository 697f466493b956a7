//! A run of the bench as CSV.

use model::bench::{BenchRun, Delays, Direction, Mode, Point, Trial};

use super::figures::{self, Figures};

/// Rows of a file of CSV.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum BenchCsv {
    Results,
    Trials,
}

/// Errors of writing CSV.
#[derive(Debug, thiserror::Error)]
pub enum CsvError {
    #[error("cannot write the rows of the run as CSV: {0}; this is a fault of evenkeel")]
    Write(#[from] ::csv::Error),
    #[error("the CSV of the run is not UTF-8; this is a fault of evenkeel")]
    Text,
}

model::classified!(CsvError: Internal);

/// The run as CSV (RFC 4180): units are in the heads or in a column of their own.
pub fn bench_csv(run: &BenchRun, which: BenchCsv) -> Result<String, CsvError> {
    let (heads, rows) = match which {
        BenchCsv::Results => (RESULT_HEADS.to_vec(), results(Figures(run))),
        BenchCsv::Trials => (TRIAL_HEADS.to_vec(), Figures(run).trials().flat_map(|(m, t)| trial(m, t)).collect()),
    };
    let mut writer = ::csv::Writer::from_writer(Vec::new());
    writer.write_record(heads)?;
    for row in rows {
        writer.write_record(row)?;
    }
    let bytes = writer.into_inner().map_err(|e| ::csv::Error::from(e.into_error()))?;
    String::from_utf8(bytes).map_err(|_| CsvError::Text)
}

const RESULT_HEADS: [&str; 10] =
    ["mode", "frame", "frame_bytes", "payload_bytes", "test", "condition", "direction", "quantity", "unit", "value"];

/// A figure: test, condition, direction, quantity, unit, value.
type Figure = (&'static str, String, &'static str, &'static str, &'static str, String);

fn results(figures: Figures<'_>) -> Vec<Vec<String>> {
    let points = figures.0.modes.iter().flat_map(|m| m.points.iter().map(move |p| (m, p)));
    let rows = points
        .flat_map(|(mode, point)| of_point(figures, point).into_iter().map(move |f| (mode, point, f)))
        .map(|(mode, point, (test, condition, direction, quantity, unit, value))| {
            let (frame, payload) = figures.bytes(&point.frame);
            let mut row = vec![mode.key.clone(), point.frame.label(), number(frame), number(payload)];
            row.extend([test.into(), condition, direction.into(), quantity.into(), unit.into(), value]);
            row
        });
    partial(figures).into_iter().chain(rows).collect()
}

/// A first row that says that the run is not whole, and where it was interrupted. Its value is the number of trials of the step that was begun.
fn partial(figures: Figures<'_>) -> Option<Vec<String>> {
    let (reason, begun) = figures.partial()?;
    let mut row = match begun {
        Some(step) => {
            let (frame, payload) = figures.bytes(&step.frame);
            vec![step.mode.clone(), step.frame.label(), number(frame), number(payload), step.test.clone()]
        }
        None => vec![String::new(); 5],
    };
    let quantity = if begun.is_some() { "partial run: begun and not finished" } else { "partial run" };
    let trials = begun.map_or_else(String::new, |step| step.trials.to_string());
    row.extend([reason.to_owned(), String::new(), quantity.into(), "trials".into(), trials]);
    Some(row)
}

fn of_point(figures: Figures<'_>, point: &Point) -> Vec<Figure> {
    let mut all = Vec::new();
    if let Some(pps) = point.ceiling_pps {
        all.push(("ceiling", String::new(), "total", "tester's ceiling", "units/s", number(pps)));
    }
    if let Some(pps) = figures.line_pps(&point.frame) {
        all.push(("ceiling", String::new(), "total", "line rate", "units/s", number(pps)));
    }
    throughput(figures, point, &mut all);
    latency(point, &mut all);
    if let Some(j) = &point.jitter {
        for (i, reading) in j.readings_ns.iter().enumerate() {
            let ways = WAYS.into_iter().zip(reading).filter_map(|(way, ns)| Some((way, (*ns)?)));
            all.extend(
                ways.map(|(way, ns)| {
                    ("jitter", format!("reading {}", i + 1), way, "jitter (RFC 3550)", "ns", number(ns))
                }),
            );
        }
    }
    for l in &point.loss_curve {
        let at = format!("offered {}", number(l.offered_pps));
        all.push(("loss", at.clone(), "total", "received", "units/s", number(l.received_pps)));
        all.push(("loss", at.clone(), "total", "loss ratio", "", number(l.loss_ratio)));
        all.push(("loss", at, "total", "late ratio", "", number(l.late_ratio)));
    }
    if let Some(b) = &point.back_to_back {
        let limited = if b.tester_limited { "tester-limited" } else { "" };
        all.extend(
            b.bursts
                .iter()
                .enumerate()
                .map(|(i, &n)| ("back-to-back", format!("repeat {}", i + 1), "total", "burst", "units", n.to_string())),
        );
        let mut figure = |what, unit, value: f64| {
            all.push(("back-to-back", limited.to_owned(), "total", what, unit, number(value)));
        };
        figure("mean burst", "units", b.mean);
        figure("burst rate", "units/s", b.burst_pps);
        figure("implied buffer", "s", b.implied_buffer_s);
        if let Some(s) = b.corrected_buffer_s {
            figure("corrected buffer", "s", s);
        }
    }
    let repeats = |test, what: &str, quantity, values: &[f64]| -> Vec<Figure> {
        let one = |(i, &s): (usize, &f64)| (test, format!("{what}repeat {}", i + 1), "total", quantity, "s", number(s));
        values.iter().enumerate().map(one).collect()
    };
    if let Some(r) = &point.recovery {
        all.extend(repeats("recovery", "", "time to the last loss", &r.seconds));
    }
    for r in &point.resets {
        let what = format!("{}, ", r.what);
        all.extend(repeats("reset", &what, "time by loss", &r.by_loss_s));
        all.extend(repeats("reset", &what, "longest silence", &r.by_time_s));
    }
    all
}

fn throughput(figures: Figures<'_>, point: &Point, all: &mut Vec<Figure>) {
    let Some(throughput) = &point.throughput else { return };
    for found in &throughput.results {
        let goal = || format!("goal {}", found.goal.name);
        let mut figure = |direction, quantity, unit, value: String| {
            all.push(("throughput", goal(), direction, quantity, unit, value));
        };
        figure("total", "verdict", "", figures::verdict(&throughput.verdict));
        if let Some(pps) = found.lower_pps {
            figure("total", "passed", "units/s", number(pps));
            figure("each way", "passed", "units/s", number(pps / figures.directions()));
            figure("total", "passed", "frames/s", number(pps * f64::from(point.frame.frames_per_unit())));
            figure("total", "payload", "bit/s", number(figures.payload_bps(&point.frame, pps)));
            figure("total", "frames with FCS", "bit/s", number(figures.frame_bps(&point.frame, pps)));
        }
        if let Some(pps) = found.upper_pps {
            figure("total", "failed", "units/s", number(pps));
        }
        if let Some(spread) = found.forwarded_pps {
            for (what, pps) in
                ["came through, lowest", "came through, median", "came through, highest"].into_iter().zip(spread)
            {
                figure("total", what, "units/s", number(pps));
            }
        }
        figure("total", "trials", "", found.trials.to_string());
    }
    let busy = figures::at_throughput(point).and_then(figures::busy_percent);
    all.extend(busy.map(|percent| {
        ("throughput", "at the throughput".to_owned(), "total", "CPU load of the box's cores", "%", number(percent))
    }));
}

fn latency(point: &Point, all: &mut Vec<Figure>) {
    for l in &point.latency {
        let load = format!("load {}", number(l.load));
        for (i, way) in WAYS.into_iter().enumerate() {
            let mut figure = |what, ns: f64| all.push(("latency", load.clone(), way, what, "ns", number(ns)));
            for (what, ns) in l.one_way[i].iter().flat_map(delays) {
                figure(what, ns);
            }
            if let Some(ns) = l.one_way[i].and_then(|d| d.jitter_ns) {
                figure("jitter (RFC 3550)", ns);
            }
            if let Some(ns) = l.pdv_p99_ns[i] {
                figure("PDV p99 (RFC 5481)", ns as f64);
            }
            if let Some(d) = l.ipdv[i] {
                figure("IPDV p99 (RFC 5481)", d.p99_ns as f64);
            }
        }
        if let Some(ns) = l.round_trip_ns {
            all.push(("latency", load.clone(), "round trip", "mean of the best series", "ns", number(ns)));
        }
        all.push(("latency", load, "round trip", "probes lost", "", l.probes_lost.to_string()));
    }
}

fn delays(d: &Delays) -> [(&'static str, f64); 7] {
    [
        ("min", d.min_ns as f64),
        ("mean", d.mean_ns),
        ("p50", d.p50_ns as f64),
        ("p90", d.p90_ns as f64),
        ("p99", d.p99_ns as f64),
        ("p99.9", d.p999_ns as f64),
        ("max", d.max_ns as f64),
    ]
}

const WAYS: [&str; 2] = ["forward", "backward"];

const TRIAL_HEADS: [&str; 23] = [
    "number",
    "mode",
    "frame",
    "purpose",
    "direction",
    "wanted_total_pps",
    "offered_total_pps",
    "received_total_pps",
    "seconds",
    "sent",
    "received",
    "lost",
    "loss_ratio",
    "duplicated",
    "reordered",
    "stale",
    "incomplete",
    "looped",
    "stray",
    "late",
    "one_way_p99_ns",
    "steal_percent",
    "void",
];

/// A row for each direction that was used.
fn trial(mode: &Mode, t: &Trial) -> Vec<Vec<String>> {
    let row = |way: Direction| {
        let c = &t.counts[way.index()];
        let mut row = vec![t.number.to_string(), mode.key.clone(), t.frame.label(), t.purpose.clone()];
        row.extend([
            WAYS[way.index()].to_owned(),
            t.intended_pps.map_or_else(String::new, number),
            number(t.offered_pps),
            number(t.received_pps),
            number(t.seconds),
        ]);
        row.extend([c.sent, c.received, c.lost()].map(|n| n.to_string()));
        row.push(number(c.loss_ratio()));
        row.extend(
            [c.duplicated, c.reordered, c.stale, c.incomplete, c.looped, c.stray, c.late].map(|n| n.to_string()),
        );
        row.push(t.one_way[way.index()].map_or_else(String::new, |d| d.p99_ns.to_string()));
        row.push(number(t.observed.steal_percent));
        row.push(t.invalid.clone().unwrap_or_default());
        row
    };
    let used = |way: &Direction| *way == Direction::Forward || t.counts[way.index()].sent > 0;
    Direction::ALL.into_iter().filter(used).map(row).collect()
}

/// Six significant digits, no exponent.
fn number(value: f64) -> String {
    if value == 0.0 || !value.is_finite() {
        return format!("{value}");
    }
    let digits = (5 - value.abs().log10().floor() as i32).clamp(0, 12) as usize;
    let text = format!("{value:.digits$}");
    if text.contains('.') { text.trim_end_matches('0').trim_end_matches('.').to_owned() } else { text }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_have_no_more_digits_than_they_deserve() {
        assert_eq!([1_234_567.8, 0.001, 60.0, 0.0].map(number), ["1234568", "0.001", "60", "0"]);
        assert_eq!(number(f64::NAN), "NaN");
    }
}
