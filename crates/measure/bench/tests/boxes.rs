//! The boxes of known answer do what they are known for, one trial each: before anything is searched with them.

mod cores;
mod order;
mod relay;

use std::{
    sync::atomic::{AtomicBool, Ordering},
    time::Duration,
};

use bench::{
    BenchError, Dut, Load, Meanwhile, Order, Tester,
    tester::{RealTester, TesterConfig},
};
use cores::cores;
use lab::{Lab, boxes::Family};
use model::bench::{Delays, FrameSpec, Trial};
use relay::{Faults, RelayBox, token_bucket};
use rig::others::Watch;
use testbed::turn;

fn order(load: Load, seconds: f64) -> Order {
    order::order(FrameSpec::Size { bytes: 64 }, load, Duration::from_secs_f64(seconds))
}

/// Makes the trial until `fine` is content. Other work on this machine may hold up sender and box, which a box is not known for; a trial
/// whose pacing was off still says what became of what was sent.
fn until(
    make: impl Fn(&mut RealTester<'_>) -> Trial,
    dut: &Dut,
    both_ways: bool,
    fine: impl Fn(&Trial) -> bool,
) -> Trial {
    let mut tester = RealTester::new(dut, &cores(), TesterConfig { flows: 1, both_ways }, None).unwrap();
    let mut seen = Vec::new();
    for _ in 0..10 {
        let trial = make(&mut tester);
        if fine(&trial) {
            return trial;
        }
        let timing = (trial.one_way, trial.max_gap_ns, trial.last_loss_after_ns, trial.seconds);
        seen.push(format!("{:?} {:?} {timing:?}", trial.invalid, trial.counts));
    }
    panic!("{seen:#?}");
}

fn plain(order: &Order) -> impl Fn(&mut RealTester<'_>) -> Trial {
    |tester| tester.trial(order, &AtomicBool::new(false)).unwrap()
}

#[test]
fn a_bucket_keeps_a_burst_of_its_depth() {
    let Some(_alone) = turn() else { return };
    let lab = Lab::new("kntbf").unwrap();
    let dut = token_bucket(&lab, Family::V4, 10_000, 60, 200);
    // At its own rate nothing is lost, however long it takes.
    until(plain(&order(Load::Pps(9_000.0), 0.3)), &dut, false, |t| t.counts[0].sent > 1_000 && t.counts[0].lost() == 0);
    until(plain(&order(Load::Burst(200), 1.0)), &dut, false, |t| t.counts[0].sent == 200 && t.counts[0].lost() == 0);
    // The burst ends within milliseconds, in which some tens leave.
    until(plain(&order(Load::Burst(2_000), 1.0)), &dut, false, |t| {
        t.counts[0].sent == 2_000 && (200..300).contains(&t.counts[0].received)
    });
}

#[test]
fn a_relay_delays_reorders_and_duplicates() {
    let Some(_alone) = turn() else { return };
    let lab = Lab::new("knrelay").unwrap();
    let calm = order(Load::Pps(2_000.0), 0.3);
    let slow = RelayBox::start(&lab, Faults { delay: Duration::from_millis(2), ..Faults::default() });
    let cpus = std::thread::available_parallelism().map_or(1, usize::from) as u32;
    let watch = Watch::start(0..cpus);
    until(plain(&calm), &slow.dut, true, |t| {
        // The least delay: whatever else runs here makes the others longer, and a reader that slept wakes up to 0.1 ms late. Where other programs
        // take the CPUs, the relay never runs in time.
        let is_late = |d: &Delays| d.min_ns >= 2_200_000 && watch.warning().is_none();
        let delayed = |d: &Option<Delays>| d.as_ref().is_some_and(|d| d.min_ns >= 2_000_000 && !is_late(d));
        t.total().lost() == 0 && t.one_way.iter().all(delayed)
    });
    drop(slow);
    let untidy = RelayBox::start(&lab, Faults { reorder_one_in: Some(50), ..Faults::default() });
    // 620 units: the last one is not one that waits for the next.
    until(plain(&order(Load::Pps(2_000.0), 0.31)), &untidy.dut, false, |t| {
        let c = t.counts[0];
        c.sent > 100 && c.lost() == 0 && c.duplicated == 0 && c.reordered.abs_diff(c.sent / 50) <= 1
    });
    drop(untidy);
    let generous = RelayBox::start(&lab, Faults { duplicate_one_in: Some(50), ..Faults::default() });
    until(plain(&calm), &generous.dut, false, |t| {
        let c = t.counts[0];
        c.sent > 100 && c.lost() == 0 && c.reordered == 0 && c.duplicated.abs_diff(c.sent / 50) <= 1
    });
    assert!(generous.shared.carried.load(Ordering::Relaxed) > 500);
}

#[test]
fn a_relay_dies_and_chokes() {
    let Some(_alone) = turn() else { return };
    let lab = Lab::new("kndies").unwrap();
    let mortal = RelayBox::start(&lab, Faults::default());
    let die = || -> Result<(), BenchError> {
        mortal.die_for(Duration::from_millis(300));
        Ok(())
    };
    let calm = order(Load::Pps(2_000.0), 1.0);
    let dying = |tester: &mut RealTester<'_>| {
        let meanwhile = Meanwhile { after: Duration::from_millis(200), work: &die };
        tester.make(&calm, Some(meanwhile), &AtomicBool::new(false)).unwrap()
    };
    until(dying, &mortal.dut, false, |t| {
        let lost_s = t.counts[0].lost() as f64 / 2_000.0;
        let silent_s = t.max_gap_ns[0].unwrap_or(0) as f64 / 1e9;
        (0.25..0.4).contains(&lost_s) && (0.29..0.4).contains(&silent_s)
    });
    let hold = Duration::from_millis(400);
    let choking = RelayBox::start(&lab, Faults { choke: Some((10_000, hold)), ..Faults::default() });
    let steps = Load::Steps(vec![(20_000.0, Duration::from_millis(200)), (4_000.0, Duration::from_millis(900))]);
    until(plain(&order(steps, 1.1)), &choking.dut, false, |t| {
        t.last_loss_after_ns[0].is_some_and(|ns| (350_000_000..500_000_000).contains(&ns))
    });
}
