//! Steps of a ladder as rules.

use std::fmt::Write as _;

use rules::detect::StepConfig;
use rules::{
    Action, Fragment, Limit, MANAGEMENT_MAX, Match, Place, Prefix, RULES_MAX, Rule, Rules, TcpFlags, known::Known,
};

use super::{
    classify::Finding,
    mix::{self, Kind},
};

/// The lengths by which sources are told apart: an IPv4 address, an IPv6 /64.
const PER_SOURCE: (u8, u8) = (32, 64);
/// The least of what may come at once where the ladder does not tell.
const BURST_MIN: u64 = 20;

/// Packets that may come at once where the ladder does not tell, as in the file's own limits: a tenth of the rate. A whole second's worth
/// would let a flood of twice the rate go on for a second. And not fewer than a browser's connections.
fn burst(pps: u64) -> u64 {
    (pps / 10).max(BURST_MIN)
}

/// A step against a finding: its rules, and what they do in words. None: it has nothing to act on here (no heavy source, no port).
///
/// The rules' names say prefix, class (and kind, where a class may be of several) and step, and so return with the next attack of the
/// kind: counters are kept by name.
pub fn rules(step: &StepConfig, number: usize, finding: &Finding, prefix: Prefix) -> Option<(Vec<Rule>, String)> {
    let kind_name = match finding.form().1 {
        Kind::Other => String::new(),
        kind => format!(" {}", kind.words()),
    };
    let name =
        |part: &str| format!("attack {}/{} {}{kind_name} {number}{part}", prefix.address, prefix.len, finding.class);
    let rule = |part: &str, when: Match, action| Rule { name: name(part), when, action, ..Rule::default() };
    let kind = || finding.kind.conditions(prefix);
    let what = finding.kind.words();
    let limit = |pps: u64, burst_set: Option<u64>, per_source| {
        Action::Limit(Limit { pps, burst: burst_set.unwrap_or_else(|| burst(pps)), per_source })
    };
    Some(match step {
        StepConfig::LimitPerSource { pps, burst } => (
            vec![rule("", kind(), limit(*pps, *burst, Some(PER_SOURCE)))],
            format!("limit {what} to {pps} packets/s per source"),
        ),
        StepConfig::Limit { pps, burst } => {
            (vec![rule("", kind(), limit(*pps, *burst, None))], format!("limit {what} to {pps} packets/s"))
        }
        StepConfig::Challenge {} if matches!(finding.kind, Kind::Udp | Kind::Icmp) => return None,
        // All of TCP: the ACK that brings a cookie back, and the RST by which a source shows that it exists, are no SYNs.
        StepConfig::Challenge {} => {
            let asking = rule("", Kind::Tcp.conditions(prefix), Action::Challenge);
            (vec![Rule { yields: true, ..asking }], "challenge TCP SYN".into())
        }
        StepConfig::DropSources {} if finding.sources.is_empty() => return None,
        StepConfig::DropSources {} => {
            let source = finding.sources.iter().map(|s| Place::Prefix(s.0)).collect();
            let words = format!("drop the {} heaviest sources", finding.sources.len());
            (vec![rule("", Match { source, ..kind() }, Action::Drop)], words)
        }
        StepConfig::DropPorts {} if finding.ports.is_empty() => return None,
        StepConfig::DropPorts {} => {
            let source_port = finding.ports.iter().map(|&p| p..=p).collect();
            let mut rules = vec![rule("", Match { source_port, ..Kind::Udp.conditions(prefix) }, Action::Drop)];
            let mut words = String::from("drop UDP from port");
            for (i, port) in finding.ports.iter().enumerate() {
                let _ = write!(words, "{} {port}", if i == 0 { "" } else { "," });
            }
            if finding.fragments {
                let when = Match { fragment: Some(Fragment::Later), ..Kind::Udp.conditions(prefix) };
                rules.push(rule(" fragments", when, Action::Drop));
                words += ", and what is left of its fragments";
            }
            (rules, words)
        }
        StepConfig::DropFragments {} => {
            (vec![rule("", mix::fragments(prefix, Fragment::Any), Action::Drop)], "drop fragments".into())
        }
        StepConfig::DropUnknown {} => {
            if finding.kind == Kind::Other && !finding.connects {
                return None;
            }
            let (parts, words) = unknown(finding.kind, prefix)?;
            (parts.into_iter().map(|(part, when)| rule(part, when, Action::Drop)).collect(), words.into())
        }
        // Who has a connection has shown that it exists, and may be one of many that come for the first time.
        StepConfig::DropStrangers {} if !finding.remembers || finding.kind.is_tcp() => return None,
        StepConfig::DropStrangers {} => {
            let mut when = kind();
            if when.protocol.is_empty() {
                when.protocol = (0..=u8::MAX).filter(|protocol| *protocol != TCP).collect();
            }
            when.known.source_seen = Some(false);
            (vec![rule("", when, Action::Drop)], format!("drop {what} from sources never seen before"))
        }
        StepConfig::Drop {} => (vec![rule("", kind(), Action::Drop)], format!("drop {what}")),
    })
}

const TCP: u8 = 6;
/// SYN and ACK among the flags of TCP.
const SYN: u8 = 0x02;
const ACK: u8 = 0x10;

/// The conditions of packets of a kind that nobody here waits for, each with its part of a rule's name, and what is dropped in words.
fn unknown(kind: Kind, prefix: Prefix) -> Option<(Vec<(&'static str, Match)>, &'static str)> {
    let flags = |mask, value| Some(TcpFlags { mask, value });
    let tcp = |tcp_flags, known| Match { tcp_flags, known, ..Kind::Tcp.conditions(prefix) };
    let unconnected = Known { connection: Some(false), ..Known::default() };
    let unheard = Known { listener: Some(false), ..Known::default() };
    let syn = || (" closed", tcp(flags(SYN | ACK, SYN), unheard));
    // A SYN is the beginning of a connection, and of none yet.
    let strays =
        || [(" stray", tcp(flags(SYN, 0), unconnected)), (" answer", tcp(flags(SYN | ACK, SYN | ACK), unconnected))];
    let udp = || (" unheard", Match { known: unheard, ..Kind::Udp.conditions(prefix) });
    Some(match kind {
        Kind::Syn => (vec![syn()], "drop TCP SYN to closed ports"),
        Kind::Tcp | Kind::SynAck => (strays().into(), "drop TCP of no connection"),
        Kind::Udp => (vec![udp()], "drop UDP to closed ports"),
        Kind::Icmp => return None,
        Kind::Other => {
            let all = strays().into_iter().chain([syn(), udp()]).collect();
            (all, "drop TCP of no connection, TCP SYN and UDP to closed ports")
        }
    })
}

/// Cuts off those of the mitigations that have no room beside `base`, so that the others hold. What is left out, in words.
pub fn fit(mitigations: &mut Vec<Rule>, base: &Rules) -> Option<String> {
    let room = RULES_MAX.saturating_sub(base.rules.len() + MANAGEMENT_MAX);
    let given = mitigations.len();
    mitigations.truncate(room);
    (given > room).then(|| {
        format!(
            "only the first {room} of {given} attack rules are active, as {RULES_MAX} rules are the most and {} are the file's: protect fewer, larger prefixes",
            base.rules.len()
        )
    })
}

/// `base` with `mitigations` behind the rules of the management allow-list: drops first, then limits, then challenges. The latter two let
/// the search go on: what the file drops, it drops in an attack as well, from whoever brings a cookie.
pub fn insert(base: &Rules, mitigations: &[Rule]) -> Rules {
    let mut all = base.clone();
    let own = base.rules.iter().take_while(|rule| rule.management).count();
    let mut mitigations = mitigations.to_vec();
    mitigations.sort_by_key(|rule| match rule.action {
        Action::Drop => 0,
        Action::Limit(_) => 1,
        Action::Challenge => 2,
        Action::Pass => 3,
    });
    all.rules.splice(own..own, mitigations);
    all
}
