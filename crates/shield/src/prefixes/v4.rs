//! The table of IPv4 prefixes, built in one pass over the runs of equal class.

use std::net::IpAddr;

use bpf::shield::prefixes::{LONG, NO_RUN, PrefixGroup, SPLIT, V4Prefixes};

use crate::rules::model::Prefix;

/// Builds the table of the IPv4 prefixes among `classes`, which need not be sorted and may be nested: the longest decides.
pub fn v4(classes: &[(Prefix, u16)]) -> V4Prefixes {
    let prefixes = classes.iter().filter_map(|&(prefix, class)| match prefix.address {
        IpAddr::V4(a) => Some((a.to_bits(), prefix.len, class)),
        IpAddr::V6(_) => None,
    });
    table(&runs(prefixes.collect()))
}

/// Prefixes of 32 bits as runs: where each begins and its class, the first at 0, neighbours different.
pub(super) fn runs(mut prefixes: Vec<(u32, u8, u16)>) -> Vec<(u32, u16)> {
    prefixes.sort_by_key(|&(first, len, _)| (first, len));
    let mut runs = vec![(0u32, 0u16)];
    // Prefixes that are open here, outermost first: the address behind the last, and the class.
    let mut open: Vec<(u64, u16)> = vec![];
    let mut begin = |at: u64, class: u16| {
        let Ok(at) = u32::try_from(at) else { return };
        if runs.last().is_some_and(|run| run.0 == at) {
            runs.pop();
        }
        if runs.last().is_none_or(|run| run.1 != class) {
            runs.push((at, class));
        }
    };
    for (first, len, class) in prefixes {
        close(&mut open, first.into(), &mut begin);
        begin(first.into(), class);
        open.push((u64::from(first) + (1u64 << (32 - len)), class));
    }
    close(&mut open, u64::MAX, &mut begin);
    runs
}

/// Ends the prefixes that do not hold `at`.
fn close(open: &mut Vec<(u64, u16)>, at: u64, begin: &mut impl FnMut(u64, u16)) {
    while let Some(&(end, _)) = open.last().filter(|(end, _)| *end <= at) {
        open.pop();
        begin(end, open.last().map_or(0, |&(_, class)| class));
    }
}

/// A table of runs as [`runs`] makes them.
pub(super) fn table(runs: &[(u32, u16)]) -> V4Prefixes {
    let classes = runs.iter().map(|run| u32::from(run.1)).max().unwrap_or(0) + 1;
    // One code says that there are several classes.
    let code_bits = [2u32, 4, 8].into_iter().find(|bits| classes < 1 << bits).unwrap_or(16);
    let mut table = V4Prefixes { top: Vec::with_capacity(1 << 16), code_bits, ..V4Prefixes::default() };
    // The run that holds the address at hand.
    let mut at = 0;
    for high in 0..1u64 << 16 {
        let first = high << 16;
        at += runs[at + 1..].iter().take_while(|run| u64::from(run.0) <= first).count();
        if is_one(runs, at, first + (1 << 16)) {
            table.top.push(runs[at].1.into());
            continue;
        }
        table.top.push(SPLIT | (table.groups.len() / 4) as u32);
        for group in 0..4 {
            at = add_group(&mut table, runs, at, first + group * (64 << 8));
        }
    }
    table
}

/// Whether the run at hand goes on to `end`.
fn is_one(runs: &[(u32, u16)], at: usize, end: u64) -> bool {
    runs.get(at + 1).is_none_or(|run| u64::from(run.0) >= end)
}

/// Adds 64 codes from the address `first` on; gives the run that holds the last address.
fn add_group(table: &mut V4Prefixes, runs: &[(u32, u16)], mut at: usize, first: u64) -> usize {
    let (bits, ones) = (table.code_bits, (1u64 << table.code_bits) - 1);
    let mut group = PrefixGroup { base: table.blocks.len() as u32, ..PrefixGroup::default() };
    let (mut word, mut used) = (0, 0);
    for i in 0..64 {
        let low = first + (i << 8);
        while runs.get(at + 1).is_some_and(|run| u64::from(run.0) <= low) {
            at += 1;
        }
        let code = if is_one(runs, at, low + 256) {
            u64::from(runs[at].1)
        } else {
            group.mask |= 1 << i;
            add_block(table, &runs[at..], low);
            ones
        };
        word |= code << used;
        used += bits;
        if used == 64 {
            table.codes.push(word);
            (word, used) = (0, 0);
        }
    }
    table.groups.push(group);
    at
}

/// Adds the block of the /24 at `low`, which `runs` begin with.
fn add_block(table: &mut V4Prefixes, runs: &[(u32, u16)], low: u64) {
    let held = runs.iter().take_while(|run| u64::from(run.0) < low + 256);
    let words = held.map(|run| (u64::from(run.0).saturating_sub(low) as u32) << 16 | u32::from(run.1));
    let mut block = [NO_RUN; 4];
    let from = table.runs.len();
    table.runs.extend(words);
    let len = table.runs.len() - from;
    if len <= block.len() {
        block[..len].copy_from_slice(&table.runs[from..]);
        table.runs.truncate(from);
    } else {
        block[0] = LONG | len as u32;
        block[1] = from as u32;
    }
    table.blocks.push(block);
}
