//! Boxes whose throughput or loss is known, because nftables imposes it, through the whole tester and the search.

mod cores;
mod known;
mod order;

use std::{sync::atomic::AtomicBool, time::Duration};

use bench::{
    BenchError, Dut, DutKind, DutOptions, Load, Meanwhile, Order, RuleOrder, Tester, methods, tester::RealTester,
};
use cores::cores;
use known::{believed, bench, drain, goal, on_a_quiet_machine, one_way, order, unbelieved};
use lab::{Lab, boxes::Family};
use model::bench::{Goal, Throughput, Trial, Verdict};

/// The resolution of the search, as a share of the rate.
const WIDTH_SHARE: f64 = 0.02;
/// The limiter lets this share of a second's packets through at once, so that the batches of the kernel do not count as overload; in trials of 0.3 s
/// it hides an overload of three and a half times that.
const BURST_S: f64 = 0.004;

/// A router that forwards IPv4.
fn router(lab: &Lab) -> Dut {
    let cores = cores();
    let options = DutOptions { family: Family::V4, rules: 1, order: RuleOrder::Study, cores: &cores, threaded: false };
    Dut::lab(lab, DutKind::Router, &options).unwrap()
}

/// Gives the box a table of its own with one chain in the forward hook, or another one in its place: counters start anew.
fn rule(dut: &Dut, rule: &str) {
    let script = format!(
        "table ip ekknown {{}}\ndelete table ip ekknown\n\
         table ip ekknown {{ chain forward {{ type filter hook forward priority 10; policy accept; {rule}; }}; }}\n"
    );
    let inside = dut.lab_box().unwrap().inside().unwrap();
    inside.namespace.run(|| testbed::nft(&script)).unwrap();
}

/// A tester that does something to the box before each trial.
struct Before<'a, F> {
    tester: RealTester<'a>,
    act: F,
}

impl<F: FnMut()> Tester for Before<'_, F> {
    fn make(&mut self, order: &Order, also: Option<Meanwhile<'_>>, stop: &AtomicBool) -> Result<Trial, BenchError> {
        (self.act)();
        self.tester.make(order, also, stop)
    }

    fn now(&self) -> Duration {
        self.tester.now()
    }
}

fn search(dut: &Dut, goals: &[Goal], ceiling_pps: f64) -> Throughput {
    let stop = AtomicBool::new(false);
    let mut tester = one_way(dut, 4);
    methods::throughput(&mut bench(&mut tester, &stop), goals, ceiling_pps).unwrap()
}

/// More than the rule lets through in a trial and its slack can never be found. Less is, and so is what the slack adds, when the machine is kept from
/// its work: this is tried again.
fn limited_to(rate: u32) {
    on_a_quiet_machine(|| {
        let lab = Lab::new("rate").unwrap();
        let dut = router(&lab);
        let pps = f64::from(rate);
        rule(&dut, &format!("limit rate over {rate}/second burst {} packets drop", (pps * BURST_S) as u32));
        let mut seen = Vec::new();
        for _ in 0..3 {
            let found = search(&dut, &[goal(0.001, WIDTH_SHARE)], pps * 1.7);
            let (lower, upper) = (found.results[0].lower_pps.unwrap_or(0.0), found.results[0].upper_pps.unwrap_or(0.0));
            let highest = 1.002 + 3.5 * BURST_S;
            assert!(lower <= pps * (highest + drain().slack), "{lower} came through, past {rate}: {:#?}", found.steps);
            if (pps * (1.0 - WIDTH_SHARE)..=pps * highest).contains(&lower) {
                assert!(upper >= pps && found.verdict == Verdict::Measured, "{found:#?}");
                return;
            }
            seen.push((lower, found.steps));
        }
        unbelieved(format!("{rate} was not found: {seen:#?}"));
    });
}

#[test]
fn a_limit_of_123456_is_found() {
    limited_to(123_456);
}

#[test]
fn a_limit_of_400000_is_found() {
    limited_to(400_000);
}

/// A box that loses every `n`-th packet, counted anew in each trial; trials become `longest_s` long at most.
fn losing_one_in(n: u32, loss_ratio: f64, ceiling_pps: f64, longest_s: f64) -> Throughput {
    let lab = Lab::new("loss").unwrap();
    let dut = router(&lab);
    let goals = [Goal { longest_s, ..goal(loss_ratio, WIDTH_SHARE) }];
    let stop = AtomicBool::new(false);
    let act = || rule(&dut, &format!("numgen inc mod {n} {} drop", n - 1));
    let mut tester = Before { tester: one_way(&dut, 4), act };
    let found = methods::throughput(&mut bench(&mut tester, &stop), &goals, ceiling_pps).unwrap();
    if matches!(found.verdict, Verdict::Void { .. }) {
        unbelieved(format!("{found:#?}"));
    }
    found
}

#[test]
fn one_in_a_thousand_is_0_1_percent_and_not_nothing() {
    on_a_quiet_machine(|| {
        let fine = losing_one_in(1000, 0.001, 20_000.0, 4.0);
        if fine.results[0].lower_pps < Some(20_000.0) {
            unbelieved(format!("{fine:#?}"));
        }
        assert_eq!(fine.results[0].lower_pps, Some(20_000.0), "{fine:#?}");
        has_none(&losing_one_in(1000, 0.0, 20_000.0, 1.0));
    });
}

#[test]
fn one_in_700_is_more_than_0_1_percent_at_every_load() {
    on_a_quiet_machine(|| {
        has_none(&losing_one_in(700, 0.001, 50_000.0, 1.0));
    });
}

/// Short trials that end before the lost packet do not make a throughput, and few trials show that no load has one.
fn has_none(found: &Throughput) {
    assert_eq!(found.results[0].lower_pps, None, "{found:#?}");
    assert!(found.results[0].trials <= 8, "{found:#?}");
    assert!(matches!(found.verdict, Verdict::SameLoss { min_pps, .. } if min_pps < 6000.0), "{found:#?}");
}

#[test]
fn every_loss_is_counted() {
    on_a_quiet_machine(|| {
        let lab = Lab::new("loss").unwrap();
        let dut = router(&lab);
        for n in [1000, 400, 7] {
            // Trials that are void count frames too.
            let act = || rule(&dut, &format!("numgen inc mod {n} {} drop", n - 1));
            let mut tester = Before { tester: one_way(&dut, 3), act };
            let trial = believed(&mut tester, &order(Load::Pps(10_000.0), Duration::from_millis(400)));
            let counts = trial.total();
            assert!(counts.sent > 3000, "{counts:?}");
            assert_eq!(
                (counts.lost(), counts.duplicated, counts.reordered),
                (counts.sent / n, 0, 0),
                "{n}: {counts:?}"
            );
            rule(&dut, "accept");
            let trial = believed(&mut tester.tester, &order(Load::Pps(10_000.0), Duration::from_millis(100)));
            assert_eq!(trial.total().lost(), 0);
        }
    });
}
