//! The counters of every station that a packet meets in the network stack, for one network namespace: the caller's.
//!
//! A thread that entered a namespace opens a [`StackReader`] there and reads again and again; [`StackCounters::since`] gives
//! what was counted in between. What this kernel, a missing program or a missing privilege does not tell is named in
//! [`StackCounters::unread`]; the rest is there.

mod acts;
mod conntrack;
mod forwarding;
mod hooks;
pub(crate) mod nft;
mod nft_text;
mod nic;
mod nic_names;
mod owners;
mod proto;
mod qdisc;
mod reader;
mod sockets;
mod unread;

use std::collections::{BTreeMap, BTreeSet};

pub use acts::{Acts, MarkSet};
pub use conntrack::Conntrack;
pub use forwarding::Forwarding;
pub use hooks::Hooks;
pub use nft::{Chain, ChainKey, Rule, RuleKey, Rules, Verdict};
pub use nic::{NicLoss, NicLosses};
pub use nic_names::{Counted, LossClass, XdpCount};
pub use proto::{IcmpCounters, IpCounters, Protocols, TcpCounters, UdpCounters};
pub use qdisc::{Qdisc, QdiscKey};
pub use reader::StackReader;
pub(crate) use sockets::listeners;
pub use sockets::{Owner, PacketTap, Socket, SocketKey, Sockets, listener_for, listening, tcp_cookie};
pub use unread::{SocketKind, Source};

use crate::{interface::Link, root::Root};

/// Everything that the stack of one network namespace counted, at one moment or (from [`StackCounters::since`]) in an
/// interval.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct StackCounters {
    /// IP, ICMP, UDP, TCP.
    pub protocols: Protocols,
    /// Connection tracking; none without it.
    pub conntrack: Option<Conntrack>,
    /// Netfilter's rules and chains; none when they cannot be read.
    pub rules: Option<Rules>,
    /// Queueing disciplines and classes.
    pub qdiscs: BTreeMap<QdiscKey, Qdisc>,
    /// Interfaces by index, with their place in a bridge and their XDP programs.
    pub links: BTreeMap<u32, Link>,
    /// Losses of the interfaces' drivers and acts of their XDP programs, by interface index.
    pub nics: BTreeMap<u32, NicLosses>,
    pub sockets: Sockets,
    /// Unread sources, and the reasons.
    pub unread: Vec<String>,
    /// The sources of which nothing, or not everything, was read.
    pub missed: BTreeSet<Source>,
}

impl StackCounters {
    /// Reads everything once: the calling thread's network namespace, or what a saved copy holds.
    pub fn read(root: &Root) -> Self {
        StackReader::open().read(root)
    }

    /// The counts between `earlier` and now; levels (what waits in a queue, the entries of a table) are those of now.
    ///
    /// A socket, a rule or a queue that is new since then counts from zero. Where that is not certain, nothing is said of what
    /// was counted before, and [`StackCounters::unread`] names it: what `earlier` could not read, and interfaces that are
    /// new, as they may have come from another namespace with all that they counted there.
    #[must_use]
    pub fn since(&self, earlier: &Self) -> Self {
        let missed = |source: Source| earlier.missed.contains(&source);
        let known = |ifindex: &u32| earlier.links.contains_key(ifindex);
        let mut rules = difference(&self.rules, &earlier.rules, !missed(Source::Rules), Rules::since);
        if let Some(rules) = &mut rules {
            let certain = |chain: &ChainKey| {
                !["iptables", "ip6tables"].iter().any(|f| chain.family == *f && missed(Source::OldRules(f)))
            };
            rules.rules.retain(|key, _| certain(&key.chain));
            rules.chains.retain(|key, _| certain(key));
        }
        Self {
            protocols: match missed(Source::Protocols) {
                true => Protocols::default(),
                false => self.protocols.since(&earlier.protocols),
            },
            conntrack: difference(&self.conntrack, &earlier.conntrack, !missed(Source::Conntrack), Conntrack::since),
            rules,
            qdiscs: by_key(&self.qdiscs, &earlier.qdiscs, Qdisc::since, |key, _| {
                known(&key.ifindex) && !missed(Source::Qdiscs)
            }),
            links: by_key(&self.links, &earlier.links, Link::since, |_, _| false),
            nics: by_key(&self.nics, &earlier.nics, NicLosses::since, |_, _| false),
            sockets: by_key(&self.sockets, &earlier.sockets, Socket::since, |_, s| !missed(Source::Sockets(s.kind))),
            unread: self.unread.iter().cloned().chain(self.uncertain(earlier)).collect(),
            missed: self.missed.union(&earlier.missed).copied().collect(),
        }
    }

    /// Counters whose value in `earlier` is not known.
    fn uncertain(&self, earlier: &Self) -> Vec<String> {
        let late = earlier.missed.difference(&self.missed);
        let mut notes: Vec<String> = late
            .map(|source| {
                format!("{source} could not all be read at the beginning: what was counted since is not known")
            })
            .collect();
        if earlier.missed.contains(&Source::Links) {
            return notes;
        }
        for (index, link) in &self.links {
            let name = &link.name;
            if !earlier.links.contains_key(index) {
                notes.push(format!("{name} is new: its counters are taken from now on"));
            } else if self.nics.contains_key(index) && !earlier.nics.contains_key(index) {
                notes
                    .push(format!("{name}: its driver's counters are taken from now on, as they were not read before"));
            }
        }
        notes
    }
}

/// Counters that `earlier` lacks start at zero if `from_zero`, and are left out otherwise.
fn difference<T: Clone>(
    now: &Option<T>,
    earlier: &Option<T>,
    from_zero: bool,
    since: impl Fn(&T, &T) -> T,
) -> Option<T> {
    match (now, earlier) {
        (Some(now), Some(earlier)) => Some(since(now, earlier)),
        (now, _) => now.clone().filter(|_| from_zero),
    }
}

/// Counters that `earlier` lacks start at zero if `from_zero`, and at their present value otherwise.
fn by_key<K: Ord + Clone, T: Clone>(
    now: &BTreeMap<K, T>,
    earlier: &BTreeMap<K, T>,
    since: impl Fn(&T, &T) -> T,
    from_zero: impl Fn(&K, &T) -> bool,
) -> BTreeMap<K, T> {
    let one = |(key, now): (&K, &T)| {
        let counted = match earlier.get(key) {
            Some(earlier) => since(now, earlier),
            None if from_zero(key, now) => now.clone(),
            None => since(now, now),
        };
        (key.clone(), counted)
    };
    now.iter().map(one).collect()
}

#[cfg(test)]
mod tests;
