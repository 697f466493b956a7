//! Events that card models cost a guest, as one self-contained page.

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
    page::{Html, PUBLISHED, Page, PageError, Section},
};

const BLUE: &str = "#2f7fc1";
const RED: &str = "#c2334d";
const GREY: &str = "#8a8f98";

const ACCESSES: [&str; 9] =
    ["Card", ">Burst", ">Accesses", ">Reads", ">Writes", ">Notifications", ">Interrupts", ">Spread", ">Lost"];
const CARDS: [&str; 7] = ["Card", "Driver", ">Queues", ">Ring", "Native XDP", ">Ready", "<Offloads"];
const RATES: [&str; 6] = ["Card", ">Frame", ">Rate", "Of", ">Of bare metal", "<Who, on what"];

/// The page: one HTML text that loads nothing from anywhere, charts included.
pub fn guest_page(run: &GuestRun) -> Result<String, PageError> {
    let more = format!("; Linux {} in the guest", run.kernel);
    let about = (&run.machine, run.timestamp.as_str());
    let mut page = Page::new("bench --dut guest", "What card models ask of a guest", about, &more);
    let main = &mut page.main;
    main.conclude_all(&figures::conclusion(run), figures::is_void(run) || figures::has_failed(run));
    main.warn("", figures::NO_RATES);
    for left in &run.skipped {
        main.warn("Left out:", format_args!("{left}."));
    }
    main.pair(
        false,
        [
            Section::new(2, "Accesses to a device for each frame", "", per_frame("accesses", run, PerFrame::accesses)),
            Section::new(2, "Interrupts for each frame", "", per_frame("interrupts", run, |of| of.interrupts)),
        ],
    );
    let accesses = figures::access_rows(run).into_iter().map(|row| {
        row.into_iter().enumerate().map(|(at, cell)| if at == 2 { Html::within("strong", cell) } else { cell.into() })
    });
    main.table(&ACCESSES, accesses);
    if let Some((exit_ns, origin)) = run.exit() {
        main.heading(2, "A model, and no measurement");
        main.quiet(format_args!("Accesses x {}, an exit {origin}.", units::nanoseconds(exit_ns)));
        main.table(&["Card", ">Burst", ">Accesses x exit"], figures::model_rows(run, exit_ns));
    }
    main.heading(2, "The cards as the guest sees them");
    main.table(&CARDS, run.cards.iter().map(figures::card_cells));
    main.heading(2, "evenkeel in the guest");
    let verbs = figures::verb_rows(run).into_iter().map(|[card, verb, result, message]| {
        let result = if result == "works" { result.into() } else { Html::within("strong", result) };
        [card.into(), Html::within("code", verb), result, message.into()]
    });
    main.table(&["Card", "evenkeel", "Result", "Said"], verbs);
    let rates = figures::rate_rows(run);
    if !rates.is_empty() {
        main.heading(2, PUBLISHED);
        main.quiet("Never measured by evenkeel, and not to be compared with what is above: those are rates.");
        main.chart(&published(run));
        main.table(&RATES, rates);
    }
    page.end(figures::conditions_of(run))
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
    let series = |(at, frames): (usize, &u32)| {
        let bars = run.cards.iter().map(|card| bar(card.bursts.get(at)));
        Bars::new(format!("burst of {frames}"), if at == 0 { RED } else { BLUE }, bars)
    };
    let bars: Vec<Bars> = lengths.iter().enumerate().map(series).collect();
    let label = format!("Bars: {id} for each forwarded frame, by card model and burst; the figures are in the table");
    rows::chart(&format!("guest-{id}"), &label, Room::Half, &names, &bars, Axis::Numbers(""))
}

/// The rates of others as bars, both directions together.
fn published(run: &GuestRun) -> String {
    let names: Vec<String> =
        run.sources.iter().map(|rate| format!("{}, {} bytes", rate.platform, rate.frame_bytes)).collect();
    let bar = |rate: &model::bench::PublishedRate| {
        let kpps = rate.pps / 1e3 * if rate.per_direction { 2.0 } else { 1.0 };
        let twice = if rate.per_direction { " (twice that of one direction)" } else { "" };
        (Some(kpps), format!("{kpps:.0} kpps{twice}"))
    };
    let bars = [Bars::new("both directions together, published", GREY, run.sources.iter().map(bar)).hatched()];
    let label = "Bars: rates that others published for card models, on their hardware; the figures are in the table";
    rows::chart("guest-published", label, Room::Whole, &names, &bars, Axis::Numbers(" kpps"))
}
