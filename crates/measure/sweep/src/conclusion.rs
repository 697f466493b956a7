//! The conclusion of a sweep.

use model::{
    profile::Class,
    run::{Arrangement, Sharing},
    sweep::{Gain, Setup, Step},
    units,
};

use rig::{repeat, window::STEAL_LIMIT_PERCENT};

use super::{SweepBox, search::LOSS_GOAL, verdict};

/// Classes named in the conclusion.
const NAMED_MAX: usize = 3;

/// Names the configuration that lets more through, if that can be told, and the classes that became dearer or cheaper per packet.
pub(super) fn conclusion(what: SweepBox, setups: &[Setup], gain: Option<&Gain>) -> String {
    let ([standard, optimised], Some(gain)) = (setups, gain) else { return "Nothing was measured.".into() };
    let percent = |ratio: f64| format!("{:+.0} %", 100.0 * (ratio - 1.0));
    let searches = match standard.ceilings_pps.len() {
        1 => "one search each".to_owned(),
        n => format!("{n} searches each"),
    };
    let between = format!("{} to {} in {searches}", percent(gain.lowest), percent(gain.highest));
    let [a, b] = [standard, optimised].map(|s| format!("{} {}", units::pps(s.ceiling_pps), s.name));
    let text = if gain.significant {
        format!(
            "The {what} lets {a} and {b} through with at most {} lost: {} ({between}).",
            format_args!("{:.0} %", 100.0 * LOSS_GOAL),
            percent(gain.ratio)
        )
    } else {
        let why = match setups.iter().find(|s| !verdict::holds(s)) {
            Some(setup) => format!("offered its own ceiling again, \"{}\" lost packets", setup.name),
            None if standard.ceilings_pps.len() < repeat::REPEATS_MIN => {
                format!("fewer than {} searches each; --repeats sets their number", repeat::REPEATS_MIN)
            }
            None => "the searches do not agree on which lets more through".to_owned(),
        };
        // A gain that cannot be told is none: only the ceilings are said.
        format!("No verdict on the {what}: {why}. Ceilings found: {a}, {b}.")
    };
    let causes: Vec<String> = changes(standard, optimised)
        .into_iter()
        .take(NAMED_MAX)
        .map(|(class, a, b)| format!("{class} {} instead of {}", units::nanoseconds(b), units::nanoseconds(a)))
        .collect();
    if causes.is_empty() { text } else { format!("{text} CPU time per packet at the ceiling: {}.", causes.join(", ")) }
}

/// Classes whose cost differs in every measurement, standard and optimised, the largest difference first.
fn changes(standard: &Setup, optimised: &Setup) -> Vec<(Class, f64, f64)> {
    let ns = |setup: &Setup, class| setup.ns_per_packet(1, |step: &Step| step.percent(class));
    let repeated = standard.at_ceiling.len().min(optimised.at_ceiling.len()) >= 2;
    let mut changes: Vec<(Class, f64, f64)> = Class::ALL
        .into_iter()
        .filter(|c| c.is_busy() && repeated)
        .filter_map(|class| Some((class, ns(standard, class)?, ns(optimised, class)?)))
        .filter(|(_, a, b)| a[2] + 1.0 <= b[0] || b[2] + 1.0 <= a[0])
        .map(|(class, a, b)| (class, a[1], b[1]))
        .collect();
    changes.sort_by(|a, b| (b.2 - b.1).abs().total_cmp(&(a.2 - a.1).abs()));
    changes
}

/// Notes on the origin of the figures.
pub(super) fn notes(what: SweepBox, arrangement: &Arrangement, setups: &[Setup]) -> Vec<String> {
    let mut notes = vec![format!(
        "A ceiling is the highest load of which at most {} was lost, searched from below; the loads beyond it overload the box. A \
         full veth ring makes its reader slower, so that under overload the box lets less through here than behind a network card, \
         which drops in hardware.",
        format_args!("{:.0} %", 100.0 * LOSS_GOAL)
    )];
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
        setups.iter().flat_map(|s| &s.steps).filter(|s| s.offered_pps < 0.97 * s.intended_pps).collect();
    if let Some(worst) = short.iter().max_by(|a, b| a.intended_pps.total_cmp(&b.intended_pps)) {
        notes.push(format!(
            "In {} of {} measurements the generator offered less than it was to: {} instead of {} in the highest of them.",
            short.len(),
            setups.iter().map(|s| s.steps.len()).sum::<usize>(),
            units::pps(worst.offered_pps),
            units::pps(worst.intended_pps)
        ));
    }
    let steps = || setups.iter().flat_map(|s| s.steps.iter().chain(&s.at_ceiling));
    let others = steps().map(|s| s.others_percent).fold(0.0, f64::max);
    if others >= 2.0 {
        notes.push(format!("Other programs took up to {others:.0} % of the box's core, which lowers its ceiling."));
    }
    let steal = steps().map(|s| s.percent(Class::Steal)).fold(0.0, f64::max);
    if steal > STEAL_LIMIT_PERCENT {
        notes.push(format!("The hypervisor took up to {steal:.0} % of the box's core for other guests."));
    }
    let lost: u64 = setups.iter().flat_map(|s| &s.steps).map(|s| s.lost_samples).sum();
    if lost > 0 {
        notes.push(format!("{lost} samples could not be kept."));
    }
    notes
}

#[cfg(test)]
pub(super) mod tests {
    use std::collections::BTreeMap;

    use model::run::CoreRole;

    use super::*;

    fn step(pps: f64, memory: f64) -> Step {
        Step {
            intended_pps: 2.0 * pps,
            offered_pps: pps,
            forwarded_pps: pps,
            classes: BTreeMap::from([(Class::Memory, memory), (Class::Ip, 50.0)]),
            samples: 100,
            lost_samples: 1,
            ..Step::default()
        }
    }

    /// A configuration with these ceilings.
    pub(crate) fn setup(name: &str, ceilings_pps: &[f64], memory: f64) -> Setup {
        let pps = ceilings_pps[0];
        Setup {
            key: name.into(),
            name: name.into(),
            ceiling_pps: pps,
            ceilings_pps: ceilings_pps.to_vec(),
            at_ceiling: ceilings_pps.iter().map(|_| step(pps, memory)).collect(),
            steps: vec![step(pps, memory)],
            ..Setup::default()
        }
    }

    fn words(setups: &[Setup]) -> String {
        conclusion(SweepBox::Router, setups, verdict::gain(setups).as_ref())
    }

    #[test]
    fn the_gain_and_its_causes_are_named() {
        let text = words(&[setup("plain", &[5e5; 3], 40.0), setup("tuned", &[1e6; 3], 10.0)]);
        assert!(
            text.contains("500 kpps plain and 1.00 Mpps tuned") && text.contains("+100 % (+94 % to +106 %"),
            "{text}"
        );
        assert!(text.contains("memory management 100 ns instead of 800 ns"), "{text}");
        assert_eq!(words(&[]), "Nothing was measured.");
    }

    #[test]
    fn what_cannot_be_reported_is_not_reported() {
        let text = words(&[setup("plain", &[7.2e5, 6.8e5, 7e5], 1.0), setup("tuned", &[9.6e5, 6.4e5, 7e5], 1.0)]);
        assert!(text.starts_with("No verdict on the") && text.contains("searches do not agree"), "{text}");
        // No gain beside it.
        assert!(!text.contains("+37 %") && text.contains("Ceilings found: 720 kpps plain, 960 kpps tuned."), "{text}");
        let mut lost = setup("tuned", &[1e6; 3], 1.0);
        lost.at_ceiling.iter_mut().for_each(|s| s.forwarded_pps *= 0.7);
        let text = words(&[setup("plain", &[5e5; 3], 1.0), lost]);
        assert!(text.contains("offered its own ceiling again, \"tuned\" lost packets"), "{text}");
        // One measurement of a cost is no cause.
        let text = words(&[setup("plain", &[5e5], 40.0), setup("tuned", &[1e6], 10.0)]);
        assert!(text.contains("fewer than 3 searches each") && !text.contains("memory"), "{text}");
    }

    #[test]
    fn what_fell_short_is_reported() {
        let arrangement = Arrangement { sharing: Sharing::Apart, roles: Vec::<CoreRole>::new() };
        let notes = notes(SweepBox::Capture, &arrangement, &[setup("a", &[5e5], 1.0)]);
        assert_eq!(notes.len(), 4);
        assert!(notes[2].contains("500 kpps instead of 1.00 Mpps"), "{notes:?}");
    }
}
