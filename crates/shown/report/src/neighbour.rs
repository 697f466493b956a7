//! Costs of noisy neighbours, as text.

use model::{
    bench::{
        FrameSpec,
        neighbour::{Boxed, Condition, Cost, Disturbed, Measure, NeighbourRun, Reading, compare::Row},
    },
    compare::Comparison,
    units,
};

use crate::{compare, conditions, table::Look};

/// The columns of a box's conditions.
pub(crate) const CONDITIONS: [&str; 12] = [
    "NEIGHBOUR",
    "ON",
    "REMEDY",
    ">LOSS",
    ">DELAY 99 %",
    ">MOST",
    ">JITTER",
    ">IDLE TRIP",
    ">AT 95 %",
    ">CPU/FRAME",
    ">WAITING",
    ">HAD",
];
/// The columns of its costs.
pub(crate) const COSTS: [&str; 8] =
    ["NEIGHBOUR", "BESIDE", "WHAT", ">BEFORE", ">AFTER", ">DIFFERENCE", ">95 % INTERVAL", ">CHANCE"];
/// The columns of what could not be measured.
pub(crate) const MISSING: [&str; 4] = ["NEIGHBOUR", "WHAT", ">ROUNDS", "WHY, IN THE FIRST"];
const NONE: &str = "\u{2013}";

pub fn neighbour_text(run: &NeighbourRun, look: Look) -> String {
    let mut text = String::new();
    for boxed in &run.boxes {
        text += &look.paragraph(&title(boxed));
        text += &look.table(&CONDITIONS, condition_rows(boxed));
        text.push('\n');
        let costs = cost_rows(boxed).into_iter().filter(|(cost, _)| cost.beyond_chance);
        let costs: Vec<_> = costs.map(|(_, cells)| cells).collect();
        match costs.is_empty() {
            true => text += &look.paragraph("No difference is beyond chance."),
            false => {
                text += &look.paragraph("Differences beyond chance:");
                text += &look.table(&COSTS, costs);
            }
        }
        text.push('\n');
    }
    if !run.conclusions.is_empty() {
        text += &look.paragraph("So:");
        run.conclusions.iter().for_each(|line| text += &look.item(line));
        text.push('\n');
    }
    let missing = missing(run);
    if !missing.is_empty() {
        text += &look.paragraph("Not measured:");
        text += &look.table(&MISSING, missing);
        text.push('\n');
    }
    if let Some(why) = &run.partial {
        text += &look.paragraph(&format!("The run is partial: {why}."));
    }
    for left in &run.skipped {
        text += &look.paragraph(&format!("Left out, {left}."));
    }
    text += &conditions::published(&run.sources, look);
    text.push('\n');
    text + &conditions::paragraphs(&conditions_of(run), look)
}

/// A box and its rates.
pub(crate) fn title(boxed: &Boxed) -> String {
    let limited = if boxed.tester_limited { ", where the tester was the limit" } else { "" };
    format!(
        "{}: throughput {} while quiet{limited}; the fixed rate is {}.",
        boxed.name,
        units::pps(boxed.throughput_pps),
        units::pps(boxed.rate_pps)
    )
}

/// The means of each condition, the quiet box first.
pub(crate) fn condition_rows(boxed: &Boxed) -> Vec<[String; 12]> {
    let quiet = ["quiet".to_owned(), NONE.to_owned(), NONE.to_owned()];
    let mut rows = vec![means(quiet, &boxed.quiet, None)];
    for row in &boxed.rows {
        let of = &row.condition;
        let first = match &of.neighbour {
            Some(neighbour) => {
                let on = format!("{}, CPU {}", of.on.as_deref().unwrap_or(NONE), of.cpus.as_deref().unwrap_or(NONE));
                [neighbour.clone(), on, of.remedy.clone()]
            }
            None => ["quiet again".to_owned(), NONE.to_owned(), NONE.to_owned()],
        };
        rows.push(means(first, &row.readings, of.neighbour.as_ref().map(|_| row)));
    }
    rows
}

const SHOWN: [Measure; 8] = [
    Measure::Loss,
    Measure::P99,
    Measure::Max,
    Measure::Jitter,
    Measure::IdleTrip,
    Measure::LoadedTrip,
    Measure::Cpu,
    Measure::Waiting,
];

fn means([neighbour, on, remedy]: [String; 3], readings: &[Reading], with: Option<&Disturbed>) -> [String; 12] {
    let mean = |measure| {
        let values: Vec<f64> = readings.iter().filter_map(|reading| reading.values.get(&measure).copied()).collect();
        let mean = values.iter().sum::<f64>() / values.len() as f64;
        if values.is_empty() { NONE.to_owned() } else { value(measure, mean) }
    };
    let had = with.map_or_else(
        || NONE.to_owned(),
        |row| {
            let mean = row.readings.iter().map(|reading| reading.neighbour_cpus).sum::<f64>()
                / row.readings.len().max(1) as f64;
            format!("{mean:.2} CPU")
        },
    );
    let [loss, p99, most, jitter, idle, loaded, cpu, waiting] = SHOWN.map(mean);
    [neighbour, on, remedy, loss, p99, most, jitter, idle, loaded, cpu, waiting, had]
}

pub(crate) fn value(measure: Measure, value: f64) -> String {
    if measure.is_share() { format!("{:.3} %", 100.0 * value) } else { units::nanoseconds(value) }
}

/// A difference of such values, with its sign.
fn signed(measure: Measure, difference: f64) -> String {
    let sign = if difference < 0.0 { "-" } else { "+" };
    format!("{sign}{}", value(measure, difference.abs()))
}

/// Every cost of every condition: beside the quiet box, then beside the same neighbour without the remedy.
pub(crate) fn cost_rows(boxed: &Boxed) -> Vec<(&Cost, [String; 8])> {
    let mut all = Vec::new();
    for row in &boxed.rows {
        let name = name(row);
        for (costs, beside) in [(&row.costs, "quiet"), (&row.remedy, "no remedy")] {
            all.extend(costs.iter().map(|cost| (cost, cost_cells(&name, beside, cost))));
        }
    }
    all
}

pub(crate) fn name(row: &Disturbed) -> String {
    words(&row.condition)
}

fn words(of: &Condition) -> String {
    match (&of.neighbour, of.remedy.as_str()) {
        (None, _) => "quiet again".to_owned(),
        (Some(neighbour), "none") => format!("{neighbour} on {}", of.on.as_deref().unwrap_or(NONE)),
        (Some(neighbour), remedy) => format!("{neighbour} on {}, {remedy}", of.on.as_deref().unwrap_or(NONE)),
    }
}

fn cost_cells(name: &str, beside: &str, cost: &Cost) -> [String; 8] {
    let of = cost.measure;
    let ratio = cost.ratio().map_or_else(String::new, |ratio| format!(" ({:+.0} %)", 100.0 * ratio));
    let interval = match (cost.difference.low, cost.difference.high) {
        (Some(low), Some(high)) => format!("{} to {}", signed(of, low), signed(of, high)),
        _ => NONE.to_owned(),
    };
    let chance = match cost.difference.probability {
        Some(p) if p < 0.0001 => "< 0.0001".to_owned(),
        Some(p) => format!("{p:.4}"),
        None => NONE.to_owned(),
    };
    [
        name.to_owned(),
        beside.to_owned(),
        of.words().to_owned(),
        value(of, cost.before),
        value(of, cost.after),
        format!("{}{ratio}", signed(of, cost.difference.mean)),
        interval,
        chance,
    ]
}

/// Runs beside the first one, as text: what differs beyond chance.
pub fn neighbour_compare_text(comparison: &Comparison<Row>, look: Look) -> String {
    let mut text = String::new();
    let letter = |run: usize| compare::letters().nth(run).unwrap_or('?');
    for row in &comparison.rows {
        let condition = row.condition.as_ref().map_or_else(|| "quiet".to_owned(), words);
        let [first, this] = row.rates_pps.map(units::pps);
        text += &look.paragraph(&format!(
            "\n{}, {condition}, A and {}, at fixed rates of {first} and {this}:",
            row.name,
            letter(row.run)
        ));
        let found = row.costs.iter().filter(|cost| cost.beyond_chance);
        let rows: Vec<Vec<String>> = found
            .map(|cost| {
                let [_, _, what, before, after, difference, interval, chance] = cost_cells("", "", cost);
                vec![what, before, after, difference, interval, chance]
            })
            .collect();
        text += &match rows.is_empty() {
            true => look.paragraph(&format!("None of {} differences is beyond chance.", row.costs.len())),
            false => look.table(&["WHAT", ">A", ">THIS", ">DIFFERENCE", ">95 % INTERVAL", ">CHANCE"], rows),
        };
    }
    text += &look.paragraph(
        "Means of the rounds; rounds of different runs are no pairs (Welch's t, Holm's correction over the measures of a row).",
    );
    compare::text(comparison, text, ".", look)
}

/// Missing measures: the condition, the measure, the number of rounds, and the reason in the first of them, whose figures stand for all.
pub(crate) fn missing(run: &NeighbourRun) -> Vec<[String; 4]> {
    let mut found: Vec<([String; 3], u32)> = Vec::new();
    let boxes = run.boxes.len();
    for boxed in &run.boxes {
        let quiet = boxed.quiet.iter().map(|reading| ("quiet".to_owned(), reading));
        let rows = boxed.rows.iter().flat_map(|row| row.readings.iter().map(move |reading| (name(row), reading)));
        for (name, reading) in quiet.chain(rows) {
            let name = if boxes > 1 { format!("{}, {name}", boxed.name) } else { name };
            for (what, why) in reading.missing.iter().map(|line| line.split_once(": ").unwrap_or((line, ""))) {
                match found.iter_mut().find(|([of, part, _], _)| (of, part.as_str()) == (&name, what)) {
                    Some((_, count)) => *count += 1,
                    None => found.push(([name.clone(), what.to_owned(), why.to_owned()], 1)),
                }
            }
        }
    }
    let cells =
        |([name, what, why], count): ([String; 3], u32)| [name, what, format!("{count} of {}", run.rounds), why];
    found.into_iter().map(cells).collect()
}

/// Conditions of the figures.
pub(crate) fn conditions_of(run: &NeighbourRun) -> conditions::Conditions {
    let cores: Vec<String> = run.cores.iter().map(|r| format!("CPU {} {}", r.cpus, r.role)).collect();
    let frames = match &run.frame {
        FrameSpec::Size { bytes } => format!("{bytes} bytes"),
        other => other.to_string(),
    };
    let mut all = vec![
        conditions::machine(&run.machine),
        ("Cores", cores.join("; ")),
        ("Frames", frames),
        ("Rounds", format!("{}, trials of {} s; seed {}", run.rounds, run.trial_s, run.seed)),
        (
            "Thrown away",
            format!("{} in which a hypervisor took the CPU", units::counted(run.stolen.into(), "trial", "trials")),
        ),
        ("Load average at the beginning", format!("{:.2}", run.load_average)),
    ];
    all.extend(run.notes.iter().map(|note| ("Note", note.clone())));
    all
}
