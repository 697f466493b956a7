//! What a sweep means, in plain words.

use model::{
    profile::Class,
    run::{Arrangement, Sharing},
    sweep::{Setup, Step},
    units,
};

use super::SweepBox;

/// Classes named in the conclusion.
const NAMED: usize = 3;

/// From where to where, and which classes became dearer or cheaper per packet.
pub(super) fn conclusion(what: SweepBox, setups: &[Setup]) -> String {
    let [standard, optimised] = setups else { return "Nothing was measured.".into() };
    let gain = optimised.ceiling_pps / standard.ceiling_pps.max(1.0) - 1.0;
    let mut text = format!(
        "The {what} lets {} through ({}) and {} ({}): {:+.0} %.",
        units::pps(standard.ceiling_pps),
        standard.name,
        units::pps(optimised.ceiling_pps),
        optimised.name,
        100.0 * gain,
    );
    let mut changes: Vec<(Class, f64, f64)> = Class::ALL
        .into_iter()
        .filter(|c| c.is_busy())
        .map(|class| (class, ns(standard, class), ns(optimised, class)))
        .collect();
    changes.sort_by(|a, b| (b.2 - b.1).abs().total_cmp(&(a.2 - a.1).abs()));
    let told: Vec<String> = changes
        .iter()
        .take(NAMED)
        .filter(|(_, a, b)| (a - b).abs() >= 1.0)
        .map(|(class, a, b)| format!("{class} {} instead of {}", units::nanoseconds(*b), units::nanoseconds(*a)))
        .collect();
    if !told.is_empty() {
        text.push_str(&format!(" CPU time per packet: {}.", told.join(", ")));
    }
    text
}

/// Time of one core in a class per packet that came out, in nanoseconds.
fn ns(setup: &Setup, class: Class) -> f64 {
    setup.ns_per_packet(1, |step| step.percent(class))
}

/// How the figures came about.
pub(super) fn notes(what: SweepBox, arrangement: &Arrangement, setups: &[Setup]) -> Vec<String> {
    let mut notes = Vec::new();
    match arrangement.sharing {
        Sharing::Inline => notes.push(
            "The generator shares the box's core, so that the load throttles itself. Samples whose stack lies in the \
             generator's own call, outside of the soft interrupts served on top of it, are shown as \"generator\" and belong to no \
             class."
                .to_owned(),
        ),
        Sharing::Apart => notes.push(
            "The generator has a core of its own; the box's is sampled alone, so that the generator is in no class.".to_owned(),
        ),
    }
    if !what.captures() {
        notes.push(
            "Frames end behind the box on the box's own core, in the kernel's backlog of the receiving interface. Samples with \
             process_backlog in their stack are shown as \"receiving end\" and belong to no class; the hand-over before it \
             counts as the box's transmission."
                .to_owned(),
        );
    }
    let short: Vec<&Step> =
        setups.iter().flat_map(|s| &s.steps).filter(|s| s.offered_pps < 0.97 * s.wanted_pps).collect();
    if let Some(worst) = short.iter().max_by(|a, b| a.wanted_pps.total_cmp(&b.wanted_pps)) {
        notes.push(format!(
            "In {} of {} measurements the generator offered less than it was to: {} instead of {} in the highest of them.",
            short.len(),
            setups.iter().map(|s| s.steps.len()).sum::<usize>(),
            units::pps(worst.offered_pps),
            units::pps(worst.wanted_pps)
        ));
    }
    let steps = || setups.iter().flat_map(|s| &s.steps);
    let others = steps().map(|s| s.others_percent).fold(0.0, f64::max);
    if others >= 2.0 {
        notes.push(format!("Other programs took up to {others:.0} % of the box's core, which lowers its ceiling."));
    }
    let steal = steps().map(|s| s.percent(Class::Steal)).fold(0.0, f64::max);
    if steal >= 2.0 {
        notes.push(format!("The hypervisor took up to {steal:.0} % of the box's core for other guests."));
    }
    let lost: u64 = setups.iter().flat_map(|s| &s.steps).map(|s| s.lost_samples).sum();
    if lost > 0 {
        notes.push(format!("{lost} samples could not be kept."));
    }
    notes
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use model::run::CoreRole;

    use super::*;

    fn setup(name: &str, pps: f64, memory: f64) -> Setup {
        let step = Step {
            wanted_pps: 2.0 * pps,
            offered_pps: pps,
            forwarded_pps: pps,
            loss_ratio: 0.0,
            classes: BTreeMap::from([(Class::Memory, memory), (Class::Ip, 50.0)]),
            generator_percent: 0.0,
            receiver_percent: 0.0,
            others_percent: 0.0,
            samples: 100,
            lost_samples: 1,
        };
        Setup {
            key: name.into(),
            name: name.into(),
            what: String::new(),
            settings: Vec::new(),
            ceiling_pps: pps,
            steps: vec![step],
        }
    }

    #[test]
    fn the_gain_and_its_causes_are_named() {
        let both = [setup("plain", 5e5, 40.0), setup("tuned", 1e6, 10.0)];
        let text = conclusion(SweepBox::Router, &both);
        assert!(text.starts_with("The router lets 500 kpps through (plain) and 1.00 Mpps (tuned): +100 %."), "{text}");
        assert!(text.contains("memory management 100 ns instead of 800 ns"), "{text}");
        assert_eq!(conclusion(SweepBox::Router, &[]), "Nothing was measured.");
    }

    #[test]
    fn what_fell_short_is_said() {
        let arrangement = Arrangement { sharing: Sharing::Apart, roles: Vec::<CoreRole>::new() };
        let notes = notes(SweepBox::Capture, &arrangement, &[setup("a", 5e5, 1.0)]);
        assert_eq!(notes.len(), 3);
        assert!(notes[1].contains("500 kpps instead of 1.00 Mpps"), "{notes:?}");
    }
}
