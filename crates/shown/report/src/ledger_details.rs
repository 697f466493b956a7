//! Whose packets ended at each place: targets, sources, a packet, the kernel's way to the drop.

use std::fmt::Write;

use model::{
    stations::{Details, LedgerReport, Sample, Share, StationLoss},
    units,
};

use crate::table::Look;

/// Functions shown of the way to a drop; JSON has them all.
const FUNCTIONS_MAX: usize = 12;
/// Bytes on a line of a dump.
const LINE: usize = 16;

/// The details of every loss that has some.
pub(crate) fn details(report: &LedgerReport, look: Look) -> String {
    let mut losses: Vec<(&str, &StationLoss, &Details)> = (report.stations.iter())
        .flat_map(|s| s.losses.iter().map(move |l| (s.name.as_str(), l)))
        .filter_map(|(station, loss)| Some((station, loss, loss.details.as_ref()?)))
        .collect();
    losses.sort_by_key(|(_, loss, _)| std::cmp::Reverse(loss.packets));
    let mut out = String::new();
    for (station, loss, details) in losses {
        let _ = write!(out, "\n{}", look.paragraph(&format!("{station}, {}:", loss.place)));
        for (name, shares) in [("to", &details.targets), ("from", &details.sources)] {
            if !shares.is_empty() {
                out.push_str(&look.item(&format!("{name}: {}", listed(shares))));
            }
        }
        if let Some(sample) = &details.sample {
            out.push_str(&look.item(&format!("a packet of {} bytes: {}", sample.length, sample.text)));
            out.push_str(&dump(sample));
        }
        if !details.stack.is_empty() {
            let stack = details.stack.iter().take(FUNCTIONS_MAX).map(String::as_str).collect::<Vec<_>>();
            out.push_str(&look.item(&format!("dropped in: {}", stack.join(" < "))));
        }
    }
    if out.is_empty() {
        "\nDetails: no dropped packet of these was looked at.\n".to_owned()
    } else {
        format!("\nDetails\n{}", out.trim_start_matches('\n'))
    }
}

fn listed(shares: &[Share]) -> String {
    let one = |s: &Share| format!("{} ({})", s.what, units::grouped(s.packets));
    shares.iter().map(one).collect::<Vec<_>>().join(", ")
}

/// The bytes of a packet, as tcpdump -x shows them.
fn dump(sample: &Sample) -> String {
    let mut out = String::new();
    for (at, line) in sample.hex.as_bytes().chunks(LINE * 2).enumerate() {
        let words = line.chunks(4).map(|w| String::from_utf8_lossy(w).into_owned()).collect::<Vec<_>>();
        let _ = writeln!(out, "    {:#06x}:  {}", at * LINE, words.join(" "));
    }
    out
}
