//! Messages over link beside other ways, as text.

use model::{
    link_bench::{Conditions, LinkBench, Pings, Receive, Transfer},
    units,
};

use crate::{PUBLISHED, conditions, table::Look};

/// What is a table of its own: how an end waits beside what, and the sizes in it.
pub(crate) const PINGS: [&str; 6] = ["BYTES", "OVER", "WAITING", "MEDIAN", "99 %", "OF TCP"];

/// A run as text.
pub fn link_bench_text(run: &LinkBench, look: Look) -> String {
    let mut text = look.paragraph("Messages there and back, one after the other:");
    let heads: Vec<String> =
        PINGS.iter().map(|h| if ["OVER", "WAITING"].contains(h) { (*h).to_owned() } else { format!(">{h}") }).collect();
    let heads: Vec<&str> = heads.iter().map(String::as_str).collect();
    text += &look.table(&heads, rows(run, false));
    if run.pings.iter().any(|p| p.beside_transfer) {
        text += &look.paragraph("\nThe same beside a transfer over TCP:");
        text += &look.table(&heads, rows(run, true));
    }
    text += &look.paragraph("\nTransfers:");
    let transfers = run.transfers.iter().map(|t| transfer_cells(t).to_vec());
    text += &look.table(&["OVER", "LINK", ">BYTES", ">SECONDS", ">PER SECOND", ">OF TCP'S RATE"], transfers);
    for left in &run.left_out {
        text += &look.paragraph(&format!("\nLeft out, {}: {}.", left.what, left.why));
    }
    if !run.sources.is_empty() {
        text += &look.paragraph(&format!("\n{PUBLISHED}, never measured by evenkeel:"));
        for s in &run.sources {
            text += &look.item(&format!("{}: {}, {} ({})", s.what, s.standard, s.optimised, s.citation));
        }
    }
    text.push('\n');
    text + &conditions::paragraphs(&of(run), look)
}

fn rows(run: &LinkBench, beside: bool) -> Vec<Vec<String>> {
    let rows = run.pings.iter().filter(|p| p.beside_transfer == beside);
    rows.map(|p| ping_cells(p).to_vec()).collect()
}

/// The cells of a row of messages.
pub(crate) fn ping_cells(pings: &Pings) -> [String; 6] {
    [
        units::grouped(u64::from(pings.bytes)),
        name(&pings.by).to_owned(),
        pings.receive.word().to_owned(),
        units::nanoseconds(pings.p50_ns),
        units::nanoseconds(pings.p99_ns),
        ratio(pings.over_tcp),
    ]
}

/// The cells of a transfer.
pub(crate) fn transfer_cells(transfer: &Transfer) -> [String; 6] {
    [
        name(&transfer.by).to_owned(),
        link(&transfer.conditions),
        units::bytes(transfer.bytes),
        format!("{:.3}", transfer.seconds),
        units::bits_per_second(8.0 * transfer.bytes as f64 / transfer.seconds),
        ratio(transfer.over_tcp),
    ]
}

fn ratio(ratio: Option<f64>) -> String {
    ratio.map_or_else(|| "\u{2013}".to_owned(), |ratio| format!("{ratio:.2}"))
}

/// What carries, as people call it.
pub(crate) fn name(by: &str) -> &str {
    match by {
        "packet" => "AF_PACKET",
        "udp" => "UDP",
        "tcp" => "TCP",
        other => other,
    }
}

/// A link in a few words.
pub(crate) fn link(conditions: &Conditions) -> String {
    let offloads = if conditions.offloads { "" } else { ", no offloads" };
    let rmem = conditions.tcp_rmem.map_or_else(String::new, |b| format!(", tcp_rmem {} kB", b / 1000));
    format!("MTU {}{offloads}{rmem}", conditions.mtu)
}

/// The name of a way and how it waits.
pub(crate) fn waits(by: &str, receive: Receive) -> String {
    format!("{}, {}", name(by), receive.word())
}

/// What a reader needs to judge the figures.
pub(crate) fn of(run: &LinkBench) -> conditions::Conditions {
    let cores: Vec<String> = run.cores.iter().map(|r| format!("CPU {} {}", r.cpus, r.does)).collect();
    let mut all = vec![
        conditions::machine(&run.machine),
        ("Cores", cores.join("; ")),
        (
            "Rounds",
            format!("{}; a figure is the median of the rounds, and a ratio that of the rounds' ratios", run.rounds),
        ),
        ("Load average at the beginning", format!("{:.2}", run.load_average)),
    ];
    all.extend(run.notes.iter().map(|note| ("Note", note.clone())));
    all
}
