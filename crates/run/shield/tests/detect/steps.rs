//! Steps are judged by what comes once their rules hold, however busy the machine is.

use model::shield_event::{AttackClass, Measure};
use rules::detect::DetectConfig;

use crate::mixes::{Stream, World, gre, protected, web, words};

fn world() -> World {
    let mut config = DetectConfig::default();
    config.baseline.learn = false;
    config.baseline.after_s = 1.0;
    config.threshold = [(Measure::Packets, 100_000.0), (Measure::Syn, 10_000.0), (Measure::Udp, 50_000.0)].into();
    let mut world = World::new(config);
    world.run(40, &[CALM]);
    world
}

const CALM: Stream = Stream { pps: 20_000, make: web };

/// Strangers' GRE is dropped, all of it.
fn flood() -> [Stream; 2] {
    [CALM, Stream { pps: 500_000, make: gre }]
}

#[test]
fn what_passed_before_a_steps_rules_held_is_no_fault_of_the_step() {
    for loads_for in [1, 5, 60] {
        let mut world = world();
        world.loads_for = loads_for;
        let events = world.run(60, &flood());
        assert_eq!(words(&events), ["began", "mitigating"], "{loads_for} looks until they hold: {events:#?}");
    }
}

#[test]
fn counters_that_were_read_at_different_moments_are_no_traffic_that_came_through() {
    for every in [2, 5, 7] {
        let mut world = world();
        world.held_up_every = every;
        let events = world.run(40, &flood());
        assert_eq!(words(&events), ["began", "mitigating"], "in one look of {every}: {events:#?}");
    }
}

/// All that a ladder without a step has is the look in which it came to be the ladder: its rules of before still dropped.
#[test]
fn a_ladder_that_was_emptied_is_exhausted_by_what_comes_without_its_rules() {
    let mut world = world();
    world.run(20, &flood());
    let none = |class| DetectConfig { ladder: [(class, Vec::new())].into(), ..world.detector.config().clone() };
    let config = none(AttackClass::Unknown);
    world.detector.reconfigure(config, &[protected()]);
    world.loads_for = 10;
    let events = world.run(4, &flood());
    assert_eq!(words(&events), [""; 0], "the rules of before hold: {events:#?}");
}
