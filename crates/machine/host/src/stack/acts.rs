//! Effects of a rule of nftables beside its decision, as far as they matter to a program that no longer sees each packet.

use std::collections::BTreeSet;

use super::nft::messages::{DATA_VALUE, EXPR_DATA, EXPR_NAME, IMMEDIATE_DATA, OBJREF_TYPE, TARGET_NAME, be32, nested};
use crate::netlink::{attributes, text};

/// NFTA_CT_KEY, NFTA_CT_SREG, NFT_CT_MARK, NFT_CT_ZONE (linux/netfilter/nf_tables.h)
const CT_KEY: u16 = 2;
const CT_FROM: u16 = 4;
const CT_MARK: u32 = 3;
const CT_ZONE: u32 = 17;
/// NFTA_BITWISE_MASK, NFTA_BITWISE_XOR, NFTA_BITWISE_OP
const BITWISE_MASK: u16 = 4;
const BITWISE_XOR: u16 = 5;
const BITWISE_OP: u16 = 6;
/// NFTA_PAYLOAD_SREG
const PAYLOAD_FROM: u16 = 5;

/// A mark that a rule gives to connections.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct MarkSet {
    /// The bits that it sets; all where that cannot be told.
    pub value: u32,
    /// The bits that it writes.
    pub bits: u32,
}

const UNKNOWN_MARK: MarkSet = MarkSet { value: u32::MAX, bits: u32::MAX };

/// Effects of a rule beside its decision.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Acts {
    /// The mark that it gives to connections.
    pub mark: Option<MarkSet>,
    /// True if it puts packets into a zone of conntrack's.
    pub zone: bool,
    /// Statements that mean each packet: `counter`, `limit`, `log`, …
    pub sees: BTreeSet<String>,
}

impl Acts {
    /// The effects of a rule's expressions.
    pub(super) fn of(expressions: &[u8]) -> Self {
        let mut acts = Self::default();
        // What the registers hold, as far as it is told.
        let mut last = None;
        for element in attributes(expressions) {
            let name = nested(element.value(), EXPR_NAME).map(|v| text(&v)).unwrap_or_default();
            let data = nested(element.value(), EXPR_DATA).unwrap_or_default();
            let number = |kind| nested(&data, kind).and_then(|v| be32(&v));
            let value = |kind| nested(&data, kind).and_then(|v| nested(&v, DATA_VALUE)).and_then(|v| native(&v));
            match name.as_str() {
                "immediate" => last = value(IMMEDIATE_DATA).map(|value| MarkSet { value, bits: u32::MAX }),
                "bitwise" if number(BITWISE_OP).unwrap_or(0) == 0 => {
                    let both = value(BITWISE_MASK).zip(value(BITWISE_XOR));
                    last = both.map(|(mask, xor)| MarkSet { value: xor & !mask, bits: !mask });
                }
                "ct" if nested(&data, CT_FROM).is_some() => match number(CT_KEY) {
                    Some(CT_MARK) => acts.mark = Some(last.unwrap_or(UNKNOWN_MARK)),
                    Some(CT_ZONE) => acts.zone = true,
                    _ => {}
                },
                "payload" if nested(&data, PAYLOAD_FROM).is_some() => acts.see("writing into packets"),
                "counter" | "limit" | "quota" | "dup" | "fwd" | "log" | "queue" | "tproxy" | "synproxy" | "notrack"
                | "last" => acts.see(&name),
                "dynset" => acts.see("filling a set"),
                "objref" => acts.see(match number(OBJREF_TYPE) {
                    Some(1) => "counter",
                    Some(2) => "quota",
                    Some(4) => "limit",
                    Some(10) => "synproxy",
                    _ => continue,
                }),
                "target" => match nested(&data, TARGET_NAME).map(|v| text(&v)).unwrap_or_default().as_str() {
                    "CONNMARK" => acts.mark = Some(UNKNOWN_MARK),
                    "REJECT" => {}
                    "CT" => acts.zone = true,
                    target => acts.see(&format!("iptables' {target}")),
                },
                _ => last = None,
            }
        }
        acts
    }

    fn see(&mut self, what: &str) {
        self.sees.insert(what.to_owned());
    }
}

/// Registers hold a mark in the order of the machine.
fn native(bytes: &[u8]) -> Option<u32> {
    bytes.first_chunk().map(|&b| u32::from_ne_bytes(b))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::netlink::push_attribute;

    fn nest(attributes: &[(u16, &[u8])]) -> Vec<u8> {
        let mut bytes = Vec::new();
        for (kind, value) in attributes {
            push_attribute(&mut bytes, *kind, value);
        }
        bytes
    }

    fn expression(name: &str, data: &[(u16, &[u8])]) -> Vec<u8> {
        nest(&[(EXPR_NAME, format!("{name}\0").as_bytes()), (EXPR_DATA, &nest(data))])
    }

    fn acts(expressions: &[Vec<u8>]) -> Acts {
        let list: Vec<(u16, &[u8])> = expressions.iter().map(|e| (1, e.as_slice())).collect();
        let bytes = nest(&list);
        for end in 0..bytes.len() {
            let _ = Acts::of(&bytes[..end]);
        }
        Acts::of(&bytes)
    }

    fn value(value: u32) -> Vec<u8> {
        nest(&[(DATA_VALUE, &value.to_ne_bytes())])
    }

    #[test]
    fn the_mark_that_a_rule_sets_is_reported() {
        let ct = |kind: u16, key: u32| expression("ct", &[(CT_KEY, &key.to_be_bytes()), (kind, &1u32.to_be_bytes())]);
        let or = expression("bitwise", &[(BITWISE_MASK, &value(!0x10)), (BITWISE_XOR, &value(0x10))]);
        let set = |before: &[Vec<u8>]| acts(&[before, &[ct(CT_FROM, CT_MARK)]].concat()).mark;
        assert_eq!(set(&[ct(1, CT_MARK), or]), Some(MarkSet { value: 0x10, bits: 0x10 }));
        let immediate = expression("immediate", &[(IMMEDIATE_DATA, &value(7))]);
        assert_eq!(set(std::slice::from_ref(&immediate)), Some(MarkSet { value: 7, bits: u32::MAX }));
        assert_eq!(set(&[immediate, expression("meta", &[])]), Some(UNKNOWN_MARK));
        assert_eq!(acts(&[ct(1, CT_MARK)]).mark, None, "one that is read");
        assert!(acts(&[ct(CT_FROM, CT_ZONE)]).zone && !acts(&[ct(1, CT_ZONE)]).zone);
    }

    #[test]
    fn statements_that_mean_each_packet_are_named() {
        let target = |name: &str| expression("target", &[(TARGET_NAME, format!("{name}\0").as_bytes())]);
        let sees = |one: Vec<u8>| acts(&[one]).sees.into_iter().next();
        assert_eq!(sees(expression("log", &[])).as_deref(), Some("log"));
        assert_eq!(sees(expression("payload", &[(PAYLOAD_FROM, &[0; 4])])).as_deref(), Some("writing into packets"));
        assert_eq!(sees(expression("payload", &[(1, &[0; 4])])), None);
        assert_eq!(sees(expression("objref", &[(OBJREF_TYPE, &2u32.to_be_bytes())])).as_deref(), Some("quota"));
        assert_eq!(sees(target("TEE")).as_deref(), Some("iptables' TEE"));
        assert_eq!(acts(&[target("CONNMARK")]).mark, Some(UNKNOWN_MARK));
    }
}
