//! Costs of noisy neighbours, as one self-contained page.

use model::bench::neighbour::{Boxed, Measure, NeighbourRun, Reading};

use crate::{
    chart::{
        Room,
        rows::{self, Axis, Bars},
        svg::escaped,
    },
    neighbour as figures,
    page::{Html, Page, PageError, Section, cells},
};

const BLUE: &str = "#2f7fc1";
const RED: &str = "#c2334d";

const CONDITIONS: [&str; 12] = [
    "=Neighbour",
    "=On",
    "=Remedy",
    ">Loss",
    ">Delay, 99\u{a0}%",
    ">Most",
    ">Jitter",
    ">Idle round trip",
    ">At 95\u{a0}%",
    ">CPU per frame",
    ">Waiting",
    ">It had",
];
const COSTS: [&str; 6] = ["What", ">Before", ">After", ">Difference", ">95\u{a0}% interval", ">Chance"];
const MISSING: [&str; 4] = ["Neighbour", "What", ">Rounds", "<Why, in the first"];
const SOURCES: [&str; 4] = ["<What", "Beside", "<Then", "<Who, on what"];

/// The page: one HTML text that loads nothing from anywhere, charts included.
pub fn neighbour_page(run: &NeighbourRun) -> Result<String, PageError> {
    let heading = "What noisy neighbours cost, and what protects";
    let mut page = Page::new("bench --neighbour", heading, (&run.machine, &run.timestamp), "");
    let main = &mut page.main;
    let lines: Vec<String> = match run.conclusions.as_slice() {
        [] => vec!["No verdict: no neighbour was measured.".to_owned()],
        lines => lines.iter().map(|lines| format!("{lines}.")).collect(),
    };
    // Whether the run bears no verdict, or not its whole one.
    let judged = run.conclusions.iter().any(|lines| !lines.ends_with("nothing could be judged"));
    main.conclude_all(&lines, run.partial.is_some() || !judged);
    if let Some(why) = &run.partial {
        main.warn("The run is partial:", format_args!("{why}."));
    }
    for left in &run.skipped {
        main.warn("Left out:", format_args!("{left}."));
    }
    let missing = figures::missing(run);
    if !missing.is_empty() {
        let see = "see <a href=\"#missing\">what was not measured</a>";
        main.push(format_args!("<p class=\"warning\">Some rounds have no figure for some measures: {see}.</p>\n"));
    }
    for boxed in &run.boxes {
        main.heading(2, figures::title(boxed));
        main.pair(false, charts(boxed));
        main.heading(3, "Means of the rounds");
        main.table(&CONDITIONS, figures::condition_rows(boxed));
        main.heading(3, "Differences of pairs");
        main.quiet("Beside the quiet box of the same round, and for a remedy beside the same neighbour without one.");
        differences(main, boxed);
    }
    if !missing.is_empty() {
        main.push("<h2 id=\"missing\">Not measured</h2>\n");
        main.table(&MISSING, missing);
    }
    main.published("Never measured by evenkeel.", &SOURCES, &run.sources);
    page.end(figures::conditions_of(run))
}

/// Differences of one condition beside one other, together: those beyond chance, then the others.
fn differences(main: &mut Html, boxed: &Boxed) {
    let (beyond, chance): (Vec<_>, Vec<_>) =
        figures::cost_rows(boxed).into_iter().partition(|(cost, _)| cost.beyond_chance);
    if beyond.is_empty() {
        main.say("No difference is beyond chance.");
    }
    for (is_beyond, rows, what) in [(true, beyond, "beyond chance"), (false, chance, "that may be chance")] {
        let mut body = String::new();
        for group in rows.chunk_by(|(_, a), (_, b)| a[..2] == b[..2]) {
            let of = format!("{}, beside {}", group[0].1[0], group[0].1[1]);
            body += &format!("<tr><td class=\"group\" colspan=\"6\">{}</td></tr>\n", escaped(&of));
            body.extend(group.iter().map(|(_, c)| cells(&COSTS, "", &c[2..])));
        }
        if !rows.is_empty() {
            let mut table = Html::default();
            table.table_of(&COSTS, &body);
            main.details(is_beyond, &format!("{} {what}", rows.len()), None, &table);
        }
    }
}

/// A chart for each measure that people ask for, a bar for each condition.
fn charts(boxed: &Boxed) -> Vec<Section> {
    let rows = || boxed.rows.iter().map(|row| (figures::name(row), &row.readings));
    let all: Vec<(String, &Vec<Reading>)> = [("quiet".to_owned(), &boxed.quiet)].into_iter().chain(rows()).collect();
    let names: Vec<String> = all.iter().map(|(name, _)| name.clone()).collect();
    let shown = [Measure::Loss, Measure::P99, Measure::IdleTrip, Measure::LoadedTrip, Measure::Cpu, Measure::Waiting];
    let chart = |measure: Measure| {
        let (scale, axis) = if measure.is_share() { (100.0, Axis::Numbers(" %")) } else { (1.0, Axis::Times) };
        let mean = |readings: &[Reading]| {
            let values: Vec<f64> = readings.iter().filter_map(|r| r.values.get(&measure).copied()).collect();
            (!values.is_empty()).then(|| (values.iter().sum::<f64>() / values.len() as f64, values.len()))
        };
        let bar = |(_, readings): &(String, &Vec<Reading>)| match mean(readings) {
            Some((mean, n)) => (Some(scale * mean), format!("{} ({n})", figures::value(measure, mean))),
            None => (None, String::new()),
        };
        let colour = if measure.is_share() { RED } else { BLUE };
        let bars = [Bars::new("mean (of so many rounds)", colour, all.iter().map(bar))];
        let label = format!("Bars: the mean {} of each condition; the figures are in the table", measure.words());
        let id = format!("{}-{}", boxed.key, measure.words().replace([' ', ',', '%'], ""));
        Section::new(3, heading(measure.words()), "", rows::chart(&id, &label, Room::Half, &names, &bars, axis))
    };
    shown.into_iter().map(chart).collect()
}

/// Words with a capital, as a heading has them.
fn heading(words: &str) -> String {
    let (first, rest) = words.split_at(words.chars().next().map_or(0, char::len_utf8));
    first.to_uppercase() + rest
}
