//! A run of the demo as one self-contained page.

use askama::Template;
use model::{
    run::{DemoRun, SourceFigure, Stage},
    units,
};

use crate::{
    charts, demo_text,
    page::{PUBLISHED, PageError},
};

#[derive(Template)]
#[template(path = "demo.html")]
struct Page<'a> {
    run: &'a DemoRun,
    rates: String,
    published: Option<String>,
    published_title: &'static str,
    fates: String,
    heat: String,
    repeats: u32,
    conditions: Vec<(&'static str, String)>,
}

/// The page: one HTML text that loads nothing from anywhere, charts included.
///
/// # Errors
/// Only by a fault of the template.
pub fn demo_page(run: &DemoRun) -> Result<String, PageError> {
    let page = Page {
        run,
        rates: charts::rates(run),
        published: charts::published(run),
        published_title: PUBLISHED,
        fates: charts::fates(run),
        heat: charts::heat(run),
        repeats: run.stages.iter().map(|s| s.repeats.count).max().unwrap_or(0),
        conditions: demo_text::conditions(run),
    };
    Ok(page.render()?)
}

impl Page<'_> {
    fn pps(&self, rate: &f64) -> String {
        units::pps(*rate)
    }

    fn ns(&self, cost: &Option<f64>) -> String {
        cost.map_or_else(|| "-".into(), |ns| format!("{ns:.0}"))
    }

    fn share(&self, stage: &Stage) -> String {
        units::percent(demo_text::share(stage))
    }

    fn sampled(&self) -> bool {
        self.run.stages.iter().any(|s| s.work.is_some())
    }

    fn work_note(&self) -> &'static str {
        demo_text::WORK_NOTE
    }

    fn dearest(&self, stage: &Stage) -> [String; 2] {
        demo_text::dearest(stage)
    }

    fn locks(&self, stage: &Stage) -> [String; 3] {
        demo_text::locks(stage)
    }

    fn unexplained(&self, stage: &Stage) -> String {
        units::percent(stage.ledger.unexplained_ratio())
    }

    fn parts(&self, stage: &Stage) -> Vec<(String, i64)> {
        demo_text::parts(stage)
    }

    fn count(&self, packets: &u64) -> String {
        units::grouped(*packets)
    }

    fn signed(&self, packets: &i64) -> String {
        format!("{}{}", if *packets < 0 { "-" } else { "" }, units::grouped(packets.unsigned_abs()))
    }

    fn of(&self, stage: &Stage, packets: &i64) -> String {
        units::percent(*packets as f64 / stage.ledger.offered.max(1) as f64)
    }

    fn range(&self, figure: &SourceFigure) -> String {
        demo_text::range_mpps(figure.low_mpps, figure.high_mpps)
    }

    fn stage_name(&self, figure: &SourceFigure) -> String {
        let stage = self.run.stages.iter().find(|s| s.key == figure.stage);
        stage.map_or_else(|| figure.stage.clone(), |s| s.name.clone())
    }
}
