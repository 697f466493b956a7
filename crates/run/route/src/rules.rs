//! Stateless rules before the fast path: the shield's language, tables and program, in front of the program of each port. They hold whatever
//! the mode is.

mod loader;

use std::{
    net::IpAddr,
    path::{Path, PathBuf},
    sync::Arc,
    thread::{self, JoinHandle},
    time::Instant,
};

use bpf::{RoutePort, filter::ShieldShared};
use host::session::own_addresses;
use model::{route::RouteRulesStatus, shield::RuleStatus};
use rules::{
    compile::{Now, expires_otherwise},
    file::{self, RuleFile},
    management::Session,
    requester::Requester,
    status,
};
use serde::{Deserialize, Serialize};

use crate::{RouteError, pinned::PinnedRules};
use loader::{ActiveRules, LoadedRules, RulesLoader, check_lockout, tags};

/// The rules of a router, and the programs that hold them.
#[derive(Debug)]
pub struct RouteRules {
    path: PathBuf,
    file: RuleFile,
    /// Sessions that the management allow-list lets in.
    sessions: Vec<Session>,
    shared: Arc<ShieldShared>,
    active: ActiveRules,
    /// Rules that are being loaded.
    pending: Option<PendingLoad>,
    reloads: u64,
    reload_error: Option<String>,
    /// Rules that stay on the ports when the process ends.
    pinned: bool,
    /// Result of the last reload, not yet collected.
    reloaded: Option<Result<Reloaded, RouteError>>,
    /// Changes followed beside the file, not yet collected.
    followed: Vec<String>,
}

/// Rules that a thread of its own reads, compiles and loads: that takes some tenths of a second for each port.
#[derive(Debug)]
struct PendingLoad {
    begun: Instant,
    /// The change that caused it; none: a reload was requested.
    followed: Option<&'static str>,
    thread: JoinHandle<Result<LoadedRules, RouteError>>,
}

/// Rules that hold after a reload.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Reloaded {
    pub rules: usize,
    /// Rules of the management allow-list.
    pub built_in: usize,
    pub expired: usize,
    /// From the request to the first packet that the new rules judge, in seconds.
    pub seconds: f64,
    /// Warnings about rules that are probably not meant.
    pub warnings: Vec<String>,
}

impl RouteRules {
    /// Reads rules for the requester; nothing is changed yet. Also warnings about rules that are probably not meant.
    ///
    /// # Errors
    /// The file cannot be read, is not a set of rules, or has something that a router's rules do not do; the rules would lock out the requester.
    pub fn read(path: &Path, requester: &Requester) -> Result<(Self, Vec<String>), RouteError> {
        let file = file::read_for_router(path)?;
        let warnings = check_lockout(requester, &file)?;
        // Another process may be in another folder.
        let path = std::path::absolute(path).unwrap_or_else(|_| path.to_owned());
        let mut rules = Self::of(&path, file)?;
        requester.let_in(&mut rules.sessions);
        Ok((rules, warnings))
    }

    /// Rules of `file`, already read; a reload reads `path`.
    pub fn of(path: &Path, file: RuleFile) -> Result<Self, RouteError> {
        let (shared, active) = (Arc::new(ShieldShared::create()?), ActiveRules::default());
        Ok(Self {
            path: path.to_owned(),
            file,
            sessions: Vec::new(),
            shared,
            active,
            pending: None,
            reloads: 0,
            reload_error: None,
            pinned: false,
            reloaded: None,
            followed: Vec::new(),
        })
    }

    /// Rules that stay on the ports when the process ends, until [`crate::pinned::unpin`].
    #[must_use]
    pub fn into_pinned(self) -> Self {
        Self { pinned: true, ..self }
    }

    /// Rules that stay on the ports when the process ends.
    pub fn is_pinned(&self) -> bool {
        self.pinned
    }

    /// Puts them before the programs of the ports, which are in their places only behind them.
    ///
    /// # Errors
    /// Rules that say nothing on a port; what the kernel refuses.
    pub(crate) fn begin(&mut self, ports: &mut [RoutePort]) -> Result<Vec<String>, RouteError> {
        let notes = tags(&self.file, ports.iter().map(|port| port.slot().interface()))?;
        let next = self.loader(ports)?.load(&self.file, &self.sessions)?;
        self.put(next, ports)?;
        PinnedRules::here().set_pinned(self.pinned, ports)?;
        Ok(notes)
    }

    /// Reads the file again, and has its rules hold; comes back when they do.
    ///
    /// # Errors
    /// The new rules are wrong, or would lock out the requester: those of now go on.
    pub(crate) fn reload(&mut self, requester: &Requester, ports: &mut [RoutePort]) -> Result<Reloaded, RouteError> {
        // Rules being loaded come first.
        self.poll(ports, true);
        self.begin_reload(requester, ports)?;
        self.poll(ports, true);
        self.take_reloaded().unwrap_or(Err(RouteError::NoRules))
    }

    /// The result of the last reload, once.
    pub(crate) fn take_reloaded(&mut self) -> Option<Result<Reloaded, RouteError>> {
        self.reloaded.take()
    }

    /// The changes followed beside the file, once, in words.
    pub(crate) fn take_followed(&mut self) -> Vec<String> {
        std::mem::take(&mut self.followed)
    }

    /// True while rules are being loaded; no others can be meanwhile.
    pub(crate) fn is_busy(&self) -> bool {
        self.pending.is_some()
    }

    /// Has a thread read the file again; [`RouteRules::poll`] has its rules hold in place of those of now.
    pub(crate) fn begin_reload(&mut self, requester: &Requester, ports: &mut [RoutePort]) -> Result<(), RouteError> {
        let (loader, requester) = (self.loader(ports)?, requester.clone());
        let (path, sessions) = (self.path.clone(), self.sessions.clone());
        self.begin_load(None, move || loader.read(&path, &requester, sessions))
    }

    fn begin_load(
        &mut self,
        followed: Option<&'static str>,
        load: impl FnOnce() -> Result<LoadedRules, RouteError> + Send + 'static,
    ) -> Result<(), RouteError> {
        let begun = Instant::now();
        let thread = thread::Builder::new().name("ek-rules".to_owned()).spawn(load);
        let thread = thread.map_err(RouteError::system("start a thread that loads rules"))?;
        self.pending = Some(PendingLoad { begun, followed, thread });
        Ok(())
    }

    /// Has the rules hold that have been made, if they are ready or `waits`: each packet meets the old ones or the new ones, and counters go
    /// on. Where they could not be made those of now go on, and the status says why.
    pub(crate) fn poll(&mut self, ports: &mut [RoutePort], waits: bool) {
        let Some(PendingLoad { begun, followed, thread }) = self.pending.take_if(|it| waits || it.thread.is_finished())
        else {
            return;
        };
        let loaded = thread.join().unwrap_or_else(|_| {
            let source = std::io::Error::other("the thread that loads them panicked");
            Err(RouteError::System { operation: "make the rules", source })
        });
        let done = loaded.and_then(|LoadedRules { next, file, sessions, warnings }| {
            self.put(next, ports)?;
            (self.file, self.sessions) = (file, sessions);
            Ok(warnings)
        });
        let Some(what) = followed else {
            self.reload_error = done.as_ref().err().map(ToString::to_string);
            self.reloaded = Some(done.map(|warnings| {
                self.reloads += 1;
                let status::Holding { rules, built_in, expired, attack: _ } = self.holding();
                Reloaded { rules, built_in, expired, seconds: begun.elapsed().as_secs_f64(), warnings }
            }));
            return;
        };
        self.followed.push(match done {
            Ok(_) => format!("{what}, and the rules follow"),
            Err(error) => {
                // Not each second.
                self.active.own = own_addresses().unwrap_or_default();
                self.active.read_at = Some(Now::read());
                format!(
                    "{what}, but the rules do not follow: {error}; the old rules stay active, and `evenkeel route reload` tries again"
                )
            }
        });
    }

    /// Begins to follow what the rules go by beside the file: this machine's addresses, of the management allow-list, and the wall clock, by
    /// which rules expire.
    pub(crate) fn follow(&mut self, ports: &mut [RoutePort]) {
        if let Err(error) = self.begin_following(ports) {
            self.followed.push(format!("the rules follow neither addresses nor the clock: {error}"));
        }
    }

    fn begin_following(&mut self, ports: &mut [RoutePort]) -> Result<(), RouteError> {
        // What cannot be read now can be in a second; and those that are being made are followed when they hold.
        let (false, Ok(own)) = (self.is_busy(), own_addresses()) else { return Ok(()) };
        let allow_list = |own: &[IpAddr]| self.file.management.all(own, &self.sessions);
        let others = own != self.active.own && allow_list(&own) != allow_list(&self.active.own);
        let clock = self.active.read_at.is_some_and(|then| expires_otherwise(&self.file, then, Now::read()));
        let what = match (others, clock) {
            (false, false) => return Ok(()),
            (true, _) => "this machine's addresses changed",
            (false, true) => "the clock was set",
        };
        let (loader, file, sessions) = (self.loader(ports)?, self.file.clone(), self.sessions.clone());
        self.begin_load(Some(what), move || {
            Ok(LoadedRules { next: loader.load(&file, &sessions)?, file, sessions, warnings: Vec::new() })
        })
    }

    /// A loader for the rules of `ports`.
    fn loader(&self, ports: &mut [RoutePort]) -> Result<RulesLoader, RouteError> {
        Ok(RulesLoader {
            interfaces: ports.iter().map(|port| port.slot().interface().to_owned()).collect(),
            slots: ports.iter_mut().map(RoutePort::front).collect::<Result<_, _>>()?,
            shared: Arc::clone(&self.shared),
            counters: self.active.counters.clone(),
            active_names: self.active.shown.iter().map(|rule| rule.name.clone()).collect(),
        })
    }

    /// Has them hold on all ports, or on none.
    fn put(&mut self, next: ActiveRules, ports: &mut [RoutePort]) -> Result<(), RouteError> {
        for at in 0..ports.len().min(next.programs.len()) {
            if let Err(error) = ports[at].put_behind(&next.programs[at]) {
                for (port, before) in ports[..at].iter_mut().zip(&self.active.programs) {
                    // The first failure is the one reported.
                    let _ = port.put_behind(before);
                }
                return Err(error.into());
            }
        }
        self.active = next;
        Ok(())
    }

    /// Numbers of active rules.
    pub fn holding(&self) -> status::Holding {
        status::holding_of(&self.active.shown)
    }

    /// Status of the rules. `ended`: ports on which they are no longer active.
    pub(crate) fn status(&self, ended: Vec<String>) -> RouteRulesStatus {
        let counts = self.shared.counts_of(self.active.counters.end());
        let counted = |rule: &RuleStatus| {
            let count = self.active.counters.count(&rule.name, &counts.rules).unwrap_or_default();
            status::counted(rule, count)
        };
        RouteRulesStatus {
            file: self.path.display().to_string(),
            loaded: self.active.read_at.map_or_else(String::new, |at| at.wall.to_string()),
            reloads: self.reloads,
            reload_error: self.reload_error.clone(),
            default: self.active.default.to_owned(),
            pinned: self.pinned,
            malformed: status::verdict(self.file.rules.malformed).to_owned(),
            detached_ports: ended,
            rules: self.active.shown.iter().map(counted).collect(),
            totals: counts.totals,
        }
    }
}
