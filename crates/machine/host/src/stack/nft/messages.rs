//! The messages of nfnetlink: tables, chains, rules and objects out of their attributes.

use super::{Chain, ChainKey, Rule, RuleKey, Verdict};
use crate::{
    netlink::{attributes, text},
    stack::acts::Acts,
};

/// NFNL_SUBSYS_NFTABLES << 8
pub(super) const SUBSYSTEM: u16 = 10 << 8;
pub(super) const NEWTABLE: u16 = SUBSYSTEM;
pub(super) const GETTABLE: u16 = SUBSYSTEM | 1;
pub(super) const NEWCHAIN: u16 = SUBSYSTEM | 3;
pub(super) const GETCHAIN: u16 = SUBSYSTEM | 4;
pub(super) const NEWRULE: u16 = SUBSYSTEM | 6;
pub(super) const GETRULE: u16 = SUBSYSTEM | 7;
pub(super) const NEWGEN: u16 = SUBSYSTEM | 15;
pub(super) const GETGEN: u16 = SUBSYSTEM | 16;
pub(super) const NEWOBJ: u16 = SUBSYSTEM | 18;
pub(super) const GETOBJ: u16 = SUBSYSTEM | 19;
/// NLM_F_REQUEST
pub(super) const PLAIN: u16 = 1;
/// `struct nfgenmsg`: family, version, resource.
pub(super) const NFGENMSG_BYTES: usize = 4;
pub(super) const TABLE: u16 = 1;
pub(super) const TABLE_HANDLE: u16 = 4;
pub(super) const RULE_CHAIN: u16 = 2;
pub(super) const RULE_HANDLE: u16 = 3;
pub(super) const RULE_EXPRESSIONS: u16 = 4;
pub(super) const CHAIN_NAME: u16 = 3;
pub(super) const CHAIN_HOOK: u16 = 4;
pub(super) const CHAIN_POLICY: u16 = 5;
pub(super) const CHAIN_TYPE: u16 = 7;
pub(super) const HOOK_NUM: u16 = 1;
pub(super) const HOOK_PRIORITY: u16 = 2;
pub(super) const HOOK_DEV: u16 = 3;
pub(in crate::stack) const EXPR_NAME: u16 = 1;
pub(in crate::stack) const EXPR_DATA: u16 = 2;
pub(super) const COUNTER_BYTES: u16 = 1;
pub(super) const COUNTER_PACKETS: u16 = 2;
pub(in crate::stack) const IMMEDIATE_DATA: u16 = 2;
pub(in crate::stack) const DATA_VALUE: u16 = 1;
pub(super) const DATA_VERDICT: u16 = 2;
pub(super) const VERDICT_CODE: u16 = 1;
pub(super) const VERDICT_CHAIN: u16 = 2;
pub(super) const OBJ_NAME: u16 = 2;
pub(super) const OBJ_TYPE: u16 = 3;
pub(super) const OBJ_DATA: u16 = 4;
pub(super) const OBJ_COUNTER: u32 = 1;
pub(in crate::stack) const OBJREF_TYPE: u16 = 1;
pub(in crate::stack) const TARGET_NAME: u16 = 1;
pub(super) const OBJREF_NAME: u16 = 2;
pub(super) const GEN_ID: u16 = 1;

/// Family, table and name of a named counter.
pub(super) type ObjectKey = (String, String, String);

pub(super) fn family(number: u8) -> String {
    let known = match number {
        1 => "inet",
        2 => "ip",
        3 => "arp",
        5 => "netdev",
        7 => "bridge",
        10 => "ip6",
        other => return other.to_string(),
    };
    known.to_owned()
}

pub(super) fn hook(family: u8, number: u32) -> String {
    let name = match (family, number) {
        (5, 0) => "ingress",
        (5, 1) => "egress",
        (3, 0) => "input",
        (3, 1) => "output",
        (_, 0) => "prerouting",
        (_, 1) => "input",
        (_, 2) => "forward",
        (_, 3) => "output",
        (_, 4) => "postrouting",
        (_, 5) => "ingress",
        _ => return number.to_string(),
    };
    name.to_owned()
}

pub(super) fn attribute(payload: &[u8], kind: u16) -> Option<Vec<u8>> {
    nested(payload.get(NFGENMSG_BYTES..)?, kind)
}

pub(in crate::stack) fn nested(bytes: &[u8], kind: u16) -> Option<Vec<u8>> {
    attributes(bytes).find(|a| a.kind() == kind).map(|a| a.value().to_vec())
}

pub(in crate::stack) fn be32(bytes: &[u8]) -> Option<u32> {
    bytes.first_chunk().map(|b| u32::from_be_bytes(*b))
}

pub(super) fn be64(bytes: &[u8]) -> Option<u64> {
    bytes.first_chunk().map(|b| u64::from_be_bytes(*b))
}

pub(super) fn parse_table(payload: &[u8]) -> Option<((String, String), u64)> {
    let name = text(&attribute(payload, TABLE)?);
    let handle = attribute(payload, TABLE_HANDLE).and_then(|v| be64(&v))?;
    Some(((family(*payload.first()?), name), handle))
}

pub(super) fn parse_chain(payload: &[u8]) -> Option<(ChainKey, Chain)> {
    let number = *payload.first()?;
    let mut key = ChainKey { family: family(number), table: String::new(), chain: String::new() };
    let mut chain = Chain::default();
    for attribute in attributes(payload.get(NFGENMSG_BYTES..)?) {
        let value = attribute.value();
        match attribute.kind() {
            TABLE => key.table = text(value),
            CHAIN_NAME => key.chain = text(value),
            CHAIN_TYPE => chain.kind = text(value),
            CHAIN_POLICY => chain.policy_drop = be32(value) == Some(0),
            CHAIN_HOOK => {
                chain.hook = nested(value, HOOK_NUM).and_then(|v| be32(&v)).map(|n| hook(number, n));
                chain.priority = nested(value, HOOK_PRIORITY).and_then(|v| be32(&v)).unwrap_or(0) as i32;
                chain.device = nested(value, HOOK_DEV).map(|v| text(&v));
            }
            _ => {}
        }
    }
    Some((key, chain))
}

/// A rule and the name of its counter, if that is a named one.
pub(super) fn parse_rule(payload: &[u8]) -> Option<(RuleKey, Rule, Option<String>)> {
    let mut chain = ChainKey { family: family(*payload.first()?), table: String::new(), chain: String::new() };
    let (mut handle, mut rule, mut named) = (0, Rule::default(), None);
    for attribute in attributes(payload.get(NFGENMSG_BYTES..)?) {
        let value = attribute.value();
        match attribute.kind() {
            TABLE => chain.table = text(value),
            RULE_CHAIN => chain.chain = text(value),
            RULE_HANDLE => handle = be64(value)?,
            RULE_EXPRESSIONS => {
                expressions(value, &mut rule, &mut named);
                rule.acts = Acts::of(value);
            }
            _ => {}
        }
    }
    Some((RuleKey { chain, handle }, rule, named))
}

/// Walks the expressions of a rule from left to right.
pub(super) fn expressions(bytes: &[u8], rule: &mut Rule, named: &mut Option<String>) {
    let mut counted = false;
    for element in attributes(bytes) {
        let name = nested(element.value(), EXPR_NAME).map(|v| text(&v)).unwrap_or_default();
        let data = nested(element.value(), EXPR_DATA).unwrap_or_default();
        match name.as_str() {
            "counter" => {
                rule.bytes = nested(&data, COUNTER_BYTES).and_then(|v| be64(&v)).unwrap_or(0);
                rule.packets = nested(&data, COUNTER_PACKETS).and_then(|v| be64(&v));
                counted = true;
            }
            "objref" if nested(&data, OBJREF_TYPE).and_then(|v| be32(&v)) == Some(OBJ_COUNTER) => {
                *named = nested(&data, OBJREF_NAME).map(|v| text(&v));
                counted = true;
            }
            "immediate" => {
                // An immediate without a verdict loads a register for what follows.
                if let Some(verdict) = nested(&data, IMMEDIATE_DATA).and_then(|v| nested(&v, DATA_VERDICT)) {
                    rule.verdict = verdict_of(&verdict);
                    rule.exact = counted;
                }
            }
            "reject" | "queue" | "synproxy" => {
                rule.verdict = match name.as_str() {
                    "reject" => Verdict::Reject,
                    "queue" => Verdict::Queue,
                    _ => Verdict::Synproxy,
                };
                rule.exact = counted;
            }
            // A target of iptables' own, by iptables-nft.
            "target" => {
                let target = nested(&data, TARGET_NAME).map(|v| text(&v)).unwrap_or_default();
                match target_verdict(&target) {
                    Some(verdict) => {
                        rule.verdict = verdict;
                        rule.exact = counted;
                    }
                    None => counted &= matches!(target.as_str(), "LOG" | "NFLOG"),
                }
            }
            // What only marks or tells leaves the count as good as it is; anything else may end the rule.
            "log" | "notrack" => {}
            _ => counted = false,
        }
    }
}

/// The decision of a target of iptables; none for one that decides nothing, or of which nothing is known.
pub(super) fn target_verdict(target: &str) -> Option<Verdict> {
    match target {
        "REJECT" => Some(Verdict::Reject),
        "SYNPROXY" => Some(Verdict::Synproxy),
        "NFQUEUE" => Some(Verdict::Queue),
        _ => None,
    }
}

pub(super) fn verdict_of(bytes: &[u8]) -> Verdict {
    let chain = || nested(bytes, VERDICT_CHAIN).map(|v| text(&v)).unwrap_or_default();
    match nested(bytes, VERDICT_CODE).and_then(|v| be32(&v)).map(|code| code as i32) {
        Some(0) => Verdict::Drop,
        Some(1) => Verdict::Accept,
        Some(-3) => Verdict::Jump(chain()),
        Some(-4) => Verdict::Goto(chain()),
        Some(-5) => Verdict::Return,
        Some(code) if code & 0xff == 3 => Verdict::Queue,
        Some(code) => Verdict::Other(format!("verdict {code}")),
        None => Verdict::None,
    }
}

pub(super) fn parse_object(payload: &[u8]) -> Option<(ObjectKey, (u64, u64))> {
    if attribute(payload, OBJ_TYPE).and_then(|v| be32(&v)) != Some(OBJ_COUNTER) {
        return None;
    }
    let (table, name) = (attribute(payload, TABLE)?, attribute(payload, OBJ_NAME)?);
    let data = attribute(payload, OBJ_DATA)?;
    let figure = |kind| nested(&data, kind).and_then(|v| be64(&v)).unwrap_or(0);
    let key = (family(*payload.first()?), text(&table), text(&name));
    Some((key, (figure(COUNTER_BYTES), figure(COUNTER_PACKETS))))
}
