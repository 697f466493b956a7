//! Drops of netfilter's rules and policies: by their counters, and the remainder by the trace.

use model::stations::{
    Direction::{self, Forward, Receive, Transmit},
    StationLoss,
};

use super::{
    Found,
    details::details,
    push,
    traced::{Traced, packets},
};
use crate::{
    input::{Drop, Interval, RuleLoss},
    places::{Place, Stage},
};

/// Rules without a counter that are named.
const RULES_NAMED_MAX: usize = 3;

pub(super) fn netfilter(p: &'static Place, traced: &Traced<'_>, found: &mut Vec<Found>) {
    let drops = traced.at(p.id, 0);
    let traced_packets = packets(&drops);
    let mut known: u64 = found.iter().filter(|f| f.station == "conntrack").map(|f| f.loss.packets).sum();
    let mut rules: Vec<&RuleLoss> =
        traced.interval.netfilter.rules.iter().filter(|r| !r.taken && r.packets > 0).collect();
    known += rules.iter().map(|r| r.packets).sum::<u64>();
    let tolerance = traced.tolerance(traced_packets.max(known));
    let agrees = !traced.ran || known as f64 <= traced_packets as f64 + tolerance;
    rules.sort_by_key(|r| std::cmp::Reverse(r.packets));
    // The trace does not tell rules apart: only where there is one alone, what it saw is that rule's.
    let alone = rules.len() == 1 && traced.interval.netfilter.uncounted.is_empty();
    for rule in rules {
        let (stage, direction) = hook(rule);
        let loss = StationLoss {
            place: format!("{} {}: {}", rule.family, rule.chain, rule.rule),
            packets: rule.packets,
            counter: if rule.hook.is_empty() {
                "the rule's counter".into()
            } else {
                format!("counter of the rule, hook {}", rule.hook)
            },
            kind: p.kind,
            traced: (traced.ran && alone).then_some(traced_packets),
            agrees,
            causes: if alone { traced.causes(&drops) } else { Vec::new() },
            details: if alone { details(traced.interval, &drops) } else { None },
            advice: Some(format!(
                "The rule drops them on purpose. To change it: `{}` shows its handle.",
                command(rule)
            )),
            ..StationLoss::default()
        };
        found.push(Found { station: p.station, direction, stage, ifindex: 0, loss });
    }
    // What is left was dropped by rules without counters, or by policies.
    if traced_packets as f64 > known as f64 + if known > 0 { tolerance } else { 0.0 } {
        // Only on the way from a local sender a packet has no interface yet.
        let (local, others): (Vec<&Drop>, Vec<&Drop>) = drops.into_iter().partition(|d| d.ifindex == 0);
        let output = |r: &&RuleLoss| r.hook == "output" && r.family != "bridge";
        let counted: u64 =
            traced.interval.netfilter.rules.iter().filter(|r| !r.taken).filter(output).map(|r| r.packets).sum();
        let sent_here = packets(&local).saturating_sub(counted).min(traced_packets - known);
        let words = format!("{}, output hook", p.words);
        let mut loss = traced.loss(words, None, &local, true, p);
        (loss.packets, loss.traced) = (sent_here, Some(sent_here));
        loss.advice = Some(which(p.advice, traced.interval, |r| r.hook == "output" && may_drop(r, &local)));
        found.push(Found { station: p.station, direction: Transmit, stage: Some(Stage::Ip), ifindex: 0, loss });
        let known = known + sent_here;
        let mut loss = traced.loss(p.words.to_owned(), None, &others, true, p);
        loss.packets = traced_packets - known;
        loss.advice = Some(which(p.advice, traced.interval, |r| r.hook != "output" && may_drop(r, &others)));
        loss.traced = Some(traced_packets - known);
        push(found, p, None, 0, loss);
    }
}

/// Stage and direction of a rule's hook.
fn hook(rule: &RuleLoss) -> (Option<Stage>, Direction) {
    match (rule.family.as_str(), rule.hook.as_str()) {
        (_, "ingress") => (Some(Stage::Link), Receive),
        (_, "egress") => (Some(Stage::Out), Transmit),
        ("bridge", "output" | "postrouting") => (Some(Stage::Bridge), Transmit),
        ("bridge", _) => (Some(Stage::Bridge), Receive),
        ("arp", _) => (Some(Stage::Other), Receive),
        (_, "forward") => (Some(Stage::Ip), Forward),
        (_, "output") => (Some(Stage::Ip), Transmit),
        (_, "postrouting") => (Some(Stage::Postrouting), Transmit),
        (_, "prerouting" | "input") => (Some(Stage::Ip), Receive),
        _ => (None, Receive),
    }
}

/// True if the rule may have seen these drops: a rule of IPv6 has not if all of them were IPv4.
fn may_drop(rule: &RuleLoss, drops: &[&Drop]) -> bool {
    const IPV4: u16 = 0x0800;
    const IPV6: u16 = 0x86dd;
    let other = match rule.family.as_str() {
        "ip" | "iptables" => IPV6,
        "ip6" | "ip6tables" => IPV4,
        _ => return true,
    };
    drops.iter().any(|drop| drop.protocol != other)
}

/// Rules without a counter that may have dropped the packets.
fn which(advice: &str, interval: &Interval, here: impl Fn(&RuleLoss) -> bool) -> String {
    let rules: Vec<&RuleLoss> = interval.netfilter.uncounted.iter().filter(|r| here(r)).collect();
    let names = || rules.iter().take(RULES_NAMED_MAX).map(|r| format!("`{} {}: {}`", r.family, r.chain, r.rule));
    match rules.len() {
        0 => advice.to_owned(),
        1 => format!(
            "The only rule without a counter that can drop them is {}. `{}` shows its handle.",
            names().collect::<String>(),
            command(rules[0])
        ),
        n => {
            let more = if n > RULES_NAMED_MAX { format!(" and {} more", n - RULES_NAMED_MAX) } else { String::new() };
            format!(
                "It was one of {}{more}. Put `counter` right before the verdict of each to see which: `nft -a list ruleset`.",
                names().collect::<Vec<_>>().join(", ")
            )
        }
    }
}

/// The command that lists a rule's chain.
fn command(rule: &RuleLoss) -> String {
    let Some((table, chain)) = rule.chain.split_once('/') else {
        return format!("nft -a list table {} {}", rule.family, rule.chain);
    };
    match rule.family.as_str() {
        old @ ("iptables" | "ip6tables") => format!("{old} -t {table} -vnL {chain} --line-numbers"),
        family => format!("nft -a list chain {family} {table} {chain}"),
    }
}
