//! A sweep as one self-contained page: the CPU time of the box by class over the offered load, both configurations side by side.

use askama::Template;
use model::{
    profile::Class,
    sweep::{Setup, Step, Sweep},
    units,
};

use crate::{
    chart::{
        areas::{self as chart, Steps},
        columns::significant,
        plane::{Across, Up},
        scale::{Scale, number},
    },
    page::PageError,
    sweep,
};

/// An area that nowhere reaches this, in percent, is drawn with the other small ones as one.
const SMALL: f64 = 1.0;
const SMALL_ONES: (&str, &str) = ("other classes", "#7f8c8d");

#[derive(Template)]
#[template(path = "sweep.html")]
struct Page<'a> {
    sweep: &'a Sweep,
    panels: Vec<(&'a Setup, String)>,
    legend: Vec<(String, &'static str)>,
    costs: Vec<(String, sweep::Range, sweep::Range)>,
    costs_of_what: &'static str,
    published_title: &'static str,
    conditions: Vec<(&'static str, String)>,
}

/// The page: one HTML text that loads nothing from anywhere, charts included.
///
/// # Errors
/// Only by a fault of the template.
pub fn sweep_page(sweep: &Sweep) -> Result<String, PageError> {
    let areas = areas(sweep);
    let page = Page {
        sweep,
        panels: sweep.setups.iter().map(|s| (s, panel(sweep, s, &areas))).collect(),
        // From top to bottom, as the areas lie.
        legend: areas.iter().rev().map(|a| (a.name.to_owned(), a.colour)).collect(),
        costs: sweep::costs(sweep),
        costs_of_what: sweep::COSTS_OF_WHAT,
        published_title: crate::page::PUBLISHED,
        conditions: sweep::conditions(sweep),
    };
    Ok(page.render()?)
}

/// One area of the stack.
struct Area {
    name: &'static str,
    colour: &'static str,
    percent: Box<dyn Fn(&Step) -> f64>,
}

/// The areas from bottom to top: the box's own work, what the lab took, others, idle, steal. None that is empty everywhere.
fn areas(sweep: &Sweep) -> Vec<Area> {
    let steps = || sweep.setups.iter().flat_map(|s| &s.steps);
    let of = |class: Class| Area {
        name: class.name(),
        colour: colour(class),
        percent: Box::new(move |step| step.percent(class)),
    };
    let reaches = |class: Class| steps().map(|s| s.percent(class)).fold(0.0, f64::max);
    let (large, small): (Vec<Class>, Vec<Class>) =
        Class::ALL.into_iter().filter(|c| c.is_busy()).partition(|&c| reaches(c) >= SMALL);
    let mut areas: Vec<Area> = large.into_iter().map(of).collect();
    areas.push(Area {
        name: SMALL_ONES.0,
        colour: SMALL_ONES.1,
        percent: Box::new(move |step| small.iter().map(|&c| step.percent(c)).sum()),
    });
    let area = |name, colour, percent: fn(&Step) -> f64| Area { name, colour, percent: Box::new(percent) };
    areas.extend([
        area("receiving end of the lab", "#c9b79c", |s| s.receiver_percent),
        area("generator", "#e3d5bd", |s| s.generator_percent),
        area("other programs", "rgba(128,128,128,0.45)", |s| s.others_percent),
        of(Class::Idle),
        of(Class::Steal),
    ]);
    areas.retain(|area| steps().any(|s| (area.percent)(s) >= 0.05));
    areas
}

/// The areas of one configuration over the offered load, with the line of what came out.
fn panel(sweep: &Sweep, setup: &Setup, areas: &[Area]) -> String {
    let steps = || sweep.setups.iter().flat_map(|s| &s.steps);
    let top = steps().map(|s| s.offered_pps.max(s.forwarded_pps)).fold(1.0, f64::max);
    let (scale, unit) = if top >= 2e6 { (1e6, "Mpps") } else { (1e3, "kpps") };
    let scaled = |pps: f64| pps / scale;
    let high = 1.02 * scaled(top);
    let low = scaled(steps().map(|s| s.offered_pps).fold(top, f64::min));
    let percent: Vec<chart::Area> = areas
        .iter()
        .map(|area| chart::Area {
            name: area.name.to_owned(),
            colour: area.colour,
            percent: setup.steps.iter().map(|s| (area.percent)(s)).collect(),
        })
        .collect();
    let tip = |step: &Step| {
        let (offered, out) = (significant(scaled(step.offered_pps)), significant(scaled(step.forwarded_pps)));
        let mut tip = format!("{offered} {unit} offered, {out} {unit} came out");
        for area in areas.iter().rev().filter(|area| (area.percent)(step) >= 0.05) {
            tip += &format!("\n{}: {:.1} %", area.name, (area.percent)(step));
        }
        tip
    };
    let steps = Steps {
        x: setup.steps.iter().map(|s| scaled(s.offered_pps)).collect(),
        line: setup.steps.iter().map(|s| scaled(s.forwarded_pps)).collect(),
        tips: setup.steps.iter().map(tip).collect(),
    };
    let across =
        Across::Numbers { scale: Scale::linear(low, high), name: number, title: Some(format!("offered, {unit}")) };
    let up = Up { scale: Scale::linear(0.0, 100.0), name: |v| format!("{} %", number(v)), title: None };
    let right = Up { scale: Scale::linear(0.0, high), name: number, title: Some(format!("came out, {unit}")) };
    let label = format!(
        "Areas: share of the core's time by class of work over the offered load, with {}; line: what came out. The figures are in the \
         table of steps",
        setup.name
    );
    chart::chart(&format!("sweep-{}", setup.key), &label, &across, &up, &right, &percent, &steps)
}

/// The colour of a class: the same on every page.
fn colour(class: Class) -> &'static str {
    match class {
        Class::Interrupts => "#8c564b",
        Class::Receive => "#1f77b4",
        Class::Bpf => "#17becf",
        Class::Taps => "#e377c2",
        Class::Ethernet => "#6baed6",
        Class::Bridge => "#2ca02c",
        Class::Ip => "#74c476",
        Class::Netfilter => "#d62728",
        Class::Transport => "#bcbd22",
        Class::Transmit => "#9467bd",
        Class::Memory => "#ff7f0e",
        Class::Copying => "#ffbb78",
        Class::Locks => "#7b0d1e",
        Class::Scheduler => "#c5b0d5",
        Class::Timers => "#9edae5",
        Class::Syscalls => "#dbdb8d",
        Class::User => "#f7b6d2",
        Class::Unclassified => "#3d3d46",
        Class::Idle => "rgba(140,150,160,0.15)",
        Class::Steal => "#525252",
    }
}

impl Page<'_> {
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
