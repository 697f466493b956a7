//! A run of the bench as one self-contained page.

use askama::Template;
use model::{
    bench::{BenchRun, FrameSpec, Mode, Point, Trial},
    units,
};

use super::{
    charts,
    conditions::conditions,
    figures::{self, Figures, or_dash, seconds, short},
    table::Table,
    tables, text,
};
use crate::page::{PUBLISHED, PageError};

#[derive(Template)]
#[template(path = "bench.html")]
struct Page<'a> {
    run: &'a BenchRun,
    figures: Figures<'a>,
    rates: Option<String>,
    bits: Option<String>,
    theory: Option<String>,
    published: Option<(String, Table)>,
    published_title: &'static str,
    round_trips: Option<String>,
    one_way: Option<String>,
    over_load: Option<(&'a FrameSpec, String)>,
    jitter: Option<String>,
    works: Vec<(&'static str, String)>,
    losses: Vec<(&'a Mode, String)>,
    meanings: Vec<&'static str>,
    conditions: Vec<(&'static str, String)>,
}

/// The page: one HTML text that loads nothing from anywhere, charts included.
///
/// # Errors
/// Only by a fault of the template.
pub fn bench_page(run: &BenchRun) -> Result<String, PageError> {
    let figures = Figures(run);
    let works = [
        ("The load of the box's cores at the throughput, by kind of frame.", charts::cpu_by_frame(figures)),
        ("What it goes to with the first kind of frame.", charts::cpu_by_class(figures)),
    ];
    let page = Page {
        run,
        figures,
        rates: charts::rates(figures),
        bits: charts::bits(figures),
        theory: charts::theory(figures),
        published: charts::published(figures)
            .map(|chart| (chart, tables::published(figures)))
            .filter(|(_, table)| !table.rows.is_empty()),
        published_title: PUBLISHED,
        round_trips: charts::round_trips(figures),
        one_way: charts::one_way(figures),
        over_load: charts::loaded_frame(figures).map(|frame| (frame, charts::over_load(figures, frame))),
        jitter: charts::jitter(figures),
        works: works.into_iter().filter_map(|(what, chart)| Some((what, chart?))).collect(),
        losses: charts::losses(figures),
        meanings: figures::meanings(run),
        conditions: conditions(figures),
    };
    Ok(page.render()?)
}

impl<'a> Page<'a> {
    /// No box has a throughput of its own, or the run is partial.
    fn void(&self) -> bool {
        let any = self.run.modes.iter().flat_map(|m| &m.points).any(|p| figures::rate_or_least(p).is_some());
        !any || self.figures.partial().is_some()
    }

    fn cell(&self, mode: &Mode, frame: &FrameSpec) -> String {
        or_dash(mode.points.iter().find(|p| p.frame == *frame).and_then(text::throughput_cell))
    }

    fn ceiling(&self, frame: &FrameSpec) -> String {
        or_dash(self.figures.ceiling_pps(frame).map(units::pps))
    }

    fn tables(&self, mode: &Mode) -> Vec<Table> {
        tables::all(self.figures, mode, true)
    }

    /// The details of a mode are open to begin with: those of the first box.
    fn opened(&self, mode: &Mode) -> bool {
        self.figures.searched().next().is_some_and(|first| first.key == mode.key)
    }

    fn limited(&self) -> bool {
        let points = self.run.modes.iter().flat_map(|m| &m.points);
        points.filter_map(figures::rate_or_least).any(|(_, limited)| limited)
    }

    fn filter_costs(&self) -> Vec<String> {
        let costs = self.figures.filter_costs().into_iter();
        costs.map(|(mode, frame, cost)| text::filter_cost(mode, &frame.label(), cost)).collect()
    }

    fn short(&self, frame: &FrameSpec) -> String {
        short(frame)
    }

    fn own_curve(&self) -> bool {
        self.run.modes.iter().flat_map(|m| &m.points).any(|p| !p.loss_curve.is_empty())
    }

    fn steps(&self, point: &'a Point) -> &'a [String] {
        point.throughput.as_ref().map_or(&[], |t| &t.steps)
    }

    fn trial(&self, t: &Trial) -> [String; 6] {
        [
            t.number.to_string(),
            t.purpose.clone(),
            units::pps(t.offered_pps),
            units::pps(t.received_pps),
            match t.failed_ratio() - t.loss_ratio() {
                late if late > 0.0 => {
                    format!("{}, {} late", units::percent(t.loss_ratio()), units::percent(late))
                }
                _ => units::percent(t.loss_ratio()),
            },
            seconds(t.seconds),
        ]
    }
}
