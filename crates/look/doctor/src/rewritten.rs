//! Settings that this program made, that still stand in its journal, and that somebody has written since.

use host::{
    journal::{Journal, Session, Step},
    knob::{Knob, Live, Store},
};

/// A line for each interrupt, RPS or XPS setting of a session of this boot that no longer has the value that was written. What
/// cannot be read counts as not rewritten: a device may be gone.
pub fn lines(journal: &Journal) -> Vec<String> {
    let sessions = journal.sessions().unwrap_or_default();
    let mut lines = Vec::new();
    for session in sessions.iter().filter(|s| s.is_of_this_boot().unwrap_or(false) && s.is_open()) {
        let standing = session.steps.iter().filter(|s| s.undone.is_none() && s.outcome.is_some());
        lines.extend(standing.filter_map(|step| rewritten(session, step)));
    }
    lines
}

fn rewritten(session: &Session, step: &Step) -> Option<String> {
    let knob = &step.change.knob;
    if !matches!(knob, Knob::IrqAffinity { .. } | Knob::RpsCpus { .. } | Knob::XpsCpus { .. }) {
        return None;
    }
    let now = Live.read(knob).ok()?;
    (!knob.same(&now, step.ours())).then(|| {
        format!(
            "{knob}: evenkeel wrote {} (session {}), and now it is {}",
            knob.phrase(step.ours()),
            session.header.session,
            knob.phrase(&now)
        )
    })
}
