//! The rings between NIC and driver: their size, what was lost in them, and when the NIC interrupts.

use host::{
    knob::{CoalesceField, Direction, Knob},
    picture::{Coalescing, Nic},
    setting::{
        Missing,
        header_split::{self, HeaderSplit},
    },
};
use model::doctor::Role;

use super::or_unknown_of;
use crate::{check::Check, evidence::Evidence, outcome::Outcome};

/// A ring that holds a burst of this many frames is large enough for most; beyond it the ring no longer fits the cache.
const LARGE_RING: u32 = 4096;
/// Enough for a machine that forwards and has lost nothing: more is delay under overload, and no longer fits the cache.
const FORWARDING_RING: u32 = 1024;
/// A loss of one frame in so many since the interface came up is worth a word.
const WORTH_A_WORD: u64 = 1_000_000;
/// An interrupt later than this makes a full ring likely at line rate, and answers slow.
const LATE_USECS: u32 = 250;

pub(super) const CHECKS: &[Check] = &[
    Check {
        id: "rings",
        group: "rings",
        question: "Do the NIC's rings hold a burst?",
        reads: "ethtool -g (now and at most), rx_missed_errors, rx_fifo_errors",
        fix: "ethtool -G rx and tx to the maximum, 4096 at most; 1024 on a router or firewall that has lost nothing",
        risk: "the link pauses while the driver makes its rings anew; larger rings add latency under overload",
        roles: &[],
        run: rings,
    },
    Check {
        id: "ring-loss",
        group: "rings",
        question: "Does the NIC lose frames because the ring is full?",
        reads: "rx_missed_errors, rx_fifo_errors, rx_over_errors: since the interface came up, and while watched",
        fix: "none by itself: larger rings (rings), more queues (queues), or their interrupts on more cores (queue-irqs)",
        risk: "none: advice only",
        roles: &[],
        run: ring_loss,
    },
    Check {
        id: "coalescing",
        group: "rings",
        question: "Does the NIC coalesce frames before it interrupts, with a bounded delay?",
        reads: "ethtool -c",
        fix: "rx-usecs 50 for a router, firewall or capture, 20 for a server; a cluster keeps its latency",
        risk: "every packet may wait that long; some drivers reset their queues",
        roles: &[Role::Router, Role::Firewall, Role::Capture, Role::Server],
        run: coalescing,
    },
    Check {
        id: "header-split",
        group: "rings",
        question: "Are headers and data of TCP kept apart where the NIC can?",
        reads: "ethtool -g (TCP data split)",
        fix: "ethtool -G tcp-data-split on, by hand",
        risk: "some drivers refuse XDP with it; small packets cost a little more",
        roles: &[Role::Server, Role::Cluster],
        run: header_split,
    },
];

fn rings(ev: &Evidence) -> Vec<Outcome> {
    ev.ports().filter_map(|nic| ring(ev, nic)).collect()
}

fn ring(ev: &Evidence, nic: &Nic) -> Option<Outcome> {
    let rings = nic.rings.filter(|r| r.rx_max > 0 || r.tx_max > 0)?;
    let lost = lost_frames(ev, nic).unwrap_or(0);
    let now = rising(ev, nic).map(|(lost, _)| lost);
    let wanted = if ev.role.forwards() && lost == 0 { FORWARDING_RING } else { LARGE_RING };
    let small = |now: u32, max: u32| now < max.min(wanted);
    let (rx, tx) = (small(rings.rx, rings.rx_max), small(rings.tx, rings.tx_max));
    let saw = format!("receive ring {} of {}, transmit ring {} of {}", rings.rx, rings.rx_max, rings.tx, rings.tx_max);
    let seen = |o: Outcome| o.on(&nic.name).saw(&saw).holds("receive ring", rings.rx).holds("transmit ring", rings.tx);
    if !rx && !tx {
        return Some(seen(Outcome::good("The rings hold a burst while the CPU is busy.")));
    }
    let why = "A burst that comes while the CPU is busy overflows a small ring, and the NIC drops what does not fit.";
    let mut outcome = seen(if lost > 0 && rx && ev.counts(now) { Outcome::bad(why) } else { Outcome::improve(why) });
    if lost > 0 {
        let now = now.map_or_else(String::new, |now| format!(", {now} while watched"));
        outcome = outcome.saw(format!("{lost} frames lost in the ring {}{now}", ev.since_up()));
    }
    for (is, direction, now, max) in
        [(rx, Direction::Rx, rings.rx, rings.rx_max), (tx, Direction::Tx, rings.tx, rings.tx_max)]
    {
        if is {
            let knob = Knob::Ring { nic: nic.name.clone(), direction };
            outcome = outcome.set(knob, now.to_string(), max.min(wanted).to_string());
        }
    }
    Some(outcome)
}

/// Frames that found no room in the NIC or its ring since the interface came up; none where that is not counted.
fn lost_frames(ev: &Evidence, nic: &Nic) -> Option<u64> {
    // A driver counts a frame in one of the first two; rx_over_errors is theirs again for some.
    let missed = ev.statistic(&nic.name, "rx_missed_errors")?;
    Some(missed.saturating_add(ev.statistic(&nic.name, "rx_fifo_errors").unwrap_or(0)))
}

/// Frames that the ring lost while the machine was watched, and for how many seconds that was; none for a saved copy.
fn rising(ev: &Evidence, nic: &Nic) -> Option<(u64, f64)> {
    let watched = ev.watched.as_ref()?;
    let stats = |c: &host::counters::Counters| c.links.get(&nic.index).map(|l| l.stats);
    let (before, after) = (stats(&watched.before)?, stats(&watched.after)?);
    let grown = |f: fn(&host::counters::LinkStats) -> u64| f(&after).saturating_sub(f(&before));
    let lost = grown(|s| s.rx_missed_errors).saturating_add(grown(|s| s.rx_fifo_errors));
    Some((lost, watched.rates.interval_s))
}

fn ring_loss(ev: &Evidence) -> Vec<Outcome> {
    ev.ports().map(|nic| loss(ev, nic).on(&nic.name)).collect()
}

fn loss(ev: &Evidence, nic: &Nic) -> Outcome {
    let Some(lost) = lost_frames(ev, nic) else {
        return ev.lacking("The counters of this interface are missing.");
    };
    let received = ev.statistic(&nic.name, "rx_packets").unwrap_or(0);
    let saw = format!("{lost} lost, {received} received {}", ev.since_up());
    let rising = rising(ev, nic);
    let advice = "# the ring is too small (check rings) or the core that empties it too slow (checks queues, queue-irqs, uneven)";
    let why = "A frame that finds the ring full is gone before the kernel could see it.";
    match rising {
        Some((now, interval)) if now > 0 => {
            Outcome::bad(why).saw(saw).saw(format!("{now} lost in the {interval:.2} s just watched")).advise(advice)
        }
        _ if ev.counts(rising.map(|(now, _)| now)) && lost > 0 && lost.saturating_mul(WORTH_A_WORD) > received => {
            Outcome::improve(why).saw(saw).advise(advice)
        }
        Some((_, interval)) if lost > 0 => Outcome::good("The ring is emptied in time.")
            .saw(saw)
            .saw(format!("none in the {interval:.2} s just watched")),
        _ => Outcome::good("The ring is emptied in time.").saw(saw),
    }
}

fn coalescing(ev: &Evidence) -> Vec<Outcome> {
    ev.ports().filter_map(|nic| Some(moderation(ev, nic, nic.coalescing?).on(&nic.name))).collect()
}

fn moderation(ev: &Evidence, nic: &Nic, c: Coalescing) -> Outcome {
    let adaptive = c.adaptive_rx == Some(true);
    let (usecs, frames) = (c.rx_usecs.unwrap_or(0), c.rx_frames.unwrap_or(0));
    let mut saw = format!("adaptive {}, rx-usecs {usecs}, rx-frames {frames}", if adaptive { "on" } else { "off" });
    let rates = ev.watched.as_ref().and_then(|w| w.rates.interfaces.iter().find(|i| i.name == nic.name));
    if let Some(rates) = rates {
        let irqs: f64 = rates.queues.iter().filter_map(|q| q.irq_rate).sum();
        if rates.rx_pps >= 1.0 {
            saw.push_str(&format!("; {irqs:.0} interrupts/s for {:.0} received packets/s", rates.rx_pps));
        }
    }
    // virtio says 0 and 1 also where the device has no such setting.
    if nic.driver.as_deref() == Some("virtio_net") && usecs == 0 && frames <= 1 {
        return Outcome::not_applicable("The device does not say that it gathers frames.").saw(saw);
    }
    let wanted = if ev.role == Role::Server { 20 } else { 50 };
    let knob = Knob::Coalesce { nic: nic.name.clone(), field: CoalesceField::RxUsecs };
    let seen = |o: Outcome| o.saw(&saw).holds("adaptive receive", adaptive).holds("rx-usecs", usecs);
    if adaptive {
        seen(Outcome::good("The NIC coalesces frames by load."))
    } else if usecs == 0 && frames <= 1 {
        let why = "With an interrupt for each frame a core does little else at high rates.";
        seen(Outcome::improve(why)).set(knob, usecs.to_string(), wanted.to_string())
    } else if usecs > LATE_USECS {
        let why = "A frame waits so long for its interrupt that answers come late and the ring may overflow meanwhile.";
        seen(Outcome::improve(why)).set(knob, usecs.to_string(), wanted.to_string())
    } else {
        seen(Outcome::good("The NIC coalesces frames before it interrupts."))
    }
}

fn header_split(ev: &Evidence) -> Vec<Outcome> {
    let of = |nic: &Nic| -> Result<Vec<Outcome>, Missing> {
        Ok(match header_split::read(&ev.root, &nic.name)? {
            HeaderSplit::None => Vec::new(),
            HeaderSplit::On => vec![Outcome::good("Data lands in buffers of its own.").on(&nic.name)],
            HeaderSplit::Off if ev.role == Role::Server => {
                let why = "Off is right for most programs: only those that receive without copying gain by it.";
                vec![Outcome::good(why).on(&nic.name).saw("TCP data split: off")]
            }
            HeaderSplit::Off => {
                let why = "With headers apart the data fills whole pages, so that GRO merges without copying and TCP can hand \
                           pages to the reader.";
                let command = format!("ethtool -G {} tcp-data-split on", nic.name);
                vec![Outcome::improve(why).on(&nic.name).saw("TCP data split: off").advise(command)]
            }
        })
    };
    ev.ports().flat_map(|nic| or_unknown_of(&nic.name, of(nic))).collect()
}
