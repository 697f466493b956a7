//! Tables of prefixes as the kernel program walks them (`prefix.h`): plain data, the same look-up in user space, and the
//! bytes of their section.
//!
//! The first 32 bits of an address end in a class by one look-up for most addresses, in tables small enough for the caches, where the
//! 32 MB of DIR-24-8 (Gupta, Lin, McKeown 1998) miss cache and TLB at each packet: two bits for each /20 (256 KB) say that none of it
//! is in a prefix, that all of it has the most usual class, or that one has to look further. Where most /16 are of one class, two bits for
//! each of those (16 KB) come before. Of each /20 that is not of one class a word has two bits for each /24 (1 MB for a million prefixes). Further,
//! an entry for each /16 (512 KB) says its class, and a bit for each /24 (2 MB) whether that one differs. A /24 that differs has an entry, found by counting
//! bits; in one that only few prefixes divide this says where they do, and one of several classes has a block of up to four runs behind it, or a sorted
//! list of more.

use std::{
    hash::{BuildHasher as _, RandomState},
    net::{Ipv4Addr, Ipv6Addr},
    sync::OnceLock,
};

use zerocopy::{Immutable, IntoBytes};

/// Bytes before the states in [`V4Prefixes::states`].
pub const STATES_HEAD: usize = 64;
/// Offset of the states of /20, behind those of /16.
pub const STATES_FINE: usize = STATES_HEAD + (1 << 14);
/// Bytes of all states.
pub const STATES_LEN: usize = STATES_FINE + (1 << 18);
/// Entries of [`V4Prefixes::ranks`].
pub const RANKS_LEN: usize = 1 << 16;
/// A state: class 0, all of it.
pub const STATE_NONE: u8 = 0;
/// A state: the class that the head names, all of it.
pub const STATE_USUAL: u8 = 1;
/// A state: another class, or several.
pub const STATE_FURTHER: u8 = 2;
/// Bit in `top`: some /24 differ from the others.
pub const SPLIT: u64 = 1 << 15;
/// Bit in `entries`: the number of a block, not a class.
pub const BLOCK: u32 = 1 << 31;
/// In `entries`: class 0 and that of the head take turns within the /24. A byte each, from bit 0 on, says where the next one begins, three times;
/// 0 for one that is not there, which counts all the same. Bit 24: the class before all of them is that of the head.
pub const ALTERNATE: u32 = 1 << 30;
/// In the first word of a block: its runs are in `runs`, this many; the second word says where.
pub const MANY_RUNS: u32 = 1 << 30;
/// A run of a block that is not there: it begins behind the last address.
pub const NO_RUN: u32 = 256 << 16;
/// The end of a list of lengths.
pub const LIST_END: u8 = 255;
/// The highest class that an address table may have.
pub const CLASS_MAX: u16 = 15_999;
/// The highest number that the first 32 bits can end in.
pub const NUMBER_MAX: u16 = 32_767;
/// The hash table of IPv6 prefixes has this many slots or more: a few prefixes more or less do not change its size.
pub const SLOTS_MIN: usize = 1024;
/// The greatest distance of a slot of the hash table from its place.
pub const PROBES_MAX: usize = 32;

/// The first 32 bits of an address to a class: all of an IPv4 address.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct V4Prefixes {
    /// [`STATES_LEN`] bytes: the most usual class but 0 (16 bits, in the machine's order) and nothing up to [`STATES_HEAD`]; then the states of each /16, and
    /// from [`STATES_FINE`] on those of each /20, four to a byte, the first in its lowest two bits.
    pub states: Vec<u8>,
    /// True if so few /16 have the state [`STATE_FURTHER`] that looking at them first is worth it.
    pub wide: bool,
    /// [`RANKS_LEN`] numbers: how many /20 before each /16 have the state [`STATE_FURTHER`].
    pub ranks: Vec<u32>,
    /// For each such /20 in turn the states of its /24, the first in the lowest two bits.
    pub deep: Vec<u32>,
    /// 65,536 entries. Bits 0 to 14: the class of the /16, or of most of it. Bit 15: [`SPLIT`]. Bits 16 to 39: the first of its
    /// `entries`. Three bytes from bit 40 on: how many of them the first word, the first two and the first three words of `bits` have.
    pub top: Vec<u64>,
    /// A bit for each /24 that differs, four words for each /16.
    pub bits: Vec<u64>,
    /// For each such /24 in turn its class, or [`ALTERNATE`], or [`BLOCK`] and a number.
    pub entries: Vec<u32>,
    /// `start << 16 | class` of up to four runs, [`NO_RUN`] behind them; or [`MANY_RUNS`].
    pub blocks: Vec<[u32; 4]>,
    /// The runs of blocks of more than four, sorted by start.
    pub runs: Vec<u32>,
}

impl V4Prefixes {
    /// The class of an address; 0 where no prefix holds it.
    pub fn class(&self, address: Ipv4Addr) -> u16 {
        self.find(address.to_bits())
    }

    fn find(&self, address: u32) -> u16 {
        let state = |states: &[u8], number: u32| states[(number >> 2) as usize] >> (2 * (number & 3)) & 3;
        let mut found = STATE_FURTHER;
        if self.wide {
            found = state(&self.states[STATES_HEAD..], address >> 16);
        }
        if found == STATE_FURTHER {
            found = state(&self.states[STATES_FINE..], address >> 12);
        }
        if found == STATE_FURTHER {
            found = (self.deep[self.rank(address >> 12)] >> (2 * (address >> 8 & 15)) & 3) as u8;
        }
        match found {
            STATE_NONE => 0,
            STATE_USUAL => self.usual(),
            _ => self.find_further(address),
        }
    }

    /// The number of /20 before that of this number that have the state [`STATE_FURTHER`].
    pub(crate) fn rank(&self, number: u32) -> usize {
        let at = STATES_FINE + (number >> 4 << 2) as usize;
        let of_16 = u32::from_le_bytes([0, 1, 2, 3].map(|byte| self.states[at + byte]));
        // None has its upper bit set but these.
        let before = of_16 >> 1 & 0x5555_5555 & ((1 << (2 * (number & 15))) - 1);
        (self.ranks[(number >> 4) as usize] + before.count_ones()) as usize
    }

    /// The class that the head names.
    pub fn usual(&self) -> u16 {
        u16::from_ne_bytes([self.states[0], self.states[1]])
    }

    fn find_further(&self, address: u32) -> u16 {
        let top = self.top[(address >> 16) as usize];
        let (word, bit) = ((address >> 14) as usize, address >> 8 & 63);
        if top & SPLIT == 0 || self.bits[word] >> bit & 1 == 0 {
            return (top & u64::from(NUMBER_MAX)) as u16;
        }
        let before = (top >> 32 & 0xffff_ff00) >> (8 * (word & 3)) & 0xff;
        let within = (self.bits[word] & ((1 << bit) - 1)).count_ones();
        let entry = self.entries[(top >> 16 & 0xff_ffff) as usize + before as usize + within as usize];
        if entry & BLOCK == 0 {
            if entry & ALTERNATE == 0 {
                return entry as u16;
            }
            let turns = (0..3).filter(|turn| address & 255 >= entry >> (8 * turn) & 255).count() as u32;
            return if ((entry >> 24) + turns) & 1 == 1 { self.usual() } else { 0 };
        }
        let block = &self.blocks[(entry & !BLOCK) as usize];
        let runs = match block[0] & MANY_RUNS {
            0 => &block[..],
            _ => &self.runs[block[1] as usize..][..(block[0] & !MANY_RUNS) as usize],
        };
        runs[runs.partition_point(|run| run >> 16 <= address & 255) - 1] as u16
    }
}

/// IPv6 prefixes to classes: the first 32 bits by the same table, what is longer by a hash table for each length that occurs
/// within the /32.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct V6Prefixes {
    /// The first 32 bits to an index of `kinds`.
    pub first: V4Prefixes,
    /// The class and the lengths of a /32.
    pub kinds: Vec<V6Kind>,
    /// Lengths of prefixes, longest first, each list ended by [`LIST_END`].
    pub lengths: Vec<u8>,
    /// Open-addressed slots, a power of two of them; none is farther than [`PROBES_MAX`] behind its place.
    pub slots: Vec<V6Slot>,
    /// The place in `slots` where a prefix is looked for.
    pub hash: V6Hash,
}

/// The class by the first 32 bits.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default, IntoBytes, Immutable)]
#[repr(C)]
pub struct V6Kind {
    /// The beginning of the list of longer lengths in `lengths`; entry 0 is an empty list.
    pub list: u32,
    /// The class, unless a longer prefix holds the address.
    pub class: u32,
}

/// A prefix in the hash table of [`V6Prefixes`].
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, IntoBytes, Immutable)]
#[repr(C)]
pub struct V6Slot {
    /// The first 64 bits of the address; those behind the length are zero.
    pub high: u64,
    /// The other 64 bits.
    pub low: u64,
    /// Length in bits; 0: empty.
    pub len: u16,
    pub class: u16,
    pub pad: u32,
}

impl V6Prefixes {
    /// The class of an address; 0 where no prefix holds it.
    pub fn class(&self, address: Ipv6Addr) -> u16 {
        let bits = address.to_bits();
        let kind = self.kinds[usize::from(self.first.find((bits >> 96) as u32))];
        for &len in self.lengths[kind.list as usize..].iter().take_while(|&&len| len != LIST_END) {
            let masked = bits & !(u128::MAX.checked_shr(len.into()).unwrap_or(0));
            let place = self.hash.place(masked, len);
            for probe in 0..PROBES_MAX {
                let slot = &self.slots[(place as usize + probe) & (self.slots.len() - 1)];
                if slot.len == 0 {
                    break;
                }
                if slot.len == len.into() && (slot.high, slot.low) == ((masked >> 64) as u64, masked as u64) {
                    return slot.class;
                }
            }
        }
        kind.class as u16
    }
}

/// A hash function of prefixes longer than 32 bits. Its keys are secret: whoever writes a list of prefixes cannot choose ones that crowd.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct V6Hash {
    /// Each is as likely as any other.
    pub keys: [u64; 4],
}

impl V6Hash {
    /// The function to try as number `attempt`. In one process it is always the same, so that tables which are made one after the other fit the
    /// same program; each process has its own.
    pub fn of_attempt(attempt: u32) -> Self {
        static SECRET: OnceLock<RandomState> = OnceLock::new();
        let secret = SECRET.get_or_init(RandomState::new);
        Self { keys: [0u32, 1, 2, 3].map(|number| secret.hash_one((attempt, number))) }
    }

    /// The place where a prefix is looked for first, before the mask of the table.
    pub fn place(&self, masked: u128, len: u8) -> u32 {
        let [a, b, c, d] = self.keys;
        let word = |number: u32| u64::from((masked >> (96 - 32 * number)) as u32);
        // Pairs of words multiplied (Thorup, "High Speed Hashing for Integers and Strings", 2015, 3.5): whatever two prefixes are, few keys
        // bring them together. The last row hides that neighbours stay at even distances, which would crowd open addressing.
        let first = (word(1) | u64::from(len) << 32).wrapping_add(a).wrapping_mul(word(0).wrapping_add(b));
        let second = word(3).wrapping_add(c).wrapping_mul(word(2).wrapping_add(d));
        let hash = first.wrapping_add(second);
        ((hash ^ hash >> 32).wrapping_mul(MIX) >> 32) as u32
    }
}

/// An odd factor, from SplitMix64.
const MIX: u64 = 0x94d0_49bb_1331_11eb;

/// The places of a table's parts in its section: the same fields as the kernel's `struct prefix_trie`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct TrieLayout {
    /// Bytes from the section's start to each part.
    pub states: u32,
    pub top: u32,
    pub bits: u32,
    pub entries: u32,
    pub blocks: u32,
    pub runs: u32,
    pub entries_len: u32,
    pub blocks_len: u32,
    pub runs_len: u32,
    pub used: u32,
    /// The states of /16 are looked at.
    pub wide: u32,
    /// The places of the ranks of /16 and of the states of /24, and how many of these there are.
    pub ranks: u32,
    pub deep: u32,
    pub deep_len: u32,
}

/// The places of all of a field's prefixes: the kernel's `struct shield_prefixes`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct PrefixLayout {
    pub v4: TrieLayout,
    /// The first 32 bits of IPv6.
    pub v6: TrieLayout,
    /// Bytes from the section's start to each part of IPv6's.
    pub kinds: u32,
    pub lengths: u32,
    pub slots: u32,
    pub kinds_len: u32,
    pub lengths_len: u32,
    /// See above, less one.
    pub slot_mask: u32,
    /// Slots of IPv6.
    pub hash: V6Hash,
}

struct Section(Vec<u8>);

impl Section {
    fn put<T: IntoBytes + Immutable>(&mut self, part: &[T]) -> u32 {
        self.0.resize(self.0.len().next_multiple_of(64), 0);
        let at = self.0.len() as u32;
        self.0.extend_from_slice(part.as_bytes());
        at
    }

    fn trie(&mut self, table: &V4Prefixes) -> TrieLayout {
        TrieLayout {
            states: self.put(&table.states),
            top: self.put(&table.top),
            bits: self.put(&table.bits),
            entries: self.put(&table.entries),
            blocks: self.put(&table.blocks),
            runs: self.put(&table.runs),
            entries_len: table.entries.len() as u32,
            blocks_len: table.blocks.len() as u32,
            runs_len: table.runs.len() as u32,
            used: 1,
            wide: table.wide.into(),
            ranks: self.put(&table.ranks),
            deep: self.put(&table.deep),
            deep_len: table.deep.len() as u32,
        }
    }
}

/// The section's bytes (a multiple of 64, never empty) and where what is in them.
pub fn section(v4: Option<&V4Prefixes>, v6: Option<&V6Prefixes>) -> (Vec<u8>, PrefixLayout) {
    let mut section = Section(Vec::new());
    let mut layout = PrefixLayout::default();
    if let Some(v4) = v4 {
        layout.v4 = section.trie(v4);
    }
    if let Some(v6) = v6 {
        layout.v6 = section.trie(&v6.first);
        layout.kinds = section.put(&v6.kinds);
        layout.lengths = section.put(&v6.lengths);
        layout.slots = section.put(&v6.slots);
        layout.kinds_len = v6.kinds.len() as u32;
        layout.lengths_len = v6.lengths.len() as u32;
        layout.slot_mask = v6.slots.len() as u32 - 1;
        layout.hash = v6.hash;
    }
    // Room behind the last part: the verifier knows the last index of a part only up to rounding.
    section.0.resize(section.0.len().next_multiple_of(64) + 64, 0);
    (section.0, layout)
}
