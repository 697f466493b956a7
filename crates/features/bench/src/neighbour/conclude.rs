//! What a run says, in sentences: pure.

use model::{
    bench::neighbour::{Boxed, Cost, Disturbed},
    units,
};

use super::{
    guests::Guests,
    kind::{Form, Kind, Spot},
    plan::Plan,
};
use crate::Cores;

/// On the origin of the figures.
pub(super) fn notes(plan: &Plan, cores: &Cores, guests: Option<&Guests>) -> Vec<String> {
    let mut notes = vec![
        "In each round every condition has its turn, in an order drawn anew; a cost is the mean difference from the quiet box of the same round, with its 95 % interval (Student's t)".to_owned(),
        "A cost is called beyond chance by Holm's correction for all measures of its row: less than 5 % of the rows of a neighbour that does nothing have one".to_owned(),
        "`quiet again` is the quiet box measured twice in each round: what the method finds where there is nothing".to_owned(),
        "The box's receive threads have nice 0 as the neighbour's, unless the remedy says otherwise; elsewhere evenkeel's labs give them nice -20, and so had they while the throughput was searched for".to_owned(),
        "CPU per frame is the processor time of those threads; waiting is the time in which they could run and had no CPU (run_delay of schedstat), over the trial with its drain".to_owned(),
        "Delays are those of the worse direction".to_owned(),
    ];
    if plan.asked.forms.contains(&Form::Process) {
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
    if plan.asked.neighbours.iter().any(|one| one.kind == Kind::Traffic) {
        notes.push("A neighbour's traffic is forwarded where it is sent: by the soft interrupts of its CPU".into());
    }
    notes
}

/// What a box's rows say: each neighbour's costs beyond chance, and the remedy that gives most back.
pub(super) fn sentences(boxed: &Boxed) -> Vec<String> {
    let mut all = Vec::new();
    for row in boxed.rows.iter().filter(|row| row.remedy.is_empty()) {
        let costs = beyond(&row.costs);
        let what = name(row);
        all.push(match costs.is_empty() {
            true => format!("{}, {what}: no cost beyond chance", boxed.name),
            false => format!("{}, {what}: {}", boxed.name, costs.join(", ")),
        });
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
