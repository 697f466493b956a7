//! Tables of prefixes as the kernel program walks them (bpf/shield_prefix.h): plain data, the same look-up in user space, and the
//! bytes of their section.
//!
//! The first 32 bits of an address end in a class by at most two look-ups: a /16 that belongs to one class as a whole says so in `top`
//! (256 KB); else each of its /24 has a code of 2 to 16 bits. Few classes make short codes: one block list of a million
//! prefixes is 4 MB, where the 16-bit entries of DIR-24-8 (Gupta, Lin, McKeown 1998) are 32 MB and miss cache and TLB at each packet.
//! A /24 of several classes has the code of all ones and a block of up to four runs, or a sorted list of more.

use std::net::{Ipv4Addr, Ipv6Addr};

use zerocopy::{Immutable, IntoBytes};

/// In `top`: a block of codes, not a class.
pub const SPLIT: u32 = 1 << 16;
/// In the first word of a block: its runs are in `runs`, this many; the second word says where.
pub const LONG: u32 = 1 << 30;
/// A run of a block that is not there: it begins behind the last address.
pub const NO_RUN: u32 = 256 << 16;
/// The end of a list of lengths.
pub const LIST_END: u8 = 255;
/// The highest class that an address table may have.
pub const CLASS_MAX: u16 = 31_999;
/// How far behind its place a slot of the hash table may be.
pub const PROBES_MAX: usize = 32;

/// The first 32 bits of an address to a class: all of an IPv4 address.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct V4Prefixes {
    /// 65,536 entries: the class of a /16, or [`SPLIT`] and the number of its block of 256 codes.
    pub top: Vec<u32>,
    /// Bits of a code: 2, 4, 8 or 16. A code is a class, or all ones: the /24 has a block.
    pub code_bits: u32,
    /// Codes, the first in the lowest bits.
    pub codes: Vec<u64>,
    /// For each 64 codes.
    pub groups: Vec<PrefixGroup>,
    /// For each code of all ones, in their order: `start << 16 | class` of up to four runs, [`NO_RUN`] behind them; or [`LONG`].
    pub blocks: Vec<[u32; 4]>,
    /// The runs of blocks of more than four, sorted by start.
    pub runs: Vec<u32>,
}

/// Where the blocks of 64 codes are.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, IntoBytes, Immutable)]
#[repr(C)]
pub struct PrefixGroup {
    /// A bit for each code of all ones.
    pub mask: u64,
    /// The block of the first of them.
    pub base: u32,
    /// Nothing.
    pub pad: u32,
}

impl V4Prefixes {
    /// The class of an address; 0 where no prefix holds it.
    pub fn class(&self, address: Ipv4Addr) -> u16 {
        self.find(address.to_bits())
    }

    fn find(&self, address: u32) -> u16 {
        let top = self.top[(address >> 16) as usize];
        if top & SPLIT == 0 {
            return top as u16;
        }
        let i = (top & !SPLIT) as usize * 256 + (address >> 8 & 255) as usize;
        let per_word = 64 / self.code_bits as usize;
        let ones = (1u64 << self.code_bits) - 1;
        let code = self.codes[i / per_word] >> ((i % per_word) as u32 * self.code_bits) & ones;
        if code != ones {
            return code as u16;
        }
        let group = self.groups[i / 64];
        let rank = group.base + (group.mask & ((1 << (i % 64)) - 1)).count_ones();
        let block = &self.blocks[rank as usize];
        let runs = match block[0] & LONG {
            0 => &block[..],
            _ => &self.runs[block[1] as usize..][..(block[0] & !LONG) as usize],
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
    /// What is known of a /32.
    pub kinds: Vec<V6Kind>,
    /// Lengths of prefixes, longest first, each list ended by [`LIST_END`].
    pub lengths: Vec<u8>,
    /// Open-addressed slots, a power of two of them; none is farther than [`PROBES_MAX`] behind its place.
    pub slots: Vec<V6Slot>,
    /// Of the hash function.
    pub seed: u32,
}

/// What the first 32 bits say.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default, IntoBytes, Immutable)]
#[repr(C)]
pub struct V6Kind {
    /// Where the list of longer lengths begins in `lengths`; entry 0 is an empty list.
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
    /// Its class.
    pub class: u16,
    /// Nothing.
    pub pad: u32,
}

impl V6Prefixes {
    /// The class of an address; 0 where no prefix holds it.
    pub fn class(&self, address: Ipv6Addr) -> u16 {
        let bits = address.to_bits();
        let kind = self.kinds[usize::from(self.first.find((bits >> 96) as u32))];
        for &len in self.lengths[kind.list as usize..].iter().take_while(|&&len| len != LIST_END) {
            let masked = bits & !(u128::MAX.checked_shr(len.into()).unwrap_or(0));
            let place = v6_hash(masked, len, self.seed);
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

/// Where a prefix longer than 32 bits is looked for first.
pub fn v6_hash(masked: u128, len: u8, seed: u32) -> u32 {
    // Rows of multiply and xorshift with the constants of SplitMix64: every bit of the prefix reaches the upper half.
    let hash = ((masked >> 64) as u64 ^ (u64::from(len) << 32 | u64::from(seed))).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    let hash = (hash ^ hash >> 32 ^ masked as u64).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    ((hash ^ hash >> 32).wrapping_mul(0x94d0_49bb_1331_11eb) >> 32) as u32
}

/// Where the parts of a table are in its section: the same fields as the kernel's `struct shield_trie`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct TrieLayout {
    /// Bytes from the section's start to each part.
    pub top: u32,
    /// See above.
    pub codes: u32,
    /// See above.
    pub groups: u32,
    /// See above.
    pub blocks: u32,
    /// See above.
    pub runs: u32,
    /// Codes; 0: the family has no prefixes.
    pub entries: u32,
    /// Blocks.
    pub blocks_len: u32,
    /// Runs.
    pub runs_len: u32,
    /// log2 of the bits of a code.
    pub code_log: u32,
    /// Whether there is a table.
    pub used: u32,
}

/// The same for all of a field's prefixes: the kernel's `struct shield_prefixes`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct PrefixLayout {
    /// IPv4.
    pub v4: TrieLayout,
    /// The first 32 bits of IPv6.
    pub v6: TrieLayout,
    /// Bytes from the section's start to each part of IPv6's.
    pub kinds: u32,
    /// See above.
    pub lengths: u32,
    /// See above.
    pub slots: u32,
    /// How many there are of each.
    pub kinds_len: u32,
    /// See above.
    pub lengths_len: u32,
    /// See above, less one.
    pub slot_mask: u32,
    /// Of the hash function.
    pub seed: u32,
}

/// A section under construction.
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
            top: self.put(&table.top),
            codes: self.put(&table.codes),
            groups: self.put(&table.groups),
            blocks: self.put(&table.blocks),
            runs: self.put(&table.runs),
            entries: (table.groups.len() * 64) as u32,
            blocks_len: table.blocks.len() as u32,
            runs_len: table.runs.len() as u32,
            code_log: table.code_bits.max(1).ilog2(),
            used: 1,
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
        layout.seed = v6.seed;
    }
    // Room behind the last part: the verifier knows the last index of a part only up to rounding.
    section.0.resize(section.0.len().next_multiple_of(64) + 64, 0);
    (section.0, layout)
}
