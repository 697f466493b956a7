//! The management allow-list: who must always get in, tried before all other rules.

use std::{collections::BTreeSet, net::IpAddr};

use serde::{Deserialize, Serialize};

use super::{
    keys::{self, Entry, Fault},
    rule::{Action, Match, Place, Prefix, Rule},
    words::{self, Wrong},
};

const SSH: u16 = 22;
/// ICMPv6: router and neighbour discovery (RFC 4861), without which no address is found.
const NEIGHBOURS: std::ops::RangeInclusive<u8> = 133..=136;

/// The management allow-list of the file.
#[derive(Debug, Clone, PartialEq)]
pub struct Management {
    /// The addresses and ports that always come in.
    pub from: Vec<Prefix>,
    /// Addresses to which it is let in; empty: those of this machine.
    pub to: Vec<Prefix>,
    /// To which TCP ports; that of the session at the start is added.
    pub ports: BTreeSet<u16>,
    /// The peer of the session at the start is let in.
    pub session: bool,
}

impl Default for Management {
    fn default() -> Self {
        Self { from: Vec::new(), to: Vec::new(), ports: BTreeSet::from([SSH]), session: true }
    }
}

/// A session over TCP that ends at this machine.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct Session {
    /// The place of the administrator.
    pub peer: IpAddr,
    pub peer_port: u16,
    pub local: IpAddr,
    pub local_port: u16,
}

impl Management {
    /// Reads the keys of the table `[management]`; faults are noted.
    pub fn from_entries(entries: &[Entry], faults: &mut Vec<Fault>) -> Self {
        let mut management = Self::default();
        for Entry { key, words } in entries {
            let mut prefixes = || {
                let mut read = Vec::new();
                for word in words {
                    words::prefix(&word.text)
                        .map_or_else(|wrong| faults.push((word.at, wrong)), |prefix| read.push(prefix));
                }
                read
            };
            match key.text.as_str() {
                "from" => management.from = prefixes(),
                "to" => management.to = prefixes(),
                "ports" => {
                    management.ports.clear();
                    for word in words {
                        match words::range(&word.text, "port", 1, 65535) {
                            Ok(range) => management.ports.extend(range),
                            Err(wrong) => faults.push((word.at, wrong)),
                        }
                    }
                }
                "session" => match words[0].text.parse() {
                    Ok(session) => management.session = session,
                    Err(_) => faults.push((words[0].at, Wrong::new("neither true nor false", "write true or false"))),
                },
                other => faults.push((
                    key.at,
                    Wrong::new(
                        format!("the management allow-list has no key `{other}`"),
                        keys::instead_of(other, &["from", "to", "ports", "session"]),
                    ),
                )),
            }
        }
        management
    }

    /// The rules of the allow-list on a machine with the addresses `own`, started from `session`.
    pub fn rules(&self, own: &[IpAddr], session: Option<&Session>) -> Vec<Rule> {
        let whole = |address: IpAddr| Prefix { address, len: if address.is_ipv4() { 32 } else { 128 } };
        let to = if self.to.is_empty() { own.iter().copied().map(whole).collect() } else { self.to.clone() };
        let places = |prefixes: &[Prefix]| prefixes.iter().copied().map(Place::Prefix).collect::<Vec<_>>();
        let tcp = |name: &str, source: Vec<Place>, destination: Vec<Place>, ports: &BTreeSet<u16>| Rule {
            name: format!("management:{name}"),
            when: Match {
                source,
                destination,
                destination_port: ports.iter().map(|port| *port..=*port).collect(),
                protocol: vec![6],
                ..Match::default()
            },
            action: Action::Pass,
            management: true,
            ..Rule::default()
        };
        let mut rules = vec![Rule {
            name: "management:neighbours".to_owned(),
            when: Match { family: Some(6), protocol: vec![58], icmp_type: NEIGHBOURS.collect(), ..Match::default() },
            action: Action::Pass,
            management: true,
            ..Rule::default()
        }];
        if !self.from.is_empty() && !to.is_empty() {
            rules.push(tcp("from", places(&self.from), places(&to), &self.ports));
        }
        if let Some(session) = session.filter(|_| self.session) {
            let mut ports = self.ports.clone();
            ports.insert(session.local_port);
            let mut destination = to;
            destination.push(whole(session.local));
            destination.sort_unstable();
            destination.dedup();
            rules.push(tcp("session", places(&[whole(session.peer)]), places(&destination), &ports));
        }
        rules
    }

    /// The allow-list of a machine with these addresses, for all of these sessions: the rules of [`Self::rules`], each once.
    pub fn all(&self, own: &[IpAddr], sessions: &[Session]) -> Vec<Rule> {
        let mut all: Vec<Rule> = Vec::new();
        for rule in sessions.iter().map(Some).chain([None]).flat_map(|session| self.rules(own, session)) {
            if !all.iter().any(|other| other.when == rule.when) {
                let same = all.iter().filter(|other| other.name.split('#').next() == Some(&rule.name)).count();
                let name = if same == 0 { rule.name.clone() } else { format!("{}#{}", rule.name, same + 1) };
                all.push(Rule { name, ..rule });
            }
        }
        all
    }
}
