//! The drops that were traced, by place: compared with the counters, and the causes they name.

use std::collections::{BTreeMap, BTreeSet};

use model::stations::{Cause, StationLoss};

use super::details::details;
use crate::{
    advice::{Known, filled},
    input::{Drop, Interval, SocketLoss},
    names,
    places::{Place, Stage},
    placing::place_of,
};

/// Counters and trace may differ by this share before that is said: they are not read in the same instant.
const EDGE_SHARE: f64 = 0.005;
/// And by so many packets.
const EDGE_PACKETS: f64 = 16.0;
/// A trace that backs off leaves out whole stretches of time, so that drops which come in bursts, or at regular distances, are hit more or
/// less often than by chance: so many times the distance that chance alone would make.
const CLUMPS: f64 = 4.0;
/// More causes than this are not worth a line.
pub(super) const CAUSES_MAX: usize = 6;

/// Places of packets that no protocol handled.
const UNHANDLED: [&str; 2] = ["unhandled", "link-local"];
/// The place of such packets from the backup link of a bond or team.
const BACKUP: &str = "backup-link";

/// True for a backup link, on which the kernel counts packets that no protocol handled in rx_nohandler instead of rx_dropped.
fn is_backup(interval: &Interval, ifindex: u32) -> bool {
    interval.interfaces.iter().any(|i| i.index == ifindex && i.stats.rx_nohandler > 0)
}

/// The drops that the trace told, by place.
pub(super) struct Traced<'a> {
    by_place: BTreeMap<&'static str, Vec<&'a Drop>>,
    pub(super) ran: bool,
    precision: f64,
    pub(super) interval: &'a Interval,
}

impl<'a> Traced<'a> {
    pub(super) fn new(interval: &'a Interval) -> Self {
        let mut by_place: BTreeMap<&'static str, Vec<&'a Drop>> = BTreeMap::new();
        for drop in interval.trace.drops.iter().flatten() {
            let place = place_of(drop).id;
            let place = if UNHANDLED.contains(&place) && is_backup(interval, drop.ifindex) { BACKUP } else { place };
            by_place.entry(place).or_default().push(drop);
        }
        Self { by_place, ran: interval.trace.drops.is_some(), precision: interval.trace.precision, interval }
    }

    /// The drops of a place, on one interface if that is not 0.
    pub(super) fn at(&self, id: &str, ifindex: u32) -> Vec<&'a Drop> {
        let all = self.by_place.get(id).map_or(&[][..], Vec::as_slice);
        all.iter().copied().filter(|d| ifindex == 0 || d.ifindex == ifindex).collect()
    }

    pub(super) fn sum(&self, id: &str, ifindex: u32) -> u64 {
        packets(&self.at(id, ifindex))
    }

    /// The drops for which no protocol took the packet, be they a loss or not: the kernel counts all of them in rx_dropped.
    pub(super) fn unhandled(&self, ifindex: u32) -> u64 {
        UNHANDLED.iter().map(|id| self.sum(id, ifindex)).sum()
    }

    /// Largest plausible difference of counter and trace.
    pub(super) fn tolerance(&self, of: u64) -> f64 {
        let of = of as f64;
        // The fewer of all drops a place has, the fewer of its own were looked at.
        let sampled = if self.interval.trace.weight > 1.0 {
            CLUMPS * 1.96 * (of * self.interval.trace.weight).sqrt()
        } else {
            0.0
        };
        EDGE_PACKETS + of * EDGE_SHARE + sampled.max(of * self.precision)
    }

    /// A loss out of a counter (none: there is none) and the drops that were traced of it.
    pub(super) fn loss(
        &self,
        words: String,
        counter: Option<(String, u64)>,
        drops: &[&Drop],
        expects: bool,
        place: &Place,
    ) -> StationLoss {
        // A trace that samples may say more than this program's own sockets have counted of a protocol.
        let received = if place.stage == Stage::Other { self.received(drops) } else { None };
        let traced = packets(drops).min(received.unwrap_or(u64::MAX));
        let counted = counter.as_ref().map_or(0, |(_, n)| *n);
        let tolerance = self.tolerance(counted.max(traced));
        let over = counter.is_none() || (traced as f64) > counted as f64 + tolerance;
        let apart = (counted as f64 - traced as f64).abs() > tolerance;
        let comparable = self.ran && expects && counted > 0;
        let causes = self.causes(drops);
        let details = details(self.interval, drops);
        let packets = if over { traced } else { counted };
        let known = Known { causes: &causes, details: details.as_ref(), traced: self.ran, packets };
        let advice = (!place.advice.is_empty()).then(|| filled(place.advice, known));
        StationLoss {
            place: words,
            kind: place.kind,
            packets,
            counter: match counter {
                Some((name, n)) if n > 0 || !over => name,
                _ => "traced".into(),
            },
            traced_only: over && counted == 0,
            traced: (self.ran && expects).then_some(traced),
            agrees: !(comparable && apart),
            advice,
            causes,
            details,
            ..StationLoss::default()
        }
    }

    /// Packets that came of the protocols of these drops, where a socket counts them.
    fn received(&self, drops: &[&Drop]) -> Option<u64> {
        let others = self.interval.others.as_ref()?;
        let protocols: BTreeSet<u16> = drops.iter().map(|drop| drop.protocol).collect();
        protocols.iter().map(|protocol| others.get(protocol)).sum()
    }

    pub(super) fn causes(&self, drops: &[&Drop]) -> Vec<Cause> {
        let mut causes: Vec<Cause> = Vec::new();
        for drop in drops.iter().filter(|d| d.packets > 0) {
            let cause = Cause {
                reason: drop.reason.clone(),
                function: drop.function.clone(),
                interface: self.interval.interfaces.iter().find(|i| i.index == drop.ifindex).map(|i| i.name.clone()),
                protocol: names::ethertype(drop.protocol),
                process: self.process(drop),
                example: None,
                packets: 0,
            };
            let last = drop.last.as_ref().map(names::flow);
            match causes.iter_mut().find(|c| Cause { packets: 0, example: None, ..(*c).clone() } == cause) {
                Some(same) => same.packets += drop.packets,
                None => causes.push(Cause { packets: drop.packets, example: last, ..cause }),
            }
        }
        causes.sort_by_key(|c| std::cmp::Reverse(c.packets));
        causes.truncate(CAUSES_MAX);
        causes
    }

    pub(super) fn process(&self, drop: &Drop) -> Option<String> {
        let same = |s: &&SocketLoss| {
            (drop.socket != 0 && s.cookie == drop.socket) || (drop.inode != 0 && s.inode == drop.inode)
        };
        self.interval.sockets.iter().find(same).and_then(|s| s.process.clone())
    }
}

pub(super) fn packets(drops: &[&Drop]) -> u64 {
    drops.iter().map(|d| d.packets).sum()
}
