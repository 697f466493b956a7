//! What noisy neighbours cost a box, as one self-contained page.

use askama::Template;
use model::bench::neighbour::{Boxed, Cost, Measure, NeighbourRun, Reading};

use crate::{
    chart::{
        Room,
        rows::{self, Axis, Bars},
    },
    neighbour as figures,
    page::PageError,
};

const BLUE: &str = "#2f7fc1";
const RED: &str = "#c2334d";

#[derive(Template)]
#[template(path = "neighbour.html")]
struct Page<'a> {
    run: &'a NeighbourRun,
    boxes: Vec<BoxPart>,
    missing: Vec<[String; 4]>,
    published_title: &'static str,
    conditions: Vec<(&'static str, String)>,
}

/// What a box has on the page.
struct BoxPart {
    title: String,
    charts: Vec<(String, String)>,
    conditions: Vec<[String; 12]>,
    /// Differences beyond chance.
    beyond: Vec<[String; 8]>,
    /// The others.
    chance: Vec<[String; 8]>,
}

impl BoxPart {
    /// Both kinds of differences, each with whether it is beyond chance.
    fn costs(&self) -> [(bool, &[[String; 8]]); 2] {
        [(true, &self.beyond), (false, &self.chance)]
    }
}

/// The page: one HTML text that loads nothing from anywhere, charts included.
///
/// # Errors
/// Only by a fault of the template.
pub fn neighbour_page(run: &NeighbourRun) -> Result<String, PageError> {
    let part = |boxed: &Boxed| {
        let (beyond, chance): (Vec<_>, Vec<_>) =
            figures::cost_rows(boxed).into_iter().partition(|(cost, _)| cost.beyond_chance);
        let cells = |rows: Vec<(&Cost, [String; 8])>| rows.into_iter().map(|(_, cells)| cells).collect();
        BoxPart {
            title: figures::title(boxed),
            charts: charts(boxed),
            conditions: figures::condition_rows(boxed),
            beyond: cells(beyond),
            chance: cells(chance),
        }
    };
    let page = Page {
        run,
        boxes: run.boxes.iter().map(part).collect(),
        missing: figures::missing(run),
        published_title: crate::page::PUBLISHED,
        conditions: figures::conditions_of(run),
    };
    Ok(page.render()?)
}

impl Page<'_> {
    /// Differences of one condition beside one other, together.
    fn groups<'r>(&self, rows: &'r [[String; 8]]) -> Vec<&'r [[String; 8]]> {
        rows.chunk_by(|a, b| a[..2] == b[..2]).collect()
    }

    /// Whether the run bears no verdict, or not its whole one.
    fn void(&self) -> bool {
        let judged = self.run.conclusions.iter().any(|said| !said.ends_with("nothing could be judged"));
        self.run.partial.is_some() || !judged
    }
}

/// A chart for each measure that people ask for, a bar for each condition.
fn charts(boxed: &Boxed) -> Vec<(String, String)> {
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
        let bars = vec![Bars {
            name: "mean (of so many rounds)".into(),
            colour,
            hatched: false,
            bars: all.iter().map(bar).collect(),
        }];
        let label = format!("Bars: the mean {} of each condition; the figures are in the table", measure.words());
        let id = format!("{}-{}", boxed.key, measure.words().replace([' ', ',', '%'], ""));
        (heading(measure.words()), rows::chart(&id, &label, Room::Half, &names, &bars, axis))
    };
    shown.into_iter().map(chart).collect()
}

/// Words with a capital, as a heading has them.
fn heading(words: &str) -> String {
    let (first, rest) = words.split_at(words.chars().next().map_or(0, char::len_utf8));
    first.to_uppercase() + rest
}
