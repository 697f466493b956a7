//! Other nodes, by their hellos.

use std::{
    collections::{BTreeMap, HashMap},
    hash::Hash,
};

use crate::Nanos;

/// Size of the table of nodes. A flood of names evicts no live node.
const PEERS_MAX: usize = 4096;
/// Silence after which a node can be evicted.
const SILENCE_TIMEOUT: Nanos = 60_000_000_000;
/// Time between two searches for silent nodes.
const SWEEP_PERIOD: Nanos = 1_000_000_000;
const NAME_BYTES_MAX: usize = 255;

/// Another node, by its hello.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Peer {
    pub name: String,
    pub epoch: u32,
    /// Time of its last hello.
    pub heard: Nanos,
}

/// A name that several nodes have.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DuplicateName<P> {
    pub name: String,
    /// Addresses of the other nodes. A node that moved has two: see [`Peer::heard`].
    pub addresses: Vec<P>,
    /// True: the local node has the name, too.
    pub this_node: bool,
}

#[derive(Debug)]
pub(crate) struct Peers<P> {
    nodes: HashMap<P, Peer>,
    /// Number of nodes by name and epoch.
    names: HashMap<String, HashMap<u32, usize>>,
    /// Time of the last eviction.
    swept: Nanos,
    changes: u64,
}

impl<P: Copy + Eq + Hash> Peers<P> {
    pub(crate) fn new() -> Self {
        Self { nodes: HashMap::new(), names: HashMap::new(), swept: 0, changes: 0 }
    }

    pub(crate) fn iter(&self) -> impl Iterator<Item = (&P, &Peer)> {
        self.nodes.iter()
    }

    /// Number of changes so far: nodes added or removed, names, epochs.
    pub(crate) fn changes(&self) -> u64 {
        self.changes
    }

    /// Records a hello. True: the node is new or changed its name or epoch, and the name is in use by another node or this one.
    pub(crate) fn heard(&mut self, now: Nanos, peer: P, name: &[u8], epoch: u32, this: (&str, u32)) -> bool {
        let name = String::from_utf8_lossy(&name[..name.len().min(NAME_BYTES_MAX)]).into_owned();
        if let Some(known) = self.nodes.get_mut(&peer)
            && (known.epoch, &known.name) == (epoch, &name)
        {
            known.heard = now;
            return false;
        }
        if let Some(before) = self.nodes.remove(&peer) {
            self.remove_name(&before);
        }
        if self.nodes.len() >= PEERS_MAX {
            self.sweep(now);
            // Live nodes stay: forged addresses must not evict them.
            if self.nodes.len() >= PEERS_MAX {
                return false;
            }
        }
        self.changes += 1;
        let epochs = self.names.entry(name.clone()).or_default();
        let again = (name == this.0 && epoch != this.1) || epochs.keys().any(|&other| other != epoch);
        *epochs.entry(epoch).or_default() += 1;
        self.nodes.insert(peer, Peer { name, epoch, heard: now });
        again
    }

    /// Evicts silent nodes, once in a period.
    fn sweep(&mut self, now: Nanos) {
        if now.saturating_sub(self.swept) < SWEEP_PERIOD {
            return;
        }
        self.swept = now;
        let silent: Vec<P> = self
            .nodes
            .iter()
            .filter(|(_, node)| now.saturating_sub(node.heard) > SILENCE_TIMEOUT)
            .map(|(&at, _)| at)
            .collect();
        for at in silent {
            if let Some(before) = self.nodes.remove(&at) {
                self.remove_name(&before);
            }
        }
    }

    fn remove_name(&mut self, before: &Peer) {
        self.changes += 1;
        let Some(epochs) = self.names.get_mut(&before.name) else { return };
        match epochs.get_mut(&before.epoch) {
            Some(count) if *count > 1 => *count -= 1,
            _ => drop(epochs.remove(&before.epoch)),
        }
        if epochs.is_empty() {
            self.names.remove(&before.name);
        }
    }

    /// Names that nodes with different epochs have, sorted. A node at several addresses has one epoch.
    pub(crate) fn duplicate_names(&self, this: (&str, u32)) -> Vec<DuplicateName<P>> {
        let several = |name: &str, epochs: &HashMap<u32, usize>| match name == this.0 {
            true => epochs.keys().any(|&epoch| epoch != this.1),
            false => epochs.len() > 1,
        };
        let several = self.names.iter().filter(|(name, epochs)| several(name, epochs));
        let mut made: BTreeMap<&str, Vec<P>> = several.map(|(name, _)| (name.as_str(), Vec::new())).collect();
        if !made.is_empty() {
            for (&at, node) in &self.nodes {
                if let Some(addresses) = made.get_mut(node.name.as_str()) {
                    addresses.push(at);
                }
            }
        }
        let made = made.into_iter();
        made.map(|(name, addresses)| DuplicateName { name: name.to_owned(), addresses, this_node: name == this.0 })
            .collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_flood_of_names_takes_no_memory_beyond_a_bound_and_drives_out_nobody() {
        let mut peers = Peers::new();
        let this = ("me", 1);
        peers.heard(0, usize::MAX, b"real", 7, this);
        let flood = |peers: &mut Peers<usize>, now: Nanos, from: usize| {
            (from..from + 2 * PEERS_MAX).for_each(|at| {
                peers.heard(now, at, &[b'x'; 1000], at as u32, this);
            });
        };
        flood(&mut peers, 1, 0);
        assert_eq!(peers.iter().count(), PEERS_MAX);
        assert_eq!(peers.iter().find(|(at, _)| **at == usize::MAX).map(|(_, peer)| peer.name.as_str()), Some("real"));
        assert!(peers.iter().all(|(_, peer)| peer.name.len() <= NAME_BYTES_MAX));
        // Those that have been silent for a minute make room; who speaks stays.
        peers.heard(SILENCE_TIMEOUT, usize::MAX, b"real", 7, this);
        flood(&mut peers, SILENCE_TIMEOUT + 2, 3 * PEERS_MAX);
        assert_eq!(peers.iter().count(), PEERS_MAX);
        let real = peers.iter().filter(|(at, _)| **at == usize::MAX).count();
        assert_eq!((real, peers.iter().filter(|(at, _)| **at < 3 * PEERS_MAX).count()), (1, 0));
        assert_eq!(peers.names.values().flat_map(HashMap::values).sum::<usize>(), PEERS_MAX);
    }

    #[test]
    fn names_are_counted_by_epochs() {
        let mut peers = Peers::new();
        let this = ("me", 1);
        assert!(!peers.heard(0, 1, b"twin", 5, this));
        assert!(!peers.heard(0, 2, b"twin", 5, this), "one node at two addresses");
        assert_eq!(peers.duplicate_names(this), []);
        assert!(peers.heard(0, 3, b"twin", 6, this));
        assert!(peers.heard(0, 4, b"me", 2, this));
        let mut names = peers.duplicate_names(this);
        names.iter_mut().for_each(|names| names.addresses.sort_unstable());
        let expected = [("me", vec![4], true), ("twin", vec![1, 2, 3], false)];
        assert_eq!(
            names.into_iter().map(|n| (n.name, n.addresses, n.this_node)).collect::<Vec<_>>(),
            expected.map(|(n, a, t)| (n.to_owned(), a, t))
        );
        peers.heard(0, 3, b"other", 6, this);
        peers.heard(0, 4, b"me", 1, this);
        assert_eq!(peers.duplicate_names(this), []);
    }
}
