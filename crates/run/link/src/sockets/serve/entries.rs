//! Entries with counts and indices: no event searches all entries.

use std::{
    collections::{BTreeSet, HashMap},
    hash::Hash,
    net::SocketAddr,
};

use crate::{Address, sockets::ids::EntryId};

/// Local and peer address.
pub(super) type Names = (SocketAddr, SocketAddr);

/// Keys by which an entry is found or counted. They are constant while it is in the table.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) struct Keys {
    /// Local and peer address, if known.
    pub(super) names: Option<Names>,
    /// Node whose stream has no head yet.
    pub(super) unnamed: Option<Address>,
    /// Node whose connection waits for accept(2).
    pub(super) pending: Option<Address>,
    /// Node to which it uses a port of the broker.
    pub(super) port_to: Option<Address>,
    /// True if its stream carries a notice to another broker.
    pub(super) notices: bool,
}

pub(super) trait Keyed {
    fn keys(&self) -> Keys;
}

#[derive(Debug)]
pub(super) struct Entries<S> {
    all: HashMap<EntryId, S>,
    names: BTreeSet<(Names, EntryId)>,
    unnamed: Counts,
    pending: Counts,
    ports: Counts,
    notices: usize,
}

/// Entries of each node. A node with none is absent.
#[derive(Debug, Default)]
struct Counts(HashMap<Address, usize>);

impl<S: Keyed> Entries<S> {
    pub(super) fn new() -> Self {
        let [unnamed, pending, ports] = [(); 3].map(|()| Counts::default());
        Self { all: HashMap::new(), names: BTreeSet::new(), unnamed, pending, ports, notices: 0 }
    }

    /// Inserts an entry, and replaces the one of this id.
    pub(super) fn insert(&mut self, id: EntryId, entry: S) {
        // Subtracts the counts of the old entry.
        self.remove(id);
        let Keys { names, unnamed, pending, port_to, notices } = entry.keys();
        self.names.extend(names.map(|names| (names, id)));
        self.unnamed.add(unnamed);
        self.pending.add(pending);
        self.ports.add(port_to);
        self.notices += usize::from(notices);
        self.all.insert(id, entry);
    }

    pub(super) fn remove(&mut self, id: EntryId) -> Option<S> {
        let entry = self.all.remove(&id)?;
        let Keys { names, unnamed, pending, port_to, notices } = entry.keys();
        names.map(|names| self.names.remove(&(names, id)));
        self.unnamed.take(unnamed);
        self.pending.take(pending);
        self.ports.take(port_to);
        self.notices -= usize::from(notices);
        Some(entry)
    }

    pub(super) fn get(&self, id: EntryId) -> Option<&S> {
        self.all.get(&id)
    }

    /// The caller must not change the keys.
    pub(super) fn get_mut(&mut self, id: EntryId) -> Option<&mut S> {
        self.all.get_mut(&id)
    }

    pub(super) fn iter(&self) -> impl Iterator<Item = (EntryId, &S)> {
        self.all.iter().map(|(&id, entry)| (id, entry))
    }

    /// Ids of the entries with these addresses.
    pub(super) fn of_names(&self, names: Names) -> impl Iterator<Item = EntryId> {
        self.names.range((names, EntryId::MIN)..=(names, EntryId::MAX)).map(|&(_, id)| id)
    }

    /// Streams of a node without a head.
    pub(super) fn unnamed_of(&self, node: Address) -> usize {
        self.unnamed.of(node)
    }

    /// Connections of a node that wait for accept(2).
    pub(super) fn pending_of(&self, node: Address) -> usize {
        self.pending.of(node)
    }

    /// Ports of this broker in use to another one.
    pub(super) fn ports_to(&self, node: Address) -> usize {
        self.ports.of(node)
    }

    /// Notices that are not sent yet.
    pub(super) fn notices(&self) -> usize {
        self.notices
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

/// Index of entries by a key, and the keys of each entry.
#[derive(Debug)]
pub(super) struct Owners<K> {
    of: HashMap<K, EntryId>,
    each: HashMap<EntryId, Vec<K>>,
}

impl<K: Copy + Eq + Hash> Owners<K> {
    pub(super) fn new() -> Self {
        Self { of: HashMap::new(), each: HashMap::new() }
    }

    /// Gives a key to an entry, and takes it from the one that had it.
    pub(super) fn insert(&mut self, what: K, id: EntryId) {
        self.of.insert(what, id);
        self.each.entry(id).or_default().push(what);
    }

    pub(super) fn get(&self, what: K) -> Option<EntryId> {
        self.of.get(&what).copied()
    }

    /// Removes the keys of an entry.
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
        (proptest::option::of((1..4_u16).prop_map(names)), node(), node(), node(), any::<bool>())
            .prop_map(|(names, unnamed, pending, port_to, notices)| Keys { names, unnamed, pending, port_to, notices })
    }

    proptest! {
        #[test]
        fn counts_and_indices_say_what_a_look_through_all_says(
            steps in proptest::collection::vec((0..12_u64, proptest::option::of(keys())), 0..64),
        ) {
            let mut entries = Entries::new();
            for (id, step) in steps {
                let id = EntryId(id);
                match step {
                    Some(keys) => entries.insert(id, keys),
                    None => prop_assert_eq!(entries.get(id).copied(), entries.remove(id)),
                }
                for at in 0..4 {
                    let mut found: Vec<_> =
                        entries.iter().filter(|(_, of)| of.names == Some(names(at))).map(|(id, _)| id).collect();
                    found.sort_unstable();
                    prop_assert_eq!(entries.of_names(names(at)).collect::<Vec<_>>(), found);
                }
                for of in (0..4).map(node) {
                    let count = |is_one: &dyn Fn(&Keys) -> bool| entries.iter().filter(|(_, of)| is_one(of)).count();
                    prop_assert_eq!(entries.unnamed_of(of), count(&|keys| keys.unnamed == Some(of)));
                    prop_assert_eq!(entries.pending_of(of), count(&|keys| keys.pending == Some(of)));
                    prop_assert_eq!(entries.ports_to(of), count(&|keys| keys.port_to == Some(of)));
                    prop_assert_eq!(entries.notices(), count(&|keys| keys.notices));
                }
            }
            // Nodes that have gone leave nothing.
            let ids: Vec<_> = entries.iter().map(|(id, _)| id).collect();
            prop_assert!(ids.into_iter().all(|id| entries.remove(id).is_some()));
            let counts = [&entries.unnamed, &entries.pending, &entries.ports];
            prop_assert!(entries.names.is_empty() && counts.into_iter().all(|counts| counts.0.is_empty()));
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
