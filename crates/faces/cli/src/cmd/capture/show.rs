//! Messages of `evenkeel capture`: a line each second, the trials of `auto`, the totals.

use std::time::Duration;

use capture::{
    auto::{Choice, Trial},
    open::Attachment,
    output::Target,
    run::{Notice, ReaderStats, Report},
    session::{Destination, Note, Opened, Refusal},
};
use model::units;
use serde::Serialize;

use super::args::Config;
use crate::failure::{Failure, message, note, print, print_json};

/// The shortest time with a rate.
const SECONDS_FOR_A_RATE: f64 = 0.5;
/// The least packets among which the cost of starting does not show.
const PACKETS_FOR_A_COST: u64 = 1000;

/// The line each second on standard error.
pub(super) struct Progress {
    on: bool,
    last: Duration,
    before: Vec<ReaderStats>,
}

impl Progress {
    pub(super) fn new(config: &Config) -> Self {
        Self { on: !config.quiet && !config.prints(), last: Duration::ZERO, before: Vec::new() }
    }

    pub(super) fn tick(&mut self, elapsed: Duration, readers: &[ReaderStats]) {
        if self.on {
            let seconds = (elapsed - self.last).as_secs_f64().max(1e-9);
            let rate = |now: u64, before: u64| units::pps(now.saturating_sub(before) as f64 / seconds);
            let before = |i: usize| self.before.get(i).copied().unwrap_or_default();
            let sum = |f: fn(&ReaderStats) -> u64, of: &[ReaderStats]| of.iter().map(f).sum::<u64>();
            let mut line = format!(
                "{:>5.0} s  {:>10}  lost {}",
                elapsed.as_secs_f64(),
                rate(sum(|r| r.packets, readers), sum(|r| r.packets, &self.before)),
                rate(sum(|r| r.dropped, readers), sum(|r| r.dropped, &self.before)),
            );
            if readers.len() > 1 {
                for (i, reader) in readers.iter().enumerate() {
                    line += &format!("  [{}{}", place(reader), rate(reader.packets, before(i).packets));
                    if reader.dropped > before(i).dropped {
                        line += &format!(" lost {}", rate(reader.dropped, before(i).dropped));
                    }
                    line.push(']');
                }
            }
            note(line);
        }
        self.last = elapsed;
        self.before = readers.to_vec();
    }
}

fn place(reader: &ReaderStats) -> String {
    reader.cpu.map_or_else(String::new, |cpu| format!("cpu{cpu} "))
}

/// The counts so far, as a signal asked for them, on standard error.
pub(super) fn so_far(readers: &[ReaderStats]) {
    let sum = |f: fn(&ReaderStats) -> u64| readers.iter().map(f).sum::<u64>();
    let dropped = sum(|r| r.dropped);
    note(counts(sum(|r| r.packets), sum(|r| r.received) + dropped, dropped));
}

/// The counts as tcpdump has them.
fn counts(packets: u64, received: u64, dropped: u64) -> String {
    format!(
        "{} packets captured, {} received by filter, {} dropped by kernel",
        units::grouped(packets),
        units::grouped(received),
        units::grouped(dropped),
    )
}

/// A change of an interface, on standard error, also with `--quiet`: packets may be missing.
pub(super) fn notice(notice: &Notice) {
    match notice {
        Notice::Down(interface) => note(format_args!("{interface} went down: the capture waits until it is up again")),
        Notice::Up(interface) => note(format_args!("{interface} is up again")),
        Notice::Ended(reason) => note(reason),
    }
}

/// The lines on standard error before a capture begins.
pub(super) fn before(notice: &Note<'_>) {
    match notice {
        Note::Without { interface, error } => note(format_args!("any: without {interface}: {error}")),
        Note::FiltersHere { filter } => note(format_args!(
            "the kernel does not run the filter `{filter}` (its program loops, or is too long): every packet comes to this process, which filters"
        )),
        Note::Opened { backend, text } => note(format_args!("{backend}: {text}")),
        Note::Tried { trials, refusals, choice } => tried(trials, refusals, choice),
        Note::StillRoot { why } => note(format_args!(
            "warning: the capture goes on with root's user id, without capabilities but for files: {why}"
        )),
    }
}

/// The backends that `auto` tried, and its choice.
fn tried(trials: &[Trial], refusals: &[Refusal], choice: &Choice) {
    note(format_args!("{:<14} {:>8} {:>12} {:>12} {:>14}", "backend", "readers", "delivered", "lost", "CPU/packet"));
    for t in trials {
        note(format_args!(
            "{:<14} {:>8} {:>12} {:>12} {:>14}",
            t.backend,
            t.readers,
            units::pps(t.delivered_pps),
            units::pps(t.dropped_pps),
            units::nanoseconds(t.cpu_ns_per_packet)
        ));
    }
    for r in refusals {
        note(format_args!("{:<14} not possible: {}", r.backend, message(&r.error)));
    }
    note(format_args!("chosen: {}: {}", choice.backend, choice.reason));
}

#[derive(Serialize)]
struct Totals<'a> {
    interface: &'a str,
    filter: &'a str,
    backend: &'a str,
    #[serde(skip_serializing_if = "Option::is_none")]
    backend_reason: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    xdp_mode: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    zero_copy: Option<bool>,
    elapsed_s: f64,
    packets: u64,
    received: u64,
    #[serde(skip_serializing_if = "Option::is_none")]
    bytes: Option<u64>,
    dropped: u64,
    /// Packets of a filter that ran in this process.
    #[serde(skip_serializing_if = "Option::is_none")]
    filtered_out: Option<u64>,
    missed: u64,
    reattached: u64,
    packets_per_second: f64,
    /// None without packets.
    cpu_ns_per_packet: Option<f64>,
    files: u32,
    readers: Vec<Reader>,
    #[serde(skip_serializing_if = "Option::is_none")]
    failure: Option<String>,
}

#[derive(Serialize)]
struct Reader {
    #[serde(skip_serializing_if = "Option::is_none")]
    cpu: Option<u32>,
    packets: u64,
    #[serde(skip_serializing_if = "Option::is_none")]
    bytes: Option<u64>,
    dropped: u64,
    ring_full: u64,
    cpu_ns: u64,
}

/// The totals: as text or JSON on standard output, or as text on standard error when packets went to standard output.
pub(super) fn report(config: &Config, opened: &Opened, report: &Report) -> Result<(), Failure> {
    let Opened { backend, ref choice, attachment, filters_here } = *opened;
    let capture = &config.capture;
    let (packets, dropped) = (report.packets(), report.dropped());
    let seconds = report.elapsed.as_secs_f64().max(1e-9);
    let cpu_ns: u64 = report.readers.iter().map(|r| r.cpu_ns).sum();
    let per_packet = (packets > 0).then(|| cpu_ns as f64 / packets as f64);
    if config.json {
        let totals = Totals {
            interface: &capture.interface,
            filter: &capture.filter,
            backend: backend.name(),
            backend_reason: choice.as_ref().map(|c| c.reason.as_str()),
            xdp_mode: attachment.map(|a| a.mode.to_string()),
            zero_copy: attachment.and_then(|a| a.zero_copy),
            elapsed_s: seconds,
            packets,
            received: report.received(),
            bytes: report.readers.iter().map(|r| r.bytes).sum(),
            dropped,
            filtered_out: filters_here.then(|| report.filtered_out()),
            missed: report.missed(),
            reattached: report.reattached(),
            packets_per_second: report.packets_per_second(),
            cpu_ns_per_packet: per_packet,
            files: report.files,
            readers: report
                .readers
                .iter()
                .map(|r| Reader {
                    cpu: r.cpu,
                    packets: r.packets,
                    bytes: r.bytes,
                    dropped: r.dropped,
                    ring_full: r.freezes,
                    cpu_ns: r.cpu_ns,
                })
                .collect(),
            failure: report.failure.as_ref().map(ToString::to_string),
        };
        return print_json("capture", totals);
    }
    let mut text = counts(packets, report.received(), dropped) + "\n";
    text += &format!("  {seconds:.2} s on {} ({backend})", capture.interface);
    // With a number of packets that was reached, the time says when the last one came, and nothing of the traffic.
    let cut = capture.count.is_some_and(|most| packets >= most);
    if !cut && packets > 0 && seconds >= SECONDS_FOR_A_RATE {
        text += &format!(": {}", units::pps(report.packets_per_second()));
    }
    if let Some(ns) = per_packet.filter(|_| packets >= PACKETS_FOR_A_COST) {
        text += &format!(", {} of CPU time per packet", units::nanoseconds(ns));
    }
    text.push('\n');
    if let Some(Attachment { mode, zero_copy }) = attachment {
        let how = zero_copy.map_or("", |zero| if zero { ", zero-copy" } else { ", copy" });
        text += &format!("  XDP in {mode} mode{how}\n");
    }
    if filters_here {
        text += &format!(
            "  the filter ran in this process, not in the kernel: it left out {} packets; those dropped by the kernel were dropped before it\n",
            units::grouped(report.filtered_out())
        );
    }
    if report.missed() > 0 {
        text += &format!(
            "  {} packets not captured: they came through queues that {} got during the capture; start it again\n",
            units::grouped(report.missed()),
            capture.interface
        );
    }
    if report.reattached() > 0 {
        text += &format!(
            "  frames passed unseen: another program emptied the capture's place in the chain of {} {} times; it was put back (docs/protocol/chain.md)\n",
            capture.interface,
            report.reattached()
        );
    }
    if report.readers.len() > 1 {
        for (i, reader) in report.readers.iter().enumerate() {
            text += &format!(
                "  reader {i}: {}{} packets, {} lost\n",
                place(reader),
                units::grouped(reader.packets),
                units::grouped(reader.dropped)
            );
        }
    }
    if report.files > 1 {
        text += &format!("  {} files\n", report.files);
    }
    if config.prints() || capture.destination == Destination::Pcapng(Target::Stdout) {
        note(text.trim_end());
        Ok(())
    } else {
        print(&text)
    }
}
