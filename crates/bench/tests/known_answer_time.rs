//! Boxes whose buffer, delay, reset and recovery are known, through the whole tester and the methods.

mod common;
mod known;

use std::{sync::atomic::AtomicBool, time::Duration};

use bench::{
    BenchError, Dut, methods,
    methods::{Answer, Bench},
    search::{BurstOrder, LatencyOrder, RecoveryOrder, ResetOrder},
};
use common::{Manners, RelayBox, alone, privileged, token_bucket};
use known::{bench, one_way};
use lab::{Lab, boxes::Family};

const fn ms(ms: u64) -> Duration {
    Duration::from_millis(ms)
}

fn with<T>(dut: &Dut, work: impl FnOnce(&mut Bench<'_>) -> Result<T, BenchError>) -> T {
    let stop = AtomicBool::new(false);
    let mut tester = one_way(dut, 1);
    work(&mut bench(&mut tester, &stop)).unwrap()
}

/// Makes it again until `fine` is content: other work on this machine may hold up sender and box, which a box is not known for.
fn until<T: std::fmt::Debug>(mut make: impl FnMut() -> Answer<T>, fine: impl Fn(&T) -> bool) {
    let mut seen = Vec::new();
    for _ in 0..5 {
        match make() {
            Answer::Measured(found) if fine(&found) => return,
            other => seen.push(other),
        }
    }
    panic!("{seen:#?}");
}

/// The queue holds 150 frames; it lets 5000 a second go, so that some leave while the burst comes.
#[test]
fn the_longest_burst_is_what_the_queue_holds() {
    if !privileged() {
        return;
    }
    let _alone = alone();
    let lab = Lab::new("kaburst").unwrap();
    let dut = token_bucket(&lab, Family::V4, 5000, 60, 150);
    let settings = BurstOrder { longest: ms(10), repeats: 3, width: 0.02 };
    until(
        || with(&dut, |b| methods::back_to_back(b, &settings, 200_000.0, Some(5000.0))),
        |found| found.bursts.iter().all(|b| (140..=170).contains(b)) && !found.tester_limited,
    );
}

#[test]
fn a_delay_of_two_milliseconds_is_measured_within_five_percent() {
    if !privileged() {
        return;
    }
    let _alone = alone();
    let lab = Lab::new("kadelay").unwrap();
    let slow = RelayBox::start(&lab, Manners { delay: ms(2), ..Manners::default() });
    let settings = LatencyOrder {
        loads: vec![0.0, 0.5],
        load: ms(400),
        probes_after: ms(50),
        probes_every: ms(10),
        probes: 10,
        series: 3,
        best: 2,
        agreement: 0.5,
        loss_ratio: 0.001,
        thrown_away: 5,
    };
    until(
        || Answer::Measured(with(&slow.dut, |b| methods::latency(b, &settings, Some(4000.0)))),
        |found| {
            // There and back are two delays; one way is one, of every unit.
            let round_trips = found.iter().all(|l| l.round_trip_ns.is_some_and(|ns| (4.0e6..=4.2e6).contains(&ns)));
            let one_way = found[1].one_way[0].is_some_and(|d| (2_000_000..=2_100_000).contains(&d.p50_ns));
            round_trips && one_way && found.iter().all(|l| l.probes_lost == 0)
        },
    );
}

#[test]
fn a_box_that_dies_for_three_seconds_is_reset_in_three_seconds() {
    if !privileged() {
        return;
    }
    let _alone = alone();
    let lab = Lab::new("kareset").unwrap();
    let mortal = RelayBox::start(&lab, Manners::default());
    let settings = ResetOrder { load: 0.5, after: ms(300), trial: ms(4000), repeats: 1 };
    let die = || -> Result<(), BenchError> {
        mortal.die_for(Duration::from_secs(3));
        Ok(())
    };
    until(
        || with(&mortal.dut, |b| methods::reset(b, &settings, 8000.0, "the relay", &die)),
        |found| {
            let near = |s: &f64| (2.85..=3.15).contains(s);
            found.by_loss_s.iter().all(near) && found.by_time_s.len() == 1 && found.by_time_s.iter().all(near)
        },
    );
}

#[test]
fn a_box_that_drops_for_a_second_after_overload_recovers_in_a_second() {
    if !privileged() {
        return;
    }
    let _alone = alone();
    let lab = Lab::new("karecov").unwrap();
    let choking = RelayBox::start(&lab, Manners { choke: Some((10_000, ms(1000))), ..Manners::default() });
    let settings = RecoveryOrder { overload: 2.0, overloaded: ms(300), after: 0.15, watched: ms(1500), repeats: 1 };
    until(
        || with(&choking.dut, |b| methods::recovery(b, &settings, 10_000.0, None)),
        |found| found.unfinished == 0 && (0.95..=1.1).contains(&found.mean_s),
    );
}
