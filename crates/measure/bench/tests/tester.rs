//! The real tester on boxes in namespaces: what it sends arrives, is counted, measured and told apart. No speed is asserted.

mod cores;
mod order;

use std::{
    sync::atomic::AtomicBool,
    time::{Duration, Instant},
};

use bench::{
    BenchError, Dut, DutKind, DutOptions, Load, Meanwhile, Observer, Order, Probes, RuleOrder, Tester, frames,
    tester::{RealTester, TesterConfig},
};
use cores::cores;
use lab::{Lab, boxes::Family};
use model::bench::{FrameSpec, Observation, Trial};
use testbed::turn;

fn dut(lab: &Lab, kind: DutKind, family: Family) -> Dut {
    let cores = cores();
    Dut::lab(lab, kind, &DutOptions { family, rules: 3, order: RuleOrder::Study, cores: &cores, threaded: false })
        .unwrap()
}

fn order(frame: FrameSpec, load: Load) -> Order {
    order::order(frame, load, Duration::from_millis(200))
}

/// Makes the trial again while other work on this machine holds up the box, whose queue is short. Whether the sender was held up does not matter here.
fn without_loss(tester: &mut dyn Tester, order: &Order) -> Trial {
    let mut lossy = Vec::new();
    for _ in 0..20 {
        let trial = tester.trial(order, &AtomicBool::new(false)).unwrap();
        if trial.total().lost() == 0 && trial.probes.0 == trial.probes.1 {
            return trial;
        }
        lossy.push(trial);
    }
    panic!("{lossy:#?}");
}

/// As many as were ordered, to one in a hundred; less if the sender was held up, which makes the trial void.
fn assert_sent(trial: &Trial, ordered: u64) {
    let sent = trial.total().sent;
    let near = sent.abs_diff(ordered) * 100 <= ordered;
    assert!(near || (trial.invalid.is_some() && (1..ordered).contains(&sent)), "{trial:#?}");
}

#[test]
fn all_that_is_sent_both_ways_arrives() {
    let Some(_alone) = turn() else { return };
    for (kind, family) in [
        (DutKind::Wire, Family::V4),
        (DutKind::Wire, Family::V6),
        (DutKind::Router, Family::V4),
        (DutKind::Router, Family::V6),
        (DutKind::Stateful, Family::V4),
        (DutKind::Bridge, Family::V4),
        (DutKind::XdpFib, Family::V4),
    ] {
        let lab = Lab::new("tester").unwrap();
        let dut = dut(&lab, kind, family);
        let config = TesterConfig { flows: 10, both_ways: true };
        let mut tester = RealTester::new(&dut, &cores(), config, None).unwrap();
        for spec in ["84", "1518", "udp4096", "imix"] {
            let frame = frames::parse(spec, family).unwrap().remove(0);
            for _ in 0..2 {
                let trial = without_loss(&mut tester, &order(frame.clone(), Load::Pps(2000.0)));
                assert_sent(&trial, 400);
                assert!(trial.counts.iter().all(|c| c.lost() == 0), "{kind} {family:?} {frame}: {trial:#?}");
                for counts in &trial.counts {
                    let c = counts;
                    assert_eq!(
                        (c.duplicated, c.reordered, c.stale, c.incomplete, c.looped),
                        (0, 0, 0, 0, 0),
                        "{trial:#?}"
                    );
                }
                let [forward, backward] = [trial.one_way[0].unwrap(), trial.one_way[1].unwrap()];
                assert_eq!(forward.samples + backward.samples, trial.total().sent, "{trial:#?}");
                assert!(trial.max_gap_ns[0].is_some() && trial.probes == (0, 0));
            }
        }
    }
}

#[test]
fn probes_come_back_with_and_without_a_load() {
    let Some(_alone) = turn() else { return };
    for (kind, family) in [(DutKind::Wire, Family::V4), (DutKind::Router, Family::V6), (DutKind::Stateful, Family::V4)]
    {
        let lab = Lab::new("tester").unwrap();
        let dut = dut(&lab, kind, family);
        let mut tester = RealTester::new(&dut, &cores(), TesterConfig { flows: 1, both_ways: false }, None).unwrap();
        let probes = Some(Probes { every: Duration::from_millis(5), after: Duration::from_millis(20) });
        let frame = FrameSpec::Size { bytes: 512 };
        let idle = without_loss(&mut tester, &Order { probes, ..order(frame.clone(), Load::Idle) });
        assert_eq!(idle.total().sent, 0);
        let loaded = without_loss(&mut tester, &Order { probes, ..order(frame, Load::Pps(5000.0)) });
        assert_sent(&loaded, 1000);
        assert_eq!((loaded.counts[1].sent, loaded.total().lost()), (0, 0));
        for trial in [idle, loaded] {
            assert!((1..=36).contains(&trial.probes.0), "{kind}: {trial:#?}");
            assert_eq!(trial.probes.0, trial.probes.1, "{kind}: {trial:#?}");
            assert_eq!(trial.round_trip.unwrap().samples, trial.probes.1);
            assert_eq!(trial.round_trips_ns.len() as u64, trial.probes.1);
        }
    }
}

#[test]
fn a_burst_is_counted_and_steps_follow() {
    let Some(_alone) = turn() else { return };
    let lab = Lab::new("tester").unwrap();
    let dut = dut(&lab, DutKind::Wire, Family::V4);
    let mut tester = RealTester::new(&dut, &cores(), TesterConfig { flows: 3, both_ways: true }, None).unwrap();
    let frame = FrameSpec::Size { bytes: 64 };
    let burst = without_loss(&mut tester, &order(frame.clone(), Load::Burst(30)));
    assert_eq!((burst.total().sent, burst.total().received), (30, 30));
    let half = Duration::from_millis(100);
    let steps = without_loss(&mut tester, &order(frame, Load::Steps(vec![(4000.0, half), (1000.0, half)])));
    assert_sent(&steps, 500);
    assert_eq!(steps.last_loss_after_ns, [None, None]);
}

struct Counted<'a>(&'a std::cell::Cell<(u32, u32)>);

impl Observer for Counted<'_> {
    fn begin(&mut self) -> Result<(), BenchError> {
        let (begun, ended) = self.0.get();
        self.0.set((begun + 1, ended));
        Ok(())
    }

    fn end(&mut self) -> Result<Observation, BenchError> {
        let (begun, ended) = self.0.get();
        self.0.set((begun, ended + 1));
        Ok(Observation { steal_percent: 1.5, ..Observation::default() })
    }
}

#[test]
fn the_box_is_watched_when_requested_and_what_is_done_meanwhile_is_done() {
    let Some(_alone) = turn() else { return };
    let lab = Lab::new("tester").unwrap();
    let dut = dut(&lab, DutKind::Wire, Family::V4);
    let calls = std::cell::Cell::new((0, 0));
    let observer = Box::new(Counted(&calls));
    let mut tester =
        RealTester::new(&dut, &cores(), TesterConfig { flows: 1, both_ways: false }, Some(observer)).unwrap();
    let plain = order(FrameSpec::Size { bytes: 64 }, Load::Pps(1000.0));
    let never = AtomicBool::new(false);
    tester.trial(&plain, &never).unwrap();
    assert_eq!(calls.get(), (0, 0));
    let watched = Order { observe: true, ..plain.clone() };
    assert_eq!(tester.trial(&watched, &never).unwrap().observed.steal_percent, 1.5);
    assert_eq!(calls.get(), (1, 1));
    let done = AtomicBool::new(false);
    let work = || {
        done.store(true, std::sync::atomic::Ordering::Relaxed);
        Ok(())
    };
    let meanwhile = Meanwhile { after: Duration::from_millis(50), work: &work };
    tester.make(&plain, Some(meanwhile), &never).unwrap();
    assert!(done.into_inner());
    // Stopped at once, however long the trial would take, and what was begun is ended.
    let long = Order { duration: Duration::from_secs(3600), ..watched };
    let start = Instant::now();
    assert!(matches!(tester.trial(&long, &AtomicBool::new(true)), Err(BenchError::Interrupted)));
    assert!(start.elapsed() < Duration::from_secs(60));
    assert_eq!(calls.get(), (2, 2));
    // A rate that no core reaches.
    let beyond = Order { load: Load::Pps(5e7), ..plain };
    let trial = tester.trial(&beyond, &never).unwrap();
    assert!(trial.invalid.as_ref().is_some_and(|v| v.contains("the sender was saturated")), "{trial:?}");
}

#[test]
fn what_the_receive_ring_lost_is_named() {
    let Some(_alone) = turn() else { return };
    let lab = Lab::new("testring").unwrap();
    let dut = dut(&lab, DutKind::Router, Family::V4);
    if dut.rings(&cores()).is_none() {
        return eprintln!("skipped: one CPU has no receive rings");
    }
    let calls = std::cell::Cell::new((0, 0));
    let observer = Box::new(Counted(&calls));
    let mut tester =
        RealTester::new(&dut, &cores(), TesterConfig { flows: 1, both_ways: true }, Some(observer)).unwrap();
    let never = AtomicBool::new(false);
    let flood = Order { observe: true, ..order(FrameSpec::Size { bytes: 64 }, Load::Max) };
    let trial = tester.trial(&flood, &never).unwrap();
    // Behind the ring a router loses nothing: its own core brings it what it works on.
    let [drop] = &trial.observed.drops[..] else { panic!("{trial:?}") };
    assert!(drop.place.starts_with("receive ring"), "{drop:?}");
    assert!(trial.total().lost() > 0 && drop.packets == trial.total().lost(), "{trial:?}");
    let calm = Order { load: Load::Pps(1000.0), ..flood };
    assert_eq!(without_loss(&mut tester, &calm).observed.drops, []);
}
