//! Rules that stand for all that a ladder may come to ask for, before there is an attack.

use model::shield_event::AttackClass;
use rules::detect::DetectConfig;
use rules::{Action, Match, Prefix, Rule};

use super::{classify::Finding, ladder, mix::Kind};

/// Rules of one step, and some more: of a second attack, or of the step before.
const RULES_MAX: usize = 4;

/// As many rules as a mitigation has, whose conditions are on every field that the ladder's steps may ask for, and whose actions are
/// all of theirs. Nothing is to be done with them but to compile them: they say what room a program needs. Empty: the ladder does
/// nothing.
pub fn template(config: &DetectConfig, prefix: Prefix) -> Vec<Rule> {
    let steps =
        AttackClass::ALL.iter().flat_map(|&class| config.ladder(class).into_iter().map(move |step| (class, step)));
    let rules: Vec<Rule> = steps
        .flat_map(|(class, step)| [Kind::Syn, Kind::Tcp, Kind::Udp].map(|kind| (class, step.clone(), kind)))
        .filter_map(|(class, step, kind)| ladder::rules(&step, 1, &finding(class, kind, prefix), prefix))
        .flat_map(|(rules, _)| rules)
        .collect();
    let Some(first) = rules.first() else { return Vec::new() };
    let when = rules.iter().fold(Match::default(), |mut all, rule| {
        let when = rule.when.clone();
        let some = |a: &mut Vec<_>, b: Vec<_>| {
            if a.is_empty() {
                *a = b;
            }
        };
        some(&mut all.source, when.source);
        some(&mut all.destination, when.destination);
        if all.source_port.is_empty() {
            all.source_port = when.source_port;
        }
        if all.protocol.is_empty() {
            all.protocol = when.protocol;
        }
        all.tcp_flags = all.tcp_flags.or(when.tcp_flags);
        all.fragment = all.fragment.or(when.fragment);
        all.known.connection = all.known.connection.or(when.known.connection);
        all.known.source_seen = all.known.source_seen.or(when.known.source_seen);
        all.known.listener = all.known.listener.or(when.known.listener);
        all
    });
    let of = |is: fn(&Action) -> bool| rules.iter().map(|rule| rule.action).find(is);
    let limit = of(|action| matches!(action, Action::Limit(_)));
    let challenge = of(|action| *action == Action::Challenge);
    let actions: Vec<Action> = [limit, challenge, Some(first.action)].into_iter().flatten().collect();
    let yields = rules.iter().any(|rule| rule.yields);
    (0..RULES_MAX.max(actions.len()))
        .map(|n| {
            let action = actions[n % actions.len()];
            let yields = yields && action == Action::Challenge;
            Rule { name: format!("template {n}"), when: when.clone(), action, yields, ..Rule::default() }
        })
        .collect()
}

fn finding(class: AttackClass, kind: Kind, prefix: Prefix) -> Finding {
    Finding {
        class,
        kind,
        fragments: true,
        sources: vec![(prefix, 1.0)],
        ports: vec![53],
        connects: true,
        remembers: true,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use rules::{Limit, detect::StepConfig};

    #[test]
    fn every_field_and_action_of_the_ladder_is_there() {
        let prefix = Prefix { address: "198.18.0.0".parse().unwrap(), len: 24 };
        let mut config = DetectConfig::default();
        config.ladder.insert(AttackClass::FewSources, vec![StepConfig::DropSources {}]);
        let rules = template(&config, prefix);
        assert_eq!(rules.len(), RULES_MAX);
        let when = &rules[0].when;
        assert!(!when.source.is_empty() && !when.destination.is_empty() && !when.source_port.is_empty());
        assert!(!when.protocol.is_empty() && when.tcp_flags.is_some() && when.fragment.is_some());
        assert!(when.known.connection.is_some() && when.known.listener.is_some());
        assert!(rules.iter().any(|rule| rule.action == Action::Challenge));
        assert!(rules.iter().any(|rule| matches!(rule.action, Action::Limit(Limit { .. }))));
        for class in AttackClass::ALL {
            config.ladder.insert(class, vec![StepConfig::Drop {}]);
        }
        let rules = template(&config, prefix);
        assert!(rules.iter().all(|rule| rule.action == Action::Drop && rule.when.source.is_empty()));
        AttackClass::ALL.into_iter().for_each(|class| drop(config.ladder.insert(class, Vec::new())));
        assert_eq!(template(&config, prefix), []);
    }
}
