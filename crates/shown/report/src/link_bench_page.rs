//! Messages over link beside other ways, as one self-contained page.

use askama::Template;
use model::{
    link_bench::{LinkBench, Receive},
    units,
};

use crate::{
    chart::{
        Room,
        rows::{self, Axis, Bars},
    },
    link_bench as figures,
    page::PageError,
};

const BLUE: &str = "#2f7fc1";
const RED: &str = "#c2334d";
const GREEN: &str = "#7a9a01";

#[derive(Template)]
#[template(path = "link_bench.html")]
struct Page<'a> {
    run: &'a LinkBench,
    headline: String,
    /// Heading, what is not in the chart, and the chart.
    charts: Vec<(String, &'static str, String)>,
    transfer: String,
    messages: [(&'static str, Vec<[String; 6]>); 2],
    transfers: Vec<[String; 6]>,
    incasts: Vec<[String; 5]>,
    crowds: Vec<[String; 7]>,
    published_title: &'static str,
    conditions: Vec<(&'static str, String)>,
}

/// The page: one HTML text that loads nothing from anywhere, charts included.
///
/// # Errors
/// Only by a fault of the template.
pub fn link_bench_page(run: &LinkBench) -> Result<String, PageError> {
    let cells = |beside| run.pings.iter().filter(|p| p.beside_transfer == beside).map(figures::ping_cells).collect();
    let page = Page {
        run,
        headline: figures::headline(run),
        charts: charts(run),
        transfer: transfer(run),
        messages: [("Messages there and back", cells(false)), ("The same beside a transfer over TCP", cells(true))],
        transfers: run.transfers.iter().map(figures::transfer_cells).collect(),
        incasts: run.incasts.iter().map(figures::incast_cells).collect(),
        crowds: run.crowds.iter().map(figures::crowd_cells).collect(),
        published_title: crate::page::PUBLISHED,
        conditions: figures::of(run),
    };
    Ok(page.render()?)
}

/// Of a short and of a long message: what does not sleep, then what does, on scales of their own.
fn charts(run: &LinkBench) -> Vec<(String, &'static str, String)> {
    let mut all = Vec::new();
    for bytes in [64, 5000] {
        for (title, sleeps) in [("while polling", false), ("asleep", true)] {
            let chosen = run
                .pings
                .iter()
                .filter(|p| p.bytes == bytes && !p.beside_transfer && (p.receive == Receive::Sleeping) == sleeps);
            // Ends that spin leave brokers no CPU where there are two: a bar of milliseconds beside others of microseconds. The table has it.
            let (brokers, chosen): (Vec<_>, Vec<_>) = chosen.partition(|p| !sleeps && p.by == "broker");
            if chosen.is_empty() {
                continue;
            }
            let names: Vec<String> = chosen.iter().map(|p| figures::waits(&p.by, p.receive)).collect();
            let series = [("median", BLUE, 0), ("percentile 99", RED, 1)].map(|(name, colour, which)| Bars {
                name: name.to_owned(),
                colour,
                hatched: false,
                bars: chosen
                    .iter()
                    .map(|p| if which == 0 { p.p50_ns } else { p.p99_ns })
                    .map(|ns| (Some(ns), units::nanoseconds(ns)))
                    .collect(),
            });
            let label = "Bars: the time of a message there and back; the figures are in the table";
            let id = format!("there-{}-{bytes}", if sleeps { "asleep" } else { "polling" });
            let chart = rows::chart(&id, label, Room::Half, &names, &series, Axis::Times);
            let less = if brokers.is_empty() { "" } else { "What link run needs is in the table alone." };
            all.push((format!("Round trip of {} bytes {title}", units::grouped(bytes.into())), less, chart));
        }
    }
    all
}

/// The rate of each transfer.
fn transfer(run: &LinkBench) -> String {
    let names: Vec<String> =
        run.transfers.iter().map(|t| format!("{}, {}", figures::name(&t.by), figures::link(&t.conditions))).collect();
    let rate = |t: &model::link_bench::Transfer| 8.0 * t.bytes as f64 / t.seconds;
    let bars = run.transfers.iter().map(|t| (Some(rate(t) / 1e9), units::bits_per_second(rate(t)))).collect();
    let series = [Bars { name: "rate".to_owned(), colour: GREEN, hatched: false, bars }];
    let label = "Bars: gigabits per second of each transfer; the figures are in the table";
    rows::chart("transfer", label, Room::Whole, &names, &series, Axis::Numbers(" Gbit/s"))
}
