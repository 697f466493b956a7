//! All that a broker's loop has, with counts and indices: one event never looks through all entries.

use std::{
    collections::{BTreeSet, HashMap},
    hash::Hash,
    net::SocketAddr,
};

use crate::{Address, sockets::ids::EntryId};

/// The address here, and that of the other end.
pub(super) type Names = (SocketAddr, SocketAddr);

/// The keys by which an entry is found or counted. They do not change while it is in the table.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) struct Keys {
    /// Its addresses, if it has them.
    pub(super) names: Option<Names>,
    /// The node that has not said which connection it is.
    pub(super) unnamed: Option<Address>,
    /// The node to which it has a port of the broker.
    pub(super) port_to: Option<Address>,
    /// Its stream carries one notice to another broker.
    pub(super) tells: bool,
}

/// An entry of the table.
pub(super) trait Keyed {
    fn keys(&self) -> Keys;
}

/// Entries by number.
#[derive(Debug)]
pub(super) struct Stages<S> {
    all: HashMap<EntryId, S>,
    names: BTreeSet<(Names, EntryId)>,
    unnamed: Counts,
    ports: Counts,
    tells: usize,
}

/// Entries of each node. A node with none is absent.
#[derive(Debug, Default)]
struct Counts(HashMap<Address, usize>);

impl<S: Keyed> Stages<S> {
    pub(super) fn new() -> Self {
        let (unnamed, ports) = (Counts::default(), Counts::default());
        Self { all: HashMap::new(), names: BTreeSet::new(), unnamed, ports, tells: 0 }
    }

    /// Puts an entry in, in place of the one of this number.
    pub(super) fn insert(&mut self, id: EntryId, stage: S) {
        // Its counts go with it.
        self.remove(id);
        let Keys { names, unnamed, port_to, tells } = stage.keys();
        self.names.extend(names.map(|names| (names, id)));
        self.unnamed.add(unnamed);
        self.ports.add(port_to);
        self.tells += usize::from(tells);
        self.all.insert(id, stage);
    }

    pub(super) fn remove(&mut self, id: EntryId) -> Option<S> {
        let stage = self.all.remove(&id)?;
        let Keys { names, unnamed, port_to, tells } = stage.keys();
        names.map(|names| self.names.remove(&(names, id)));
        self.unnamed.take(unnamed);
        self.ports.take(port_to);
        self.tells -= usize::from(tells);
        Some(stage)
    }

    pub(super) fn get(&self, id: EntryId) -> Option<&S> {
        self.all.get(&id)
    }

    /// Whoever changes it leaves its keys as they are.
    pub(super) fn get_mut(&mut self, id: EntryId) -> Option<&mut S> {
        self.all.get_mut(&id)
    }

    pub(super) fn iter(&self) -> impl Iterator<Item = (EntryId, &S)> {
        self.all.iter().map(|(&id, stage)| (id, stage))
    }

    /// The numbers of those that have these addresses.
    pub(super) fn of_names(&self, names: Names) -> impl Iterator<Item = EntryId> {
        self.names.range((names, EntryId::MIN)..=(names, EntryId::MAX)).map(|&(_, id)| id)
    }

    /// Streams of a node that have not said which connection they are.
    pub(super) fn unnamed_of(&self, node: Address) -> usize {
        self.unnamed.of(node)
    }

    /// Ports of this broker that streams to another one have.
    pub(super) fn ports_to(&self, node: Address) -> usize {
        self.ports.of(node)
    }

    /// Lines that other brokers are to hear.
    pub(super) fn tells(&self) -> usize {
        self.tells
    }
}

impl Counts {
    fn of(&self, node: Address) -> usize {
        self.0.get(&node).copied().unwrap_or(0)
    }

    fn add(&mut self, node: Option<Address>) {
        node.into_iter().for_each(|node| *self.0.entry(node).or_default() += 1);
    }

    fn take(&mut self, node: Option<Address>) {
        let Some(node) = node else { return };
        match self.of(node) {
            0 | 1 => drop(self.0.remove(&node)),
            count => drop(self.0.insert(node, count - 1)),
        }
    }
}

/// By something that a connection has, the connection's number; and what each connection has.
#[derive(Debug)]
pub(super) struct Owners<K> {
    of: HashMap<K, EntryId>,
    each: HashMap<EntryId, Vec<K>>,
}

impl<K: Copy + Eq + Hash> Owners<K> {
    pub(super) fn new() -> Self {
        Self { of: HashMap::new(), each: HashMap::new() }
    }

    /// Gives `what` to an entry, and takes it from the one that had it.
    pub(super) fn insert(&mut self, what: K, id: EntryId) {
        self.of.insert(what, id);
        self.each.entry(id).or_default().push(what);
    }

    pub(super) fn get(&self, what: K) -> Option<EntryId> {
        self.of.get(&what).copied()
    }

    /// A connection has ended.
    pub(super) fn forget(&mut self, id: EntryId) {
        for what in self.each.remove(&id).into_iter().flatten() {
            if self.get(what) == Some(id) {
                self.of.remove(&what);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use wire::Mac;

    use super::*;

    impl Keyed for Keys {
        fn keys(&self) -> Keys {
            *self
        }
    }

    fn names(at: u16) -> Names {
        (SocketAddr::from(([10, 0, 0, 1], at)), SocketAddr::from(([10, 0, 0, 2], 7000)))
    }

    fn node(last: u8) -> Address {
        Address::Ethernet(Mac([2, 0, 0, 0, 0, last]))
    }

    fn keys() -> impl Strategy<Value = Keys> {
        let node = || proptest::option::of((0..3_u8).prop_map(node));
        (proptest::option::of((1..4_u16).prop_map(names)), node(), node(), any::<bool>())
            .prop_map(|(names, unnamed, port_to, tells)| Keys { names, unnamed, port_to, tells })
    }

    proptest! {
        #[test]
        fn counts_and_indices_say_what_a_look_through_all_says(
            steps in proptest::collection::vec((0..12_u64, proptest::option::of(keys())), 0..64),
        ) {
            let mut stages = Stages::new();
            for (id, step) in steps {
                let id = EntryId(id);
                match step {
                    Some(keys) => stages.insert(id, keys),
                    None => prop_assert_eq!(stages.get(id).copied(), stages.remove(id)),
                }
                for at in 0..4 {
                    let mut found: Vec<_> =
                        stages.iter().filter(|(_, of)| of.names == Some(names(at))).map(|(id, _)| id).collect();
                    found.sort_unstable();
                    prop_assert_eq!(stages.of_names(names(at)).collect::<Vec<_>>(), found);
                }
                for of in (0..4).map(node) {
                    let count = |is_one: &dyn Fn(&Keys) -> bool| stages.iter().filter(|(_, of)| is_one(of)).count();
                    prop_assert_eq!(stages.unnamed_of(of), count(&|keys| keys.unnamed == Some(of)));
                    prop_assert_eq!(stages.ports_to(of), count(&|keys| keys.port_to == Some(of)));
                    prop_assert_eq!(stages.tells(), count(&|keys| keys.tells));
                }
            }
            // Nodes that have gone leave nothing.
            let ids: Vec<_> = stages.iter().map(|(id, _)| id).collect();
            prop_assert!(ids.into_iter().all(|id| stages.remove(id).is_some()));
            prop_assert!(stages.names.is_empty() && stages.unnamed.0.is_empty() && stages.ports.0.is_empty());
        }
    }

    #[test]
    fn what_another_connection_has_by_now_is_not_forgotten_with_the_first() {
        let mut owners = Owners::new();
        let (first, second) = (EntryId(1), EntryId(2));
        owners.insert('a', first);
        owners.insert('b', first);
        owners.insert('a', second);
        owners.forget(first);
        assert_eq!((owners.get('a'), owners.get('b')), (Some(second), None));
        owners.forget(second);
        assert!(owners.of.is_empty() && owners.each.is_empty());
    }
}
