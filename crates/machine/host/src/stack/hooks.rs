//! Rules of netfilter between the interfaces and the sockets of a network namespace, old and new ones, and IPVS.

use std::{fs, io};

use nix::sys::socket::SockProtocol;

use super::{
    forwarding::Forwarding,
    nft::{self, Chain, ChainKey, Rules},
};
use crate::netlink::Netlink;

/// Tables of the old kind that exist, by their family's program.
const OLD_TABLES: [(&str, &str); 2] =
    [("iptables", "/proc/thread-self/net/ip_tables_names"), ("ip6tables", "/proc/thread-self/net/ip6_tables_names")];
/// Services of IPVS, below three lines of headings.
const IPVS: &str = "/proc/thread-self/net/ip_vs";
const IPVS_HEADINGS: usize = 3;

/// Looks again and again, cheaply while the rules do not change. The thread that looks must be in the network namespace in which this was opened.
#[derive(Debug)]
pub struct Hooks {
    netfilter: io::Result<Netlink>,
    /// The effect of the rules of that generation.
    found: Option<(u32, Option<String>)>,
    /// Translating rules among them.
    diverts: Option<(u32, Option<String>)>,
}

impl Hooks {
    /// Opens what is read later.
    pub fn open() -> Self {
        Self { netfilter: Netlink::open(SockProtocol::NetlinkNetFilter), found: None, diverts: None }
    }

    /// Rules for packets that `interface` receives for this machine, or for the answers to them, in words: `nftables filters input (table inet
    /// filter)`. None without such rules. Chains without a rule that let everything pass do not count, and neither does forwarding.
    ///
    /// # Errors
    /// The rules cannot be read (it takes CAP_NET_ADMIN).
    pub fn look(&mut self, interface: &str) -> io::Result<Option<String>> {
        if let Some(new) = self.rules(interface)? {
            return Ok(Some(new));
        }
        if let Some(old) = old_tables()?.into_iter().next() {
            return Ok(Some(old));
        }
        ipvs()
    }

    /// Rules that send packets for this machine's own addresses elsewhere, in words: translation (of packets that leave, too: their answers come
    /// here), a transparent proxy, IPVS. None: only its own sockets are behind its ports.
    ///
    /// # Errors
    /// The rules cannot be read (it takes CAP_NET_ADMIN).
    pub fn translates(&mut self) -> io::Result<Option<String>> {
        let netfilter = self.netfilter.as_mut().map_err(|e| io::Error::from(e.kind()))?;
        let found = match (nft::generation(netfilter)?, &self.diverts) {
            (None, _) => None,
            (Some(generation), Some((of, found))) if *of == generation => found.clone(),
            (Some(generation), _) => {
                let rules = nft::read(netfilter)?.unwrap_or_default();
                let found = diverts(&rules);
                // Rules that change while they are read are read again the next time.
                self.diverts = (rules.generation == generation).then(|| (generation, found.clone()));
                found
            }
        };
        if found.is_some() {
            return Ok(found);
        }
        // The tables of the old kind do not tell: one for translation may do it.
        if let Some(old) = old_tables()?.into_iter().find(|names| names.contains("nat") || names.contains("mangle")) {
            return Ok(Some(old));
        }
        ipvs()
    }

    /// All rules that packets meet which are forwarded between `ports`.
    ///
    /// # Errors
    /// The rules cannot be read (it takes CAP_NET_ADMIN).
    pub fn forwarding(&mut self, ports: &[&str]) -> io::Result<Forwarding> {
        let netfilter = self.netfilter.as_mut().map_err(|e| io::Error::from(e.kind()))?;
        let rules = match nft::generation(netfilter)? {
            Some(_) => nft::read(netfilter)?.unwrap_or_default(),
            None => Rules::default(),
        };
        Ok(Forwarding { old: old_tables()?, ..Forwarding::of(&rules, ports) })
    }

    fn rules(&mut self, interface: &str) -> io::Result<Option<String>> {
        let netfilter = self.netfilter.as_mut().map_err(|e| io::Error::from(e.kind()))?;
        // No nftables in this kernel.
        let Some(generation) = nft::generation(netfilter)? else { return Ok(None) };
        if let Some((of, found)) = &self.found
            && *of == generation
        {
            return Ok(found.clone());
        }
        let rules = nft::read(netfilter)?.unwrap_or_default();
        let found = does(&rules, interface);
        // Rules that change while they are read are read again the next time.
        self.found = (rules.generation == generation).then(|| (generation, found.clone()));
        Ok(found)
    }
}

fn ipvs() -> io::Result<Option<String>> {
    let services = match fs::read_to_string(IPVS) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
        text => text?,
    };
    Ok((services.lines().count() > IPVS_HEADINGS).then(|| "IPVS has services".to_owned()))
}

/// Rules that send packets elsewhere before their socket is known.
fn diverts(rules: &Rules) -> Option<String> {
    let name = |key: &ChainKey| format!("table {} {}", key.family, key.table);
    let has_rules = |key: &ChainKey| rules.rules.keys().any(|rule| rule.chain == *key);
    let translating = |(key, chain): (&ChainKey, &Chain)| {
        let hook = chain.hook.as_deref().filter(|_| chain.kind == "nat" && has_rules(key))?;
        Some(format!("nftables translates addresses at {hook} ({})", name(key)))
    };
    if let Some(what) = rules.chains.iter().find_map(translating) {
        return Some(what);
    }
    let proxies = |sees: &String| sees == "tproxy" || sees == "fwd" || sees.starts_with("iptables' TPROXY");
    let (rule, _) = rules.rules.iter().find(|(_, rule)| rule.acts.sees.iter().any(proxies))?;
    Some(format!("nftables hands packets to a proxy ({})", name(&rule.chain)))
}

/// The programs that have tables of the old kind, in words. A table without rules counts too: whether it has some is not told here.
fn old_tables() -> io::Result<Vec<String>> {
    let mut found = Vec::new();
    for (program, path) in OLD_TABLES {
        let names = match fs::read_to_string(path) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => continue,
            names => names?,
        };
        let tables: Vec<&str> = names.split_whitespace().collect();
        if !tables.is_empty() {
            found.push(format!("{program} has tables of the old kind ({})", tables.join(", ")));
        }
    }
    Ok(found)
}

/// Effect of the first chain that has one.
fn does(rules: &Rules, interface: &str) -> Option<String> {
    let stands = |key: &ChainKey, chain: &Chain| {
        let hook = chain.hook.as_deref()?;
        let elsewhere = chain.device.as_deref().is_some_and(|device| device != interface);
        let acts = chain.policy_drop || rules.rules.keys().any(|rule| rule.chain == *key);
        if key.family == "arp" || hook == "forward" || elsewhere || !acts {
            return None;
        }
        let verb = if chain.kind == "nat" { "translates addresses at" } else { "filters" };
        Some(format!("nftables {verb} {hook} (table {} {})", key.family, key.table))
    };
    // Those that packets meet on their way in are named rather than others.
    let inward = |chain: &Chain| chain.hook.as_deref().is_some_and(|hook| !["output", "postrouting"].contains(&hook));
    let chains = || rules.chains.iter();
    let first = chains().filter(|(_, chain)| inward(chain)).find_map(|(key, chain)| stands(key, chain));
    first.or_else(|| chains().find_map(|(key, chain)| stands(key, chain)))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::stack::nft::{Rule, RuleKey};

    fn rules(family: &str, chain: Chain, with_rule: bool) -> Rules {
        let key = ChainKey { family: family.to_owned(), table: "t".to_owned(), chain: "c".to_owned() };
        let mut rules = Rules::default();
        if with_rule {
            rules.rules.insert(RuleKey { chain: key.clone(), handle: 1 }, Rule::default());
        }
        rules.chains.insert(key, chain);
        rules
    }

    fn chain(hook: &str, kind: &str) -> Chain {
        Chain { hook: Some(hook.to_owned()), kind: kind.to_owned(), ..Chain::default() }
    }

    #[test]
    fn translation_counts_on_the_way_out_too_and_filters_do_not() {
        let found = |hook, kind, with_rule| diverts(&rules("ip", chain(hook, kind), with_rule));
        let found_text = found("postrouting", "nat", true).unwrap();
        assert_eq!(found_text, "nftables translates addresses at postrouting (table ip t)");
        assert!(found("prerouting", "nat", true).is_some() && found("output", "nat", true).is_some());
        assert_eq!((found("postrouting", "nat", false), found("input", "filter", true)), (None, None));
    }

    #[test]
    fn chains_count_that_packets_for_this_machine_or_their_answers_meet() {
        let found = |family, chain, with_rule| does(&rules(family, chain, with_rule), "eth0");
        let found_text = |family, hook, kind| found(family, chain(hook, kind), true);
        assert_eq!(found_text("inet", "input", "filter").unwrap(), "nftables filters input (table inet t)");
        assert_eq!(
            found_text("ip", "prerouting", "nat").unwrap(),
            "nftables translates addresses at prerouting (table ip t)"
        );
        assert!(found_text("ip6", "output", "filter").is_some() && found_text("netdev", "ingress", "filter").is_some());
        assert_eq!(found_text("inet", "forward", "filter"), None);
        assert_eq!(found_text("arp", "input", "filter"), None);
        assert_eq!(found("inet", chain("input", "filter"), false), None, "an empty chain that accepts");
        let drops = Chain { policy_drop: true, ..chain("input", "filter") };
        assert!(found("inet", drops, false).is_some());
        let on = |device: &str| Chain { device: Some(device.to_owned()), ..chain("ingress", "filter") };
        assert!(found("netdev", on("eth0"), true).is_some() && found("netdev", on("eth1"), true).is_none());
        assert_eq!(found("inet", Chain::default(), true), None, "a chain that nobody calls");
    }
}
