//! Rules of netfilter for forwarded packets.

use std::collections::{BTreeMap, BTreeSet};

use super::{
    acts::MarkSet,
    nft::{Chain, ChainKey, Rules},
};

/// Rules that forwarded packets meet between some ports.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Forwarding {
    /// Chains of nftables with rules or a dropping policy, in words.
    pub chains: Vec<String>,
    /// Tables of iptables-legacy, in words.
    pub old: Vec<String>,
    /// Marks that rules give to connections.
    pub marks: Vec<MarkSet>,
    /// Chains that put packets into zones of conntrack's, in words.
    pub zones: Vec<String>,
    /// Statements that mean each packet, by chain, in words.
    pub sees: Vec<String>,
    /// The kernel translates connections of IPv4, and of IPv6: with the last chain of its kind goes all translation, also that of connections
    /// which have one.
    pub translates: [bool; 2],
}

impl Forwarding {
    /// The part of the rules of nftables that these ports meet.
    pub(super) fn of(rules: &Rules, ports: &[&str]) -> Self {
        let mut met = Self {
            translates: [["ip", "inet"], ["ip6", "inet"]].map(|families| {
                let mut bases = rules.chains.iter().filter(|(_, chain)| chain.hook.is_some() && chain.kind == "nat");
                bases.any(|(key, _)| families.contains(&key.family.as_str()))
            }),
            chains: rules.chains.iter().filter_map(|(key, chain)| on_the_way(rules, key, chain, ports)).collect(),
            ..Self::default()
        };
        let mut sees: BTreeMap<&ChainKey, BTreeSet<&str>> = BTreeMap::new();
        for (key, rule) in &rules.rules {
            let chain = &key.chain;
            let base = rules.chains.get(chain);
            let elsewhere = base.and_then(|base| base.device.as_deref()).is_some_and(|device| !ports.contains(&device));
            let hooks = rules.hooks(chain);
            if elsewhere || is_of_links(chain) || !hooks.iter().any(|hook| is_passed(hook)) {
                continue;
            }
            met.marks.extend(rule.acts.mark);
            if rule.acts.zone {
                met.zones.push(name(chain));
            }
            // Chains of NAT see the first packet of a connection alone, with or without a fast path.
            if base.is_none_or(|base| base.kind != "nat") {
                sees.entry(chain).or_default().extend(rule.acts.sees.iter().map(String::as_str));
            }
        }
        met.zones.dedup();
        let words = |(chain, all): (&ChainKey, BTreeSet<&str>)| {
            let all: Vec<&str> = all.into_iter().collect();
            (!all.is_empty()).then(|| format!("{}: {}", name(chain), all.join(", ")))
        };
        met.sees = sees.into_iter().filter_map(words).collect();
        met
    }
}

fn name(key: &ChainKey) -> String {
    format!("table {} {}, chain {}", key.family, key.table, key.chain)
}

fn is_of_links(key: &ChainKey) -> bool {
    ["arp", "bridge"].contains(&key.family.as_str())
}

fn is_passed(hook: &str) -> bool {
    ["prerouting", "forward", "postrouting", "ingress", "egress"].contains(&hook)
}

/// Effect of a chain on forwarded packets; none without an effect.
fn on_the_way(rules: &Rules, key: &ChainKey, chain: &Chain, ports: &[&str]) -> Option<String> {
    let hook = chain.hook.as_deref()?;
    let elsewhere = chain.device.as_deref().is_some_and(|device| !ports.contains(&device));
    let acts = chain.policy_drop || rules.rules.keys().any(|rule| rule.chain == *key);
    if is_of_links(key) || elsewhere || !is_passed(hook) || !acts {
        return None;
    }
    let verb = if chain.kind == "nat" { "translates addresses at" } else { "filters" };
    Some(format!("nftables {verb} {hook} ({})", name(key)))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::stack::{
        acts::Acts,
        nft::{Rule, RuleKey, Verdict},
    };

    #[test]
    fn what_forwarded_packets_meet_is_reported_by_chain() {
        let key = |chain: &str| ChainKey { family: "inet".into(), table: "t".into(), chain: chain.into() };
        let mut rules = Rules::default();
        let mut add = |name: &str, hook: Option<&str>, kind: &str, rule: Rule| {
            let chain = Chain { hook: hook.map(str::to_owned), kind: kind.to_owned(), ..Chain::default() };
            rules.chains.insert(key(name), chain);
            rules.rules.insert(RuleKey { chain: key(name), handle: 1 }, rule);
        };
        let does = |sees: &str, mark| {
            let acts = Acts { sees: [sees.to_owned()].into(), mark, zone: sees == "zone" };
            Rule { acts, ..Rule::default() }
        };
        let mark = MarkSet { value: 1, bits: 1 };
        add("forward", Some("forward"), "filter", Rule { verdict: Verdict::Jump("more".into()), ..Rule::default() });
        add("more", None, "", does("log", Some(mark)));
        add("nobodys", None, "", does("quota", None));
        add("in", Some("input"), "filter", does("limit", Some(mark)));
        add("post", Some("postrouting"), "nat", does("counter", None));
        add("zones", Some("prerouting"), "filter", does("zone", None));
        let met = Forwarding::of(&rules, &["eth0"]);
        assert_eq!(met.marks, [mark]);
        assert_eq!(met.zones, ["table inet t, chain zones"]);
        assert_eq!(met.sees, ["table inet t, chain more: log", "table inet t, chain zones: zone"]);
        assert_eq!(met.chains.len(), 3, "{met:?}");
    }
}
