//! Sections of prefixes with room for more, filled after their program is loaded: where what is in them is a constant of the program,
//! what is there is not.

use rules::tables::prefixes::{
    PrefixLayout, RANKS_LEN, SLOTS_MIN, STATES_LEN, TrieLayout, V4Prefixes, V6Hash, V6Kind, V6Prefixes, V6Slot,
};
use zerocopy::IntoBytes;

/// States of /24, entries, blocks, runs, kinds and bytes of lengths beyond those of the tables at hand.
const SPARE_ENTRIES: usize = 4096;
/// Entries of `top`, words of `bits`.
const TOP: usize = 1 << 16;
const BITS: usize = 1 << 18;

/// The places of both families' parts, and the section's length in bytes.
pub(super) fn layout(v4: Option<&V4Prefixes>, v6: Option<&V6Prefixes>) -> (PrefixLayout, usize) {
    let mut end = 0;
    let mut part = |count: usize, size: usize| {
        let at = usize::next_multiple_of(end, 64);
        end = at + count * size;
        at as u32
    };
    let mut trie = |table: Option<&V4Prefixes>| {
        let [deep, entries, blocks, runs] = table
            .map_or([0; 4], |t| [t.deep.len(), t.entries.len(), t.blocks.len(), t.runs.len()])
            .map(|len| len + SPARE_ENTRIES);
        TrieLayout {
            states: part(STATES_LEN, 1),
            top: part(TOP, 8),
            bits: part(BITS, 8),
            entries: part(entries, 4),
            blocks: part(blocks, 16),
            runs: part(runs, 4),
            entries_len: entries as u32,
            blocks_len: blocks as u32,
            runs_len: runs as u32,
            used: 1,
            wide: table.is_none_or(|t| t.wide).into(),
            ranks: part(RANKS_LEN, 4),
            deep: part(deep, 4),
            deep_len: deep as u32,
        }
    };
    let (first, second) = (trie(v4), trie(v6.map(|v6| &v6.first)));
    let kinds = v6.map_or(1, |v6| v6.kinds.len()) + SPARE_ENTRIES;
    let lengths = v6.map_or(1, |v6| v6.lengths.len()) + SPARE_ENTRIES;
    let slots = v6.map_or(SLOTS_MIN, |v6| v6.slots.len());
    let layout = PrefixLayout {
        v4: first,
        v6: second,
        kinds: part(kinds, size_of::<V6Kind>()),
        lengths: part(lengths, 1),
        slots: part(slots, size_of::<V6Slot>()),
        kinds_len: kinds as u32,
        lengths_len: lengths as u32,
        slot_mask: slots as u32 - 1,
        hash: v6.map_or_else(|| V6Hash::of_attempt(0), |v6| v6.hash),
    };
    (layout, end.next_multiple_of(64) + 64)
}

pub(super) fn fits(layout: &PrefixLayout, v4: Option<&V4Prefixes>, v6: Option<&V6Prefixes>) -> bool {
    let trie = |at: &TrieLayout, table: &V4Prefixes| {
        table.deep.len() <= at.deep_len as usize
            && table.entries.len() <= at.entries_len as usize
            && table.blocks.len() <= at.blocks_len as usize
            && table.runs.len() <= at.runs_len as usize
    };
    v4.is_none_or(|v4| trie(&layout.v4, v4))
        && v6.is_none_or(|v6| {
            trie(&layout.v6, &v6.first)
                && v6.kinds.len() <= layout.kinds_len as usize
                && v6.lengths.len() <= layout.lengths_len as usize
                && v6.slots.len() == layout.slot_mask as usize + 1
                && v6.hash == layout.hash
        })
}

pub(super) fn fill_v4(layout: &PrefixLayout, v4: Option<&V4Prefixes>, section: &mut [u8]) {
    fill_trie(&layout.v4, v4, section);
}

pub(super) fn fill_v6(layout: &PrefixLayout, v6: Option<&V6Prefixes>, section: &mut [u8]) {
    fill_trie(&layout.v6, v6.map(|v6| &v6.first), section);
    let Some(v6) = v6 else {
        // Every address is of the kind 0: no longer prefixes, class 0.
        return put(section, layout.kinds, V6Kind::default().as_bytes());
    };
    put(section, layout.kinds, v6.kinds.as_bytes());
    put(section, layout.lengths, v6.lengths.as_bytes());
    put(section, layout.slots, v6.slots.as_bytes());
}

/// Bytes of an earlier table behind the parts' ends are unreferenced.
fn fill_trie(at: &TrieLayout, table: Option<&V4Prefixes>, section: &mut [u8]) {
    let Some(table) = table else {
        return section[at.states as usize..][..STATES_LEN].fill(0);
    };
    put(section, at.states, &table.states);
    put(section, at.ranks, table.ranks.as_bytes());
    put(section, at.deep, table.deep.as_bytes());
    put(section, at.top, table.top.as_bytes());
    put(section, at.bits, table.bits.as_bytes());
    put(section, at.entries, table.entries.as_bytes());
    put(section, at.blocks, table.blocks.as_bytes());
    put(section, at.runs, table.runs.as_bytes());
}

fn put(section: &mut [u8], at: u32, part: &[u8]) {
    section[at as usize..][..part.len()].copy_from_slice(part);
}
