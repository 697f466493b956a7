//! Events of attacks as sentences.

use model::{
    shield_event::{Exceeded, Happened, Measure, ShieldEvent},
    units,
};

/// An event as a line of text.
pub(super) fn text(event: &ShieldEvent) -> String {
    let time = event.timestamp.get(11..19).unwrap_or(&event.timestamp);
    let class = event.class;
    let what = match &event.what {
        Happened::Began(picture) => format!("{class} began, {}{}", units::pps(picture.pps), above(&picture.exceeded)),
        Happened::Reclassified { from, now } => {
            format!("{from} turned into {class}, {}{}", units::pps(now.pps), above(&now.exceeded))
        }
        Happened::Mitigating { step, steps, shadow, action, .. } => {
            let shadow = if *shadow { " (only counted)" } else { "" };
            format!("step {step} of {steps}: {action}{shadow}")
        }
        Happened::Shadowed { step, would_apply_pps, legitimate_share, enforced, .. } => {
            let known = legitimate_share
                .map_or_else(String::new, |part| format!(", {} of the traffic of known sources", units::percent(part)));
            let then = if *enforced { "; it acts from now on" } else { "" };
            format!("step {step} would apply to {}{known}{then}", units::pps(*would_apply_pps))
        }
        Happened::Exhausted { unmitigated_pps } => {
            format!("no step is left: {} come through", units::pps(*unmitigated_pps))
        }
        Happened::Ended { duration_s, peak_pps, packets, .. } => format!(
            "{class} ended after {duration_s:.1} s, {} packets, at most {}",
            units::grouped(*packets),
            units::pps(*peak_pps)
        ),
    };
    format!("{time} UTC  attack {} on {}: {what}", event.attack, event.prefix)
}

/// The rates above their limits.
fn above(above: &[Exceeded]) -> String {
    let one = |above: &Exceeded| {
        let unit = if above.measure == Measure::Bits { units::bits_per_second } else { units::pps };
        format!("; {} {} above {}", above.measure, unit(above.rate), unit(above.limit))
    };
    above.iter().map(one).collect()
}

#[cfg(test)]
mod tests {
    use model::shield_event::{AttackClass, Picture};

    use super::*;

    #[test]
    fn events_are_sentences() {
        let message = |what| {
            text(&ShieldEvent {
                timestamp: "2026-01-02T03:04:05.5Z".into(),
                attack: 7,
                prefix: "198.18.0.0/24".into(),
                class: AttackClass::SynFlood,
                since_s: 0.2,
                what,
            })
        };
        let above = Exceeded { measure: Measure::Syn, rate: 30_000.0, limit: 5000.0, learned: false, headroom: false };
        let began = message(Happened::Began(Picture { pps: 31_000.0, exceeded: vec![above], ..Picture::default() }));
        assert_eq!(
            began,
            "03:04:05 UTC  attack 7 on 198.18.0.0/24: syn-flood began, 31.0 kpps; syn 30.0 kpps above 5.00 kpps"
        );
        let step = message(Happened::Mitigating {
            step: 2,
            steps: 3,
            shadow: true,
            rules: Vec::new(),
            action: "challenge TCP SYN".to_owned(),
        });
        assert!(step.ends_with("step 2 of 3: challenge TCP SYN (only counted)"), "{step}");
        assert!(message(Happened::Exhausted { unmitigated_pps: 1e6 }).contains("no step is left: "));
    }
}
