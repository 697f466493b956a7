//! Messages over link beside other ways, as one self-contained page.

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
    page::{Page, PageError, Section, marked},
};

const BLUE: &str = "#2f7fc1";
const RED: &str = "#c2334d";
const GREEN: &str = "#7a9a01";

const TRANSFERS: [&str; 6] = ["Over", "Link", ">Bytes", ">Seconds", ">Rate", ">Of TCP's rate"];
const SOURCES: [&str; 4] = ["<What", ">First", ">Then", "<Who, on what"];
const MESSAGES: [&str; 6] = [">Bytes", "Over", "Waiting", ">Median", ">Percentile 99", ">Median over TCP's"];
const INCASTS: [&str; 5] =
    ["Over", ">Nodes that send", ">Arrives", ">Of one alone", ">Smallest share of a connection (1 = fair)"];
const CROWDS: [&str; 7] = [
    "Over",
    ">Connections",
    ">Other nodes",
    ">Memory of an end",
    ">Once used",
    ">CPU while nobody sends",
    ">CPU of a message there and back",
];

/// The page: one HTML text that loads nothing from anywhere, charts included.
pub fn link_bench_page(run: &LinkBench) -> Result<String, PageError> {
    let heading = "Messages over link beside TCP, UDP and bare frames";
    let mut page = Page::new("link bench", heading, (&run.machine, &run.timestamp), "");
    let main = &mut page.main;
    main.busy(run.disturbed.as_deref());
    main.conclude(figures::headline(run), run.disturbed.is_some());
    main.pair(true, charts(run));
    for left in &run.skipped {
        main.push(format_args!(
            "<p class=\"quiet\"><strong>Left out, {}:</strong> {}.</p>\n",
            marked(&left.what),
            marked(&left.reason)
        ));
    }
    main.heading(2, "Transfers");
    main.chart(&transfer(run));
    main.table(&TRANSFERS, run.transfers.iter().map(figures::transfer_cells));
    let about = "Never measured by evenkeel: beside the transfers over TCP with a receive buffer of that size.";
    main.published(about, &SOURCES, &run.sources);
    for (title, beside) in [("Messages there and back", false), ("The same beside a transfer over TCP", true)] {
        let pings = run.pings.iter().filter(|p| p.beside_transfer == beside).map(figures::ping_cells);
        main.table_below(title, &MESSAGES, pings.collect());
    }
    main.table_below("Several nodes to one", &INCASTS, run.incasts.iter().map(figures::incast_cells).collect());
    main.table_below("Many connections of one node", &CROWDS, run.crowds.iter().map(figures::crowd_cells).collect());
    page.end(figures::of(run))
}

/// Charts of a short and of a long message: first without sleeping, then with, on scales of their own.
fn charts(run: &LinkBench) -> Vec<Section> {
    let mut all = Vec::new();
    for bytes in [64, 5000] {
        for (title, sleeps) in [("while polling", false), ("asleep", true)] {
            let chosen = run
                .pings
                .iter()
                .filter(|p| p.bytes == bytes && !p.beside_transfer && (p.receive == Receive::Sleeping) == sleeps);
            // Ends that spin leave brokers no CPU where there are two: a bar of milliseconds beside others of microseconds. The table has it.
            let (brokers, chosen): (Vec<_>, Vec<_>) = chosen.partition(|p| !sleeps && p.transport == "broker");
            if chosen.is_empty() {
                continue;
            }
            let names: Vec<String> = chosen.iter().map(|p| figures::waits(&p.transport, p.receive)).collect();
            let bar = |ns| (Some(ns), units::nanoseconds(ns));
            let series = [
                Bars::new("median", BLUE, chosen.iter().map(|p| bar(p.p50_ns))),
                Bars::new("percentile 99", RED, chosen.iter().map(|p| bar(p.p99_ns))),
            ];
            let label = "Bars: the time of a message there and back; the figures are in the table";
            let id = format!("there-{}-{bytes}", if sleeps { "asleep" } else { "polling" });
            let chart = rows::chart(&id, label, Room::Half, &names, &series, Axis::Times);
            let less = if brokers.is_empty() { "" } else { "What link run needs is in the table alone." };
            all.push(Section::new(
                2,
                format!("Round trip of {} bytes {title}", units::grouped(bytes.into())),
                less,
                chart,
            ));
        }
    }
    all
}

fn transfer(run: &LinkBench) -> String {
    let names: Vec<String> = run
        .transfers
        .iter()
        .map(|t| format!("{}, {}", figures::name(&t.transport), figures::link(&t.conditions)))
        .collect();
    let rate = |t: &model::link_bench::Transfer| 8.0 * t.bytes as f64 / t.seconds;
    let bars = run.transfers.iter().map(|t| (Some(rate(t) / 1e9), units::bits_per_second(rate(t))));
    let series = [Bars::new("rate", GREEN, bars)];
    let label = "Bars: gigabits per second of each transfer; the figures are in the table";
    rows::chart("transfer", label, Room::Whole, &names, &series, Axis::Numbers(" Gbit/s"))
}
