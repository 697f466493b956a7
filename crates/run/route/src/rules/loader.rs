//! Loading of rules: read, checked, compiled and loaded, on a thread beside the router's loop.

use std::{fs, net::IpAddr, path::Path, sync::Arc};

use bpf::{
    chain::SlotMaps,
    filter::{Shield, ShieldConfig, ShieldShared},
};
use host::session::own_addresses;
use model::shield::RuleStatus;
use port::offloads;
use rules::{
    compile::{self, COUNTERS_MAX, Counters, Now},
    file::{self, RuleFile},
    management::Session,
    requester::Requester,
    status,
};

use crate::RouteError;

#[derive(Debug, Default)]
pub(crate) struct ActiveRules {
    pub programs: Vec<Shield>,
    pub counters: Counters,
    pub shown: Vec<RuleStatus>,
    pub default: &'static str,
    pub own: Vec<IpAddr>,
    pub read_at: Option<Now>,
}

/// Result of a [`RulesLoader`]: rules that are loaded and not yet active.
#[derive(Debug)]
pub(crate) struct LoadedRules {
    pub next: ActiveRules,
    pub file: RuleFile,
    pub sessions: Vec<Session>,
    pub warnings: Vec<String>,
}

pub(crate) fn check_lockout(requester: &Requester, file: &RuleFile) -> Result<Vec<String>, RouteError> {
    let harm = |harm: rules::check::Finding| RouteError::LocksOut { what: harm.what, instead: harm.instead };
    let skipped = file.skipped.iter().map(|line| format!("skipped (bad-line = \"skip\"): {line}"));
    Ok(skipped.chain(requester.judge(file).map_err(harm)?).collect())
}

/// Loader of rules, which may run in a thread of its own.
pub(crate) struct RulesLoader {
    pub interfaces: Vec<String>,
    pub slots: Vec<SlotMaps>,
    pub shared: Arc<ShieldShared>,
    /// Counters of the active rules.
    pub counters: Counters,
    pub active_names: Vec<String>,
}

impl RulesLoader {
    /// Reads the file for the requester, and loads its rules.
    pub(crate) fn read(
        self,
        path: &Path,
        requester: &Requester,
        mut sessions: Vec<Session>,
    ) -> Result<LoadedRules, RouteError> {
        if fs::metadata(path).is_ok_and(|found| !found.is_file()) {
            return Err(RouteError::NotReloadable { path: path.to_owned() });
        }
        let file = file::read_for_router(path)?;
        let mut warnings = check_lockout(requester, &file)?;
        requester.let_in(&mut sessions);
        warnings.extend(tags(&file, self.interfaces.iter().map(String::as_str))?);
        Ok(LoadedRules { next: self.load(&file, &sessions)?, file, sessions, warnings })
    }

    /// Programs with the rules of `file`, one for each port.
    pub(crate) fn load(self, file: &RuleFile, sessions: &[Session]) -> Result<ActiveRules, RouteError> {
        let Self { slots, shared, mut counters, active_names, .. } = self;
        let own = own_addresses().map_err(RouteError::system("list this machine's addresses"))?;
        let mut rules = file.rules.clone();
        rules.rules.splice(0..0, file.management.all(&own, sessions));
        let coming = rules.rules.iter().map(|rule| rule.name.as_str());
        counters.make_room(coming, active_names.iter().map(String::as_str), || shared.counts_of(COUNTERS_MAX).rules);
        let read_at = Now::read();
        let tables = compile::tables(&rules, &mut counters, read_at)?;
        Ok(ActiveRules {
            programs: Shield::load_each(&tables, &ShieldConfig::default(), slots, &shared)?,
            counters,
            shown: rules.rules.iter().map(status::rule).collect(),
            default: status::verdict(rules.default),
            own,
            read_at: Some(read_at),
        })
    }
}

/// Refuses rules about VLAN tags where a port's program does not see them; ports where that is unknown are noted.
pub(crate) fn tags<'a>(file: &RuleFile, ports: impl Iterator<Item = &'a str>) -> Result<Vec<String>, RouteError> {
    let Some(rule) = file.rules.rules.iter().find(|rule| !rule.when.vlan.is_empty()) else { return Ok(Vec::new()) };
    let of = |port: &str| offloads::sees_tags(port, &rule.name).transpose();
    Ok(ports.filter_map(of).collect::<Result<_, _>>()?)
}
