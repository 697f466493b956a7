//! The state of a shield, as the process that runs it or any other sees it.

use std::io::ErrorKind;

use bpf::filter::{ShieldCounts, ShieldLink, ShieldShared};
use jiff::Timestamp;
use model::shield::ShieldStatus;
use rules::status::counted;

use super::{
    owner::{owner, unreachable},
    paths::Paths,
    plane::PlaneStatus,
    saved_state::{SavedState, read_state},
    warnings,
};
use crate::error::ShieldError;

/// Of rules and what they have counted; detection, warnings and who controls it are added by those who know.
pub(super) fn of(memory: &SavedState, standing: PlaneStatus, name: String, counts: &ShieldCounts) -> ShieldStatus {
    let rules = memory.rules.iter().map(|rule| {
        let count = memory.counters.count(&rule.name, &counts.rules).unwrap_or_default();
        counted(rule, count)
    });
    ShieldStatus {
        timestamp: Timestamp::now().to_string(),
        interface: name,
        mode: standing.mode,
        program_id: standing.program_id,
        pid: None,
        unreachable: false,
        heartbeat_age_s: standing.heartbeat_age_s,
        reattached: standing.reattached,
        heartbeat_timeout_s: memory.heartbeat_timeout_s,
        fail: memory.fail,
        file: memory.file.clone(),
        loaded: memory.loaded.clone(),
        reloads: 0,
        reload_error: None,
        rules: rules.collect(),
        default: memory.default.clone(),
        totals: counts.totals,
        rates: None,
        sources: Vec::new(),
        protected: Vec::new(),
        attacks: Vec::new(),
        challenge: None,
        known_sources: None,
        warnings: Vec::new(),
    }
}

/// Returns the state of the shield that is pinned, whether or not somebody runs it.
pub fn of_pins(interface: &str, paths: &Paths) -> Result<ShieldStatus, ShieldError> {
    match paths.link().try_exists() {
        Ok(true) => {}
        Err(error) if error.kind() == ErrorKind::PermissionDenied => return Err(unseen(interface)),
        _ => return Err(owner(interface, paths).unwrap_or_else(|| none(interface))),
    }
    paths.check()?;
    let link = ShieldLink::open(&paths.link()).map_err(|source| match bpf::link::attached(interface) {
        Ok(None) => ShieldError::Detached { interface: interface.to_owned() },
        _ => source.into(),
    })?;
    let damaged = |source| ShieldError::Damaged { interface: interface.to_owned(), source };
    let shared = ShieldShared::open(&paths.pins).map_err(damaged)?;
    let memory = read_state(paths).unwrap_or_default();
    let second = paths.second_link();
    let name = match second.exists().then(|| ShieldLink::open(&second)).transpose()? {
        Some(second) => format!("{},{}", link.interface(), second.interface()),
        None => link.interface().to_owned(),
    };
    let error = unreachable(interface, paths).map(|error| error.to_string());
    let unreachable = error.is_some();
    let warnings = warnings::of_link(&link).into_iter().chain(error).collect();
    let counts = shared.counts_of(memory.counters.end());
    Ok(ShieldStatus { warnings, unreachable, ..of(&memory, PlaneStatus::of(&link, &shared), name, &counts) })
}

fn none(interface: &str) -> ShieldError {
    ShieldError::NoShield { interface: interface.to_owned() }
}

/// For a user who may not look: every user may see that an interface runs no XDP program at all.
pub fn unseen(interface: &str) -> ShieldError {
    match bpf::link::attached(interface) {
        Ok(None) => ShieldError::NotVisible { interface: interface.to_owned(), program: None },
        Ok(Some(attached)) => ShieldError::NotVisible { interface: interface.to_owned(), program: Some(attached.id) },
        Err(error) => error.into(),
    }
}
