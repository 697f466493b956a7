//! The conclusion of a run, in sentences.

use model::{
    bench::neighbour::{Boxed, Cost, Disturbed, Measure},
    units,
};

use super::{
    guests::Guests,
    kind::{Form, Kind, Spot},
    plan::Plan,
};
use crate::Cores;

/// Measures that are named rather than counted.
const NAMED_MAX: usize = 2;

/// Notes on the origin of the figures.
pub(super) fn notes(plan: &Plan, cores: &Cores, guests: Option<&Guests>) -> Vec<String> {
    let mut notes = vec![
        "In each round every condition has its turn, in an order drawn anew; a cost is the mean difference from the quiet box of the same round, with its 95 % interval (Student's t)".to_owned(),
        "A cost is called beyond chance by Holm's correction for all measures of its row: less than 5 % of the rows of a neighbour that does nothing have one".to_owned(),
        "`quiet again` is the quiet box measured twice in each round: what the method finds where there is nothing".to_owned(),
        "The box's receive threads have nice 0 as the neighbour's, unless the remedy says otherwise; elsewhere evenkeel's labs give them nice -20, and so had they while the throughput was searched for".to_owned(),
        "CPU per frame is the processor time of those threads; waiting is the time in which they could run and had no CPU (run_delay of schedstat), over the trial with its drain".to_owned(),
        "Delays are those of the worse direction".to_owned(),
    ];
    if plan.options.forms.contains(&Form::Process) {
        notes.push("Neighbours that are processes share kernel, caches and CPU with the box, and have no exits".into());
    }
    notes.extend(guests.map(Guests::note));
    if plan.threaded() {
        notes.push(
            "Frames are received by threads of NAPI (veth), not by receive rings: those threads can be moved, as the remedy threaded-napi does. Throughput and delays are not those of a box with rings"
                .into(),
        );
    }
    let on_sender = plan.conditions.iter().filter_map(|made| made.neighbour.as_ref());
    let mut on_sender = on_sender.filter(|placed| placed.spot == Spot::Other && placed.cpus.contains(cores.sender));
    if on_sender.next().is_some() {
        notes.push(
            "`other` is the sender's core: this machine has no free one. It polls, so the neighbour gets what it leaves, and trials in which it was held up are thrown away"
                .into(),
        );
    }
    if plan.options.neighbours.iter().any(|one| one.kind == Kind::Traffic) {
        notes.push("A neighbour's traffic is forwarded where it is sent: by the soft interrupts of its CPU".into());
    }
    notes
}

/// The conclusion for a box: significant costs of each neighbour, and the best remedy.
pub(super) fn sentences(boxed: &Boxed) -> Vec<String> {
    let mut all = Vec::new();
    for row in boxed.rows.iter().filter(|row| row.remedy.is_empty()) {
        // One pair has no interval, and nothing can be said of it.
        let judged: Vec<&Cost> = row.costs.iter().filter(|cost| cost.difference.low.is_some()).collect();
        let costs = match (beyond(&row.costs), judged.len()) {
            (found, _) if !found.is_empty() => found.join(", "),
            (_, 0) => "nothing could be judged".to_owned(),
            (_, Measure::COUNT) => "no cost beyond chance".to_owned(),
            // What stands in the way of the others is told with the readings.
            (_, few) if few <= NAMED_MAX => {
                let measured: Vec<&str> = judged.iter().map(|cost| cost.measure.words()).collect();
                format!("no cost beyond chance in the {}; the rest could not be judged", measured.join(" and the "))
            }
            (_, some) => format!("no cost beyond chance in {some} of {} measures", Measure::COUNT),
        };
        all.push(format!("{}, {}: {costs}", boxed.name, name(row)));
    }
    for row in boxed.rows.iter().filter(|row| !row.remedy.is_empty()) {
        let gains: Vec<String> = beyond(&row.remedy);
        if !gains.is_empty() {
            all.push(format!("{}, {} with {}: {}", boxed.name, name(row), row.condition.remedy, gains.join(", ")));
        }
    }
    all
}

fn name(row: &Disturbed) -> String {
    match (&row.condition.neighbour, &row.condition.on) {
        (Some(neighbour), Some(on)) => format!("{neighbour} on {on}"),
        _ => "quiet again".to_owned(),
    }
}

fn beyond(costs: &[Cost]) -> Vec<String> {
    let words = |cost: &Cost| match cost.measure.is_share() {
        true => format!("{} {:+.2} points", cost.measure.words(), 100.0 * cost.difference.mean),
        false => {
            let sign = if cost.difference.mean < 0.0 { "-" } else { "+" };
            let of = cost.ratio().map_or_else(String::new, |ratio| format!(" ({:+.0} %)", 100.0 * ratio));
            format!("{} {sign}{}{of}", cost.measure.words(), units::nanoseconds(cost.difference.mean.abs()))
        }
    };
    costs.iter().filter(|cost| cost.beyond_chance).map(words).collect()
}

#[cfg(test)]
mod tests {
    use model::bench::neighbour::{Condition, Reading, costs};

    use super::*;

    fn sentence(measures: &[Measure]) -> String {
        sentence_of(measures, 3)
    }

    fn sentence_of(measures: &[Measure], rounds: usize) -> String {
        let reading = |value: f64| Reading {
            values: measures.iter().map(|&measure| (measure, value)).collect(),
            neighbour_cpus: 1.0,
            ..Reading::default()
        };
        let (quiet, beside) = ([1.0, 1.2, 1.1].map(reading), [1.1, 1.2, 1.0].map(reading));
        let (quiet, beside) = (&quiet[..rounds], &beside[..rounds]);
        let condition =
            Condition { neighbour: Some("cpu:1".into()), on: Some("other".into()), cpus: None, remedy: "none".into() };
        let row = Disturbed { condition, readings: beside.to_vec(), costs: costs(quiet, beside), remedy: Vec::new() };
        let boxed = Boxed {
            key: "router".into(),
            name: "router".into(),
            what: String::new(),
            throughput_pps: 1.0,
            tester_limited: false,
            rate_pps: 1.0,
            quiet: quiet.to_vec(),
            rows: vec![row],
        };
        sentences(&boxed).remove(0).split_once(": ").unwrap().1.to_owned()
    }

    #[test]
    fn what_was_not_measured_has_not_shown_to_cost_nothing() {
        assert_eq!(sentence(&Measure::ALL), "no cost beyond chance");
        assert_eq!(sentence(&[]), "nothing could be judged");
        let idle = sentence(&[Measure::IdleTrip]);
        assert_eq!(idle, "no cost beyond chance in the idle round trip; the rest could not be judged");
        assert_eq!(sentence_of(&Measure::ALL, 1), "nothing could be judged", "one pair has no interval");
        assert_eq!(sentence(&Measure::ALL[..5]), "no cost beyond chance in 5 of 9 measures");
    }
}
