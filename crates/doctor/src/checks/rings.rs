//! The rings between NIC and driver: their size, and what was lost in them.

use host::knob::{Direction, Knob};

use crate::{
    check::{Check, Outcome},
    evidence::Evidence,
};

/// A ring that holds a burst of this many frames is large enough for most; beyond it the ring no longer fits the cache.
const LARGE_RING: u32 = 4096;

/// The checks of this group.
pub(super) const CHECKS: &[Check] = &[Check {
    id: "rings",
    group: "rings",
    asks: "Do the NIC's rings hold a burst?",
    reads: "ethtool -g (now and at most), rx_missed_errors, rx_fifo_errors",
    fix: "ethtool -G rx and tx to the maximum, 4096 at most",
    risk: "the link pauses while the driver makes its rings anew; larger rings add latency under overload",
    roles: &[],
    run: rings,
}];

fn rings(ev: &Evidence) -> Vec<Outcome> {
    ev.ports()
        .filter_map(|nic| {
            let rings = nic.rings.filter(|r| r.rx_max > 0 || r.tx_max > 0)?;
            let small = |now: u32, max: u32| now < max.min(LARGE_RING);
            let (rx, tx) = (small(rings.rx, rings.rx_max), small(rings.tx, rings.tx_max));
            let saw = format!(
                "receive ring {} of {}, transmit ring {} of {}",
                rings.rx, rings.rx_max, rings.tx, rings.tx_max
            );
            if !rx && !tx {
                return Some(Outcome::good("The rings hold a burst while the CPU is busy.").on(&nic.name).saw(saw));
            }
            let missed = ["rx_missed_errors", "rx_fifo_errors"].map(|c| ev.statistic(&nic.name, c).unwrap_or(0));
            let lost: u64 = missed.iter().sum();
            let why =
                "A burst that comes while the CPU is busy overflows a small ring, and the NIC drops what does not fit.";
            let mut outcome =
                if lost > 0 && rx { Outcome::bad(why) } else { Outcome::improve(why) }.on(&nic.name).saw(saw);
            if lost > 0 {
                outcome = outcome.saw(format!("{lost} frames lost in the ring since the interface came up"));
            }
            for (is, direction, now, max) in
                [(rx, Direction::Rx, rings.rx, rings.rx_max), (tx, Direction::Tx, rings.tx, rings.tx_max)]
            {
                if is {
                    let knob = Knob::Ring { nic: nic.name.clone(), direction };
                    outcome = outcome.set(knob, now.to_string(), max.min(LARGE_RING).to_string());
                }
            }
            Some(outcome)
        })
        .collect()
}
