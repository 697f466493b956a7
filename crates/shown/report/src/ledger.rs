//! A loss ledger as text: one screen that says where packets died, why, and what to do about it.

use std::fmt::Write;

use model::{
    stations::{Cause, Direction, Entry, LedgerReport, LossKind, Side, Station, StationLoss, TraceShown},
    units,
};

use crate::{
    ledger_details::details,
    paint::Paint,
    paint::{Colour, mark},
    table::Look,
};

/// Causes shown for a loss; JSON has them all.
const CAUSES_MAX: usize = 3;

/// From this width on place and cause of a loss have columns; below it they are lines under its numbers, so that no name is broken.
const WIDE: u16 = 120;

/// The ledger of an interval; `detailed`: with the details that were asked for.
pub fn ledger_text(report: &LedgerReport, look: Look, paint: Paint, detailed: bool) -> String {
    let mut out = String::new();
    let which = if report.interfaces.is_empty() { "all interfaces".to_owned() } else { report.interfaces.join(", ") };
    let parts =
        [report.timestamp.clone(), report.hostname.clone(), which, format!("interval {:.2} s", report.interval_s)];
    out.push_str(&look.line_of(&parts));
    if report.is_quiet() {
        out.push_str("\nQuiet: no packet arrived, left or was lost.\n");
    } else {
        let _ = write!(out, "\n{}", look.paragraph(&report.sentence()));
        if let Some(beside) = report.beside() {
            out.push_str(&look.paragraph(&beside));
        }
        let _ = write!(out, "\n{}", books(report, look));
        let lost = losses(report, look);
        if !lost.is_empty() {
            let _ = write!(out, "\n{lost}");
            let _ = write!(out, "\n{}", advice(report, look));
        }
    }
    if detailed {
        out.push_str(&details(report, look));
    }
    if let Some(trace) = &report.trace {
        let _ = write!(out, "\n{}", look.paragraph(&trace_words(trace)));
    }
    for note in &report.notes {
        let _ = write!(out, "{}", look.paragraph(&format!("note: {note}")));
    }
    paint.finish(&out)
}

/// Cost and sampling of the trace.
fn trace_words(trace: &TraceShown) -> String {
    let drops = format!(
        "Causes: {} drops here, {} on the machine",
        units::grouped(trace.in_namespace),
        units::grouped(trace.events)
    );
    let cost = format!("Cost {} of the machine's CPU time.", units::percent(trace.cost_share));
    if !trace.sampled {
        return format!("{drops}; {} traced. {cost}", units::grouped(trace.examined));
    }
    let now = if trace.sampling > 1 { format!(", now 1 in {}", trace.sampling) } else { String::new() };
    format!(
        "{drops}; {} traced{now}. Totals exact, shares ±{}. {cost}",
        units::grouped(trace.examined),
        units::percent(trace.precision)
    )
}

fn ratio(part: u64, whole: u64) -> f64 {
    if whole == 0 { 0.0 } else { part as f64 / whole as f64 }
}

fn signed(n: i64) -> String {
    let digits = units::grouped(n.unsigned_abs());
    if n < 0 { format!("-{digits}") } else { digits }
}

fn books(report: &LedgerReport, look: Look) -> String {
    let mut rows = Vec::new();
    let row = |what: String, n: String, share: f64| vec![what, n, units::percent(share)];
    let mut side = |name: &str, side: &Side, direction: Direction| {
        let offered = side.offered_packets();
        if offered == 0 && side.lost == 0 {
            return;
        }
        rows.push(row(format!("{name}: offered"), units::grouped(offered), 1.0));
        if side.offered.len() > 1 {
            rows.extend(
                side.offered
                    .iter()
                    .map(|e| row(format!("  {}", e.what), units::grouped(e.packets), ratio(e.packets, offered))),
            );
        }
        let way = |e: &Entry| row(format!("- {}", e.what), units::grouped(e.packets), ratio(e.packets, offered));
        rows.extend(side.delivered.iter().map(way));
        rows.extend(side.waiting.iter().map(|e| {
            let packets = mark(Colour::Yellow, &units::grouped(e.packets));
            row(format!("- {}", e.what), packets, ratio(e.packets, offered))
        }));
        let [dropped, lost] = report.dropped_and_lost(direction);
        if dropped > 0 {
            rows.push(row("- dropped on purpose".into(), units::grouped(dropped), ratio(dropped, offered)));
        }
        let packets = if lost > 0 { mark(Colour::Red, &units::grouped(lost)) } else { units::grouped(0) };
        rows.push(row("- lost".into(), packets, ratio(lost, offered)));
        let unexplained = ratio(side.unexplained.unsigned_abs(), offered);
        rows.push(row("- unexplained".into(), signed(side.unexplained), unexplained));
    };
    side("receive", &report.receive, Direction::Receive);
    side("transmit", &report.transmit, Direction::Transmit);
    look.table(&["WHERE THE PACKETS WENT", ">PACKETS", ">SHARE"], rows)
}

fn losses(report: &LedgerReport, look: Look) -> String {
    let each = |s: &Station| s.losses.iter().map(|l| loss_row(s, l)).collect::<Vec<_>>();
    let rows: Vec<_> = report.stations.iter().flat_map(each).collect();
    let heads = ["STATION", ">PACKETS", ">SHARE", "KIND", "WHERE", "CAUSE"];
    if rows.is_empty() {
        return String::new();
    }
    if look.width >= WIDE {
        return look.table(&heads, rows);
    }
    let (numbers, words): (Vec<_>, Vec<_>) = rows.into_iter().map(|row| (row[..4].to_vec(), row[4..].to_vec())).unzip();
    let table = Look { width: WIDE, ..look }.table(&heads[..4], numbers);
    let lines: Vec<&str> = table.lines().collect();
    let (above, each) = lines.split_at(lines.len() - words.len());
    let mut out: String = above.iter().map(|line| format!("{line}\n")).collect();
    for (line, words) in each.iter().zip(words) {
        let _ = writeln!(out, "{line}");
        words.iter().filter(|text| !text.is_empty()).for_each(|text| out.push_str(&look.item(text)));
    }
    out
}

fn loss_row(station: &Station, loss: &StationLoss) -> Vec<String> {
    let difference = match loss.traced {
        Some(traced) if !loss.agrees => format!(" (traced: {})", units::grouped(traced)),
        _ => String::new(),
    };
    let counter = if loss.traced_only { "traced, no counter".to_owned() } else { loss.counter.clone() };
    vec![
        station.name.clone(),
        painted(loss.kind, &units::grouped(loss.packets)),
        units::percent(loss.share_of_offered),
        painted(loss.kind, loss.kind.word()),
        format!("{} [{counter}]{difference}", loss.place),
        causes(&loss.causes, loss.packets),
    ]
}

/// Text in the colour of what happened.
fn painted(kind: LossKind, text: &str) -> String {
    match kind {
        LossKind::Lost => mark(Colour::Red, text),
        LossKind::Copy => mark(Colour::Yellow, text),
        LossKind::Harmless => mark(Colour::Green, text),
        LossKind::Intended => text.to_owned(),
    }
}

/// The causes in a few words, the share of each where there are several.
fn causes(causes: &[Cause], of: u64) -> String {
    let several = causes.len() > 1;
    let words: Vec<String> = causes
        .iter()
        .take(CAUSES_MAX)
        .map(|c| if several { format!("{} {}", units::percent(ratio(c.packets, of)), c.words()) } else { c.words() })
        .collect();
    words.join("; ")
}

/// Advice, each once: real losses first, the largest first.
fn advice(report: &LedgerReport, look: Look) -> String {
    let mut losses: Vec<(&Station, &StationLoss)> =
        report.stations.iter().flat_map(|s| s.losses.iter().map(move |l| (s, l))).collect();
    losses.sort_by_key(|(_, l)| (l.kind, std::cmp::Reverse(l.packets)));
    let mut printed: Vec<&str> = Vec::new();
    let mut out = String::new();
    for (station, loss) in losses {
        let Some(advice) = loss.advice.as_deref() else { continue };
        if !printed.contains(&advice) {
            printed.push(advice);
            out.push_str(&look.paragraph(&format!("{}, {}: {advice}", station.name, loss.place)));
        }
    }
    if out.is_empty() { out } else { format!("{}\n{out}", mark(Colour::Bold, "What to do")) }
}
