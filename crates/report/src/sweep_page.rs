//! A sweep as one self-contained page: the CPU time of the box by class over the offered load, both configurations side by side.

use askama::Template;
use model::{
    profile::Class,
    sweep::{Setup, Step, Sweep},
    units,
};
use plotly::{
    Layout, Scatter, Trace,
    common::{AxisSide, Line, Marker, Mode},
    layout::{Axis, TicksDirection, TraceOrder},
};

use crate::{PageError, charts, sweep};

/// The height of a chart in pixels.
const HEIGHT_PX: usize = 420;
/// An area that nowhere reaches this, in percent, is drawn with the other small ones as one.
const SMALL: f64 = 1.0;
const SMALL_ONES: (&str, &str) = ("other classes", "#7f8c8d");
const THROUGHPUT: &str = "#111111";

#[derive(Template)]
#[template(path = "sweep.html")]
struct Page<'a> {
    sweep: &'a Sweep,
    library: String,
    panels: Vec<(&'a Setup, String)>,
    legend: Vec<(String, &'static str)>,
    costs: Vec<(String, f64, f64)>,
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
        library: charts::library(),
        panels: sweep.setups.iter().map(|s| (s, panel(sweep, s, &areas))).collect(),
        // From top to bottom, as the areas lie.
        legend: areas.iter().rev().map(|a| (a.name.to_owned(), a.colour)).collect(),
        costs: sweep::costs(sweep),
        costs_of_what: sweep::COSTS_OF_WHAT,
        published_title: crate::PUBLISHED,
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
    let x: Vec<f64> = setup.steps.iter().map(|s| s.offered_pps / scale).collect();
    let mut traces: Vec<Box<dyn Trace>> = areas
        .iter()
        .map(|area| -> Box<dyn Trace> {
            let y = setup.steps.iter().map(|s| (area.percent)(s)).collect();
            Scatter::new(x.clone(), y)
                .name(area.name)
                .mode(Mode::Lines)
                .stack_group("time")
                .line(Line::new().width(0.5).color(area.colour))
                .fill_color(area.colour)
                .hover_template("%{y:.1f} % <extra>%{fullData.name}</extra>")
        })
        .collect();
    let out = setup.steps.iter().map(|s| s.forwarded_pps / scale).collect();
    traces.push(
        Scatter::new(x, out)
            .name("throughput")
            .mode(Mode::LinesMarkers)
            .line(Line::new().width(2.5).color(THROUGHPUT))
            .marker(Marker::new().size(6).color(THROUGHPUT))
            .y_axis("y2")
            .hover_template(format!("%{{y:.3~s}} {unit} came out of %{{x:.3~s}} {unit}<extra></extra>")),
    );
    let high = 1.02 * top / scale;
    let low = steps().map(|s| s.offered_pps).fold(top, f64::min) / scale;
    let layout = Layout::new()
        .show_legend(false)
        .x_axis(
            ticked(Axis::new()).fixed_range(true).range(vec![low, high]).n_ticks(6).title(format!("offered, {unit}")),
        )
        .y_axis(
            ticked(Axis::new())
                .fixed_range(true)
                .range(vec![0.0, 100.0])
                .tick_suffix(" %")
                .n_ticks(6)
                .auto_margin(true),
        )
        .y_axis2(
            ticked(Axis::new())
                .fixed_range(true)
                .range(vec![0.0, high])
                .overlaying("y")
                .side(AxisSide::Right)
                .show_grid(false)
                .n_ticks(6)
                .auto_margin(true)
                .title(format!("came out, {unit}")),
        );
    charts::plot(&format!("sweep-{}", setup.key), HEIGHT_PX, TraceOrder::Normal, layout, traces)
}

/// Invisible ticks keep the numbers of both axes apart where they meet.
fn ticked(axis: Axis) -> Axis {
    axis.ticks(TicksDirection::Outside).tick_length(5).tick_color("rgba(0,0,0,0)")
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
        Class::Unclassified => "#000000",
        Class::Idle => "rgba(140,150,160,0.15)",
        Class::Steal => "#525252",
    }
}

/// What the template calls.
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
