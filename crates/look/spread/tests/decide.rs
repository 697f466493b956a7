//! Decisions of the watch, sample by sample.

use std::collections::BTreeMap;

use host::knob::Knob;
use model::CpuSet;
use spread::watch::{Core, Decision, Note, Sample, Settings, State, Work, decide};

fn irq(irq: u32) -> Knob {
    Knob::IrqAffinity { irq }
}

/// Work `n` runs on `cpu`, is written there, and takes `percent` of it.
fn work(n: u32, cpu: u32, percent: f64) -> Work {
    Work {
        name: format!("eth0 rxtx {n}"),
        knob: Some(irq(n)),
        written: Some(CpuSet::single(cpu)),
        node: Some(0),
        percent: BTreeMap::from([(cpu, percent)]),
        pps: 1e5,
    }
}

/// CPUs with their loads, the first half on node 0.
fn sample(loads: &[f64], work: Vec<Work>) -> Sample {
    let core = |(cpu, &busy_percent): (usize, &f64)| Core {
        cpu: cpu as u32,
        node: u32::from(cpu >= loads.len().div_ceil(2)),
        busy_percent,
        allowed: true,
    };
    Sample { cores: loads.iter().enumerate().map(core).collect(), work }
}

/// Decides and makes the moves.
fn step(state: &mut State, settings: &Settings, sample: &Sample) -> Decision {
    let decision = decide(state, settings, sample);
    decision.moves.iter().for_each(|m| state.made(m));
    decision
}

fn repeat(state: &mut State, sample: &Sample, times: u32) -> Vec<Decision> {
    (0..times).map(|_| step(state, &Settings::default(), sample)).collect()
}

#[test]
fn a_move_that_is_not_made_accuses_nobody() {
    let s = sample(&[90.0, 5.0], vec![work(1, 0, 40.0), work(2, 0, 45.0)]);
    let mut state = State::default();
    let decisions: Vec<Decision> = (0..9).map(|_| decide(&mut state, &Settings::default(), &s)).collect();
    assert_eq!(moves(&decisions).len(), 3, "said again after each hot_samples");
    assert!(notes(&decisions).is_empty(), "{:?}", notes(&decisions));
}

fn moves(decisions: &[Decision]) -> Vec<(u32, u32, u32)> {
    let knob = |k: &Knob| match k {
        Knob::IrqAffinity { irq } => *irq,
        other => panic!("{other}"),
    };
    decisions.iter().flat_map(|d| &d.moves).map(|m| (knob(&m.knob), m.from, m.to)).collect()
}

fn notes(decisions: &[Decision]) -> Vec<Note> {
    decisions.iter().flat_map(|d| d.notes.clone()).collect()
}

#[test]
fn a_core_that_stays_hot_gives_work_to_the_core_that_evens_out_best() {
    let s = sample(&[90.0, 40.0, 5.0, 5.0], vec![work(1, 0, 50.0), work(2, 0, 38.0), work(3, 1, 35.0)]);
    let decisions = repeat(&mut State::default(), &s, 3);
    // 90 -> 52 and 5 -> 43 (work 2) evens out better than 40 and 55 (work 1); CPU 1 is full, CPU 2 is as empty as 3.
    assert_eq!(moves(&decisions), [(2, 0, 2)]);
    assert!(decisions[..2].iter().all(|d| d.moves.is_empty()), "not before the hot_samples is over");
    assert!(decisions[2].moves[0].reason.contains("CPU 0 was at 90 %"));
}

#[test]
fn the_near_node_wins_among_equals() {
    let s = sample(&[5.0, 90.0, 5.0, 5.0], vec![work(1, 1, 45.0), work(2, 1, 44.0)]);
    let far = sample(&[90.0, 5.0, 5.0, 5.0], vec![Work { node: Some(1), ..work(1, 0, 45.0) }, work(9, 0, 2.0)]);
    assert_eq!(moves(&repeat(&mut State::default(), &s, 3))[0].2, 0);
    assert_eq!(moves(&repeat(&mut State::default(), &far, 3))[0].2, 2, "node 1 begins at CPU 2");
}

#[test]
fn a_steady_machine_is_left_alone() {
    let s = sample(&[79.0, 60.0], vec![work(1, 0, 40.0), work(2, 0, 35.0)]);
    let decisions = repeat(&mut State::default(), &s, 50);
    assert_eq!((moves(&decisions), notes(&decisions)), (vec![], vec![]));
}

#[test]
fn a_load_that_flaps_over_the_threshold_moves_nothing() {
    let (hot, cool) = ([95.0, 5.0], [60.0, 5.0]);
    let mut state = State::default();
    for n in 0..60 {
        let loads = if n % 3 == 2 { cool } else { hot };
        let d = decide(&mut state, &Settings::default(), &sample(&loads, vec![work(1, 0, 45.0), work(2, 0, 44.0)]));
        assert!(d.moves.is_empty(), "sample {n}");
    }
}

#[test]
fn an_elephant_is_named_once_and_not_carried_around() {
    let s = sample(&[98.0, 2.0], vec![work(1, 0, 96.0), work(2, 0, 1.5)]);
    let decisions = repeat(&mut State::default(), &s, 20);
    assert_eq!(moves(&decisions), [], "moving the small one gains nothing");
    assert_eq!(notes(&decisions), [Note::Elephant { cpu: 0, name: "eth0 rxtx 1".into() }]);
    assert!(notes(&decisions)[0].to_string().contains("RPS"));
}

#[test]
fn the_target_is_never_made_hot() {
    let s = sample(&[90.0, 45.0, 45.0], vec![work(1, 0, 45.0), work(2, 0, 44.0), work(3, 1, 45.0), work(4, 2, 45.0)]);
    let decisions = repeat(&mut State::default(), &s, 10);
    assert_eq!(moves(&decisions), []);
    assert_eq!(notes(&decisions), [Note::NoRoom { cpu: 0 }]);
}

#[test]
fn cores_that_are_not_allowed_get_nothing() {
    let mut s = sample(&[90.0, 5.0, 30.0], vec![work(1, 0, 45.0), work(2, 0, 40.0)]);
    s.cores[1].allowed = false;
    assert_eq!(moves(&repeat(&mut State::default(), &s, 3)), [(2, 0, 2)]);
}

#[test]
fn a_move_that_is_not_followed_yet_is_waited_for_and_reported() {
    let mut state = State::default();
    let before = sample(&[90.0, 5.0], vec![work(1, 0, 45.0), work(2, 0, 44.0)]);
    assert_eq!(moves(&repeat(&mut state, &before, 3)).len(), 1);
    // Written to CPU 1, but the queue is never empty and so still polled on CPU 0.
    let mut stuck = before.clone();
    stuck.work[1].written = Some(CpuSet::single(1));
    let decisions = repeat(&mut state, &stuck, 6);
    assert_eq!(moves(&decisions), [], "the other queue must not leave too");
    assert_eq!(notes(&decisions), [Note::NotFollowed { name: "eth0 rxtx 2".into(), wanted: 1, runs_on: 0 }]);
}

#[test]
fn what_moved_rests() {
    let mut state = State::default();
    let hot0 = sample(&[90.0, 5.0], vec![work(1, 0, 45.0), work(2, 0, 44.0)]);
    assert_eq!(moves(&repeat(&mut state, &hot0, 3)), [(2, 0, 1)]);
    // It followed, and now the other core is hot by other work: it would be moved straight back but for the rest.
    let hot1 = sample(&[45.0, 90.0], vec![work(1, 0, 45.0), work(2, 1, 30.0)]);
    assert_eq!(moves(&repeat(&mut state, &hot1, 9)), []);
    assert_eq!(moves(&repeat(&mut state, &hot1, 1)), [(2, 1, 0)], "after the rest it may move again");
}

#[test]
fn a_rewritten_affinity_is_reported_with_both_values() {
    let mut state = State::default();
    let hot = sample(&[90.0, 5.0], vec![work(1, 0, 45.0), work(2, 0, 44.0)]);
    repeat(&mut state, &hot, 3);
    let mut rewritten = sample(&[60.0, 5.0], hot.work.clone());
    rewritten.work[1].written = Some(CpuSet::parse_list("0-1").unwrap());
    let found_notes = notes(&repeat(&mut state, &rewritten, 3));
    let found = CpuSet::parse_list("0-1").unwrap();
    assert_eq!(found_notes, [Note::Rewritten { name: "eth0 rxtx 2".into(), ours: 1, found }]);
}

#[test]
fn heat_that_is_not_ours_to_move_is_distinguished() {
    let other = sample(&[95.0, 5.0], vec![work(1, 0, 3.0)]);
    assert_eq!(notes(&repeat(&mut State::default(), &other, 5)), [Note::OtherWork { cpu: 0 }]);
    let fixed = sample(&[95.0, 5.0], vec![Work { knob: None, ..work(1, 0, 60.0) }]);
    let found_notes = notes(&repeat(&mut State::default(), &fixed, 5));
    assert_eq!(found_notes, [Note::Unmovable { cpu: 0, name: "eth0 rxtx 1".into() }]);
}
