//! Runs of the bench side by side: differences, and whether they are more than chance.
//!
//! A throughput is a bracket: the box passed at its lower end and failed at its upper one. Two of them differ when the brackets lie apart.
//! Repeated measurements (bursts, round trips, recovery, reset) are judged by Welch's test of the means. A single measurement cannot be
//! judged, and no difference of it is called one.

use serde::{Deserialize, Serialize};
use statrs::distribution::ContinuousCDF;

pub use crate::paired::SIGNIFICANCE;
use crate::{
    compare::{Comparison, Fact, Judgement, differing},
    paired::{self, Paired, student, welch},
};

use super::{BenchRun, FrameSpec, GoalResult, Mode, Point, Status, Throughput, Verdict};

/// The version of the schema `evenkeel.bench.compare/<version>`.
pub const SCHEMA: u32 = 1;

#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct Value {
    /// The value: a lower bound, a mean, or a single reading.
    pub value: f64,
    /// Lower bound, in the unit of the value: the load that passed, or the lower end of the 95 % confidence interval of a mean; none for a single
    /// measurement.
    pub low: Option<f64>,
    /// To the load that failed, or the upper end of the interval; none for what was measured once, or when it may be anything more.
    pub high: Option<f64>,
    /// The standard error of a mean; none for what is no mean of repetitions.
    pub error: Option<f64>,
    /// Repetitions that it rests on.
    pub repeats: u32,
    /// The value is only a least one: the tester was the limit.
    pub at_least: bool,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Unit {
    /// Units per second, total of all directions.
    Pps,
    Nanoseconds,
    Seconds,
    Count,
}

/// A quantity of a mode and kind of frame, in every run.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Row {
    pub mode: String,
    pub frame: FrameSpec,
    /// The quantity, such as `throughput, 0.1 %`.
    pub what: String,
    pub unit: Unit,
    /// A value for each run, in their order; none where the run has none.
    pub values: Vec<Option<Value>>,
    /// Differences from the first run, in the order of the other runs.
    pub changes: Vec<Change>,
}

/// The difference of a run's value from the first run's.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct Change {
    /// The value over the first one, less one; none where there is none to compare.
    pub ratio: Option<f64>,
    /// The probability that chance alone makes a difference as large (Welch's test); none where no means are compared.
    pub probability: Option<f64>,
    pub judgement: Judgement,
}

/// Puts runs side by side; `runs` are names with what they stand for.
pub fn compare(runs: &[(String, BenchRun)]) -> Comparison<Row> {
    let mut rows: Vec<Row> = Vec::new();
    for (i, (_, run)) in runs.iter().enumerate() {
        for (mode, point) in run.modes.iter().flat_map(|m| m.points.iter().map(move |p| (m, p))) {
            for (what, unit, value) in quantities(point) {
                let row = row_of(&mut rows, mode, point, what, unit, runs.len());
                row.values[i] = Some(value);
            }
        }
    }
    for row in &mut rows {
        let (first, others) = row.values.split_first().map_or((None, &[][..]), |(f, o)| (*f, o));
        row.changes = others.iter().map(|other| change(first, *other)).collect();
    }
    Comparison::new(runs, |run| &run.timestamp, rows, notes(runs))
}

/// The row of that quantity, made if there is none yet.
fn row_of<'a>(
    rows: &'a mut Vec<Row>,
    mode: &Mode,
    point: &Point,
    what: String,
    unit: Unit,
    runs: usize,
) -> &'a mut Row {
    let found = rows.iter().position(|r| r.mode == mode.key && r.frame == point.frame && r.what == what);
    let at = found.unwrap_or_else(|| {
        let (mode, frame) = (mode.key.clone(), point.frame.clone());
        rows.push(Row { mode, frame, what, unit, values: vec![None; runs], changes: Vec::new() });
        rows.len() - 1
    });
    &mut rows[at]
}

/// Everything of a point that can be compared.
fn quantities(point: &Point) -> Vec<(String, Unit, Value)> {
    let mut all = Vec::new();
    if let Some(t) = &point.throughput {
        all.extend(
            t.results
                .iter()
                .filter_map(|f| Some((format!("throughput, {}", f.goal.name), Unit::Pps, of_search(f, t)?))),
        );
    }
    if let Some(b) = &point.back_to_back {
        let bursts: Vec<f64> = b.bursts.iter().map(|&n| n as f64).collect();
        all.extend(
            mean_of(&bursts)
                .map(|v| ("back-to-back burst".to_owned(), Unit::Count, Value { at_least: b.tester_limited, ..v })),
        );
    }
    for l in &point.latency {
        let load = if l.load > 0.0 { format!("at {:.0} %", 100.0 * l.load) } else { "idle".to_owned() };
        let series = l.contradiction_ns.is_none().then(|| mean_of(&l.series_ns)).flatten();
        all.extend(series.map(|v| (format!("round trip, {load}"), Unit::Nanoseconds, v)));
        let delays = l.one_way.iter().flatten();
        if let Some(p99) = delays.map(|d| d.p99_ns).max() {
            all.push((format!("one-way p99, {load}"), Unit::Nanoseconds, once(p99 as f64)));
        }
    }
    if let Some(j) = &point.jitter {
        let readings: Vec<f64> = j.readings_ns.iter().flatten().flatten().copied().collect();
        all.extend(mean_of(&readings).map(|v| ("jitter".to_owned(), Unit::Nanoseconds, v)));
    }
    if let Some(r) = &point.recovery {
        let at_least = r.unfinished > 0;
        all.extend(mean_of(&r.seconds).map(|v| ("recovery".to_owned(), Unit::Seconds, Value { at_least, ..v })));
    }
    for r in &point.resets {
        all.extend(mean_of(&r.by_loss_s).map(|v| (format!("reset: {}", r.what), Unit::Seconds, v)));
    }
    all
}

/// A throughput with its bracket; none when nothing was found.
fn of_search(found: &GoalResult, throughput: &Throughput) -> Option<Value> {
    let value = match throughput.verdict {
        Verdict::Void { .. } | Verdict::Unfinished { .. } => return None,
        Verdict::Nothing => 0.0,
        _ => found.lower_pps?,
    };
    let at_least = matches!(throughput.verdict, Verdict::TesterLimited { .. }) || found.upper_pps.is_none();
    let high = found.upper_pps.filter(|_| !at_least);
    Some(Value { value, low: Some(value), high, error: None, repeats: found.trials, at_least })
}

fn once(value: f64) -> Value {
    Value { value, low: None, high: None, error: None, repeats: 1, at_least: false }
}

/// The mean of repetitions with its 95 % confidence interval; none of nothing.
fn mean_of(values: &[f64]) -> Option<Value> {
    let (Paired { mean, low, high, .. }, (_, variance)) = (Paired::of(values)?, paired::mean_of(values)?);
    Some(Value {
        value: mean,
        low: low.map(|low| low.max(0.0)),
        high,
        error: variance.map(f64::sqrt),
        repeats: u32::try_from(values.len()).unwrap_or(u32::MAX),
        at_least: false,
    })
}

/// The difference of `b` from `a`.
fn change(a: Option<Value>, b: Option<Value>) -> Change {
    let Some((a, b)) = a.zip(b) else {
        return Change { ratio: None, probability: None, judgement: Judgement::NotJudged };
    };
    let probability = of_chance(&a, &b);
    let judgement = match (probability, a.low.zip(b.low)) {
        (Some(p), _) if p >= SIGNIFICANCE => Judgement::Same,
        (Some(_), _) if b.value > a.value => Judgement::Higher,
        (Some(_), _) => Judgement::Lower,
        (None, Some((of_a, of_b))) => Judgement::of_intervals((of_a, a.high), (of_b, b.high)),
        (None, None) => Judgement::NotJudged,
    };
    // Who is at least so good may be any better: then only being worse than that can be told.
    let open = (a.at_least && judgement != Judgement::Lower) || (b.at_least && judgement != Judgement::Higher);
    Change {
        ratio: (a.value > 0.0).then(|| b.value / a.value - 1.0),
        probability,
        judgement: if open { Judgement::NotJudged } else { judgement },
    }
}

/// The probability that two means of repetitions lie so far apart by chance; none where one is no such mean.
fn of_chance(a: &Value, b: &Value) -> Option<f64> {
    let ((ea, eb), difference) = ((a.error?.powi(2), b.error?.powi(2)), (b.value - a.value).abs());
    let (variance, freedom) = welch((ea, a.repeats as usize), (eb, b.repeats as usize));
    if variance == 0.0 {
        return Some(if difference == 0.0 { 1.0 } else { 0.0 });
    }
    Some(2.0 * student(freedom)?.cdf(-difference / variance.sqrt()))
}

/// The differences of the runs besides their figures.
fn notes(runs: &[(String, BenchRun)]) -> Vec<String> {
    let facts: [Fact<BenchRun>; 12] = [
        ("the machine", |r| r.machine.hostname.clone()),
        ("the CPU", |r| format!("{} x {}", r.machine.cpus, r.machine.cpu_model)),
        ("the kernel", |r| r.machine.kernel.clone()),
        ("the version of evenkeel", |r| r.version.clone()),
        ("the preset", |r| r.setup.preset.clone()),
        ("the goals", |r| r.setup.goals.iter().map(|g| g.name.as_str()).collect::<Vec<_>>().join(", ")),
        ("the length of a trial", |r| r.setup.goals.first().map_or_else(String::new, |g| format!("{} s", g.trial_s))),
        ("the directions", |r| if r.setup.bidirectional { "both at once" } else { "one" }.to_owned()),
        ("the IP version", |r| r.setup.ip_version.to_string()),
        ("the number of flows", |r| r.setup.flows.to_string()),
        ("the filter", |r| format!("{} rules in the order {}", r.setup.rules, r.setup.rule_order)),
        ("the cores", |r| r.setup.arrangement.words()),
    ];
    let found = differing(runs, &facts).into_iter();
    let mut notes: Vec<String> =
        found.map(|(what, values)| format!("{what} differs: {}", values.join(" | "))).collect();
    for (name, run) in runs {
        if let Status::Partial { reason, begun } = &run.status {
            let begun = begun.as_ref().map_or_else(String::new, |b| format!("; {b}"));
            notes.push(format!("{name} is partial: {reason}{begun}"));
        }
    }
    notes
}

#[cfg(test)]
mod tests {
    use super::*;

    fn bracket(low: f64, high: Option<f64>) -> Value {
        Value { value: low, low: Some(low), high, error: None, repeats: 9, at_least: high.is_none() }
    }

    fn judged(a: Value, b: Value) -> Judgement {
        change(Some(a), Some(b)).judgement
    }

    #[test]
    fn brackets_differ_when_they_lie_apart() {
        let a = bracket(800e3, Some(810e3));
        assert_eq!(judged(a, bracket(812e3, Some(820e3))), Judgement::Higher);
        assert_eq!(judged(a, bracket(805e3, Some(815e3))), Judgement::Same);
        assert_eq!(judged(a, bracket(700e3, Some(710e3))), Judgement::Lower);
        let change = change(Some(a), Some(bracket(400e3, Some(404e3))));
        assert_eq!((change.ratio, change.probability), (Some(-0.5), None));
    }

    #[test]
    fn who_was_limited_by_the_tester_may_be_any_better() {
        let limited = bracket(800e3, None);
        assert_eq!(judged(limited, bracket(700e3, Some(710e3))), Judgement::Lower);
        assert_eq!(judged(limited, bracket(900e3, Some(910e3))), Judgement::NotJudged);
        assert_eq!(judged(bracket(700e3, Some(710e3)), limited), Judgement::Higher);
        assert_eq!(judged(bracket(900e3, Some(910e3)), limited), Judgement::NotJudged);
        assert_eq!(judged(limited, limited), Judgement::NotJudged);
    }

    #[test]
    fn means_are_judged_by_welch() {
        // The reference is the density of Student's distribution summed up in 200 000 steps: t = 2.83526, 27.7136 degrees of freedom.
        let a = [27.5, 21.0, 19.0, 23.6, 17.0, 17.9, 16.9, 20.1, 21.9, 22.6, 23.1, 19.6, 19.0, 21.7, 21.4];
        let b = [27.1, 22.0, 20.8, 23.4, 23.4, 23.5, 25.8, 22.0, 24.8, 20.2, 21.9, 22.1, 22.9, 30.0, 23.9];
        let (a, b) = (mean_of(&a).unwrap(), mean_of(&b).unwrap());
        let change = change(Some(a), Some(b));
        assert!((change.probability.unwrap() - 0.008_452_73).abs() < 1e-7, "{change:?}");
        assert_eq!(change.judgement, Judgement::Higher);
    }

    #[test]
    fn what_was_measured_once_is_not_judged() {
        assert_eq!(judged(once(1.0), once(100.0)), Judgement::NotJudged);
        assert_eq!(judged(mean_of(&[1.0]).unwrap(), mean_of(&[2.0, 2.1]).unwrap()), Judgement::NotJudged);
        assert_eq!(change(None, Some(once(1.0))).ratio, None);
        let same = mean_of(&[5.0, 5.0, 5.0]).unwrap();
        assert_eq!(judged(same, same), Judgement::Same);
        assert_eq!(judged(same, mean_of(&[6.0, 6.0]).unwrap()), Judgement::Higher);
        assert_eq!((same.low, same.high), (Some(5.0), Some(5.0)));
    }
}
