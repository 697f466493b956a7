//! What card models ask of a guest, as one self-contained page.

use askama::Template;
use model::{
    bench::guest::{Burst, GuestRun, PerFrame},
    units,
};

use crate::{
    chart::{
        Room,
        rows::{self, Axis, Bars},
    },
    guest as figures,
    page::PageError,
};

const BLUE: &str = "#2f7fc1";
const RED: &str = "#c2334d";
const GREY: &str = "#8a8f98";

#[derive(Template)]
#[template(path = "guest.html")]
struct Page<'a> {
    run: &'a GuestRun,
    conclusion: Vec<String>,
    /// Nothing was counted, or a command failed.
    warns: bool,
    no_rates: &'static str,
    charts: Vec<(String, String)>,
    accesses: Vec<[String; 9]>,
    model: Vec<[String; 3]>,
    cards: Vec<[String; 7]>,
    verbs: Vec<[String; 4]>,
    published_title: &'static str,
    published: String,
    rates: Vec<[String; 6]>,
    conditions: Vec<(&'static str, String)>,
    /// What an exit costs, and where that is from.
    exit: Option<(String, &'static str)>,
}

/// The page: one HTML text that loads nothing from anywhere, charts included.
///
/// # Errors
/// Only by a fault of the template.
pub fn guest_page(run: &GuestRun) -> Result<String, PageError> {
    let page = Page {
        run,
        conclusion: figures::conclusion(run),
        warns: figures::is_void(run) || figures::has_failed(run),
        no_rates: figures::NO_RATES,
        charts: vec![
            ("Accesses to a device for each frame".to_owned(), per_frame("accesses", run, PerFrame::accesses)),
            ("Interrupts for each frame".to_owned(), per_frame("interrupts", run, |of| of.interrupts)),
        ],
        accesses: figures::access_rows(run),
        exit: run.exit().map(|(ns, origin)| (units::nanoseconds(ns), origin)),
        model: run.exit().map_or_else(Vec::new, |(exit_ns, _)| figures::model_rows(run, exit_ns)),
        cards: run.cards.iter().map(figures::card_cells).collect(),
        verbs: figures::verb_rows(run),
        published_title: crate::page::PUBLISHED,
        published: published(run),
        rates: figures::rate_rows(run),
        conditions: figures::conditions_of(run),
    };
    Ok(page.render()?)
}

/// A row for each card, a bar for each burst.
fn per_frame(id: &str, run: &GuestRun, figure: fn(&PerFrame) -> f64) -> String {
    let names: Vec<String> = run.cards.iter().map(|card| card.nic.clone()).collect();
    let lengths: Vec<u32> =
        run.cards.first().map_or_else(Vec::new, |card| card.bursts.iter().map(|b| b.frames).collect());
    let bar = |burst: Option<&Burst>| match burst {
        Some(burst) => (Some(figure(&burst.median)), format!("{:.2}", figure(&burst.median))),
        None => (None, String::new()),
    };
    let series = |(at, frames): (usize, &u32)| Bars {
        name: format!("burst of {frames}"),
        colour: if at == 0 { RED } else { BLUE },
        hatched: false,
        bars: run.cards.iter().map(|card| bar(card.bursts.get(at))).collect(),
    };
    let bars: Vec<Bars> = lengths.iter().enumerate().map(series).collect();
    let label = format!("Bars: {id} for each forwarded frame, by card model and burst; the figures are in the table");
    rows::chart(&format!("guest-{id}"), &label, Room::Half, &names, &bars, Axis::Numbers(""))
}

/// The rates of others as bars, both directions together.
fn published(run: &GuestRun) -> String {
    let names: Vec<String> =
        run.sources.iter().map(|rate| format!("{}, {} bytes", rate.on, rate.frame_bytes)).collect();
    let bar = |rate: &model::bench::PublishedRate| {
        let kpps = rate.pps / 1e3 * if rate.per_direction { 2.0 } else { 1.0 };
        let twice = if rate.per_direction { " (twice that of one direction)" } else { "" };
        (Some(kpps), format!("{kpps:.0} kpps{twice}"))
    };
    let bars = vec![Bars {
        name: "both directions together, published".into(),
        colour: GREY,
        hatched: true,
        bars: run.sources.iter().map(bar).collect(),
    }];
    let label = "Bars: rates that others published for card models, on their hardware; the figures are in the table";
    rows::chart("guest-published", label, Room::Whole, &names, &bars, Axis::Numbers(" kpps"))
}
