//! Probable mistakes: rules that never decide, rules that contradict each other, sets that nobody uses, a rule that would cut off the session that
//! the rules are typed in.

mod protection;
mod region;

use std::collections::BTreeSet;

use crate::tables::RuleAction;
use serde::Serialize;

use self::region::Regions;
use super::{
    file::RuleFile,
    management::Session,
    rule::{Action, Fragment, Match, Place, Rule, Rules, TcpFlags, Verdict},
};
use crate::{
    compile::Now,
    packet::{Packet, Part},
    reference::{self, Outcome},
};

/// Conflicts that are told one by one.
const CONFLICTS_MAX: usize = 20;
/// The port of most connections of one's own.
const HTTPS: u16 = 443;
/// Flags of a data segment, of a connection's first and second.
const ACK: u8 = 16;
const SYN: u8 = 2;

/// The weight of a finding.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Weight {
    /// Good to know.
    Note,
    Warning,
    Harm,
}

/// The subject of a finding.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Kind {
    Expired,
    /// No packet fulfils the rule's conditions.
    AppliesToNothing,
    /// The rule challenges packets that are not TCP.
    ChallengesOthers,
    /// The rule challenges SYNs, and not the ACKs that bring the cookie back.
    ChallengesSynOnly,
    /// An earlier rule decides about all of the rule's packets.
    NeverApplies,
    /// Two rules decide differently about common packets.
    Overlap,
    /// More overlaps than are listed.
    MoreOverlaps,
    /// No rule names the set.
    UnusedSet,
    /// The set holds all addresses of a family.
    HoldsAll,
    /// A rule would end the ssh session, or keep it from being opened again.
    CutsOff,
    /// Answers to connections of this machine are dropped.
    DropsAnswers,
    /// `[detection]` without a protected prefix.
    NothingProtected,
    /// Limits are neither given nor learned.
    NoLimits,
    /// A file of `[detection]` cannot be written.
    NoFile,
    /// The hook's program cannot be run.
    NoProgram,
    /// The rule asks what this machine cannot know of packets.
    Unknowable,
}

/// Something found in rules that are well written.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Finding {
    pub kind: Kind,
    pub weight: Weight,
    /// The line of the file where the rule begins.
    pub line: Option<usize>,
    pub what: String,
    pub instead: String,
}

fn found(kind: Kind, weight: Weight, rule: Option<&Rule>, what: String, instead: &str) -> Finding {
    Finding { kind, weight, line: rule.and_then(|rule| rule.line), what, instead: instead.to_owned() }
}

fn named(rule: &Rule) -> String {
    match rule.line {
        Some(line) => format!("`{}` (line {line})", rule.name),
        None => format!("`{}`", rule.name),
    }
}

/// A rule and what it does, as messages name them.
fn acting(rule: &Rule, action: RuleAction) -> String {
    match rule.line {
        Some(line) => format!("`{}` (line {line}, {})", rule.name, word(action)),
        None => format!("`{}` ({})", rule.name, word(action)),
    }
}

/// Says that a file lets everything pass, as one that an editor has just emptied.
pub fn without_rules(file: &RuleFile) -> Option<&'static str> {
    let rules = &file.rules;
    let is_open = rules.rules.is_empty() && rules.protected.is_empty() && rules.default == Verdict::Pass;
    is_open.then_some("there are no rules; every packet passes")
}

/// All that can be said about the rules of a file, for a machine where `sessions` are open, in the order of the file.
pub fn check(file: &RuleFile, sessions: &[Session], now: Now) -> Vec<Finding> {
    let mut findings = order(&file.rules, now);
    findings.extend(sets(&file.rules));
    findings.extend(protection::detection(file));
    for session in sessions {
        findings.extend(cut_off(file, session, now));
    }
    findings.extend(answers(&file.rules, sessions, now));
    findings.sort_by_key(|finding| finding.line.unwrap_or(usize::MAX));
    findings
}

/// The decision of a rule, if it always decides.
fn decides(rule: &Rule) -> Option<RuleAction> {
    match rule.action {
        _ if rule.shadow => None,
        Action::Pass => Some(RuleAction::Pass),
        Action::Drop => Some(RuleAction::Drop),
        Action::Challenge => Some(RuleAction::Challenge),
        Action::Limit(_) => None,
    }
}

fn word(action: RuleAction) -> &'static str {
    match action {
        RuleAction::Pass => "pass",
        RuleAction::Drop => "drop",
        RuleAction::Challenge => "challenge",
        RuleAction::Limit => "limit",
    }
}

/// The reason why no packet fulfils all of these conditions, and what to write instead.
fn never(when: &Match, rules: &Rules) -> Option<(&'static str, &'static str)> {
    let inside = !when.source_port.is_empty()
        || !when.destination_port.is_empty()
        || when.tcp_flags.is_some()
        || !when.icmp_type.is_empty();
    if when.fragment == Some(Fragment::Later) && inside {
        return Some((
            "later fragments have neither ports nor TCP flags nor an ICMP type",
            "leave fragment = \"later\" or those conditions out",
        ));
    }
    // Whether there is an address of IPv4, and one of IPv6.
    let families = |places: &[Place]| {
        let prefixes = places.iter().flat_map(|place| match place {
            Place::Prefix(prefix) => std::slice::from_ref(prefix),
            Place::Set(name) => rules.sets.get(name).map_or(&[][..], |set| &set.prefixes),
        });
        prefixes.fold([places.is_empty(); 2], |[v4, v6], prefix| {
            [v4 || prefix.address.is_ipv4(), v6 || prefix.address.is_ipv6()]
        })
    };
    let (source, destination) = (families(&when.source), families(&when.destination));
    if !(source[0] && destination[0] || source[1] && destination[1]) {
        return Some((
            "its sources and its destinations are of different families",
            "write IPv4 addresses on both sides, or IPv6 addresses",
        ));
    }
    let (least, why) = match when.family {
        Some(6) => (40, "no IPv6 packet is shorter than its header of 40 bytes"),
        _ => (20, "no IP packet is shorter than a header of 20 bytes"),
    };
    if !when.length.is_empty() && when.length.iter().all(|range| *range.end() < least) {
        return Some((why, "write the length of the whole IP packet in bytes"));
    }
    None
}

/// Rules that the order makes void, and pairs that only the order decides between.
fn order(rules: &Rules, now: Now) -> Vec<Finding> {
    let mut of_rules = Regions::of(rules);
    let regions: Vec<_> = rules.rules.iter().map(|rule| of_rules.region(&rule.when)).collect();
    let (mut findings, mut conflicts) = (Vec::new(), 0);
    for (n, rule) in rules.rules.iter().enumerate() {
        if rule.expires.is_some_and(|at| at <= now.wall) {
            let what = format!("rule {} has expired", named(rule));
            findings.push(found(Kind::Expired, Weight::Note, Some(rule), what, "remove it, or set a later `expires`"));
            continue;
        }
        if regions[n].is_empty() {
            let what = format!("rule {} applies to no packet: its set is empty", named(rule));
            let instead = "fill the set, or remove the rule";
            findings.push(found(Kind::AppliesToNothing, Weight::Warning, Some(rule), what, instead));
            continue;
        }
        if let Some((why, instead)) = never(&rule.when, rules) {
            let what = format!("rule {} applies to no packet: {why}", named(rule));
            findings.push(found(Kind::AppliesToNothing, Weight::Warning, Some(rule), what, instead));
            continue;
        }
        if rule.action == Action::Challenge && !rule.when.protocol.is_empty() && !rule.when.protocol.contains(&6) {
            let what = format!("rule {} challenges packets that are not TCP; they all pass", named(rule));
            findings.push(found(
                Kind::ChallengesOthers,
                Weight::Warning,
                Some(rule),
                what,
                "write protocol = \"tcp\", and limit or drop the others",
            ));
        }
        let answered = |flags: TcpFlags| ACK & flags.mask == flags.value;
        if rule.action == Action::Challenge && rule.when.tcp_flags.is_some_and(|flags| !answered(flags)) {
            let what = format!("rule {} challenges SYNs, but not the ACK that brings the cookie back", named(rule));
            findings.push(found(Kind::ChallengesSynOnly, Weight::Warning, Some(rule), what, "remove `tcp-flags`"));
        }
        let outlives = |earlier: &Rule| earlier.expires.is_none_or(|end| rule.expires.is_some_and(|mine| mine <= end));
        let earlier =
            || rules.rules[..n].iter().zip(&regions).filter_map(|(rule, region)| Some((rule, region, decides(rule)?)));
        if let Some((first, _, action)) =
            earlier().find(|(first, region, _)| outlives(first) && region.holds(&regions[n]))
        {
            let what =
                format!("rule {} never applies: {} comes first and covers it", named(rule), acting(first, action));
            let instead = "move it before that rule, or remove it";
            findings.push(found(Kind::NeverApplies, Weight::Warning, Some(rule), what, instead));
            continue;
        }
        let Some(mine) = decides(rule) else { continue };
        for (first, region, action) in earlier() {
            let expired = first.expires.is_some_and(|at| at <= now.wall);
            // To challenge what is left of others is no contradiction.
            let challenge = [action, mine].contains(&RuleAction::Challenge);
            if action == mine || challenge || expired || !region.overlaps(&regions[n]) || regions[n].holds(region) {
                continue;
            }
            conflicts += 1;
            if conflicts <= CONFLICTS_MAX {
                let what = format!(
                    "rules {} and {} overlap; `{}` wins because it comes first",
                    acting(first, action),
                    acting(rule, mine),
                    first.name
                );
                let instead = "narrow one if that is not intended";
                findings.push(found(Kind::Overlap, Weight::Note, Some(rule), what, instead));
            }
        }
    }
    if conflicts > CONFLICTS_MAX {
        let what = format!("{} more pairs of rules overlap", conflicts - CONFLICTS_MAX);
        findings.push(found(Kind::MoreOverlaps, Weight::Note, None, what, "in each pair the earlier rule wins"));
    }
    findings
}

fn sets(rules: &Rules) -> Vec<Finding> {
    let places = rules.rules.iter().flat_map(|rule| rule.when.source.iter().chain(&rule.when.destination));
    let used: BTreeSet<&str> = places
        .filter_map(|place| match place {
            Place::Set(name) => Some(name.as_str()),
            Place::Prefix(_) => None,
        })
        .collect();
    let unused = rules.sets.keys().filter(|name| !used.contains(name.as_str()));
    let whole = rules.sets.iter().filter(|(name, _)| used.contains(name.as_str())).flat_map(|(name, set)| {
        set.prefixes.iter().filter(|prefix| prefix.len == 0).map(move |prefix| {
            let what =
                format!("the set `{name}` holds every {} address ({}/0)", family(prefix.address), prefix.address);
            let instead = "take that line out of the list; a rule about all packets needs no set";
            found(Kind::HoldsAll, Weight::Warning, None, what, instead)
        })
    });
    unused
        .map(|name| {
            let what = format!("no rule names the set `{name}`");
            let instead = format!("name it as source = \"@{name}\", or remove it");
            found(Kind::UnusedSet, Weight::Warning, None, what, &instead)
        })
        .chain(whole)
        .collect()
}

fn family(address: std::net::IpAddr) -> &'static str {
    if address.is_ipv4() { "IPv4" } else { "IPv6" }
}

fn tcp(session: &Session, flags: u8) -> Packet {
    Packet {
        source: session.peer,
        destination: session.local,
        ports: Some((session.peer_port, session.local_port)),
        len: if session.peer.is_ipv4() { 52 } else { 72 },
        vlan: None,
        protocol: 6,
        tcp_flags: Some(flags),
        icmp_type: None,
        part: Part::Whole,
        dscp: 0,
        // An answer, or a packet behind it, is of a connection.
        known: crate::known::Known { connection: Some(flags & ACK != 0), ..Default::default() },
        ip_at: 14,
        transport_at: 34,
    }
}

/// True if the rules would end this session, or keep the administrator from beginning another.
fn cut_off(file: &RuleFile, session: &Session, now: Now) -> Option<Finding> {
    let with = |session_of: Option<&Session>| {
        let mut rules = file.rules.clone();
        rules.rules.splice(0..0, file.management.rules(&[session.local], session_of));
        rules
    };
    let (guarded, named_only) = (with(Some(session)), with(None));
    let ends = |rules: &Rules| {
        [ACK, SYN].into_iter().find_map(|flags| {
            let decision = reference::decide(rules, &tcp(session, flags), now);
            (decision.outcome == Outcome::Drop).then_some((flags, decision.rule))
        })
    };
    let who = format!("{} port {} to {} port {}", session.peer, session.peer_port, session.local, session.local_port);
    let (flags, rule) = ends(&file.rules)?;
    let rule = rule.map(|number| &file.rules.rules[number]);
    let by = rule.map_or_else(|| "default = \"drop\"".to_owned(), |rule| format!("rule {}", named(rule)));
    let does = if flags == SYN { "would not let you in again" } else { "would cut off your ssh session" };
    Some(match ends(&guarded) {
        Some(_) => found(
            Kind::CutsOff,
            Weight::Harm,
            rule,
            format!("{by} {does} ({who})"),
            "put a rule before it that passes your address, add the address to [management] from = [\"…\"], or keep session = true",
        ),
        None => found(
            Kind::CutsOff,
            Weight::Note,
            rule,
            format!("without the management allow-list, {by} {does} ({who})"),
            match ends(&named_only) {
                Some(_) => {
                    "add the address to [management] from = [\"…\"]; then it gets in also when somebody else starts the shield"
                }
                None => "[management] from has the address: nothing to do",
            },
        ),
    })
}

/// With a default of drop: whether answers to connections of this machine come back.
fn answers(rules: &Rules, sessions: &[Session], now: Now) -> Option<Finding> {
    if rules.default == Verdict::Pass {
        return None;
    }
    let local = sessions.first().map_or_else(|| [192, 0, 2, 1].into(), |session| session.local);
    let peer = if local.is_ipv4() {
        [198, 51, 100, 1].into()
    } else {
        std::net::Ipv6Addr::from([0x2001, 0xdb8, 0, 0, 0, 0, 0, 1]).into()
    };
    let server = Session { peer, peer_port: HTTPS, local, local_port: 40_000 };
    let decision = reference::decide(rules, &tcp(&server, SYN | ACK), now);
    (decision.outcome == Outcome::Drop && decision.rule.is_none()).then(|| {
        found(
            Kind::DropsAnswers,
            Weight::Note,
            None,
            "default = \"drop\" also drops the answers to connections that this machine opens; no rule passes them"
                .to_owned(),
            "pass what it needs by source and source-port (DNS: 53, NTP: 123), or TCP with tcp-flags = \"ack\"",
        )
    })
}

#[cfg(test)]
mod tests;
