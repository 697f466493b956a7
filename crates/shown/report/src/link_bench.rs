//! Messages over link beside other ways, as text.

use model::{
    link_bench::{Conditions, Crowd, Incast, LinkBench, Pings, Receive, Transfer},
    units,
};

use crate::{conditions, table::Look};

/// Columns of messages there and back.
const PINGS: [&str; 6] = [">BYTES", "OVER", "WAITING", ">MEDIAN", ">99 %", ">OF TCP"];

pub fn link_bench_text(run: &LinkBench, look: Look) -> String {
    let mut text = conditions::disturbed(run.disturbed.as_deref(), look);
    text += &look.paragraph(&headline(run));
    text += &look.paragraph("\nMessages there and back, one after the other:");
    text += &look.table(&PINGS, rows(run, false));
    if run.pings.iter().any(|p| p.beside_transfer) {
        text += &look.paragraph("\nThe same beside a transfer over TCP:");
        text += &look.table(&PINGS, rows(run, true));
    }
    text += &look.paragraph("\nTransfers:");
    let transfers = run.transfers.iter().map(transfer_cells);
    text += &look.table(&["OVER", "LINK", ">BYTES", ">SECONDS", ">PER SECOND", ">OF TCP'S RATE"], transfers);
    if !run.incasts.is_empty() {
        text += &look.paragraph("\nSeveral nodes to one:");
        let cells = run.incasts.iter().map(incast_cells);
        text += &look.table(&["OVER", ">NODES", ">ARRIVES", ">OF ONE ALONE", ">LEAST SHARE"], cells);
    }
    if !run.crowds.is_empty() {
        text += &look.paragraph("\nMany connections of one node:");
        let heads =
            ["OVER", ">CONNECTIONS", ">NODES", ">MEMORY OF AN END", ">ONCE USED", ">CPU IDLE", ">CPU OF A MESSAGE"];
        text += &look.table(&heads, run.crowds.iter().map(crowd_cells));
    }
    for left in &run.skipped {
        text += &look.paragraph(&format!("\nLeft out, {}: {}.", left.what, left.reason));
    }
    if !run.sources.is_empty() {
        text += &conditions::published(&run.sources, look);
    }
    text.push('\n');
    text + &conditions::paragraphs(&of(run), look)
}

/// The result in a sentence: link beside TCP for a short message, while polling and asleep, and in bulk on the plain link.
pub(crate) fn headline(run: &LinkBench) -> String {
    let over = |sleeps: bool| {
        let mut rows = run.pings.iter().filter(|p| p.transport == "link" && p.bytes == 64 && !p.beside_transfer);
        rows.find(|p| (p.receive == Receive::Sleeping) == sleeps)?.ratio_to_tcp
    };
    let mut parts = Vec::new();
    for (ratio, when) in [(over(false), "while polling"), (over(true), "asleep")] {
        parts.extend(ratio.map(|ratio| format!("{ratio:.2} of TCP's time {when}")));
    }
    let times = match parts.is_empty() {
        true => None,
        false => Some(format!("A round trip of 64 bytes over link takes {}", parts.join(", "))),
    };
    let bulk = plain(&run.transfers).and_then(|t| Some((t.ratio_to_tcp?, link(&t.conditions))));
    let bulk = bulk.map(|(rate, link)| format!("a transfer has {} of TCP's rate ({link})", units::percent(rate)));
    let all: Vec<String> = [times, bulk].into_iter().flatten().collect();
    match all.is_empty() {
        true => "Nothing over link was measured beside TCP.".to_owned(),
        false => format!("{}.", all.join("; ")),
    }
}

/// The transfer over link that the headline tells: frames of the usual size, each sent as it is, none of them lost on purpose. Where offloads
/// were never off, as between two machines, that on the link as it is set.
fn plain(transfers: &[Transfer]) -> Option<&Transfer> {
    let of_link = transfers.iter().filter(|t| t.transport == "link");
    let whole = of_link.filter(|t| t.conditions.lost_per_million.is_none() && t.conditions.tcp_rmem.is_none());
    whole.min_by_key(|t| (t.conditions.offloads, t.conditions.mtu))
}

fn rows(run: &LinkBench, beside: bool) -> impl Iterator<Item = [String; 6]> {
    run.pings.iter().filter(move |p| p.beside_transfer == beside).map(ping_cells)
}

/// The cells of a row of messages.
pub(crate) fn ping_cells(pings: &Pings) -> [String; 6] {
    [
        units::grouped(u64::from(pings.bytes)),
        name(&pings.transport).to_owned(),
        pings.receive.word().to_owned(),
        units::nanoseconds(pings.p50_ns),
        units::nanoseconds(pings.p99_ns),
        ratio(pings.ratio_to_tcp),
    ]
}

pub(crate) fn transfer_cells(transfer: &Transfer) -> [String; 6] {
    [
        name(&transfer.transport).to_owned(),
        link(&transfer.conditions),
        units::bytes(transfer.bytes),
        format!("{:.3}", transfer.seconds),
        units::bits_per_second(8.0 * transfer.bytes as f64 / transfer.seconds),
        ratio(transfer.ratio_to_tcp),
    ]
}

/// The cells of several nodes that send to one.
pub(crate) fn incast_cells(incast: &Incast) -> [String; 5] {
    [
        name(&incast.transport).to_owned(),
        incast.senders.to_string(),
        units::bits_per_second(incast.bits_per_second),
        format!("{:.2}", incast.ratio_to_one_sender),
        format!("{:.2}", incast.min_share),
    ]
}

/// The cells of many connections.
pub(crate) fn crowd_cells(crowd: &Crowd) -> [String; 7] {
    [
        name(&crowd.transport).to_owned(),
        units::grouped(u64::from(crowd.connections)),
        crowd.nodes.to_string(),
        units::bytes(crowd.endpoint_bytes as u64),
        units::bytes(crowd.used_endpoint_bytes as u64),
        format!("{:.2} %", 100.0 * crowd.idle_cpu),
        units::nanoseconds(crowd.message_cpu_ns),
    ]
}

fn ratio(ratio: Option<f64>) -> String {
    ratio.map_or_else(|| "\u{2013}".to_owned(), |ratio| format!("{ratio:.2}"))
}

/// Name of a transport for people.
pub(crate) fn name(by: &str) -> &str {
    match by {
        "packet" => "AF_PACKET",
        "xdp" => "AF_XDP",
        "udp" => "UDP",
        "tcp" => "TCP",
        "broker" => "link run, brokers",
        other => other,
    }
}

/// A link in a few words.
pub(crate) fn link(conditions: &Conditions) -> String {
    let offloads = if conditions.offloads { "" } else { ", no offloads" };
    let rmem = conditions.tcp_rmem.map_or_else(String::new, |b| format!(", tcp_rmem {} kB", b / 1000));
    let lost =
        conditions.lost_per_million.map_or_else(String::new, |lost| format!(", {} % lost", f64::from(lost) / 1e4));
    format!("MTU {}{offloads}{rmem}{lost}", conditions.mtu)
}

/// The name of a way and how it waits.
pub(crate) fn waits(by: &str, receive: Receive) -> String {
    format!("{}, {}", name(by), receive.word())
}

/// Conditions of the figures.
pub(crate) fn of(run: &LinkBench) -> conditions::Conditions {
    let cores: Vec<String> = run.cores.iter().map(|r| format!("CPU {} {}", r.cpus, r.role)).collect();
    let mut all = vec![
        conditions::machine(&run.machine),
        ("Cores", cores.join("; ")),
        (
            "Rounds",
            format!("{}; a figure is the median of the rounds, and a ratio that of the rounds' ratios", run.rounds),
        ),
        ("Load average at the beginning", format!("{:.2}", run.load_average)),
    ];
    all.extend(run.peer_machine.iter().map(|other| ("Other machine", conditions::machine(other).1)));
    all.extend(run.notes.iter().map(|note| ("Note", note.clone())));
    all
}
