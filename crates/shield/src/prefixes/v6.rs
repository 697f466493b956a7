//! The table of IPv6 prefixes: the first 32 bits as in IPv4, what is longer in a hash table.

use std::{collections::HashMap, net::IpAddr};

use bpf::shield::prefixes::{LIST_END, NUMBER_MAX, PROBES_MAX, SLOTS_MIN, V6Kind, V6Prefixes, V6Slot, v6_hash};

use super::v4::{runs, table};
use crate::rules::model::Prefix;

/// Kinds that the first table can number.
const KINDS_MAX: usize = NUMBER_MAX as usize + 1;

/// Builds the table of the IPv6 prefixes among `classes`, which need not be sorted and may be nested: the longest decides.
pub fn v6(classes: &[(Prefix, u16)]) -> V6Prefixes {
    let mut short = vec![];
    let mut long = vec![];
    for &(prefix, class) in classes {
        let IpAddr::V6(address) = prefix.address else { continue };
        match prefix.len {
            0..=32 => short.push(((address.to_bits() >> 96) as u32, prefix.len, class)),
            len => long.push((address.to_bits(), len, class)),
        }
    }
    long.sort_unstable();
    let mut kinds = Kinds::new(&short);
    let deep = lengths_within(&long);
    let around = runs(short.clone());
    let mut firsts = short;
    if !kinds.add_all(&deep, &around) {
        // Too many different lists of lengths: one list for all.
        let union = deep.iter().fold(0, |all, (_, lengths)| all | lengths);
        kinds = Kinds::new(&firsts);
        let all: Vec<_> = deep.iter().map(|&(first, _)| (first, union)).collect();
        kinds.add_all(&all, &around);
    }
    firsts.extend(kinds.of_first.iter().map(|&(first, kind)| (first, 32, kind)));
    let (slots, seed) = hash_table(&long);
    V6Prefixes { first: table(&runs(firsts)), kinds: kinds.kinds, lengths: kinds.lengths, slots, seed }
}

/// Each /32 that holds longer prefixes, ascending, and their lengths as bits.
fn lengths_within(long: &[(u128, u8, u16)]) -> Vec<(u32, u128)> {
    let mut deep: Vec<(u32, u128)> = vec![];
    for &(address, len, _) in long {
        let (first, bit) = ((address >> 96) as u32, 1 << (len - 1));
        match deep.last_mut() {
            Some((same, lengths)) if *same == first => *lengths |= bit,
            _ => deep.push((first, bit)),
        }
    }
    deep
}

/// What the first table says, numbered: first the classes themselves, then each pair of a class and a list of lengths.
struct Kinds {
    kinds: Vec<V6Kind>,
    lengths: Vec<u8>,
    number: HashMap<(u128, u16), u16>,
    list: HashMap<u128, u32>,
    of_first: Vec<(u32, u16)>,
}

impl Kinds {
    fn new(short: &[(u32, u8, u16)]) -> Self {
        let classes = short.iter().map(|p| u32::from(p.2)).max().unwrap_or(0) + 1;
        Self {
            kinds: (0..classes).map(|class| V6Kind { list: 0, class }).collect(),
            lengths: vec![LIST_END],
            number: HashMap::new(),
            list: HashMap::new(),
            of_first: vec![],
        }
    }

    /// Numbers every /32 of `deep`; `around` says the classes of the first 32 bits. False when the numbers run out.
    fn add_all(&mut self, deep: &[(u32, u128)], around: &[(u32, u16)]) -> bool {
        for &(first, lengths) in deep {
            let class = around[around.partition_point(|run| run.0 <= first) - 1].1;
            let number = match self.number.get(&(lengths, class)) {
                Some(&number) => number,
                None if self.kinds.len() == KINDS_MAX => return false,
                None => {
                    let number = self.kinds.len() as u16;
                    let list = self.list(lengths);
                    self.kinds.push(V6Kind { list, class: class.into() });
                    self.number.insert((lengths, class), number);
                    number
                }
            };
            self.of_first.push((first, number));
        }
        true
    }

    fn list(&mut self, lengths: u128) -> u32 {
        *self.list.entry(lengths).or_insert_with(|| {
            let at = self.lengths.len() as u32;
            self.lengths.extend((33..=128u8).rev().filter(|len| lengths >> (len - 1) & 1 == 1));
            self.lengths.push(LIST_END);
            at
        })
    }
}

/// Places every prefix at most [`PROBES_MAX`] slots from where it is looked for, in a table at most half full.
fn hash_table(long: &[(u128, u8, u16)]) -> (Vec<V6Slot>, u32) {
    let mut size = (long.len() * 2).next_power_of_two().max(SLOTS_MIN);
    for seed in 1.. {
        let mut slots = vec![V6Slot::default(); size];
        if long.iter().all(|prefix| insert(&mut slots, prefix, seed)) {
            return (slots, seed);
        }
        // Another seed mends an unlucky one, more room a crowded table.
        if seed % 4 == 0 {
            size *= 2;
        }
    }
    unreachable!("some table is large enough")
}

fn insert(slots: &mut [V6Slot], &(address, len, class): &(u128, u8, u16), seed: u32) -> bool {
    let place = v6_hash(address, len, seed) as usize;
    let mask = slots.len() - 1;
    let Some(at) = (place..place + PROBES_MAX).map(|at| at & mask).find(|&at| slots[at].len == 0) else {
        return false;
    };
    slots[at] = V6Slot { high: (address >> 64) as u64, low: address as u64, len: len.into(), class, pad: 0 };
    true
}
