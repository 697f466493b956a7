//! The CPU time of a box by class over the offered load, as stacked areas: one panel for each configuration, with the line of what came out.

use model::{
    profile::Class,
    sweep::{Setup, Step},
    units,
};

use crate::{
    chart::{
        areas::{self as chart, Steps},
        columns::significant,
        plane::{Across, Up},
        scale::{Scale, number},
        svg::escaped,
    },
    page::Html,
    sweep::{Range, range},
};

/// An area that nowhere reaches this, in percent, is drawn with the other small ones as one.
const SMALL: f64 = 1.0;
pub(crate) const SMALL_ONES: (&str, &str) = ("other classes", "#7f8c8d");

/// An area of the stack.
pub(crate) struct Area {
    name: &'static str,
    colour: &'static str,
    percent: Box<dyn Fn(&Step) -> f64>,
}

/// The areas from bottom to top: the box's own work, what the lab took, others, idle, steal. None that is empty everywhere.
pub(crate) fn areas(setups: &[&Setup]) -> Vec<Area> {
    let steps = || setups.iter().flat_map(|s| &s.steps);
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
        area("other programs (not part of the run)", "#d08a00", |s| s.others_percent),
        of(Class::Idle),
        of(Class::Steal),
    ]);
    areas.retain(|area| steps().any(|s| (area.percent)(s) >= 0.05));
    areas
}

/// The names and colours from top to bottom, as the areas lie, below the line.
pub(crate) fn legend(areas: &[Area]) -> String {
    let item = |area: &Area| format!("<li><i style=\"background: {}\"></i>{}</li>\n", area.colour, escaped(area.name));
    let items: String = areas.iter().rev().map(item).collect();
    format!("<ul class=\"legend areas\">\n<li><i class=\"line\"></i>came out</li>\n{items}</ul>\n")
}

/// The columns of figures of others beside a load.
pub(crate) const SOURCES: [&str; 4] = ["<What", ">Standard", ">Optimised", "<Who, on what"];

/// Cost of a packet by class, of each of `setups`; the last row is the sum.
pub(crate) fn costs(html: &mut Html, setups: &[&Setup], costs: Vec<(String, Vec<Range>)>) {
    let names = setups.iter().map(|setup| format!(">{}", setup.name));
    let heads: Vec<String> = ["Class".to_owned()].into_iter().chain(names).collect();
    let row =
        |(class, all): (String, Vec<Range>)| [class].into_iter().chain(all.into_iter().map(range)).collect::<Vec<_>>();
    html.table_with_sum(&heads, costs.into_iter().map(row).collect());
}

/// The steps of a box. One that was swept alone has a generator on its core, and names other programs.
pub(crate) fn steps(html: &mut Html, steps: &[Step], swept: bool) {
    let mut heads = vec![">Offered", ">Came out", ">Loss", ">Own work, %", ">of it memory, %", ">>Lab, %"];
    heads.extend(swept.then_some(">>Others, %"));
    heads.extend([">>Steal, %", ">Idle, %"]);
    let row = |step: &Step| {
        let generator = if swept { step.generator_percent } else { 0.0 };
        let mut cells = vec![
            units::pps(step.offered_pps),
            units::pps(step.forwarded_pps),
            units::percent(step.loss_ratio),
            format!("{:.0}", step.busy_percent()),
            format!("{:.1}", step.percent_of_busy(Class::Memory)),
            format!("{:.0}", generator + step.receiver_percent),
        ];
        cells.extend(swept.then(|| format!("{:.0}", step.others_percent)));
        cells.extend([Class::Steal, Class::Idle].map(|class| format!("{:.0}", step.percent(class))));
        cells
    };
    html.table(&heads, steps.iter().map(row));
}

/// The areas of one of `setups` over the offered load, with the line of what came out. All have the same axes.
pub(crate) fn panel(setups: &[&Setup], setup: &Setup, areas: &[Area]) -> String {
    let steps = || setups.iter().flat_map(|s| &s.steps);
    let top = steps().map(|s| s.offered_pps.max(s.forwarded_pps)).fold(1.0, f64::max);
    let (scale, unit) = if top >= 2e6 { (1e6, "Mpps") } else { (1e3, "kpps") };
    let scaled = |pps: f64| pps / scale;
    let high = 1.02 * scaled(top);
    let low = scaled(steps().map(|s| s.offered_pps).fold(top, f64::min));
    // By the load that was offered: on a busy machine it is another one than was asked for.
    let mut in_order: Vec<&Step> = setup.steps.iter().collect();
    in_order.sort_by(|a, b| a.offered_pps.total_cmp(&b.offered_pps));
    let percent: Vec<chart::Area> = areas
        .iter()
        .map(|area| chart::Area {
            name: area.name.to_owned(),
            colour: area.colour,
            percent: in_order.iter().map(|s| (area.percent)(s)).collect(),
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
        x: in_order.iter().map(|s| scaled(s.offered_pps)).collect(),
        line: in_order.iter().map(|s| scaled(s.forwarded_pps)).collect(),
        tips: in_order.iter().map(|s| tip(s)).collect(),
    };
    let across =
        Across::Numbers { scale: Scale::linear(low, high), name: number, title: Some(format!("offered, {unit}")) };
    let up = Up { scale: Scale::linear(0.0, 100.0), name: |v| format!("{} %", number(v)), title: None };
    let right = Up { scale: Scale::linear(0.0, high), name: number, title: Some(format!("came out, {unit}")) };
    let label = format!(
        "Areas: share of the time of the box's cores by class of work over the offered load, with {}; line: what came out. The figures are in the \
         table of steps",
        setup.name
    );
    chart::chart(&format!("sweep-{}", setup.key), &label, &across, &up, &right, &percent, &steps)
}

/// The colour of a class: the same on every page.
pub(crate) fn colour(class: Class) -> &'static str {
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
        Class::Locks => "#b82e5e",
        Class::Scheduler => "#c5b0d5",
        Class::Timers => "#9edae5",
        Class::Syscalls => "#dbdb8d",
        Class::User => "#f7b6d2",
        Class::Unclassified => "#66669a",
        Class::Idle => "rgba(140,150,160,0.15)",
        Class::Steal => "#707070",
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::chart::rows::luminance;

    #[test]
    fn every_class_is_seen_on_a_dark_page() {
        // The page of the style in the dark, and the contrast that WCAG 2 asks of a part of a drawing.
        let page = luminance("#12181f").unwrap();
        for class in Class::ALL.into_iter().filter(|&class| class != Class::Idle) {
            let contrast = (luminance(colour(class)).unwrap() + 0.05) / (page + 0.05);
            assert!(contrast >= 3.0, "{}: {contrast:.1}", class.name());
        }
    }
}
