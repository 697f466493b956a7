//! Events as others get them: a line of JSON, and the environment of a hook.

use model::{schema::Document, shield_event::ShieldEvent};
use serve::Event;

/// An event as one line of JSON, `evenkeel.shield.event/1`, its end included.
pub fn line(event: &ShieldEvent) -> String {
    let mut line = serde_json::to_string(&Document::new("shield.event", 1, event)).unwrap_or_default();
    line.push('\n');
    line
}

/// An event for the log and the hook.
pub(crate) fn event(event: &ShieldEvent) -> Event {
    Event {
        name: event.what.word(),
        line: line(event),
        environment: vec![
            ("EVENKEEL_ATTACK", event.attack.to_string()),
            ("EVENKEEL_PREFIX", event.prefix.clone()),
            ("EVENKEEL_CLASS", event.class.word().to_owned()),
            ("EVENKEEL_TIMESTAMP", event.timestamp.clone()),
        ],
    }
}

#[cfg(test)]
mod tests {
    use model::shield_event::{AttackClass, Happened};

    use super::*;

    #[test]
    fn an_event_is_a_line_of_json_and_what_a_hook_gets() {
        let before = ShieldEvent {
            timestamp: "2026-01-02T03:04:05Z".into(),
            attack: 7,
            prefix: "198.18.0.0/24".into(),
            class: AttackClass::SynFlood,
            since_s: 0.2,
            what: Happened::Exhausted { unmitigated_pps: 1.0 },
        };
        let event = event(&before);
        let json: serde_json::Value = serde_json::from_str(&event.line).unwrap();
        assert!(event.line.ends_with('\n') && event.line.lines().count() == 1);
        assert_eq!(json["schema"], "evenkeel.shield.event/1");
        assert_eq!((&json["event"], &json["class"]), (&event.name.into(), &"syn-flood".into()));
        let variables: Vec<_> = event.environment.iter().map(|(name, value)| (*name, value.as_str())).collect();
        assert!(variables.contains(&("EVENKEEL_ATTACK", "7")) && variables.contains(&("EVENKEEL_CLASS", "syn-flood")));
        assert_eq!(serde_json::from_value::<ShieldEvent>(json).unwrap(), before);
    }
}
