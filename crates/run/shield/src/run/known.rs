//! Lookups that the kernel offers for packets in front of an interface of this machine.

use bpf::filter::KnownPackets;
use host::stack::Hooks;
use rules::{
    Rule,
    check::{Finding, Kind, Weight},
    detect::StepConfig,
    file::RuleFile,
};

use super::{
    challenge::{forwards, master},
    settings::Settings,
};
use crate::error::ShieldError;

/// Lookups possible now, with netfilter's rules as `hooks` finds them.
pub(super) fn look(settings: &Settings, hooks: &mut Hooks) -> Result<KnownPackets, ShieldError> {
    let lacking = |why: String| Err(ShieldError::Lacking(why));
    if settings.between.is_some() {
        return lacking(
            "packets between two interfaces are for other machines, whose connections and listeners are not known here"
                .into(),
        );
    }
    of_interface(&settings.interface, hooks)
}

fn of_interface(interface: &str, hooks: &mut Hooks) -> Result<KnownPackets, ShieldError> {
    let lacking = |why: String| Err(ShieldError::Lacking(why));
    if let Some(master) = master(interface) {
        return lacking(format!(
            "sockets bound to {master} cannot be found from its port {interface}: `ip link set {interface} nomaster`, or do without `connection`, \
             `listener` and `source-seen`"
        ));
    }
    let unread = |error| ShieldError::Lacking(format!("netfilter's rules cannot be read ({error})"));
    let translates = hooks.translates().map_err(unread)?;
    // Where netfilter has rules, it may know connections that no socket of this machine has.
    let tracked = translates.is_some() || hooks.look(interface).map_err(unread)?.is_some();
    if let Some(what) = translates.as_ref().filter(|_| !KnownPackets::tracks()) {
        return lacking(format!("{what}, and looking up its connections takes Linux 6.0 and the module nf_conntrack"));
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
pub(super) fn are_used(rules: &[Rule]) -> bool {
    rules.iter().any(|rule| !rule.when.known.is_nothing())
}

/// Returns why a rule asks what cannot be known of packets, of which `known` says what can; none: it can, or the rule does not ask.
fn unknown(rule: &Rule, known: &Result<KnownPackets, String>, remembers: bool) -> Option<String> {
    let known_match = &rule.when.known;
    match known {
        _ if known_match.is_nothing() => None,
        Err(why) => Some(why.clone()),
        Ok(known) if known.nothing => {
            Some("connections and listeners can no longer be looked up on this interface".to_owned())
        }
        Ok(known) if known_match.listener.is_some() && !known.listeners => {
            Some("listeners behind a translated address cannot be determined; use `connection` instead".to_owned())
        }
        Ok(_) if known_match.source_seen.is_some() && !remembers => {
            Some("sources are remembered only for protected addresses: set protect = [\"ADDRESS/LENGTH\"]".to_owned())
        }
        Ok(_) => None,
    }
}

/// Warnings about rules of a running shield that ask what can no longer be known, so that they apply to no packet.
pub(super) fn warnings(file: &RuleFile, known: Option<KnownPackets>) -> Vec<String> {
    let (Some(known), remembers) = (known.map(Ok), !file.rules.protected.is_empty()) else { return Vec::new() };
    let of_rule = |rule: &Rule| unknown(rule, &known, remembers).map(|why| (rule.name.clone(), why));
    let found = file.rules.rules.iter().filter_map(of_rule);
    found.map(|(name, why)| format!("the rule \"{name}\" applies to no packet: {why}")).collect()
}

/// Returns what rules ask that this machine cannot know, for checks that name no interface: `run` would refuse them.
pub fn unknowable_here(file: &RuleFile) -> Vec<Finding> {
    if !are_used(&file.rules.rules) {
        return Vec::new();
    }
    let known = of_interface("", &mut Hooks::open()).map_err(|error| error.to_string());
    let found = file.rules.rules.iter().filter_map(|rule| {
        let why = unknown(rule, &known, !file.rules.protected.is_empty())?;
        Some(Finding {
            kind: Kind::Unknowable,
            weight: Weight::Warning,
            line: rule.line,
            what: format!("the rule \"{}\" can apply to no packet: {why}", rule.name),
            instead: "`run` refuses it on this machine".to_owned(),
        })
    });
    found.collect()
}

/// Refuses rules that ask what cannot be known on this interface, and leaves out steps of ladders that would: what is to be told.
pub(super) fn fit(settings: &Settings, file: &mut RuleFile) -> Result<Option<String>, ShieldError> {
    let known = look(settings, &mut Hooks::open()).map_err(|error| error.to_string());
    let remembers = !file.rules.protected.is_empty();
    let refused = |rule: &Rule| unknown(rule, &known, remembers).map(|why| (rule.name.clone(), why));
    if let Some((name, why)) = file.rules.rules.iter().find_map(refused) {
        return Err(ShieldError::Lacking(format!("the rule \"{name}\" can apply to no packet: {why}")));
    }
    let Err(why) = known else { return Ok(None) };
    if !remembers {
        return Ok(None);
    }
    let steps = [StepConfig::DropUnknown {}, StepConfig::DropStrangers {}];
    let left_out = steps.iter().fold(false, |found, step| file.detection.leave_out(step) | found);
    // Between two interfaces these steps never apply, so there is nothing to report.
    Ok((left_out && settings.between.is_none())
        .then(|| format!("unsolicited packets of an attack are not dropped as such: {why}")))
}
