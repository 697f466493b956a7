//! True if a trial may be believed: what the tester promised, held against what it did.

use bpf::bench_tx::BenchTxCounts;
use model::{
    bench::{Counts, Pacing},
    run::Sharing,
    units,
};

use crate::Load;

/// From this difference between the achieved and the wanted rate on, the load was another one.
const PACING_MAX: f64 = 0.01;
/// From this share of the time on that the sender was held up, its load was no steady one.
const HELD_UP_MAX: f64 = 0.1;
/// Below this share of looks that found nothing due, the sender could hardly keep the pace.
const SPARE_MIN: f64 = 0.002;
/// From this share of units with late stamps on, delays are the tester's.
const LATE_MAX: f64 = 0.02;

/// More units of the trial before than this disturb a trial, and more than this share of its own: a few may have lost their way.
const LEFTOVER_MAX: (u64, f64) = (2, 0.001);

/// The tester's own part in a trial.
pub(super) struct TesterRecord<'a> {
    pub(super) sent: &'a BenchTxCounts,
    /// Frames that the ports did not send, though the tester handed them over.
    pub(super) refused: u64,
    pub(super) counts: Counts,
    /// Units of the trial before that arrived in this one.
    pub(super) leftover: u64,
    pub(super) sharing: Sharing,
    /// Other programs on the sender's core; empty when nobody looked, or there were none.
    pub(super) others: &'a str,
}

/// The reason why the trial does not count; none when it does.
pub(super) fn judge(load: &Load, pacing: &Pacing, kept: &TesterRecord<'_>) -> Option<String> {
    let sent = kept.sent;
    let units: u64 = sent.units.iter().sum();
    if units == 0 && *load != Load::Idle {
        return Some("nothing was sent".into());
    }
    if kept.counts.received > kept.counts.sent {
        return Some(format!("{} units arrived, but {} were sent", kept.counts.received, kept.counts.sent));
    }
    if kept.leftover > LEFTOVER_MAX.0 && kept.leftover as f64 > LEFTOVER_MAX.1 * units as f64 {
        return Some(format!(
            "the box was not empty: {} units of the trial before arrived in this one",
            units::grouped(kept.leftover)
        ));
    }
    if kept.refused > 0 {
        return Some(format!("the ports did not send {} frames that they were given", kept.refused));
    }
    if let Load::Burst(wanted) = load
        && units < *wanted
    {
        return Some(format!("the burst was cut off after {units} of {wanted} units: its time was over"));
    }
    let error = pacing.error?;
    let spare = pacing.idle_share;
    let longest_ms = sent.latest_ns.max(sent.oldest_stamp_ns) as f64 / 1e6;
    let by = |what: String| if kept.others.is_empty() { what } else { format!("{what}: {}", kept.others) };
    if pacing.stalled > HELD_UP_MAX {
        let share = 100.0 * pacing.stalled;
        let who = if kept.others.is_empty() { "something else" } else { "other programs" };
        return Some(if spare < SPARE_MIN {
            by(format!("the sender was saturated: it fell behind for {share:.1} % of the time"))
        } else {
            by(format!("{who} took {share:.1} % of the sender's CPU time ({longest_ms:.1} ms at a stretch)"))
        });
    }
    let lacking = error * units as f64;
    if error < -PACING_MAX && lacking < -2.0 {
        let share = -100.0 * error;
        return Some(by(if spare < SPARE_MIN {
            format!("the sender was saturated: its rate is {share:.1} % below the wanted one")
        } else {
            format!("the sender's rate is {share:.1} % below the wanted one")
        }));
    }
    if error > PACING_MAX && lacking > 2.0 {
        return Some(format!("the sender's rate is {:.1} % above the wanted one", 100.0 * error));
    }
    if spare < SPARE_MIN && sent.turns > 1000 {
        return Some("the sender was saturated: it had no time to spare".into());
    }
    // On one core the box works in the middle of what the sender does: there every stamp is that late.
    let late = sent.late as f64 / units as f64;
    (kept.sharing == Sharing::Apart && late > LATE_MAX && sent.late > 2)
        .then(|| format!("{:.1} % of the units may have left more than 50 us after their stamp", 100.0 * late))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn good() -> BenchTxCounts {
        BenchTxCounts { units: [5000, 5000], turns: 100_000, fillers: 90_000, ..BenchTxCounts::default() }
    }

    fn pacing(error: f64, sent: &BenchTxCounts) -> Pacing {
        let stalled = sent.given_up_ns as f64 / 1e9;
        Pacing {
            error: Some(error),
            idle_share: sent.fillers as f64 / sent.turns.max(1) as f64,
            stalled,
            ..Pacing::default()
        }
    }

    fn reason(load: &Load, error: f64, sent: &BenchTxCounts, refused: u64) -> String {
        let counts = Counts { sent: sent.units.iter().sum(), received: 9000, ..Counts::default() };
        let kept = TesterRecord { sent, refused, counts, leftover: 0, others: "", sharing: Sharing::Apart };
        judge(load, &pacing(error, sent), &kept).unwrap_or_default()
    }

    #[test]
    fn a_promise_that_was_kept_is_no_reason() {
        assert_eq!(reason(&Load::Pps(1e4), 0.009, &good(), 0), "");
        assert_eq!(reason(&Load::Steps(Vec::new()), -0.009, &good(), 0), "");
        // One unit of a few is more than a hundredth, and no mistake.
        let few = BenchTxCounts { units: [10, 0], ..good() };
        let counts = Counts { sent: 10, received: 10, ..Counts::default() };
        assert_eq!(
            judge(
                &Load::Pps(11.0),
                &pacing(-0.09, &few),
                &TesterRecord { sent: &few, refused: 0, counts, leftover: 0, others: "", sharing: Sharing::Apart }
            ),
            None
        );
    }

    #[test]
    fn a_promise_that_was_not_kept_is_one() {
        let load = Load::Pps(1e4);
        assert!(reason(&load, -0.02, &good(), 0).contains("2.0 % below"));
        // The clock of the test runs for a second.
        let held = |ns| BenchTxCounts { given_up_ns: ns, ..good() };
        assert!(reason(&load, 0.0, &held(110_000_000), 0).contains("took 11.0 % of the sender's CPU time"));
        assert_eq!(reason(&load, 0.0, &held(90_000_000), 0), "");
        assert!(reason(&load, 0.02, &good(), 0).contains("above"));
        let busy = BenchTxCounts { fillers: 0, ..good() };
        assert!(reason(&load, -0.02, &busy, 0).contains("saturated: its rate is 2.0 % below"));
        assert!(reason(&load, 0.0, &busy, 0).contains("no time to spare"));
        assert!(reason(&load, 0.0, &BenchTxCounts { late: 300, ..good() }, 0).contains("3.0 % of the units"));
        assert!(reason(&load, 0.0, &good(), 7).contains("did not send 7 frames"));
        assert!(reason(&Load::Burst(20_000), 0.0, &good(), 0).contains("10000 of 20000"));
        assert_eq!(reason(&load, 0.0, &BenchTxCounts { units: [0, 0], ..good() }, 0), "nothing was sent");
    }

    #[test]
    fn who_took_the_core_is_named_and_what_is_left_of_a_trial_spoils_the_next() {
        let held = BenchTxCounts { given_up_ns: 287_000_000, latest_ns: 17_000_000, ..good() };
        let counts = Counts { sent: 10_000, received: 10_000, ..Counts::default() };
        let others = "stress-ng (pid 4711) 96 % of a core";
        let kept = TesterRecord { sent: &held, refused: 0, counts, leftover: 0, others, sharing: Sharing::Apart };
        let reason = judge(&Load::Pps(1e4), &pacing(0.0, &held), &kept).unwrap_or_default();
        assert_eq!(
            reason,
            "other programs took 28.7 % of the sender's CPU time (17.0 ms at a stretch): stress-ng (pid 4711) 96 % of a core"
        );
        let (sent, quiet) = (good(), pacing(0.0, &good()));
        let with =
            |leftover| TesterRecord { sent: &sent, refused: 0, counts, leftover, others: "", sharing: Sharing::Apart };
        assert!(judge(&Load::Pps(1e4), &quiet, &with(11)).is_some_and(|why| why.contains("not empty: 11 units")));
        assert_eq!(judge(&Load::Pps(1e4), &quiet, &with(10)), None);
        // An idle box is measured by a few probes.
        let idle = BenchTxCounts { units: [0, 0], ..good() };
        let kept = TesterRecord { sent: &idle, counts: Counts::default(), ..with(3) };
        assert!(judge(&Load::Idle, &Pacing::default(), &kept).is_some());
    }

    #[test]
    fn on_one_core_stamps_are_late_by_nature() {
        let sent = BenchTxCounts { late: 300, ..good() };
        let counts = Counts { sent: 10_000, received: 10_000, ..Counts::default() };
        let kept = |sharing| TesterRecord { sent: &sent, refused: 0, counts, leftover: 0, others: "", sharing };
        assert_eq!(judge(&Load::Pps(1e4), &pacing(0.0, &sent), &kept(Sharing::Inline)), None);
        assert!(judge(&Load::Pps(1e4), &pacing(0.0, &sent), &kept(Sharing::Apart)).is_some());
        let more = Counts { received: 10_001, ..counts };
        assert!(
            judge(&Load::Max, &Pacing::default(), &TesterRecord { counts: more, ..kept(Sharing::Apart) }).is_some()
        );
    }
}
