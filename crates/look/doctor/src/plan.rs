//! From findings to one plan of changes.

use host::knob::{Change, Plan};

use crate::{Diagnosis, checks};

/// A name that is no check's.
#[derive(Debug, thiserror::Error)]
pub enum SelectError {
    #[error("there is no check `{name}`{}; `evenkeel doctor --list` names all", hint(.near))]
    NoSuchCheck {
        name: String,
        /// A check whose name is like it.
        near: Option<&'static str>,
    },
}

fn hint(name: &Option<&'static str>) -> String {
    name.map_or_else(String::new, |n| format!(" (did you mean `{n}`?)"))
}

model::classified!(SelectError: Usage);

/// Selected checks: `rings`, or `rings:eth0` for one object. Empty: all.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Selection(Vec<(String, Option<String>)>);

impl Selection {
    pub fn parse(names: &[String]) -> Result<Self, SelectError> {
        let one = |name: &String| {
            let (id, object) = match name.split_once(':') {
                Some((id, object)) => (id, Some(object.to_owned())),
                None => (name.as_str(), None),
            };
            if checks::find(id).is_some() {
                return Ok((id.to_owned(), object));
            }
            let near = checks::all().map(|c| c.id).find(|c| c.starts_with(id) || id.starts_with(c));
            Err(SelectError::NoSuchCheck { name: id.to_owned(), near })
        };
        names.iter().map(one).collect::<Result<_, _>>().map(Self)
    }

    /// The check is meant for any object.
    pub fn has_check(&self, id: &str) -> bool {
        self.0.is_empty() || self.0.iter().any(|(wanted, _)| wanted == id)
    }

    /// The single objects that are meant, each with its check.
    pub fn objects(&self) -> impl Iterator<Item = (&str, &str)> {
        self.0.iter().filter_map(|(check, object)| Some((check.as_str(), object.as_deref()?)))
    }

    /// The check is meant for this object.
    pub fn has(&self, id: &str, object: Option<&str>) -> bool {
        let fits = |wanted: &Option<String>| wanted.is_none() || wanted.as_deref() == object;
        self.0.is_empty() || self.0.iter().any(|(wanted, of)| wanted == id && fits(of))
    }
}

/// The changes of the selected findings that should be made, in their order: of two that set the same knob, the first wins
/// (the graver finding stands first), and a warning says so. What no knob does is a warning too.
pub fn fix_plan(diagnosis: &Diagnosis, selection: &Selection) -> Plan {
    let mut plan = Plan::default();
    let wanted = diagnosis
        .entries
        .iter()
        .filter(|e| e.outcome.verdict.is_finding() && selection.has(e.check.id, e.outcome.object.as_deref()));
    for entry in wanted {
        let name = match &entry.outcome.object {
            Some(object) => format!("{} ({object})", entry.check.id),
            None => entry.check.id.to_owned(),
        };
        if entry.outcome.changes.is_empty() {
            plan.warnings.push(match entry.outcome.advice.is_empty() {
                true => format!(
                    "{name}: there is no setting for it; `evenkeel doctor --only {}` tells more",
                    entry.check.id
                ),
                false => format!("{name}: to be done by hand: {}", entry.outcome.advice.join("; ")),
            });
        }
        for change in entry.outcome.changes.iter().filter(|c| !c.is_idle()) {
            match plan.changes.iter().find(|c| c.knob == change.knob) {
                None => plan.changes.push(Change { reason: format!("{name}: {}", change.reason), ..change.clone() }),
                Some(first) if first.knob.same(&first.new, &change.new) => {}
                Some(first) => plan.warnings.push(format!(
                    "{name} would set {} to {}, but {} was taken first",
                    change.knob,
                    change.knob.phrase(&change.new),
                    change.knob.phrase(&first.new)
                )),
            }
        }
    }
    // What makes queues and interrupts anew comes before what is set on these.
    plan.changes.sort_by_key(|c| !c.knob.resets_queues());
    plan
}
