//! What changes under a running shield: the clock, the interface and its name.

use bpf::filter::{CookieMode, Cookies, HostCookies, ShieldLink, SourceCookies};
use model::shield::ChallengeStatus;
use rules::{compile::Now, file::RuleFile};

use super::{answers, control::Control, interface, plane::DataPlane, xdp::Xdp};
use crate::{
    between::{Pair, Sides},
    error::ShieldError,
};

/// The wall clock may differ this much from the monotonic one before rules that expire are compiled anew.
const CLOCK_JUMP_NS: i128 = 500_000_000;

/// Whether the wall clock was set between two moments, or the machine slept, which the monotonic one does not notice.
fn was_set(then: Now, now: Now) -> bool {
    let offset = |now: Now| now.wall.as_nanosecond() - i128::from(now.monotonic_ns);
    (offset(now) - offset(then)).abs() > CLOCK_JUMP_NS
}

/// Whether what was compiled `then` expires at other moments if it is compiled `now`.
pub(super) fn expires_otherwise(file: &RuleFile, then: Now, now: Now) -> bool {
    was_set(then, now) && file.rules.rules.iter().any(|rule| rule.expires.is_some())
}

impl Control<Xdp> {
    /// Looks at all that changes under the program. What was done, or could not be, in words.
    pub(super) fn follow_interface(&mut self) -> Vec<String> {
        let mut said = self.follow_names();
        said.extend(self.follow_connections().err().map(|error| error.to_string()));
        let name = self.name();
        let before = |what: String| move |error| format!("{what} changed; the new program failed: {error}");
        let syns = before(format!("SYNs are still answered as before {name}"));
        said.extend(self.follow_host().unwrap_or_else(|error| Some(syns(error))));
        let challenged = before("challenged SYNs are still answered as before netfilter or forwarding".to_owned());
        said.extend(self.follow_challenge().unwrap_or_else(|error| Some(challenged(error))));
        said
    }

    /// Forgets connections that ended, when there are so many of them that they are in the way of SYN cookies.
    ///
    /// # Errors
    /// Those that there are cannot be read.
    fn follow_connections(&self) -> Result<(), ShieldError> {
        let Some(cookies) = self.plane.cookies.as_ref().filter(|cookies| answers::is_crowded(cookies)) else {
            return Ok(());
        };
        answers::know_connections(Some(cookies), self.challenges())
    }

    /// Makes the program anew when the interface's address, its MTU or settings net.ipv4.tcp_* have changed, which SYN-ACKs go by: frames to
    /// another address would not be answered. What was done, in words.
    ///
    /// # Errors
    /// As for [`Control::reload`].
    fn follow_host(&mut self) -> Result<Option<String>, ShieldError> {
        let told = match self.plane.cookies.as_ref().map(Cookies::mode) {
            Some(CookieMode::Host(host) | CookieMode::Sources(SourceCookies { host, .. })) => Some(host.clone()),
            _ => None,
        };
        let before = [&told, &self.plane.host].into_iter().flatten();
        // What cannot be read now can be the next time.
        let Some(Ok(now)) = (before.clone().count() > 0).then(|| HostCookies::of(&self.settings.interface)) else {
            return Ok(None);
        };
        let Some(what) = before.map(|before| changed(before, &now)).find(|what| !what.is_empty()) else {
            return Ok(None);
        };
        if told.is_some()
            && let Some(cookies) = &mut self.plane.cookies
        {
            *cookies = cookies.with(self.plane.choice.mode(&self.settings)?);
        }
        self.hold_again()?;
        Ok(Some(format!(
            "{} has another {what}: SYNs are answered accordingly from now on",
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
        if self.plane.choice.until_ns != 0 && !self.plane.choice.lets_handshakes_end() {
            self.plane.choice.until_ns = 0;
            if !self.plane.choice.is_cookies() {
                self.plane.ack = None;
                answers::accept_no_more(&self.settings)?;
            }
        }
        let unmarked = || self.plane.cookies.as_ref()?.counts().ok().map(|counts| counts.unmarked > 0);
        let unmarked = unmarked().unwrap_or(false);
        let next = self.plane.choice.look(&self.settings, unmarked);
        if next == self.plane.choice.now {
            return Ok(None);
        }
        let before = (
            std::mem::replace(&mut self.plane.choice.now, next),
            self.plane.choice.until_ns,
            self.plane.cookies.clone(),
        );
        let other_way = before.0.as_ref().map(|now| now.way) != self.plane.choice.now.as_ref().map(|now| now.way);
        if other_way
            && (self.plane.cookies.is_some() || self.plane.host.is_some())
            && let Err(error) = self.answer_otherwise()
        {
            (self.plane.choice.now, self.plane.choice.until_ns, self.plane.cookies) = before;
            return Err(error);
        }
        Ok(self.plane.challenge().map(ChallengeStatus::text))
    }

    fn answer_otherwise(&mut self) -> Result<(), ShieldError> {
        match self.plane.choice.is_cookies() {
            true => self.plane.choice.until_ns = 0,
            false if self.plane.ack.is_some() => self.plane.choice.let_handshakes_end(),
            false => {}
        }
        if self.plane.cookies.is_some() {
            let cookies = answers::cookies(&self.settings, &self.plane.choice)?;
            if self.plane.ack.is_none() {
                self.plane.ack = answers::accept(&self.settings, Some(&cookies), &self.plane.choice)?;
            }
            self.plane.cookies = Some(cookies);
        }
        self.hold_again()
    }

    /// Goes by the new name of an interface that was renamed. What was done, in words; between two interfaces that is only said.
    fn follow_names(&mut self) -> Vec<String> {
        let mut said = Vec::new();
        for (number, link) in self.plane.links.iter_mut().enumerate() {
            let before = link.interface().to_owned();
            let Some(now) = link.renamed().map(ToOwned::to_owned) else { continue };
            // A gateway goes on under the names that it began with.
            let renamed = match self.settings.between {
                None if number == 0 => self.settings.places.rename(&now),
                _ => {
                    said.push(still_by(&before, &now));
                    continue;
                }
            };
            said.push(match renamed {
                Ok(()) => {
                    self.settings.interface.clone_from(&now);
                    if let Some(detection) = &mut self.detection {
                        detection.rename(&now);
                    }
                    format!(
                        "{before} is called {now} now, and its shield goes by that name: `evenkeel shield status {now}`"
                    )
                }
                Err(error) => format!("{}: {error}", still_by(&before, &now)),
            });
        }
        said
    }

    /// What is not as it should be, in words.
    pub(super) fn warnings(&self) -> Vec<String> {
        let mut warnings = Vec::new();
        for link in &self.plane.links {
            let held = self.sides.as_ref().and_then(Sides::held_down).filter(|(held, _)| *held == link.interface());
            warnings.extend(match held {
                Some((held, other)) => Some(format!(
                    "{held} is held down because {other} has no link, and comes up with it: nothing crosses"
                )),
                None => of_link(link),
            });
        }
        let known =
            self.settings.between.as_ref().map_or(vec![self.settings.interface.as_str()], |pair| pair.names().to_vec());
        for (was, now) in known.into_iter().zip(&self.plane.links).map(|(was, link)| (was, link.interface())) {
            if was != now {
                warnings.push(still_by(was, now));
            }
        }
        warnings.extend(self.settings.between.as_ref().and_then(unlike_mtus));
        let host = self.plane.cookies.as_ref().filter(|cookies| matches!(cookies.mode(), CookieMode::Host(_)));
        let counts = host.and_then(|cookies| cookies.counts().ok()).unwrap_or_default();
        warnings.extend(left_to_the_kernel(counts.multipath));
        if self.settings.between.is_none()
            && self.challenges()
            && let Err(error) = interface::answers(&self.settings)
        {
            warnings.push(format!("rules challenge, but {error}"));
        }
        warnings.extend(interface::merged(&self.settings, &self.file, false));
        warnings
    }
}

/// What differs of what SYN-ACKs go by, in words; empty: nothing.
fn changed(before: &HostCookies, now: &HostCookies) -> &'static str {
    if before == now {
        ""
    } else if before.mac != now.mac {
        "MAC address"
    } else if (before.mss_v4, before.mss_v6) != (now.mss_v4, now.mss_v6) {
        "MTU"
    } else {
        "setting net.ipv4.tcp_*"
    }
}

/// What is wrong with the interface of a shield.
pub(super) fn of_link(link: &ShieldLink) -> Option<String> {
    let name = link.interface();
    if let Some(why) = link.why_ended() {
        return Some(format!("{why}, and the filter is gone with it"));
    }
    if !link.is_here() {
        return Some(format!(
            "{name} was moved to another network namespace; the filter goes on there, and nothing is looked after from here"
        ));
    }
    let up = sys::link::flags(name).is_ok_and(|flags| flags.up);
    (!up).then(|| format!("{name} is down: nothing comes to the filter, which stays (`ip link set {name} up`)"))
}

pub(crate) fn still_by(before: &str, now: &str) -> String {
    format!(
        "{before} is called {now} now, and its shield still goes by the old name (`evenkeel shield status {before}`): what is set on the interface by its name is \
         not looked after, so give it its name back or start the shield again"
    )
}

/// XDP hands a frame to the other interface whatever its size, and that drops what is larger than it takes.
fn unlike_mtus(pair: &Pair) -> Option<String> {
    let [Ok(first), Ok(second)] = pair.names().map(sys::link::mtu) else { return None };
    (first != second).then(|| {
        let (small, large) = if first < second { (first, &pair.second) } else { (second, &pair.first) };
        format!(
            "{} has an MTU of {first} and {} one of {second}: what is larger than {small} bytes and comes at {large} is lost behind the filter, which counts it as \
             passed; give both the same MTU",
            pair.first, pair.second
        )
    })
}

fn left_to_the_kernel(syns: u64) -> Option<String> {
    (syns > 0).then(|| {
        format!(
            "{syns} SYNs to listeners of MPTCP were left to the kernel, which alone can answer them: keep net.ipv4.tcp_syncookies on, put a `limit` with \
             `per-source` before the challenge, or have the server listen for TCP alone (Go: GODEBUG=multipathtcp=0)"
        )
    })
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use jiff::{SignedDuration, Timestamp};

    use super::*;
    use rules::file;

    fn at(wall_s: i64, monotonic_s: u64) -> Now {
        Now { wall: Timestamp::from_second(wall_s).unwrap(), monotonic_ns: monotonic_s * 1_000_000_000 }
    }

    #[test]
    fn a_clock_that_is_set_by_an_hour_either_way_is_noticed_and_one_that_goes_is_not() {
        let then = at(1_900_000_000, 1000);
        assert!(!was_set(then, at(1_900_000_060, 1060)));
        assert!(was_set(then, at(1_900_003_660, 1060)), "an hour forward");
        assert!(was_set(then, at(1_899_996_460, 1060)), "an hour back");
        assert!(was_set(then, at(1_900_000_060, 1001)), "slept for 59 s");
        let near = Now { wall: then.wall + SignedDuration::from_millis(400), ..then };
        assert!(!was_set(then, near), "a clock that is slewed");
    }

    #[test]
    fn an_expiry_is_where_the_wall_clock_says_after_each_setting() {
        let rule = "[[rule]]\nname = \"a\"\naction = \"drop\"\n";
        let with = file::parse_in(&format!("{rule}expires = 2030-03-17T18:46:40Z\n"), "f", Path::new("")).unwrap();
        let expires = with.rules.rules[0].expires.unwrap();
        // An hour before it expires.
        let then = at(expires.as_second() - 3600, 1000);
        assert_eq!(then.monotonic_at(expires), 4600 * 1_000_000_000);
        for (wall_s, again, monotonic_s) in [(-3590, false, 4600), (10, true, 0), (-7190, true, 8200)] {
            let now = at(expires.as_second() + wall_s, 1010);
            assert_eq!(expires_otherwise(&with, then, now), again, "{wall_s}");
            // 1 ns after the start has long been.
            assert_eq!(now.monotonic_at(expires), if monotonic_s == 0 { 1 } else { monotonic_s * 1_000_000_000 });
        }
        let without = file::parse_in(rule, "f", Path::new("")).unwrap();
        assert!(!expires_otherwise(&without, then, at(0, 1010)), "nothing expires");
    }

    #[test]
    fn what_syn_acks_go_by_is_told_by_name_when_it_differs() {
        let before = HostCookies::default();
        let other = |change: fn(&mut HostCookies)| {
            let mut now = before.clone();
            change(&mut now);
            changed(&before, &now)
        };
        assert_eq!(other(|_| ()), "");
        assert_eq!(other(|now| now.mac = Some([2; 6])), "MAC address");
        assert_eq!(other(|now| now.mss_v4 = 1360), "MTU");
        assert_eq!(other(|now| now.sack = false), "setting net.ipv4.tcp_*");
    }
}
