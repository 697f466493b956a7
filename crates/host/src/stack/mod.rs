//! The counters of every station that a packet meets in the network stack, for one network namespace: the caller's.
//!
//! A thread that entered a namespace opens a [`StackReader`] there and reads again and again; [`StackCounters::since`] gives
//! what was counted in between. What this kernel, a missing program or a missing privilege does not tell is named in
//! [`StackCounters::unread`]; the rest is there.

mod conntrack;
mod links;
mod nft;
mod nft_text;
mod nic;
mod nic_names;
mod owners;
mod proto;
mod qdisc;
mod reader;
mod sockets;

use std::collections::BTreeMap;

pub use conntrack::Conntrack;
pub use links::{Link, LinkLosses, PortState, XdpMode};
pub use nft::{Chain, ChainKey, Rule, RuleKey, Rules, Verdict};
pub use nic::{NicLoss, NicLosses, QueueLosses};
pub use nic_names::{Counted, LossClass, XdpCount};
pub use proto::{IcmpCounters, IpCounters, Protocols, TcpCounters, UdpCounters};
pub use qdisc::{Qdisc, QdiscKey};
pub use reader::StackReader;
pub use sockets::{Owner, PacketTap, Socket, SocketKey, SocketKind, Sockets};

use crate::root::Root;

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
    /// What the drivers of the interfaces lost and what their XDP programs did, by interface index.
    pub nics: BTreeMap<u32, NicLosses>,
    /// Sockets by cookie.
    pub sockets: Sockets,
    /// What could not be read, and why.
    pub unread: Vec<String>,
}

impl StackCounters {
    /// Reads everything once: the calling thread's network namespace, or what a saved copy holds.
    pub fn read(root: &Root) -> Self {
        StackReader::open().read(root)
    }

    /// What was counted between `earlier` and now. What is new since then counts from zero; levels (what waits in a queue,
    /// the entries of a table) are those of now.
    #[must_use]
    pub fn since(&self, earlier: &Self) -> Self {
        Self {
            protocols: self.protocols.since(&earlier.protocols),
            conntrack: difference(&self.conntrack, &earlier.conntrack, Conntrack::since),
            rules: difference(&self.rules, &earlier.rules, Rules::since),
            qdiscs: by_key(&self.qdiscs, &earlier.qdiscs, Qdisc::since),
            links: by_key(&self.links, &earlier.links, Link::since),
            nics: by_key(&self.nics, &earlier.nics, NicLosses::since),
            sockets: by_key(&self.sockets, &earlier.sockets, Socket::since),
            unread: self.unread.clone(),
        }
    }
}

fn difference<T: Clone>(now: &Option<T>, earlier: &Option<T>, since: impl Fn(&T, &T) -> T) -> Option<T> {
    match (now, earlier) {
        (Some(now), Some(earlier)) => Some(since(now, earlier)),
        (now, _) => now.clone(),
    }
}

fn by_key<K: Ord + Clone, T: Clone>(
    now: &BTreeMap<K, T>,
    earlier: &BTreeMap<K, T>,
    since: impl Fn(&T, &T) -> T,
) -> BTreeMap<K, T> {
    let one = |(key, now): (&K, &T)| {
        (key.clone(), earlier.get(key).map_or_else(|| now.clone(), |earlier| since(now, earlier)))
    };
    now.iter().map(one).collect()
}

/// The text in front of the first zero byte.
fn text(bytes: &[u8]) -> String {
    let end = bytes.iter().position(|&b| b == 0).unwrap_or(bytes.len());
    String::from_utf8_lossy(&bytes[..end]).into_owned()
}

/// A word in the machine's order.
fn u32_at(bytes: &[u8], at: usize) -> Option<u32> {
    bytes.get(at..at.checked_add(4)?)?.try_into().ok().map(u32::from_ne_bytes)
}
