//! The table of IPv4 prefixes, built in one pass over the runs of equal class.

use std::{net::IpAddr, ops::Range};

use crate::tables::prefixes::{
    ALTERNATE, BLOCK, MANY_RUNS, NO_RUN, SPLIT, STATE_FURTHER, STATE_NONE, STATE_USUAL, STATES_FINE, STATES_HEAD,
    STATES_LEN, V4Prefixes,
};

use crate::rule::Prefix;

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

pub(super) fn table(runs: &[(u32, u16)]) -> V4Prefixes {
    let mut table = V4Prefixes { top: Vec::with_capacity(1 << 16), bits: vec![0; 1 << 18], ..V4Prefixes::default() };
    (table.states, table.wide) = states(runs);
    let left;
    (table.ranks, left) = ranks(&table.states[STATES_FINE..]);
    add_deep(&mut table, left, runs);
    // The run that holds the address at hand.
    let mut at = 0;
    for high in 0..1u64 << 16 {
        let first = high << 16;
        at = run_at(runs, at, first);
        if is_one(runs, at, first + (1 << 16)) {
            table.top.push(runs[at].1.into());
        } else {
            at = add_split(&mut table, runs, at, first);
        }
    }
    if table.entries.is_empty() {
        table.bits.clear();
    }
    table
}

/// The states of each /16 and /20, and whether those of /16 are worth a look: if three of four say all.
fn states(runs: &[(u32, u16)]) -> (Vec<u8>, bool) {
    let mut held = vec![0u64; runs.iter().map(|run| usize::from(run.1) + 1).max().unwrap_or(0).max(2)];
    whole(runs, 12).for_each(|(class, whole)| held[usize::from(class)] += whole.len() as u64);
    let usual = (1..held.len()).max_by_key(|&class| held[class]).unwrap_or(1) as u16;
    let fine = fine(runs, usual);
    let all = |sixteen: &[u8], state| sixteen == [four(state); 4];
    let wide = fine.chunks_exact(4).map(|sixteen| {
        [STATE_NONE, STATE_USUAL].into_iter().find(|&state| all(sixteen, state)).unwrap_or(STATE_FURTHER)
    });
    let wide: Vec<u8> = wide.collect();
    let direct = wide.iter().filter(|state| **state != STATE_FURTHER).count();
    let mut bytes = vec![0; STATES_HEAD];
    bytes.reserve_exact(STATES_LEN - STATES_HEAD);
    bytes[..2].copy_from_slice(&usual.to_ne_bytes());
    bytes.extend(wide.chunks_exact(4).map(|four| four[0] | four[1] << 2 | four[2] << 4 | four[3] << 6));
    debug_assert_eq!(bytes.len(), STATES_FINE);
    bytes.extend(fine);
    (bytes, direct >= wide.len() / 4 * 3)
}

/// For each /16 the number of /20 before it that are of several classes or another one, and their sum.
fn ranks(fine: &[u8]) -> (Vec<u32>, usize) {
    let mut before = 0;
    let of_16 = fine.chunks_exact(4).map(|sixteen| {
        let rank = before;
        // None has its upper bit set but these.
        before += sixteen.iter().map(|byte| (byte & four(STATE_FURTHER)).count_ones()).sum::<u32>();
        rank
    });
    (of_16.collect(), before as usize)
}

/// Adds the states of the /24 of the `left` such /20. A run that is wholly one of these states can share a /20 with others only where it begins and ends.
fn add_deep(table: &mut V4Prefixes, left: usize, runs: &[(u32, u16)]) {
    table.deep = vec![u32::from_ne_bytes([four(STATE_FURTHER); 4]); left];
    let usual = table.usual();
    for (class, whole) in whole(runs, 8) {
        let state = match class {
            0 => STATE_NONE,
            class if class == usual => STATE_USUAL,
            _ => continue,
        };
        let ends = [whole.start / 16, (whole.end - 1) / 16];
        for number in &ends[usize::from(ends[0] == ends[1])..] {
            let part = whole.start.max(number * 16)..whole.end.min(number * 16 + 16);
            if part.len() == 16 {
                continue;
            }
            let word = table.rank(*number as u32);
            for at in part {
                let shift = 2 * (at % 16);
                table.deep[word] = table.deep[word] & !(3 << shift) | u32::from(state) << shift;
            }
        }
    }
}

/// Classes of runs and the blocks of `2^bits` addresses that are wholly in them.
fn whole(runs: &[(u32, u16)], bits: u32) -> impl Iterator<Item = (u16, Range<usize>)> {
    let ends = runs.iter().skip(1).map(|run| u64::from(run.0)).chain([1 << 32]);
    let whole = move |(&(begin, class), end): (&(u32, u16), u64)| {
        (class, (begin as usize).div_ceil(1 << bits)..(end >> bits) as usize)
    };
    runs.iter().zip(ends).map(whole).filter(|(_, whole)| !whole.is_empty())
}

/// The states of all /20.
fn fine(runs: &[(u32, u16)], usual: u16) -> Vec<u8> {
    let mut states = vec![four(STATE_FURTHER); STATES_LEN - STATES_FINE];
    for (class, whole) in whole(runs, 12) {
        match class {
            0 => set_states(&mut states, whole, STATE_NONE),
            class if class == usual => set_states(&mut states, whole, STATE_USUAL),
            _ => {}
        }
    }
    states
}

/// Four times the same state, as a byte holds them.
fn four(state: u8) -> u8 {
    state * 0b0101_0101
}

/// Sets the states of `range`, four to a byte, which are [`STATE_FURTHER`] before.
fn set_states(states: &mut [u8], range: Range<usize>, state: u8) {
    let aligned = range.start.div_ceil(4)..range.end / 4;
    if aligned.start < aligned.end {
        states[aligned.clone()].fill(four(state));
    }
    // Up to three at either end.
    let front = range.start..range.end.min(aligned.start * 4);
    let back = front.end.max(aligned.end * 4)..range.end;
    for at in front.chain(back) {
        let shift = 2 * (at % 4);
        states[at / 4] = states[at / 4] & !(3 << shift) | state << shift;
    }
}

/// The run that holds `address`, at or behind the one at `at`.
fn run_at(runs: &[(u32, u16)], mut at: usize, address: u64) -> usize {
    while runs.get(at + 1).is_some_and(|run| u64::from(run.0) <= address) {
        at += 1;
    }
    at
}

/// True if the run at hand goes on to `end`.
fn is_one(runs: &[(u32, u16)], at: usize, end: u64) -> bool {
    runs.get(at + 1).is_none_or(|run| u64::from(run.0) >= end)
}

/// Adds a /16 whose /24 are not all of one class; gives the run that holds its last one.
fn add_split(table: &mut V4Prefixes, runs: &[(u32, u16)], mut at: usize, first: u64) -> usize {
    let usual = usual_class(&runs[at..], first);
    let mut top = u64::from(usual) | SPLIT | (table.entries.len() as u64) << 16;
    let from = table.entries.len();
    for i in 0..256 {
        let low = first + (i << 8);
        if i > 0 && i % 64 == 0 {
            top |= ((table.entries.len() - from) as u64) << (32 + i / 64 * 8);
        }
        at = run_at(runs, at, low);
        let entry = if !is_one(runs, at, low + 256) {
            let turns = turns(&runs[at..], low, table.usual());
            turns.unwrap_or_else(|| BLOCK | add_block(table, &runs[at..], low))
        } else if runs[at].1 != usual {
            runs[at].1.into()
        } else {
            continue;
        };
        table.entries.push(entry);
        table.bits[(low >> 14) as usize] |= 1 << (i % 64);
    }
    table.top.push(top);
    at
}

/// The class that most of a /16 has.
fn usual_class(runs: &[(u32, u16)], first: u64) -> u16 {
    let end = first + (1 << 16);
    let mut held: Vec<(u16, u64)> = vec![];
    for (i, run) in runs.iter().enumerate().take_while(|(_, run)| u64::from(run.0) < end) {
        let until = runs.get(i + 1).map_or(end, |next| u64::from(next.0).min(end));
        let addresses = until - u64::from(run.0).max(first);
        if let Some((_, sum)) = held.iter_mut().find(|(class, _)| *class == run.1) {
            *sum += addresses;
        } else if held.len() < 16 {
            // The first few are enough to choose among: a /16 of very many classes has no usual one.
            held.push((run.1, addresses));
        }
    }
    held.iter().max_by_key(|(_, sum)| *sum).map_or(0, |&(class, _)| class)
}

/// The entry of the /24 at `low`, which `runs` begin with, if class 0 and the usual one take turns in it, and not too often.
fn turns(runs: &[(u32, u16)], low: u64, usual: u16) -> Option<u32> {
    const TURNS_MAX: usize = 3;
    let count = runs.iter().take_while(|run| u64::from(run.0) < low + 256).count();
    let (first, others) = runs[..count].split_first()?;
    if others.len() > TURNS_MAX || runs[..count].iter().any(|run| run.1 != 0 && run.1 != usual) {
        return None;
    }
    let begins = others.iter().rev().fold(0, |word, run| word << 8 | (u64::from(run.0) - low) as u32);
    let counted = u32::from(first.1 == usual) + (TURNS_MAX - others.len()) as u32;
    Some(ALTERNATE | (counted & 1) << 24 | begins)
}

/// Adds the block of the /24 at `low`, which `runs` begin with; gives its number.
fn add_block(table: &mut V4Prefixes, runs: &[(u32, u16)], low: u64) -> u32 {
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
        block[0] = MANY_RUNS | len as u32;
        block[1] = from as u32;
    }
    table.blocks.push(block);
    table.blocks.len() as u32 - 1
}
