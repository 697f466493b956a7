//! Packets and decisions in words.

use std::net::IpAddr;

use super::{Explained, Frame};
use crate::{
    reference::Outcome,
    rule::{Action, Rule, Rules},
    words::{ICMP_TYPES, ICMPV6_TYPES},
};

pub(super) fn endpoint(address: IpAddr, port: u16) -> String {
    match address {
        IpAddr::V4(address) => format!("{address}:{port}"),
        IpAddr::V6(address) => format!("[{address}]:{port}"),
    }
}

pub(super) fn protocol(number: u8) -> String {
    let name = match number {
        1 => "icmp",
        2 => "igmp",
        6 => "tcp",
        17 => "udp",
        33 => "dccp",
        47 => "gre",
        50 => "esp",
        51 => "ah",
        58 => "icmpv6",
        132 => "sctp",
        136 => "udplite",
        _ => return format!("protocol {number}"),
    };
    name.to_owned()
}

/// `echo-request`, as rules call it; `type 44` for what has no name there.
pub(super) fn icmp_type(protocol: u8, number: u8) -> String {
    let names = if protocol == 58 { ICMPV6_TYPES } else { ICMP_TYPES };
    let name = names.iter().find(|(_, known)| *known == number);
    name.map_or_else(|| format!("type {number}"), |(name, _)| (*name).to_owned())
}

/// `syn,ack`; `none`.
pub(super) fn flags(flags: u8) -> String {
    let names = ["fin", "syn", "rst", "psh", "ack", "urg", "ece", "cwr"];
    let set: Vec<&str> = names.into_iter().enumerate().filter(|(bit, _)| flags >> bit & 1 == 1).map(|n| n.1).collect();
    if set.is_empty() { "none".to_owned() } else { set.join(",") }
}

pub(super) fn reason(rules: &Rules, explained: &Explained) -> String {
    let decision = &explained.decision;
    let verdict = match decision.outcome {
        Outcome::Pass => "pass",
        Outcome::Drop => "drop",
        Outcome::Challenge => "challenge",
    };
    let mut out = match (decision.rule, explained.frame) {
        (_, Frame::Cut) => return "unknown: the capture did not keep enough of the packet".to_owned(),
        (_, Frame::NotIp) => format!("{verdict}: rules are about IP only"),
        (_, Frame::Malformed(_)) => format!("{verdict}: malformed packets are treated so"),
        (None, Frame::Ip(_)) => format!("{verdict}: the default, no rule decides"),
        (Some(number), Frame::Ip(_)) => {
            let rule = &rules.rules[number];
            let limited = matches!(rule.action, Action::Limit(_));
            let line = rule.line.map(|line| format!(" (line {line})")).unwrap_or_default();
            let kind = if rule.management { "management rule" } else { "rule" };
            format!("{verdict}: {kind} \"{}\"{line}{}", rule.name, if limited { ", its limit is exceeded" } else { "" })
        }
    };
    let before = decision.counted.iter().filter(|number| Some(**number) != decision.rule);
    for (n, rule) in before.map(|number| &rules.rules[*number]).enumerate() {
        out += if n == 0 { "; before it " } else { ", " };
        out += &passed_by(rule);
    }
    out
}

fn passed_by(rule: &Rule) -> String {
    let would = match rule.action {
        Action::Pass => "pass",
        Action::Drop => "drop",
        Action::Limit(_) if !rule.shadow => return format!("\"{}\" (within its limit)", rule.name),
        Action::Limit(_) => "limit",
        Action::Challenge => "challenge",
    };
    format!("\"{}\" (shadow: would {would})", rule.name)
}
