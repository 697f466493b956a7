//! Detection in the running shield: what it sees is told, what it answers with holds.

use bpf::shield::{Watch, WatchConfig};
use model::{
    shield::{AttackStatus, SourceStatus},
    shield_event::{Happened, Picture, ShieldEvent},
};

use super::places::Places;
use crate::{
    detect::{Seen, Sentry},
    error::ShieldError,
    rules::{Prefix, file::RuleFile},
};

/// Who watches, and what is shown of it.
#[derive(Debug)]
pub(super) struct Watchman {
    pub(super) sentry: Sentry,
    protected: Vec<Prefix>,
    pub(super) attacks: Vec<AttackStatus>,
    pub(super) sources: Vec<SourceStatus>,
}

impl Watchman {
    /// For what the file protects; none: nothing is.
    pub(super) fn start(interface: &str, file: &RuleFile, places: &Places) -> Result<Option<Self>, ShieldError> {
        let protected = file.rules.protected.clone();
        if protected.is_empty() {
            return Ok(None);
        }
        let watch = match Watch::open(&places.pins, protected.len())? {
            Some(watch) => watch,
            None => {
                Watch::unpin(&places.pins)?;
                let watch = Watch::create(protected.len())?;
                watch.pin(&places.pins)?;
                watch
            }
        };
        let sentry = Sentry::start(interface, file.detection.clone(), &protected, watch)?;
        Ok(Some(Self { sentry, protected, attacks: Vec::new(), sources: Vec::new() }))
    }

    /// Whether it watches what `file` says, as it says.
    pub(super) fn suits(&self, file: &RuleFile) -> bool {
        self.protected == file.rules.protected && *self.sentry.detector().config() == file.detection
    }

    pub(super) fn config(&self) -> WatchConfig {
        self.sentry.watch().clone()
    }

    /// Takes down what is shown of it.
    pub(super) fn note(&mut self, seen: &Seen) {
        for event in &seen.events {
            self.note_event(event);
        }
    }

    fn note_event(&mut self, event: &ShieldEvent) {
        let at = self.attacks.iter().position(|attack| attack.number == event.attack);
        let at = at.unwrap_or_else(|| {
            self.attacks.push(AttackStatus {
                number: event.attack,
                prefix: event.prefix.clone(),
                class: String::new(),
                since_s: 0.0,
                mitigation: "nothing yet".to_owned(),
                shadow: false,
            });
            self.attacks.len() - 1
        });
        let attack = &mut self.attacks[at];
        (attack.class, attack.since_s) = (event.class.to_string(), event.since_s);
        match &event.what {
            Happened::Began(picture) | Happened::Turned { now: picture, .. } => self.sources = sources(picture),
            Happened::Mitigating { step, steps, shadow, action, .. } => {
                attack.mitigation = format!("step {step} of {steps}: {action}");
                attack.shadow = *shadow;
            }
            Happened::Shadowed { would_apply_pps, legitimate_part, .. } => {
                let legitimate = legitimate_part.map_or_else(String::new, |part| {
                    format!(", {} of the traffic of known sources", model::units::percent(part))
                });
                attack.mitigation = format!("would apply to {}{legitimate}", model::units::pps(*would_apply_pps));
            }
            Happened::Exhausted { through_pps } => {
                attack.mitigation += &format!("; {} still come through", model::units::pps(*through_pps));
            }
            Happened::Ended { .. } => {
                self.attacks.remove(at);
                if self.attacks.is_empty() {
                    self.sources.clear();
                }
            }
        }
    }
}

fn sources(picture: &Picture) -> Vec<SourceStatus> {
    let source =
        |share: &model::shield_event::Share| SourceStatus { source: share.name.clone(), pps: share.part * picture.pps };
    picture.top_sources.iter().map(source).collect()
}
