//! What can be known of packets, beside their bytes, in front of an interface of this machine.

use bpf::filter::KnownPackets;
use host::stack::Hooks;
use rules::{Rule, detect::StepConfig, file::RuleFile};

use super::{challenge::forwards, settings::Settings};
use crate::error::ShieldError;

/// What can be known now, with netfilter's rules as `hooks` finds them.
///
/// # Errors
/// Nothing can, and why.
pub(super) fn look(settings: &Settings, hooks: &mut Hooks) -> Result<KnownPackets, ShieldError> {
    let lacking = |why: String| Err(ShieldError::Lacking(why));
    if settings.between.is_some() {
        return lacking(
            "between two interfaces packets are for other machines, whose connections are not known here".into(),
        );
    }
    let interface = &settings.interface;
    let unread = |error| ShieldError::Lacking(format!("netfilter's rules cannot be read ({error})"));
    let translates = hooks.translates().map_err(unread)?;
    // Where netfilter has rules, it may know connections that no socket of this machine has.
    let tracked = translates.is_some() || hooks.look(interface).map_err(unread)?.is_some();
    if let Some(what) = translates.as_ref().filter(|_| !KnownPackets::tracks()) {
        return lacking(format!(
            "{what}, and this kernel lets no program look its connections up (Linux 6.0, module nf_conntrack)"
        ));
    }
    Ok(KnownPackets {
        mac: sys::link::mac(interface).ok().flatten().filter(|mac| *mac != [0; 6]),
        forwards: forwards(interface).is_some(),
        tracked: tracked && KnownPackets::tracks(),
        listeners: translates.is_none(),
        nothing: false,
    })
}

/// Returns whether a rule asks what is known.
pub(super) fn asks(rules: &[Rule]) -> bool {
    rules.iter().any(|rule| !rule.when.known.is_nothing())
}

/// Refuses rules that ask what cannot be known on this interface, and leaves out steps of ladders that would: what is to be told.
///
/// # Errors
/// The first such rule, and why.
pub(super) fn fit(settings: &Settings, file: &mut RuleFile) -> Result<Option<String>, ShieldError> {
    let known = look(settings, &mut Hooks::open());
    for rule in &file.rules.rules {
        let asked = &rule.when.known;
        let why = match &known {
            _ if asked.is_nothing() => continue,
            Err(error) => error.to_string(),
            Ok(known) if asked.listener.is_some() && !known.listeners => {
                "what listens behind a translated address cannot be said; ask `connection` instead".to_owned()
            }
            Ok(_) if asked.source_seen.is_some() && file.rules.protected.is_empty() => {
                "sources are remembered of what is protected alone: write protect = [\"ADDRESS/LENGTH\"]".to_owned()
            }
            Ok(_) => continue,
        };
        return Err(ShieldError::Lacking(format!(
            "the rule \"{}\" asks what is known of packets, but {why}",
            rule.name
        )));
    }
    if file.rules.protected.is_empty() {
        return Ok(None);
    }
    let why = match known {
        Err(error) => error.to_string(),
        Ok(_) => return Ok(None),
    };
    let steps = [StepConfig::DropUnknown {}, StepConfig::DropStrangers {}];
    let left_out = steps.iter().fold(false, |found, step| file.detection.leave_out(step) | found);
    // Of a gateway nobody expects them.
    Ok((left_out && settings.between.is_none())
        .then(|| format!("packets of an attack that nobody waits for are not dropped as such: {why}")))
}
