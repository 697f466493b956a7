//! Netfilter's rules with their counters, by nfnetlink: cheap enough for every reading. Texts of rules come from the `nft`
//! program ([`super::nft_text`]), asked for again only when the rules have changed.

pub(super) mod messages;

use std::{collections::BTreeMap, io};

use self::messages::{
    GEN_ID, GETCHAIN, GETGEN, GETOBJ, GETRULE, GETTABLE, NEWCHAIN, NEWGEN, NEWOBJ, NEWRULE, NEWTABLE, NFGENMSG_BYTES,
    ObjectKey, PLAIN, attribute, be32, parse_chain, parse_object, parse_rule, parse_table,
};
use super::acts::Acts;
use crate::netlink::{DUMP, Netlink};

/// The decision of a rule, by itself.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub enum Verdict {
    /// Nothing: it counts, marks, logs, or asks a map.
    #[default]
    None,
    /// The packet is lost without a word.
    Drop,
    /// The packet is lost, its sender told.
    Reject,
    /// The packet goes on.
    Accept,
    /// Another chain is asked, then this one goes on.
    Jump(String),
    Goto(String),
    /// The calling chain goes on.
    Return,
    /// A program in user space decides.
    Queue,
    /// The connection is answered on behalf of the server; the packet ends here.
    Synproxy,
    Other(String),
}

impl Verdict {
    /// True if the packet ends here.
    pub fn loses(&self) -> bool {
        matches!(self, Self::Drop | Self::Reject)
    }
}

#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ChainKey {
    /// `ip`, `ip6`, `inet`, `arp`, `bridge`, `netdev`; `iptables` and `ip6tables` for rules of the old kind.
    pub family: String,
    pub table: String,
    pub chain: String,
}

#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct RuleKey {
    pub chain: ChainKey,
    /// Its number, as `nft -a list ruleset` shows it; for rules of the old kind the place in the chain, from 1.
    pub handle: u64,
}

#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Chain {
    /// Hook of the chain (`prerouting`, `input`, `forward`, `output`, `postrouting`, `ingress`, `egress`); none for a chain that others call.
    pub hook: Option<String>,
    /// Priority among the chains of the hook: lower is earlier.
    pub priority: i32,
    /// `filter`, `nat` or `route`.
    pub kind: String,
    /// The interface it is bound to (family `netdev`).
    pub device: Option<String>,
    /// Packets that reach its end are lost. The kernel does not count them.
    pub policy_drop: bool,
    /// Packets that met the policy, for chains of the old kind; none otherwise.
    pub policy_packets: Option<u64>,
}

#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Rule {
    /// Packets that reached its counter; none for a rule without one.
    pub packets: Option<u64>,
    pub bytes: u64,
    pub verdict: Verdict,
    /// The counter stands right before the verdict, so that it counts exactly what the verdict was said of.
    pub exact: bool,
    /// The name of its counter, if that stands apart in the table. The figures are the counter's: rules that share it have the same.
    pub named: Option<String>,
    /// Effects beside its decision.
    pub acts: Acts,
    /// The rule as text; empty when the program that prints rules is not there.
    pub text: String,
}

/// All rules of a network namespace.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Rules {
    pub chains: BTreeMap<ChainKey, Chain>,
    /// The rules, in the order of chain and handle.
    pub rules: BTreeMap<RuleKey, Rule>,
    /// The number of each table, by family and name: another one means that the table was made anew, though its chains and
    /// rules may be numbered as before.
    pub tables: BTreeMap<(String, String), u64>,
    /// Changes with every change of the rules (not of their counters).
    pub generation: u32,
}

impl Rules {
    /// The counts between `earlier` and now. A counter that went backwards (it was reset), or whose table was made
    /// anew, counts from zero.
    #[must_use]
    pub fn since(&self, earlier: &Self) -> Self {
        let minus = |now: u64, before: u64| if now >= before { now - before } else { now };
        let same_table = |key: &ChainKey| {
            let table = (key.family.clone(), key.table.clone());
            self.tables.get(&table) == earlier.tables.get(&table)
        };
        let mut now = self.clone();
        for (key, rule) in &mut now.rules {
            let Some(before) = earlier.rules.get(key).filter(|_| same_table(&key.chain)) else { continue };
            rule.packets = rule.packets.map(|packets| minus(packets, before.packets.unwrap_or(0)));
            rule.bytes = minus(rule.bytes, before.bytes);
        }
        for (key, chain) in &mut now.chains {
            let before = earlier.chains.get(key).and_then(|c| c.policy_packets).unwrap_or(0);
            chain.policy_packets = chain.policy_packets.map(|packets| minus(packets, before));
        }
        now
    }

    /// The hooks that lead to a chain: its own, or those of the chains that call it.
    pub fn hooks(&self, chain: &ChainKey) -> Vec<&str> {
        let mut seen = vec![chain];
        let mut hooks = Vec::new();
        let mut at = 0;
        while let Some(&chain) = seen.get(at) {
            at += 1;
            hooks.extend(self.chains.get(chain).and_then(|c| c.hook.as_deref()));
            let calls =
                |rule: &Rule| matches!(&rule.verdict, Verdict::Jump(to) | Verdict::Goto(to) if *to == chain.chain);
            for caller in self.rules.iter().filter(|(_, rule)| calls(rule)).map(|(key, _)| &key.chain) {
                if caller.table == chain.table && caller.family == chain.family && !seen.contains(&caller) {
                    seen.push(caller);
                }
            }
        }
        hooks.sort_unstable();
        hooks.dedup();
        hooks
    }
}

/// Reads all chains and rules of the namespace in which `netfilter` was opened; none when this kernel has no nftables.
pub(crate) fn read(netfilter: &mut Netlink) -> io::Result<Option<Rules>> {
    let Some(generation) = generation(netfilter)? else { return Ok(None) };
    let mut rules = Rules { generation, ..Rules::default() };
    let body = [0; NFGENMSG_BYTES];
    netfilter.ask(GETTABLE, DUMP, &body, |kind, payload| {
        if kind == NEWTABLE {
            rules.tables.extend(parse_table(payload));
        }
    })?;
    netfilter.ask(GETCHAIN, DUMP, &body, |kind, payload| {
        if kind == NEWCHAIN {
            rules.chains.extend(parse_chain(payload));
        }
    })?;
    let mut named = BTreeMap::new();
    netfilter.ask(GETRULE, DUMP, &body, |kind, payload| {
        if kind == NEWRULE
            && let Some((key, rule, counter)) = parse_rule(payload)
        {
            named.extend(counter.map(|name| (key.clone(), name)));
            rules.rules.insert(key, rule);
        }
    })?;
    if !named.is_empty() {
        let mut counters = BTreeMap::new();
        netfilter.ask(GETOBJ, DUMP, &body, |kind, payload| {
            if kind == NEWOBJ {
                counters.extend(parse_object(payload));
            }
        })?;
        give_named(&mut rules, &named, &counters);
    }
    Ok(Some(rules))
}

/// The number of the rules of now, another one after each change; none when this kernel has no nftables.
pub(super) fn generation(netfilter: &mut Netlink) -> io::Result<Option<u32>> {
    let mut generation = 0;
    let done = netfilter.ask(GETGEN, PLAIN | 4, &[0; NFGENMSG_BYTES], |kind, payload| {
        if kind == NEWGEN {
            generation = attribute(payload, GEN_ID).and_then(|v| be32(&v)).unwrap_or(0);
        }
    });
    match done {
        // No such subsystem: EINVAL by nfnetlink, EOPNOTSUPP by some kernels.
        Err(e) if matches!(e.raw_os_error(), Some(libc::EINVAL | libc::EOPNOTSUPP)) => Ok(None),
        other => other.map(|()| Some(generation)),
    }
}

/// Gives each rule the figures of its named counter. Where rules share one, it counts what ended only if all of them end packets.
fn give_named(rules: &mut Rules, named: &BTreeMap<RuleKey, String>, counters: &BTreeMap<ObjectKey, (u64, u64)>) {
    let object = |key: &RuleKey, name: &String| (key.chain.family.clone(), key.chain.table.clone(), name.clone());
    let mut users: BTreeMap<ObjectKey, Vec<bool>> = BTreeMap::new();
    for (key, name) in named {
        let ends = rules.rules.get(key).is_some_and(|rule| rule.exact && rule.verdict.loses());
        users.entry(object(key, name)).or_default().push(ends);
    }
    for (key, name) in named {
        let object = object(key, name);
        let Some(rule) = rules.rules.get_mut(key) else { continue };
        let Some(&(bytes, packets)) = counters.get(&object) else {
            rule.exact = false;
            continue;
        };
        match users.get(&object).map(Vec::as_slice) {
            Some([_]) => {}
            Some(all) if all.iter().all(|ends| *ends) => rule.named = Some(name.clone()),
            _ => {
                rule.exact = false;
                continue;
            }
        }
        rule.packets = Some(packets);
        rule.bytes = bytes;
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::{messages::*, *};
    use crate::netlink::push_attribute;

    fn nest(attributes: &[(u16, &[u8])]) -> Vec<u8> {
        let mut bytes = Vec::new();
        for (kind, value) in attributes {
            push_attribute(&mut bytes, *kind, value);
        }
        bytes
    }

    fn expression(name: &str, data: &[u8]) -> Vec<u8> {
        nest(&[(EXPR_NAME, format!("{name}\0").as_bytes()), (EXPR_DATA, data)])
    }

    fn counter(packets: u64) -> Vec<u8> {
        let data = nest(&[(COUNTER_BYTES, &(packets * 60).to_be_bytes()), (COUNTER_PACKETS, &packets.to_be_bytes())]);
        expression("counter", &data)
    }

    fn drop() -> Vec<u8> {
        let verdict = nest(&[(VERDICT_CODE, &0u32.to_be_bytes())]);
        let data = nest(&[(DATA_VERDICT, &verdict)]);
        expression("immediate", &nest(&[(1, &0u32.to_be_bytes()), (IMMEDIATE_DATA, &data)]))
    }

    fn rule(expressions: &[Vec<u8>]) -> (RuleKey, Rule) {
        let list: Vec<(u16, &[u8])> = expressions.iter().map(|e| (1, e.as_slice())).collect();
        let mut payload = vec![1, 0, 0, 0];
        payload.extend(nest(&[
            (TABLE, b"filter\0"),
            (RULE_CHAIN, b"in\0"),
            (RULE_HANDLE, &4u64.to_be_bytes()),
            (RULE_EXPRESSIONS, &nest(&list)),
        ]));
        for end in 0..payload.len() {
            let _ = parse_rule(&payload[..end]);
        }
        let (key, rule, _) = parse_rule(&payload).expect("a rule");
        (key, rule)
    }

    #[test]
    fn a_counter_right_before_the_verdict_is_exact() {
        let (key, exact) = rule(&[expression("numgen", &[]), expression("cmp", &[]), counter(5), drop()]);
        assert_eq!((key.chain.family.as_str(), key.chain.table.as_str(), key.handle), ("inet", "filter", 4));
        assert_eq!((exact.packets, exact.bytes, exact.verdict, exact.exact), (Some(5), 300, Verdict::Drop, true));
        let (_, before) = rule(&[counter(5000), expression("numgen", &[]), expression("cmp", &[]), drop()]);
        assert_eq!((before.packets, before.exact), (Some(5000), false));
        let (_, without) = rule(&[drop()]);
        assert_eq!((without.packets, without.exact, without.verdict.loses()), (None, false, true));
    }

    #[test]
    fn rules_that_share_a_named_counter() {
        let chain = |chain: &str| ChainKey { family: "netdev".into(), table: "t".into(), chain: chain.into() };
        let rule = |verdict: Verdict, exact| Rule { verdict, exact, ..Rule::default() };
        let keys: Vec<RuleKey> =
            ["a", "b"].iter().zip(1..).map(|(c, handle)| RuleKey { chain: chain(c), handle }).collect();
        let named = keys.iter().map(|key| (key.clone(), "r2".to_owned())).collect();
        let counters = [(("netdev".to_owned(), "t".to_owned(), "r2".to_owned()), (600, 10))].into();
        let given = |second: Rule| {
            let both = [rule(Verdict::Drop, true), second];
            let mut rules = Rules { rules: keys.iter().cloned().zip(both).collect(), ..Rules::default() };
            give_named(&mut rules, &named, &counters);
            rules.rules.into_values().map(|r| (r.packets, r.exact, r.named.is_some())).collect::<Vec<_>>()
        };
        assert_eq!(given(rule(Verdict::Drop, true)), [(Some(10), true, true); 2]);
        // What the counter counts did not all end.
        assert_eq!(given(rule(Verdict::Accept, true)), [(None, false, false); 2]);
        assert_eq!(given(rule(Verdict::Drop, false)), [(None, false, false); 2]);
    }

    #[test]
    fn targets_of_iptables() {
        let target =
            |name: &str| expression("target", &nest(&[(TARGET_NAME, format!("{name}\0").as_bytes()), (2, &[0; 4])]));
        let of = |expressions: &[Vec<u8>]| {
            let (_, rule) = rule(expressions);
            (rule.packets, rule.verdict, rule.exact)
        };
        let protocol = expression("match", &[]);
        assert_eq!(of(&[protocol.clone(), counter(5), target("REJECT")]), (Some(5), Verdict::Reject, true));
        assert_eq!(of(&[counter(6), protocol, target("REJECT")]), (Some(6), Verdict::Reject, false));
        assert_eq!(of(&[counter(5), target("SYNPROXY")]).1, Verdict::Synproxy);
        assert_eq!(of(&[counter(5), target("NFQUEUE")]).1, Verdict::Queue);
        assert_eq!(of(&[counter(5), target("LOG")]), (Some(5), Verdict::None, false));
        assert_eq!(of(&[counter(5), target("LOG"), drop()]), (Some(5), Verdict::Drop, true), "a log ends nothing");
        assert_eq!(of(&[counter(5), target("TPROXY"), drop()]), (Some(5), Verdict::Drop, false));
    }

    #[test]
    fn a_called_chain_has_the_hooks_of_its_callers() {
        let key = |chain: &str| ChainKey { family: "inet".into(), table: "t".into(), chain: chain.into() };
        let mut rules = Rules::default();
        for (name, hook) in [("in", Some("input")), ("fwd", Some("forward")), ("bad", None), ("worse", None)] {
            rules.chains.insert(key(name), Chain { hook: hook.map(str::to_owned), ..Chain::default() });
        }
        for (handle, (from, to)) in
            [("in", "bad"), ("bad", "worse"), ("worse", "bad"), ("fwd", "worse")].iter().enumerate()
        {
            let rule = Rule { verdict: Verdict::Jump((*to).to_owned()), ..Rule::default() };
            rules.rules.insert(RuleKey { chain: key(from), handle: handle as u64 }, rule);
        }
        assert_eq!(rules.hooks(&key("worse")), ["forward", "input"]);
        assert_eq!(rules.hooks(&key("in")), ["input"]);
        assert!(rules.hooks(&key("nobody")).is_empty());
    }

    #[test]
    fn differences() {
        let of = |packets| {
            let (key, rule) = rule(&[counter(packets), drop()]);
            Rules { rules: [(key, rule)].into(), ..Rules::default() }
        };
        let since = |now, before| of(now).since(&of(before)).rules.into_values().next().expect("one rule").packets;
        assert_eq!((since(9, 4), since(3, 4)), (Some(5), Some(3)));
        let table = |handle| [(("inet".to_owned(), "filter".to_owned()), handle)].into();
        let (old, new) = (Rules { tables: table(1), ..of(4) }, Rules { tables: table(2), ..of(9) });
        assert_eq!(new.since(&old).rules.into_values().next().expect("one rule").packets, Some(9), "another table");
    }

    proptest! {
        #[test]
        fn nothing_makes_it_panic(bytes in prop::collection::vec(any::<u8>(), 0..200)) {
            let _ = parse_rule(&bytes);
            let _ = parse_chain(&bytes);
            let _ = parse_table(&bytes);
            let _ = parse_object(&bytes);
        }
    }
}
