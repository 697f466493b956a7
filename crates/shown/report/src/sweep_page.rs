//! A sweep as one self-contained page: the CPU time of the box by class over the offered load, both configurations side by side.

use askama::Template;
use model::{
    profile::Class,
    sweep::{Setup, Step, Sweep},
    units,
};

use crate::{load_areas, page::PageError, sweep};

#[derive(Template)]
#[template(path = "sweep.html")]
struct Page<'a> {
    sweep: &'a Sweep,
    panels: Vec<(&'a Setup, String)>,
    legend: Vec<(&'static str, &'static str)>,
    costs: Vec<(String, Vec<sweep::Range>)>,
    costs_of_what: &'static str,
    published_title: &'static str,
    conditions: Vec<(&'static str, String)>,
}

/// The page: one HTML text that loads nothing from anywhere, charts included.
///
/// # Errors
/// Only by a fault of the template.
pub fn sweep_page(sweep: &Sweep) -> Result<String, PageError> {
    let setups: Vec<&Setup> = sweep.setups.iter().collect();
    let areas = load_areas::areas(&setups);
    let page = Page {
        sweep,
        panels: sweep.setups.iter().map(|s| (s, load_areas::panel(&setups, s, &areas))).collect(),
        legend: load_areas::legend(&areas),
        costs: sweep::costs_of(sweep),
        costs_of_what: sweep::COSTS_OF_WHAT,
        published_title: crate::page::PUBLISHED,
        conditions: sweep::conditions(sweep),
    };
    Ok(page.render()?)
}

impl Page<'_> {
    /// There is no verdict, or other programs had a part in it.
    fn untold(&self) -> bool {
        self.sweep.disturbed.is_some() || !self.sweep.gain.as_ref().is_some_and(|gain| gain.told)
    }

    fn pps(&self, rate: &f64) -> String {
        units::pps(*rate)
    }

    fn percent(&self, ratio: &f64) -> String {
        units::percent(*ratio)
    }

    fn whole(&self, value: &f64) -> String {
        format!("{value:.0}")
    }

    fn range(&self, range: &sweep::Range) -> String {
        sweep::range(*range)
    }

    /// A share of the box's own work, of the lab, and idle, in percent.
    fn own(&self, step: &Step) -> String {
        format!("{:.0}", step.busy_percent())
    }

    fn memory(&self, step: &Step) -> String {
        format!("{:.1}", step.percent_of_busy(Class::Memory))
    }

    fn lab(&self, step: &Step) -> String {
        format!("{:.0}", step.generator_percent + step.receiver_percent)
    }

    fn steal(&self, step: &Step) -> String {
        format!("{:.0}", step.percent(Class::Steal))
    }

    fn idle(&self, step: &Step) -> String {
        format!("{:.0}", step.percent(Class::Idle))
    }
}
