//! The table of IPv6 prefixes: the first 32 bits as in IPv4, what is longer in a hash table.

use std::{collections::HashMap, net::IpAddr};

use crate::tables::prefixes::{LIST_END, NUMBER_MAX, PROBES_MAX, SLOTS_MIN, V6Hash, V6Kind, V6Prefixes, V6Slot};

use super::{
    TableError,
    v4::{runs, table},
};
use crate::rule::Prefix;

/// Kinds that the first table can number.
const KINDS_MAX: usize = NUMBER_MAX as usize + 1;

/// The hash table of longer prefixes is tried with so many functions at each size.
const FUNCTIONS_MAX: u32 = 4;
/// Most doublings of a table: then it is an eighth full at most, where a function that fails is next to impossible.
const DOUBLINGS_MAX: u32 = 2;

/// Builds the table of the IPv6 prefixes among `classes`, which need not be sorted and may be nested: the longest decides.
///
/// # Errors
/// [`TableError::Crowded`].
pub fn v6(classes: &[(Prefix, u16)]) -> Result<V6Prefixes, TableError> {
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
    let (slots, hash) = hash_table(&long, V6Hash::of_attempt)?;
    Ok(V6Prefixes { first: table(&runs(firsts)), kinds: kinds.kinds, lengths: kinds.lengths, slots, hash })
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

/// Values of the first table: first the classes themselves, then each pair of a class and a list of lengths.
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
fn hash_table(long: &[(u128, u8, u16)], hash: impl Fn(u32) -> V6Hash) -> Result<(Vec<V6Slot>, V6Hash), TableError> {
    let least = (long.len() * 2).next_power_of_two().max(SLOTS_MIN);
    // Another function mends an unlucky one, more room a crowded table.
    for attempt in 0..FUNCTIONS_MAX * (DOUBLINGS_MAX + 1) {
        let mut slots = vec![V6Slot::default(); least << (attempt / FUNCTIONS_MAX)];
        let hash = hash(attempt);
        if long.iter().all(|prefix| insert(&mut slots, prefix, hash)) {
            return Ok((slots, hash));
        }
    }
    Err(TableError::Crowded { prefixes: long.len() })
}

fn insert(slots: &mut [V6Slot], &(address, len, class): &(u128, u8, u16), hash: V6Hash) -> bool {
    let place = hash.place(address, len) as usize;
    let mask = slots.len() - 1;
    let Some(at) = (place..place + PROBES_MAX).map(|at| at & mask).find(|&at| slots[at].len == 0) else {
        return false;
    };
    slots[at] = V6Slot { high: (address >> 64) as u64, low: address as u64, len: len.into(), class, pad: 0 };
    true
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Slots for so many prefixes at most.
    fn most(prefixes: usize) -> usize {
        (prefixes * 2).next_power_of_two().max(SLOTS_MIN) << DOUBLINGS_MAX
    }

    fn hosts(addresses: impl Iterator<Item = u128>) -> Vec<(Prefix, u16)> {
        addresses.map(|bits| (Prefix { address: IpAddr::V6(bits.into()), len: 128 }, 1)).collect()
    }

    /// The inverse of an odd number modulo 2^64.
    fn inverse(odd: u64) -> u64 {
        (0..6).fold(odd, |x, _| x.wrapping_mul(2u64.wrapping_sub(odd.wrapping_mul(x))))
    }

    /// Addresses that all go to one place of a table by a function that was in use before, whose seeds were 1, 2, 3 and so on: more of them for
    /// each seed than a table can hold, at any size.
    fn hostile(seeds: u64) -> Vec<(Prefix, u16)> {
        let (high, len) = (0x2001_0db8_0000_0001u64, 128u64);
        let (second, third) = (0xbf58_476d_1ce4_e5b9u64, 0x94d0_49bb_1331_11ebu64);
        let address = move |seed: u64, low_half: u64| {
            let first = (high ^ (len << 32 | seed)).wrapping_mul(0x9e37_79b9_7f4a_7c15);
            let rows = (7u64 << 32 | low_half).wrapping_mul(inverse(third));
            let low = (rows ^ rows >> 32).wrapping_mul(inverse(second)) ^ first ^ first >> 32;
            u128::from(high) << 64 | u128::from(low)
        };
        hosts((1..=seeds).flat_map(|seed| (0..=PROBES_MAX as u64).map(move |low_half| address(seed, low_half))))
    }

    #[test]
    fn a_list_made_to_crowd_gets_a_table_of_the_usual_size() {
        let list = hostile(64);
        let table = v6(&list).unwrap();
        assert!(table.slots.len() <= most(list.len()), "{} slots for {} prefixes", table.slots.len(), list.len());
        for (prefix, class) in list {
            let IpAddr::V6(address) = prefix.address else { unreachable!() };
            assert_eq!(table.class(address), class);
        }
    }

    #[test]
    fn lists_with_a_pattern_get_tables_of_the_usual_size() {
        let base = 0x2001_0db8u128 << 96;
        for shift in [0, 1, 7, 16, 31, 32, 33, 47, 63, 64, 70] {
            let list = hosts((0..20_000u128).map(|n| base | n << shift));
            let table = v6(&list).unwrap();
            assert!(table.slots.len() <= most(list.len()), "{} slots, shift {shift}", table.slots.len());
        }
    }

    #[test]
    fn a_list_that_no_function_spreads_is_refused() {
        let long: Vec<_> = (0..64u128).map(|n| ((0x2001_0db8 << 96) | n, 128, 1)).collect();
        let refused = hash_table(&long, |_| V6Hash::default());
        assert_eq!(refused, Err(TableError::Crowded { prefixes: 64 }));
    }

    #[test]
    fn each_attempt_has_keys_of_its_own_and_keeps_them() {
        let [one, again, other] = [0, 0, 1].map(V6Hash::of_attempt);
        assert_eq!(one, again);
        assert_ne!(one, other);
    }
}
