//! Requirements of rules on their interface.

use bpf::{XdpMode, filter::HostCookies};
use host::interface::Peer;
use port::offloads::{self, Tags};
use rules::{Action, Rule, detect::DetectConfig, file::RuleFile};

use super::{known, settings::Settings, syn_answers};
use crate::error::ShieldError;

/// Refuses rules that would not do what they say on this interface, and leaves out steps of ladders that cannot be taken: what is to be told.
pub(super) fn fit(settings: &Settings, file: &mut RuleFile) -> Result<Vec<String>, ShieldError> {
    let mut notes = Vec::new();
    notes.extend(sees_tags(settings, file)?);
    notes.extend(challenged(settings, file)?);
    notes.extend(leave_out(settings, file.rules.protected.is_empty(), &mut file.detection));
    notes.extend(known::fit(settings, file)?);
    notes.extend(merged(settings, file, true));
    Ok(notes)
}

/// Refuses rules about VLAN tags where XDP does not see them.
fn sees_tags(settings: &Settings, file: &RuleFile) -> Result<Option<String>, ShieldError> {
    let about_tags = |rule: &&Rule| !rule.when.vlan.is_empty();
    // Between two interfaces tags must stay whatever the rules are about.
    let Some(rule) = file.rules.rules.iter().find(about_tags).filter(|_| settings.between.is_none()) else {
        return Ok(None);
    };
    Ok(offloads::sees_tags(&settings.interface, &rule.name)?)
}

/// Refuses rules that challenge where their answers would not come to clients, or clients not to the server.
fn challenged(settings: &Settings, file: &RuleFile) -> Result<Option<String>, ShieldError> {
    let challenges = |rule: &&Rule| rule.action == Action::Challenge;
    let Some(rule) = file.rules.rules.iter().find(challenges).filter(|_| settings.between.is_none()) else {
        return Ok(None);
    };
    let name = &rule.name;
    answers(settings).map_err(|error| match error {
        ShieldError::Lacking(why) => ShieldError::Lacking(format!("the rule \"{name}\" challenges, but {why}")),
        other => other,
    })?;
    let interface = &settings.interface;
    let Tags::Unknown { switch } = offloads::tags(interface)? else { return Ok(None) };
    let vlans = offloads::vlans(interface)?;
    Ok((!vlans.is_empty()).then(|| {
        format!(
            "clients of {} may get no answers to challenges (rule \"{name}\"): the other end of {interface} must keep VLAN tags in the frames, and \
             cannot be checked from this network namespace. There: `{switch}`",
            vlans.join(", ")
        )
    }))
}

/// Leaves out the steps against attacks that need SYNs to be answered where they cannot be, so that the next ones are taken at once; returns the
/// warning.
pub(super) fn leave_out(settings: &Settings, unprotected: bool, detection: &mut DetectConfig) -> Option<String> {
    if settings.between.is_some() || unprotected {
        return None;
    }
    let error = answers(settings).err()?;
    let left_out = detection.leave_out_challenges();
    left_out.then(|| format!("no SYN cookies, so an attack meets the next step at once: {error}"))
}

/// Checks that SYNs to this host can be answered by XDP.
pub(super) fn answers(settings: &Settings) -> Result<(), ShieldError> {
    let interface = &settings.interface;
    if offloads::begins_with_ip(interface)? {
        return Err(ShieldError::Lacking(format!(
            "{interface} has no Ethernet headers, and XDP answers SYNs with Ethernet frames"
        )));
    }
    let peer = offloads::peer(interface)?;
    if let Some(peer) = &peer
        && bpf::takes_redirected_frames(interface)? == Some(false)
    {
        let (there, peer) = match peer {
            Peer::Here(peer) => ("", peer.as_str()),
            Peer::Elsewhere => (" in its network namespace", "PEER"),
        };
        return Err(ShieldError::Lacking(format!(
            "{interface} cannot transmit from XDP, as its peer runs no NAPI: `ethtool -K {peer} gro off`, then `gro on`{there} (or an XDP program there)"
        )));
    }
    let Tags::Beside { who, switch } = offloads::tags(interface)? else { return Ok(()) };
    let vlans = offloads::vlans(interface)?;
    if vlans.is_empty() {
        return Ok(());
    }
    Err(ShieldError::Lacking(untagged(interface, &vlans, &who, &switch)))
}

fn untagged(interface: &str, vlans: &[String], who: &str, switch: &str) -> String {
    format!(
        "clients of {} on {interface} would be answered without their VLAN tag: {who} may take it out of frames before XDP sees them; `{switch}`",
        vlans.join(", ")
    )
}

/// Warns of rules that count packets and get merged ones. What nobody here can tell is a warning at the `start` only.
pub(super) fn merged(settings: &Settings, file: &RuleFile, start: bool) -> Option<String> {
    if settings.mode != XdpMode::Generic || settings.between.is_some() {
        return None;
    }
    let counts = |rule: &&Rule| matches!(rule.action, Action::Limit(_)) || !rule.when.length.is_empty();
    let what = match file.rules.rules.iter().find(counts) {
        Some(rule) => format!("the rule \"{}\"", rule.name),
        None if !file.rules.protected.is_empty() => "detection".to_owned(),
        None => return None,
    };
    let interface = &settings.interface;
    // Who cannot be asked is not warned of.
    let commands = offloads::unmerge(interface).unwrap_or_default();
    let elsewhere = start && offloads::peer(interface).is_ok_and(|peer| peer == Some(Peer::Elsewhere));
    let mut ways: Vec<String> = commands.iter().map(|command| format!("`{command}`")).collect();
    if elsewhere {
        let there = "at the other end (not visible from this network namespace)";
        ways.push(format!("`ethtool -K PEER tso off tx-udp-segmentation off` {there}"));
    }
    let gets = if commands.is_empty() { "may get" } else { "gets" };
    (!ways.is_empty()).then(|| {
        format!(
            "{what} counts merged packets as one, and generic XDP on {interface} {gets} TCP and UDP packets after merging: {}",
            ways.join(" and ")
        )
    })
}

/// Settings for SYN-ACKs of rules that hold, or may come to hold against an attack; none: there are no such rules.
pub(super) fn host(settings: &Settings, file: &RuleFile) -> Option<HostCookies> {
    let wanted =
        settings.between.is_none() && (syn_answers::challenges(&file.rules.rules) || !file.rules.protected.is_empty());
    wanted.then(|| HostCookies::of(&settings.interface).ok()).flatten()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn clients_that_would_be_answered_outside_of_their_vlan_are_reported_with_the_way_out() {
        let message =
            untagged("eth0", &["eth0.5".into(), "lan".into()], "the driver of eth0", "ethtool -K eth0 rxvlan off");
        assert!(
            message.starts_with("clients of eth0.5, lan on eth0") && message.ends_with("`ethtool -K eth0 rxvlan off`"),
            "{message}"
        );
    }
}
