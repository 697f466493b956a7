//! The charts of the demo's page. Colours that depend on light or dark are set by the page's own script.

use model::{
    run::{DemoRun, Stage},
    units,
};
use plotly::{
    Bar, Configuration, HeatMap, Layout, Plot, Trace,
    common::{
        Anchor, ColorScale, ColorScaleElement, Font, HoverInfo, Marker, Orientation, Pattern, PatternShape,
        TextPosition,
    },
    configuration::DisplayModeBar,
    layout::{Annotation, Axis, BarMode, Legend, Margin, TicksDirection, TraceOrder},
};

use crate::demo_text::{parts, range_mpps};

const CAPTURED: &str = "#1a9850";
const OFFERED: &str = "#9aa5b1";
const UNEXPLAINED: &str = "#6a3d9a";
const LOSSES: [&str; 6] = ["#d73027", "#f46d43", "#fdae61", "#c2185b", "#8d6e63", "#ef9a9a"];
const PUBLISHED: [&str; 4] = ["#4575b4", "#d08a00", "#00838f", "#7b5ea7"];
/// Room for axis and legend beside the rows, in pixels.
const FRAME_PX: usize = 110;

/// Draws into an element with that id. Rows grow upwards in a chart, so every caller gives them from bottom to top.
pub(crate) fn plot(id: &str, height: usize, order: TraceOrder, layout: Layout, traces: Vec<Box<dyn Trace>>) -> String {
    let margin = Margin::new().left(8).right(8).top(8).bottom(64).auto_expand(true);
    plot_within(id, height, order, layout.margin(margin), traces)
}

/// As [`plot`], within the layout's own margins.
pub(crate) fn plot_within(
    id: &str,
    height: usize,
    order: TraceOrder,
    layout: Layout,
    traces: Vec<Box<dyn Trace>>,
) -> String {
    let legend =
        Legend::new().orientation(Orientation::Horizontal).x(0.0).y(-40.0 / height as f64).y_anchor(Anchor::Top);
    let mut plot = Plot::new();
    plot.add_traces(traces);
    plot.set_layout(layout.height(height).auto_size(true).legend(legend.trace_order(order)));
    plot.set_configuration(
        Configuration::new().responsive(true).display_mode_bar(DisplayModeBar::False).show_send_to_cloud(false),
    );
    plot.to_inline_html(Some(id))
}

/// Stage names from bottom to top.
fn rows(run: &DemoRun) -> Vec<String> {
    run.stages.iter().rev().map(|s| s.name.clone()).collect()
}

pub(crate) fn category_axis() -> Axis {
    // Invisible ticks keep the names off the bars.
    let axis = Axis::new().auto_margin(true).fixed_range(true);
    axis.ticks(TicksDirection::Outside).tick_length(6).tick_color("rgba(0,0,0,0)")
}

/// From 0 to a quarter beyond the longest bar, so that its label fits.
fn mpps_axis(longest: f64) -> Axis {
    value_axis(" M").range(vec![0.0, if longest > 0.0 { 1.25 * longest } else { 1.0 }])
}

pub(crate) fn value_axis(unit: &str) -> Axis {
    Axis::new().fixed_range(true).n_ticks(6).tick_suffix(unit)
}

/// One row of bars: values in million packets per second with their labels, from bottom to top.
fn bars(run: &DemoRun, name: &str, marker: Marker, values: Vec<(f64, String)>) -> Box<Bar<f64, String>> {
    let (mpps, labels): (Vec<f64>, Vec<String>) = values.into_iter().unzip();
    Bar::new(mpps, rows(run))
        .name(name)
        .orientation(Orientation::Horizontal)
        .marker(marker)
        .text_array(labels)
        .text_position(TextPosition::Outside)
        .clip_on_axis(false)
        .hover_info(HoverInfo::Skip)
}

/// Offered and captured rate of every stage: measured here.
pub(crate) fn rates(run: &DemoRun) -> String {
    let series = |name, colour: &'static str, get: fn(&Stage) -> f64| -> Box<dyn Trace> {
        let values = run.stages.iter().rev().map(|s| (get(s) / 1e6, units::pps(get(s)))).collect();
        bars(run, name, Marker::new().color(colour), values)
    };
    // The last trace is the uppermost of its group.
    let traces = vec![series("offered", OFFERED, |s| s.offered_pps), series("captured", CAPTURED, |s| s.delivered_pps)];
    let longest = run.stages.iter().map(|s| s.offered_pps.max(s.delivered_pps) / 1e6).fold(0.0, f64::max);
    let layout = Layout::new().bar_mode(BarMode::Group).y_axis(category_axis()).x_axis(mpps_axis(longest));
    plot("rates", FRAME_PX + 52 * run.stages.len(), TraceOrder::Reversed, layout, traces)
}

/// The figures of others, in the same rows; none when there are none.
pub(crate) fn published(run: &DemoRun) -> Option<String> {
    let mut citations: Vec<&str> = Vec::new();
    for figure in &run.sources {
        if !citations.contains(&figure.citation.as_str()) {
            citations.push(&figure.citation);
        }
    }
    let traces: Vec<Box<dyn Trace>> = citations
        .iter()
        .enumerate()
        .rev()
        .map(|(i, citation)| -> Box<dyn Trace> {
            let value = |stage: &Stage| {
                let figure = run.sources_of(&stage.key).find(|f| f.citation == *citation);
                figure.map_or((0.0, String::new()), |f| (f.high_mpps, range_mpps(f.low_mpps, f.high_mpps) + " Mpps"))
            };
            bars(run, &first_words(citation), published_marker(i), run.stages.iter().rev().map(value).collect())
        })
        .collect();
    if traces.is_empty() {
        return None;
    }
    let longest = run.sources.iter().map(|f| f.high_mpps).fold(0.0, f64::max);
    let layout =
        Layout::new().bar_mode(BarMode::Group).y_axis(category_axis()).x_axis(mpps_axis(longest)).show_legend(true);
    Some(plot("published", FRAME_PX + 52 * run.stages.len(), TraceOrder::Reversed, layout, traces))
}

/// How published figures look on every page: hatched, so that nobody takes them for ours.
pub(crate) fn published_marker(i: usize) -> Marker {
    let pattern = Pattern::new().shape(PatternShape::RightDiagonalLine).solidity(0.25);
    Marker::new().color(PUBLISHED[i % PUBLISHED.len()]).pattern(pattern)
}

/// The part of a citation that fits a legend: up to the first comma that a year precedes, or all of it.
fn first_words(citation: &str) -> String {
    citation
        .split([';', ','])
        .scan(false, |done, part| {
            let take = !*done;
            *done |= part.split_whitespace().any(|w| w.len() == 4 && w.bytes().all(|b| b.is_ascii_digit()));
            take.then_some(part)
        })
        .collect::<Vec<_>>()
        .join(",")
}

/// Where the packets of every stage went, in percent of those offered.
pub(crate) fn fates(run: &DemoRun) -> String {
    let mut places: Vec<String> = Vec::new();
    for (place, _) in run.stages.iter().flat_map(parts) {
        if !places.contains(&place) {
            places.push(place);
        }
    }
    // Captured first, unexplained last, the losses in the order in which a packet meets them.
    places.sort_by_key(|p| p == "unexplained");
    let mut losses = LOSSES.iter().cycle();
    let traces = places
        .iter()
        .map(|place| -> Box<dyn Trace> {
            let colour = match place.as_str() {
                "captured" => CAPTURED,
                "unexplained" => UNEXPLAINED,
                _ => losses.next().copied().unwrap_or(OFFERED),
            };
            let values = run.stages.iter().rev().map(|stage| {
                let packets = parts(stage).iter().find(|(p, _)| p == place).map_or(0, |(_, n)| *n);
                let percent = 100.0 * packets as f64 / stage.ledger.offered.max(1) as f64;
                (percent, if percent >= 8.0 { format!("{percent:.0} %") } else { String::new() })
            });
            bars(run, place, Marker::new().color(colour), values.collect()).text_position(TextPosition::Inside)
        })
        .collect();
    let layout = Layout::new()
        .bar_mode(BarMode::Relative)
        .y_axis(category_axis())
        .x_axis(value_axis(" %").range(vec![0.0, 100.0]))
        .show_legend(true);
    plot("fates", FRAME_PX + 22 * places.len().div_ceil(2) + 34 * run.stages.len(), TraceOrder::Normal, layout, traces)
}

/// The load of every core in every stage.
pub(crate) fn heat(run: &DemoRun) -> String {
    let mut cpus: Vec<u32> = run.stages.iter().flat_map(|s| s.cores.iter().map(|c| c.cpu)).collect();
    cpus.sort_unstable();
    cpus.dedup();
    let busy: Vec<Vec<Option<f64>>> = run
        .stages
        .iter()
        .rev()
        .map(|stage| {
            let load = |cpu| stage.cores.iter().find(|c| c.cpu == cpu).map(|c| c.busy_percent().round());
            cpus.iter().map(|&cpu| load(cpu)).collect()
        })
        .collect();
    let scale = [(0.0, "#e8f1fa"), (0.5, "#fdc46a"), (0.8, "#ee6a3b"), (1.0, "#a50f15")];
    let trace = HeatMap::new(cpus.iter().map(|cpu| format!("CPU {cpu}")).collect(), rows(run), busy)
        .zmin(0.0)
        .zmax(100.0)
        .x_gap(2)
        .y_gap(2)
        .show_scale(cpus.len() > 16)
        .color_scale(ColorScale::Vector(scale.map(|(at, c)| ColorScaleElement(at, c.to_owned())).to_vec()))
        .hover_template("%{y}, %{x}: %{z} % busy<extra></extra>");
    let mut layout = Layout::new().y_axis(category_axis()).x_axis(Axis::new().fixed_range(true));
    // A number in every cell, as long as the cells are wide enough for it.
    if cpus.len() <= 16 {
        layout = layout.annotations(numbers(run, &cpus));
    }
    plot("heat", 70 + 36 * run.stages.len(), TraceOrder::Normal, layout, vec![trace])
}

/// The load as a number on every cell, dark on pale cells and pale on dark ones.
fn numbers(run: &DemoRun, cpus: &[u32]) -> Vec<Annotation> {
    let cells = run.stages.iter().flat_map(|stage| cpus.iter().map(move |&cpu| (stage, cpu)));
    cells
        .filter_map(|(stage, cpu)| {
            let busy = stage.cores.iter().find(|c| c.cpu == cpu)?.busy_percent();
            let colour = if busy >= 70.0 { "#ffffff" } else { "#1c2733" };
            let text = Annotation::new().text(format!("{busy:.0} %")).show_arrow(false).font(Font::new().color(colour));
            Some(text.x(format!("CPU {cpu}")).y(stage.name.clone()))
        })
        .collect()
}

/// The charts' library as one script element, so that the page works without a network. Its companion for formulas, which the
/// crate bundles as well, is left out: no chart has a formula.
pub(crate) fn library() -> String {
    let all = Plot::offline_js_sources();
    let end = "</script>";
    all.split_once(end).map_or_else(|| all.clone(), |(first, _)| format!("{first}{end}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_legend_has_author_and_year() {
        assert_eq!(first_words("Palchevsky, Khalikov 2016, DOI 10.1; 2 x Xeon"), "Palchevsky, Khalikov 2016");
        assert_eq!(first_words("Odintsov 2015; i7-3820"), "Odintsov 2015");
        assert_eq!(first_words("somebody"), "somebody");
    }

    #[test]
    fn the_library_is_one_element() {
        let library = library();
        assert_eq!((library.matches("<script").count(), library.matches("</script>").count()), (1, 1));
        assert!(library.contains("Plotly"));
    }
}
