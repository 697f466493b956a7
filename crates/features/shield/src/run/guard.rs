//! The shield in front of an interface, tended by this process.

use std::{net::IpAddr, sync::Arc, time::Duration};

use bpf::shield::{Cookies, HostCookies, Shield, ShieldAck, ShieldLink, ShieldShared};
use rules::{Action, Rule, compile::Now, file::RuleFile};

use super::{
    ahead::Ahead,
    answers::{accept, challenge, challenges, cookies, know_connections},
    asked::Asked,
    challenge::Choice,
    heart::Heart,
    interface,
    lock::Lock,
    making::{Making, own_addresses},
    memory::{Memory, write_memory},
    settings::Settings,
    watch::{Counting, Plan, Watchman},
};
use crate::{
    between::{Pair, Sides},
    detect,
    error::ShieldError,
};

/// A shield, tended. When it is dropped it stays in front of the interface, without anybody who tends it; [`Guard::stop`] takes it away.
#[derive(Debug)]
pub struct Guard {
    pub(super) settings: Settings,
    pub(super) shared: Arc<ShieldShared>,
    pub(super) link: ShieldLink,
    /// On the other one of two interfaces.
    pub(super) second: Option<ShieldLink>,
    pub(super) sides: Option<Sides>,
    pub(super) cookies: Option<Cookies>,
    /// How SYNs are answered.
    pub(super) choice: Choice,
    /// What SYN-ACKs of the programs say that were loaded last.
    pub(super) host: Option<HostCookies>,
    pub(super) ack: Option<ShieldAck>,
    pub(super) file: RuleFile,
    pub(super) memory: Memory,
    /// Rules that detection adds.
    pub(super) extra: Vec<Rule>,
    /// The machine's addresses in the allow-list.
    pub(super) own: Vec<IpAddr>,
    pub(super) ahead: Ahead,
    pub(super) watchman: Option<Watchman>,
    pub(super) read_at: Now,
    pub(super) reloads: u64,
    pub(super) refused: Option<String>,
    /// What there is to say.
    pub(super) notes: Vec<String>,
    pub(super) heart: Heart,
    pub(super) _lock: Option<Lock>,
}

impl Guard {
    /// Reads the rules again and puts them in the place of those that hold, all at once. After an error those that hold go on. What is
    /// probably not meant in them, in words.
    ///
    /// # Errors
    /// What is wrong with the new ones, or that they would cut off who asks; it is also kept for [`Guard::reloads`].
    pub fn reload(&mut self, asked: &Asked) -> Result<Vec<String>, ShieldError> {
        // Sessions with this machine do not go through a gateway.
        let asked = if self.settings.between.is_some() { &Asked::default() } else { asked };
        let before = self.settings.sessions.clone();
        let done = self.settings.source.read_again().and_then(|mut file| {
            let warnings = asked.judge(&file)?;
            asked.let_in(&mut self.settings.sessions);
            self.notes.extend(interface::fit(&self.settings, &mut file)?);
            self.hold(file, None, false).map(|()| warnings)
        });
        if done.is_err() {
            self.settings.sessions = before;
        }
        self.refused = done.as_ref().err().map(ToString::to_string);
        let warnings = done?;
        self.reloads += 1;
        let lost = self.watchman.as_mut().and_then(|watchman| watchman.sentry.follow_log());
        self.notes.extend(lost.map(|error| error.to_string()));
        Ok(warnings)
    }

    /// Looks for attacks, and makes hold what is to be done about them, behind the management allow-list. What happened has been told
    /// to the log and the hook.
    ///
    /// # Errors
    /// The rules against an attack cannot be had; those that hold go on.
    pub fn look(&mut self) -> Result<detect::Seen, ShieldError> {
        let Some(watchman) = &mut self.watchman else { return Ok(detect::Seen::default()) };
        let mut seen = watchman.sentry.look(&self.shared.counts_of(self.memory.counters.end()), &self.memory.counters);
        watchman.note(&seen);
        if let Err(error) = watchman.keep(&self.settings.places) {
            self.notes.push(format!("what was learned cannot be kept for a later process: {error}"));
        }
        if let Some(rules) = seen.rules.take() {
            // What is withdrawn has time.
            let urgent = rules.iter().any(|rule| !self.extra.contains(rule));
            if let Err(error) = self.hold(self.file.clone(), Some(rules), urgent) {
                if let Some(watchman) = &mut self.watchman {
                    watchman.sentry.not_held();
                }
                return Err(error);
            }
        } else if let Some(shield) = self.ahead.ready()? {
            self.replace(&shield)?;
        }
        Ok(seen)
    }

    /// How often [`Guard::look`] is to be called; none: nothing is watched.
    pub fn look_every(&self) -> Option<Duration> {
        self.watchman.as_ref().map(|watchman| Duration::from_millis(watchman.sentry.detector().config().every_ms))
    }

    pub(super) fn watchman(&self) -> Option<&Watchman> {
        self.watchman.as_ref()
    }

    /// Whether a program waits for the rules against an attack.
    pub fn is_prepared(&self) -> bool {
        self.ahead.waits()
    }

    /// Whether rules that hold ask for SYN cookies.
    pub(super) fn challenges(&self) -> bool {
        challenges(&self.file) || challenge(&self.extra)
    }

    fn replace(&mut self, shield: &Shield) -> Result<(), ShieldError> {
        replace(&mut self.link, self.second.as_mut(), shield)
    }

    /// Makes these rules hold, and against attacks `mitigations`; none: those of now go on.
    pub(super) fn hold(
        &mut self,
        file: RuleFile,
        mitigations: Option<Vec<Rule>>,
        urgent: bool,
    ) -> Result<(), ShieldError> {
        let host = interface::host(&self.settings, &file);
        let (interface, places) = (&self.settings.interface, &self.settings.places);
        let plan = Plan::of(self.watchman.as_ref(), interface, &file, places, Counting::Kernel, &mut self.notes)?;
        let mut extra = plan.extra(self.watchman.as_ref()).or(mitigations).unwrap_or_else(|| self.extra.clone());
        self.notes.extend(detect::fit(&mut extra, &file.rules));
        if self.cookies.is_none() && (challenges(&file) || challenge(&extra)) {
            let both = cookies(&self.settings, &self.choice)
                .and_then(|c| Ok((accept(&self.settings, Some(&c), &self.choice)?, c)));
            match both {
                Ok((ack, cookies)) => (self.ack, self.cookies) = (ack, Some(cookies)),
                Err(error) if challenges(&file) => return Err(error),
                // What else is to be done against attacks must not wait for what cannot be.
                Err(error) => {
                    extra.retain(|rule| rule.action != Action::Challenge);
                    self.notes.push(format!("SYNs of the attack are not challenged: {error}"));
                }
            }
        }
        let own = own_addresses(&self.settings)?;
        let mut elsewhere = plan.is_elsewhere().then(|| Ahead::new(&file.rules.protected));
        let mut made = Making {
            ahead: elsewhere.as_mut().unwrap_or(&mut self.ahead),
            urgent,
            settings: &self.settings,
            shared: &self.shared,
            file: &file,
            extra: &extra,
            own: &own,
            memory: self.memory.clone(),
            cookies: self.cookies.clone(),
            choice: &self.choice,
            watch: plan.config(self.watchman.as_ref()),
        };
        let (shield, read_at, job) = made.shield()?;
        let memory = made.memory;
        if let Err(error) = write_memory(&self.settings.places, &memory) {
            // What is to be done against an attack does not wait for room on a disk.
            self.notes
                .push(format!("the rules hold, but a process that takes over will not know their counters: {error}"));
        }
        if let Err(error) = self.replace(&shield) {
            // That the old ones go on is the news.
            let _ = write_memory(&self.settings.places, &self.memory);
            return Err(error);
        }
        let untold = plan.carry_out(&mut self.watchman);
        self.notes.extend(untold.iter().map(ToString::to_string));
        let challenged = self.challenges();
        (self.memory, self.file, self.read_at, self.extra, self.own) = (memory, file, read_at, extra, own);
        self.host = host;
        // There are connections that the program has not seen: of the time in between, and of ports that are challenged from now on.
        if (self.challenges() || challenged)
            && let Err(error) = know_connections(self.cookies.as_ref(), self.challenges())
        {
            self.notes.push(error.to_string());
        }
        if let Some(ahead) = elsewhere {
            self.ahead = ahead;
        }
        self.ahead.begin(job)
    }

    /// Carries the link state of one of two interfaces over to the other. What was done, in words.
    ///
    /// # Errors
    /// An interface cannot be taken down or up.
    pub fn carry(&mut self) -> Result<Option<String>, ShieldError> {
        self.sides.as_mut().map_or(Ok(None), Sides::carry)
    }

    /// Whether all interfaces still exist.
    pub fn is_alive(&self) -> bool {
        self.link.is_alive() && self.second.as_ref().is_none_or(ShieldLink::is_alive)
    }

    /// What there is to say that nobody has asked for: once.
    pub fn take_notes(&mut self) -> Vec<String> {
        std::mem::take(&mut self.notes)
    }

    /// Leaves the shield where it is, for a process that comes.
    pub fn leave(mut self) {
        if let Some(watchman) = &mut self.watchman {
            // It was kept some seconds ago.
            let _ = watchman.keep_now(&self.settings.places);
        }
    }

    /// Takes the shield away.
    ///
    /// # Errors
    /// Something of it stays.
    pub fn stop(mut self) -> Result<(), ShieldError> {
        if let Some(watchman) = &mut self.watchman {
            // What cannot be told keeps nothing from ending.
            let _ = watchman.sentry.end_attacks(&[]);
            watchman.sentry.end_metrics();
        }
        let Self { settings, link, second, heart, ack, .. } = self;
        settings.places.remove()?;
        drop((link, second, ack, heart));
        Ok(())
    }

    /// The file that holds.
    pub fn file(&self) -> &RuleFile {
        &self.file
    }

    /// The maps that go on.
    pub fn shared(&self) -> &ShieldShared {
        &self.shared
    }

    /// The program on the interface.
    pub fn link(&self) -> &ShieldLink {
        &self.link
    }

    /// The program on the second of two interfaces.
    pub fn second(&self) -> Option<&ShieldLink> {
        self.second.as_ref()
    }

    /// What is kept for a later process.
    pub fn memory(&self) -> &Memory {
        &self.memory
    }

    /// The interface, or both as `A,B`.
    pub fn name(&self) -> String {
        self.settings.between.as_ref().map_or_else(|| self.settings.interface.clone(), Pair::to_string)
    }

    /// What was asked for.
    pub fn settings(&self) -> &Settings {
        &self.settings
    }

    /// How often rules were replaced, and why the last try was refused.
    pub fn reloads(&self) -> (u64, Option<&str>) {
        (self.reloads, self.refused.as_deref())
    }
}

/// Puts the program in the place of the one in front of the interface, or of both or neither.
pub(super) fn replace(
    link: &mut ShieldLink,
    second: Option<&mut ShieldLink>,
    shield: &Shield,
) -> Result<(), ShieldError> {
    match second {
        Some(second) => ShieldLink::replace_both(link, second, shield)?,
        None => link.replace(shield)?,
    }
    Ok(())
}
