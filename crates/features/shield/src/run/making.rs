//! From a file of rules to a program that is ready to be put in front of the interface.

use std::{net::IpAddr, sync::Arc};

use bpf::shield::{Between, Cookies, Heartbeat, Shield, ShieldConfig, ShieldShared, WatchConfig};
use model::shield::Fail;
use rules::tables::RuleTables;
use rules::{Action, Rule, Rules, compile::Now, file::RuleFile};

use super::{
    ahead::{Ahead, Job},
    answers::cookies,
    challenge::Choice,
    memory::Memory,
    session,
    settings::Settings,
};
use crate::{between::Pair, detect, error::ShieldError};

/// One set of rules on its way into the kernel.
pub(super) struct Making<'a> {
    pub(super) ahead: &'a mut Ahead,
    /// The program that waits may be used.
    pub(super) urgent: bool,
    pub(super) settings: &'a Settings,
    pub(super) shared: &'a Arc<ShieldShared>,
    pub(super) file: &'a RuleFile,
    pub(super) extra: &'a [Rule],
    /// Addresses of this machine, for the allow-list.
    pub(super) own: &'a [IpAddr],
    pub(super) memory: Memory,
    pub(super) cookies: Option<Cookies>,
    pub(super) choice: &'a Choice,
    pub(super) watch: Option<WatchConfig>,
}

impl Making<'_> {
    pub(super) fn shield(&mut self) -> Result<(Shield, Now, Job), ShieldError> {
        let mut rules = self.file.rules.clone();
        rules.rules.splice(0..0, self.file.management.all(self.own, &self.settings.sessions));
        let without = rules;
        let rules = detect::insert(&without, self.extra);
        let now = Now::read();
        let coming = rules.rules.iter().map(|rule| rule.name.as_str());
        let holding = self.memory.rules.iter().map(|rule| rule.name.as_str());
        self.memory.counters.make_room(coming, holding, || self.shared.counts().rules);
        let tables = self.ahead.tables(&rules, &mut self.memory.counters, now)?;
        let heartbeat = Heartbeat { timeout: self.settings.patience, closed: self.settings.fail == Fail::Closed };
        let config = ShieldConfig {
            heartbeat: Some(heartbeat),
            cookies: self.cookies.clone(),
            watch: self.watch.clone(),
            between: self.settings.between.as_ref().map(indices).transpose()?,
            tell: false,
        };
        let filled = if self.urgent { self.ahead.fill(&tables)? } else { None };
        let exact = filled.is_some().then(|| tables.clone());
        let shield = match filled {
            Some(shield) => shield,
            None => Shield::load(&tables, &config, self.shared)?,
        };
        self.memory.rules = rules.rules.iter().map(super::status::rule).collect();
        self.memory.default = super::status::verdict(rules.default).to_owned();
        self.memory.file = self.settings.source.file.as_ref().map(|path| path.display().to_string());
        self.memory.loaded = now.wall.to_string();
        self.memory.fail = Some(self.settings.fail);
        self.memory.patience_s = self.settings.patience.as_secs_f64();
        let job = self.job(without, exact, config);
        Ok((shield, now, job))
    }

    /// What is to be loaded beside, once these rules hold.
    fn job(&self, rules: Rules, exact: Option<RuleTables>, config: ShieldConfig) -> Job {
        let first = rules.protected.first().filter(|_| self.watch.is_some());
        let mut template = first.map_or_else(Vec::new, |first| detect::template(&self.file.detection, *first));
        let mut spare = config.clone();
        if spare.cookies.is_none() && template.iter().any(|rule| rule.action == Action::Challenge) {
            spare.cookies = cookies(self.settings, self.choice).ok();
        }
        if spare.cookies.is_none() {
            // Where there can be no cookies, the step that asks for them says so when its time comes.
            template.retain(|rule| rule.action != Action::Challenge);
        }
        Job { rules, template, exact, config, spare, shared: Arc::clone(self.shared) }
    }
}

/// The addresses that the allow-list is about.
pub(super) fn own_addresses(settings: &Settings) -> Result<Vec<IpAddr>, ShieldError> {
    if settings.between.is_some() {
        // What crosses is for others.
        return Ok(Vec::new());
    }
    session::own_addresses()
        .map_err(|error| ShieldError::Lacking(format!("cannot list this machine's addresses: {error}")))
}

pub(super) fn indices(pair: &Pair) -> Result<Between, ShieldError> {
    let index = |name: &str| {
        sys::packet::interface_index(name).ok_or_else(|| ShieldError::from(port::members::unknown_interface(name)))
    };
    Ok(Between { first: index(&pair.first)?, second: index(&pair.second)? })
}
