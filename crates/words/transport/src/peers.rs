//! Other nodes, as their hellos tell of them.

use std::{
    collections::{BTreeMap, HashMap},
    hash::Hash,
};

use crate::Nanos;

/// So many are kept: whoever floods with names gets no memory for it.
const KEPT: usize = 4096;
/// Bytes of a name.
const NAME_BYTES: usize = 255;

/// Another node, as its hello says.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Peer {
    /// Its name.
    pub name: String,
    /// Its epoch.
    pub epoch: u32,
    /// When it was heard last.
    pub heard: Nanos,
}

/// Nodes that have one name.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Namesakes<P> {
    /// The name.
    pub name: String,
    /// The addresses of those that have it, this node's left out. One of them may have moved: [`Peer::heard`] says when each was heard.
    pub addresses: Vec<P>,
    /// This node has it too.
    pub this_node: bool,
}

#[derive(Debug)]
pub(crate) struct Peers<P> {
    nodes: HashMap<P, Peer>,
}

impl<P: Copy + Eq + Hash> Peers<P> {
    pub(crate) fn new() -> Self {
        Self { nodes: HashMap::new() }
    }

    pub(crate) fn iter(&self) -> impl Iterator<Item = (&P, &Peer)> {
        self.nodes.iter()
    }

    /// A hello. True: the node is new, or has another name or epoch than before, and another one, or this one, has its name.
    pub(crate) fn heard(&mut self, now: Nanos, peer: P, name: &[u8], epoch: u32, this: (&str, u32)) -> bool {
        let name = String::from_utf8_lossy(&name[..name.len().min(NAME_BYTES)]).into_owned();
        if let Some(known) = self.nodes.get_mut(&peer)
            && (known.epoch, &known.name) == (epoch, &name)
        {
            known.heard = now;
            return false;
        }
        if self.nodes.len() >= KEPT && !self.nodes.contains_key(&peer) {
            let oldest = self.nodes.iter().min_by_key(|(_, node)| node.heard).map(|(&oldest, _)| oldest);
            oldest.map(|oldest| self.nodes.remove(&oldest));
        }
        let others = self.nodes.iter().filter(|&(&at, _)| at != peer).map(|(_, node)| (node.name.as_str(), node.epoch));
        let again = others.chain([this]).any(|(other, its)| other == name && its != epoch);
        self.nodes.insert(peer, Peer { name, epoch, heard: now });
        again
    }

    /// Names that several nodes have. One node that is heard at several addresses has one epoch, and is one.
    pub(crate) fn namesakes(&self, this: (&str, u32)) -> Vec<Namesakes<P>> {
        let mut names: BTreeMap<&str, (Vec<P>, Vec<u32>)> = BTreeMap::new();
        for (&at, node) in &self.nodes {
            let (addresses, epochs) = names.entry(&node.name).or_default();
            addresses.push(at);
            epochs.push(node.epoch);
        }
        let several = |name: &str, epochs: &[u32]| {
            let this = (name == this.0).then_some(this.1);
            let first = this.or(epochs.first().copied());
            epochs.iter().any(|&epoch| Some(epoch) != first)
        };
        let several = names.into_iter().filter(|(name, (_, epochs))| several(name, epochs));
        let made = several.map(|(name, (addresses, _))| Namesakes {
            name: name.to_owned(),
            addresses,
            this_node: name == this.0,
        });
        made.collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_flood_of_names_takes_no_memory_beyond_a_bound() {
        let mut peers = Peers::new();
        (0..2 * KEPT).for_each(|at| {
            peers.heard(at as Nanos, at, &[b'x'; 1000], at as u32, ("me", 1));
        });
        assert_eq!(peers.iter().count(), KEPT);
        assert!(peers.iter().all(|(&at, peer)| at >= KEPT && peer.name.len() == NAME_BYTES));
    }
}
