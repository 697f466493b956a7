//! Changes under a running shield: the clock, the interface and its name.

use bpf::filter::{CookieMode, Cookies, HostCookies, KnownPackets, SourceCookies};
use model::shield::ChallengeStatus;
use rules::{detect::StepConfig, file::RuleFile};

use super::{
    control::{Control, Upkeep},
    interface, known,
    plane::Changed,
    syn_answers, warnings,
    xdp::Xdp,
};
use crate::{between::LinkState, error::ShieldError};

impl Control<Xdp> {
    /// Looks at all that changes under the program. What was done, or could not be, in words.
    fn follow_interface(&mut self) -> Vec<String> {
        let mut notes = self.follow_names();
        notes.extend(self.follow_connections().err().map(|error| error.to_string()));
        let name = self.name();
        let failed = |what: &str, holds: &str| {
            let (what, holds) = (what.to_owned(), holds.to_owned());
            move |error| format!("{what} changed, but loading the new program failed: {error}; {holds}")
        };
        // First: while the program for it is loaded, SYNs go to the kernel unanswered.
        let challenged =
            failed("netfilter or forwarding", "challenged SYNs are answered as before or go to the kernel");
        notes.extend(self.follow_challenge().unwrap_or_else(|error| Some(challenged(error))));
        let syns = failed(&name, "SYNs are answered as before");
        notes.extend(self.follow_host().unwrap_or_else(|error| Some(syns(error))));
        let lookups =
            failed("netfilter, forwarding or the address", "connections and listeners are looked up as before");
        notes.extend(self.follow_known().unwrap_or_else(|error| Some(lookups(error))));
        let laddered = failed("whether SYNs can be answered", "the steps against attacks stay as they were");
        notes.extend(self.follow_answers().unwrap_or_else(|error| Some(laddered(error))));
        notes
    }

    /// Forgets connections that ended, when there are so many of them that they are in the way of SYN cookies.
    fn follow_connections(&self) -> Result<(), ShieldError> {
        let Some(cookies) = self.plane.answers.cookies.as_ref().filter(|cookies| syn_answers::is_saturated(cookies))
        else {
            return Ok(());
        };
        syn_answers::update_connections(Some(cookies), self.challenges())
    }

    /// Makes the program anew when the interface's address, its MTU or settings net.ipv4.tcp_* have changed, which SYN-ACKs go by: frames to
    /// another address would not be answered. What was done, in words.
    fn follow_host(&mut self) -> Result<Option<String>, ShieldError> {
        let active = match self.plane.answers.cookies.as_ref().map(Cookies::mode) {
            Some(
                CookieMode::Host(host) | CookieMode::Kernel(host) | CookieMode::Sources(SourceCookies { host, .. }),
            ) => Some(host.clone()),
            _ => None,
        };
        let before = [&active, &self.plane.answers.host].into_iter().flatten();
        // What cannot be read now can be the next time.
        let Some(Ok(now)) = (before.clone().count() > 0).then(|| HostCookies::of(&self.settings.interface)) else {
            return Ok(None);
        };
        let Some(what) = before.map(|before| changed(before, &now)).find(|what| !what.is_empty()) else {
            return Ok(None);
        };
        if active.is_some()
            && let Some(cookies) = &mut self.plane.answers.cookies
        {
            *cookies = cookies.with(self.plane.answers.choice.mode(&self.settings)?);
        }
        self.reapply()?;
        Ok(Some(format!(
            "the {what} of {} changed, and the answers to SYNs follow it",
            self.plane.interface().unwrap_or(&self.settings.interface)
        )))
    }

    /// Answers SYNs the other way when netfilter came to have rules, or forwarding began, or either ended. What was done, in words.
    ///
    /// # Errors
    /// As for [`Control::reload`]; the way of before goes on, and it is tried again.
    fn follow_challenge(&mut self) -> Result<Option<String>, ShieldError> {
        if self.settings.between.is_some() {
            return Ok(None);
        }
        let answers = &mut self.plane.answers;
        if answers.choice.until_ns != 0 && !answers.choice.lets_handshakes_end() {
            answers.choice.until_ns = 0;
            if !answers.choice.is_cookies() {
                answers.ack = None;
                syn_answers::accept_no_more(&self.settings)?;
            }
        }
        let counts = answers.cookies.as_ref().and_then(|cookies| cookies.counts().ok());
        let next = answers.choice.look(&self.settings, counts.is_some_and(|counts| counts.unmarked > 0));
        if next == answers.choice.now {
            answers.withhold(false)?;
            return Ok(None);
        }
        let before =
            (std::mem::replace(&mut answers.choice.now, next), answers.choice.until_ns, answers.cookies.clone());
        let other_way = before.0.as_ref().map(|now| now.method) != answers.choice.now.as_ref().map(|now| now.method);
        // Where it was sources, they go on until then.
        answers.withhold(other_way)?;
        if other_way
            && (answers.cookies.is_some() || answers.host.is_some())
            && let Err(error) = answers.change(&self.settings).and_then(|()| self.reapply())
        {
            let answers = &mut self.plane.answers;
            (answers.choice.now, answers.choice.until_ns, answers.cookies) = before;
            return Err(error);
        }
        self.plane.answers.withhold(false)?;
        Ok(self.plane.answers.challenge().map(ChallengeStatus::text))
    }

    /// Takes the steps of ladders that challenge in again when SYNs can be answered, and leaves them out when they no longer can. What was done, in words.
    ///
    /// # Errors
    /// As for [`Control::reload`]; the ladders of before go on, and it is tried again.
    fn follow_answers(&mut self) -> Result<Option<String>, ShieldError> {
        let challenge = StepConfig::Challenge {};
        if self.settings.between.is_some() || !self.requested_detection.has(&challenge) {
            return Ok(None);
        }
        let mut detection = self.requested_detection.clone();
        let left_out =
            interface::leave_out(&self.settings, self.active.file.rules.protected.is_empty(), &mut detection);
        if detection.has(&challenge) == self.active.file.detection.has(&challenge) {
            return Ok(None);
        }
        // Steps that ask what cannot be known here stay out.
        for step in [StepConfig::DropUnknown {}, StepConfig::DropStrangers {}] {
            if !self.active.file.detection.has(&step) {
                detection.leave_out(&step);
            }
        }
        self.apply(RuleFile { detection, ..self.active.file.clone() }, None, Changed::All)?;
        let interface = &self.settings.interface;
        Ok(Some(left_out.unwrap_or_else(|| {
            format!("SYNs of an attack are challenged from now on: {interface} can transmit from XDP")
        })))
    }

    /// Makes the program anew when what can be known of packets has changed: netfilter came to translate or to track, forwarding began, the
    /// interface has another address. What was done, in words.
    ///
    /// # Errors
    /// As for [`Control::reload`]; what was known before goes on, and it is tried again.
    fn follow_known(&mut self) -> Result<Option<String>, ShieldError> {
        if self.settings.between.is_some() {
            return Ok(None);
        }
        let now = known::look(&self.settings, &mut self.plane.answers.choice.hooks);
        let before = self.plane.known;
        if now.as_ref().ok() == before.as_ref() {
            return Ok(None);
        }
        let why = now.as_ref().err().map(ToString::to_string);
        let uses_known = known::are_used(&self.active.file.rules.rules) || known::are_used(&self.active.extra);
        self.plane.known = Some(now.unwrap_or(KnownPackets { nothing: true, ..KnownPackets::default() }));
        if self.plane.known == before {
            return Ok(None);
        }
        // The programs that wait for rules against an attack go by it too.
        let may_use_known = uses_known || self.detection.is_some();
        if may_use_known && let Err(error) = self.reapply() {
            self.plane.known = before;
            return Err(error);
        }
        Ok(uses_known.then(|| match why {
            None => "netfilter, forwarding or the interface's address changed: rules with `connection`, `listener` or `source-seen` follow it".to_owned(),
            Some(why) => format!("rules with `connection`, `listener` or `source-seen` apply to no packet: {why}"),
        }))
    }

    /// Goes by the new name of an interface that was renamed. What was done, in words; between two interfaces that is only notes.
    fn follow_names(&mut self) -> Vec<String> {
        let mut notes = Vec::new();
        let moved = self.plane.links.iter().find(|link| link.is_alive() && !link.is_here());
        if !self.moved {
            notes.extend(moved.and_then(warnings::of_link));
        }
        self.moved = moved.is_some();
        for (number, link) in self.plane.links.iter_mut().enumerate() {
            let before = link.interface().to_owned();
            let Some(now) = link.renamed().map(ToOwned::to_owned) else { continue };
            // A gateway goes on under the names that it began with.
            let renamed = match self.settings.between {
                None if number == 0 => self.settings.paths.rename(&now),
                _ => {
                    notes.push(warnings::still_by(&before, &now));
                    continue;
                }
            };
            notes.push(match renamed {
                Ok(()) => {
                    self.settings.interface.clone_from(&now);
                    if let Some(detection) = &mut self.detection {
                        detection.rename(&now);
                    }
                    format!(
                        "{before} was renamed to {now}, and its shield uses the new name: `evenkeel shield status {now}`"
                    )
                }
                Err(error) => format!("{}: {error}", warnings::still_by(&before, &now)),
            });
        }
        notes
    }

    fn warnings_now(&self) -> Vec<String> {
        let mut found = Vec::new();
        for link in &self.plane.links {
            let held = self.sides.as_ref().and_then(LinkState::held_down).filter(|(held, _)| *held == link.interface());
            found.extend(match held {
                Some((held, other)) => {
                    Some(format!("nothing crosses: {other} has no link, and {held} is held down until it has"))
                }
                None => warnings::of_link(link),
            });
        }
        let known =
            self.settings.between.as_ref().map_or(vec![self.settings.interface.as_str()], |pair| pair.names().to_vec());
        for (was, now) in known.into_iter().zip(&self.plane.links).map(|(was, link)| (was, link.interface())) {
            if was != now {
                found.push(warnings::still_by(was, now));
            }
        }
        let times = self.plane.links.iter().map(|link| link.times_put_back()).sum();
        found.extend(warnings::put_back(times));
        found.extend(warnings::of_pins(&self.settings.paths));
        found.extend(self.settings.between.as_ref().and_then(warnings::unlike_mtus));
        let host = self
            .plane
            .answers
            .cookies
            .as_ref()
            .filter(|cookies| matches!(cookies.mode(), CookieMode::Host(_) | CookieMode::Kernel(_)));
        let counts = host.and_then(|cookies| cookies.counts().ok()).unwrap_or_default();
        found.extend(warnings::left_to_the_kernel(counts.multipath));
        if self.settings.between.is_none()
            && self.challenges()
            && let Err(error) = interface::answers(&self.settings)
        {
            found.push(format!("rules challenge, but {error}"));
        } else if self.leaves_out_challenges()
            && let Err(error) = interface::answers(&self.settings)
        {
            found.push(format!("SYNs of an attack are not challenged: {error}"));
        }
        found.extend(interface::merged(&self.settings, &self.active.file, false));
        found.extend(known::warnings(&self.active.file, self.plane.known));
        found
    }
}

impl Upkeep for Xdp {
    fn suspect(control: &mut Control<Self>) {
        // A connection that a cookie began would end at rules that have not seen its SYN.
        if let Err(error) = control.plane.answers.withhold(true) {
            control.notes.push(format!("SYNs are answered by cookies until the rules of nftables are read: {error}"));
        }
    }

    fn follow(control: &mut Control<Self>) -> Vec<String> {
        control.follow_interface()
    }

    fn warnings(control: &Control<Self>) -> Vec<String> {
        control.warnings_now()
    }
}

/// Returns which of the settings differs that SYN-ACKs go by; empty: none.
fn changed(before: &HostCookies, now: &HostCookies) -> &'static str {
    if before == now {
        ""
    } else if before.mac != now.mac {
        "MAC address"
    } else if (before.mss_v4, before.mss_v6) != (now.mss_v4, now.mss_v6) {
        "MTU"
    } else if (before.two_tags, &before.tags) != (now.two_tags, &now.tags) {
        "VLAN devices"
    } else {
        "setting net.ipv4.tcp_*"
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_syn_acks_go_by_is_reported_by_name_when_it_differs() {
        let before = HostCookies::default();
        let other = |change: fn(&mut HostCookies)| {
            let mut now = before.clone();
            change(&mut now);
            changed(&before, &now)
        };
        assert_eq!(other(|_| ()), "");
        assert_eq!(other(|now| now.mac = Some([2; 6])), "MAC address");
        assert_eq!(other(|now| now.mss_v4 = 1360), "MTU");
        assert_eq!(other(|now| now.tags = Some([7].into())), "VLAN devices");
        assert_eq!(other(|now| now.sack = false), "setting net.ipv4.tcp_*");
    }
}
