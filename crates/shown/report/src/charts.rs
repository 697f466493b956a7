//! The charts of the demo's page.

use model::{
    run::{DemoRun, SourceFigure, Stage},
    units,
};

use crate::{
    chart::{
        Room, heat, once,
        rows::{self, Axis, Bars},
    },
    demo_text::{parts, range_mpps},
};

const CAPTURED: &str = "#1a9850";
const OFFERED: &str = "#9aa5b1";
const UNEXPLAINED: &str = "#8a5cc0";
const LOSSES: [&str; 6] = ["#d73027", "#f46d43", "#fdae61", "#c2185b", "#8d6e63", "#ef9a9a"];
const PUBLISHED: [&str; 4] = ["#4575b4", "#d08a00", "#00838f", "#7b5ea7"];

/// Colour of the figures of others on every page; always hatched, so that nobody takes them for ours.
pub(crate) fn published_colour(i: usize) -> &'static str {
    PUBLISHED[i % PUBLISHED.len()]
}

/// Stage names from top to bottom.
fn names(run: &DemoRun) -> Vec<String> {
    run.stages.iter().map(|s| s.name.clone()).collect()
}

/// Offered and captured rate of every stage: measured here.
pub(crate) fn rates(run: &DemoRun) -> String {
    let series = |name: &str, colour, get: fn(&Stage) -> f64| {
        Bars::new(name, colour, run.stages.iter().map(|s| (Some(get(s)), units::pps(get(s)))))
    };
    let bars = [series("offered", OFFERED, |s| s.offered_pps), series("captured", CAPTURED, |s| s.delivered_pps)];
    let label = "Bars: packets per second offered and captured in every stage; the figures are in the table of stages";
    rows::chart("rates", label, Room::Half, &names(run), &bars, Axis::Rates)
}

/// The figures of others, in the same rows; none when there are none.
pub(crate) fn published(run: &DemoRun) -> Option<String> {
    let citations = once(run.sources.iter().map(|figure| figure.citation.as_str()));
    let bars = citations.iter().enumerate().map(|(i, citation)| {
        let bars = run.stages.iter().map(|stage| {
            let figure = run.sources_of(&stage.key).find(|f| f.citation == *citation);
            let mpps = |f: &SourceFigure| (Some(f.high_mpps), range_mpps(f.low_mpps, f.high_mpps) + " Mpps");
            figure.map_or((None, String::new()), mpps)
        });
        Bars::new(first_words(citation), published_colour(i), bars).hatched()
    });
    let bars: Vec<Bars> = bars.collect();
    let label =
        "Hatched bars: rates that others have published, beside the same stages; the figures are in a table below";
    (!bars.is_empty()).then(|| rows::chart("published", label, Room::Half, &names(run), &bars, Axis::Numbers(" Mpps")))
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

/// Fate of the packets of every stage, in percent of those offered.
pub(crate) fn fates(run: &DemoRun) -> String {
    let mut places = once(run.stages.iter().flat_map(parts).map(|(place, _)| place));
    // Captured first, unexplained last, the losses in the order in which a packet meets them.
    places.sort_by_key(|p| p == "unexplained");
    let mut losses = LOSSES.iter().cycle();
    let bars = places.into_iter().map(|place| {
        let colour = match place.as_str() {
            "captured" => CAPTURED,
            "unexplained" => UNEXPLAINED,
            _ => losses.next().copied().unwrap_or(OFFERED),
        };
        let percent = |stage: &Stage| {
            let packets = parts(stage).iter().find(|(p, _)| *p == place).map_or(0, |(_, n)| *n);
            let percent = 100.0 * packets as f64 / stage.ledger.offered.max(1) as f64;
            (Some(percent), format!("{percent:.0} %"))
        };
        let bars: Vec<_> = run.stages.iter().map(percent).collect();
        Bars::new(place, colour, bars)
    });
    let label = "Stacked bars: what became of the packets offered in every stage; the ledgers below have the figures";
    rows::stacked("fates", label, Room::Whole, &names(run), &bars.collect::<Vec<_>>())
}

/// The load of every core in every stage.
pub(crate) fn heat(run: &DemoRun) -> String {
    let mut cpus: Vec<u32> = run.stages.iter().flat_map(|s| s.cores.iter().map(|c| c.cpu)).collect();
    cpus.sort_unstable();
    cpus.dedup();
    let columns: Vec<String> = cpus.iter().map(|cpu| format!("CPU {cpu}")).collect();
    let label = "Fields: the load of every core in every stage, in percent";
    heat::chart("heat", label, &names(run), &columns, |row, column| {
        let cores = &run.stages.get(row)?.cores;
        cores.iter().find(|c| Some(&c.cpu) == cpus.get(column)).map(|c| c.busy_percent().round())
    })
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
}
