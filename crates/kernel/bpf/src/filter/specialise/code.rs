//! Instructions of BPF whose registers hold known values, simplified.
//!
//! Where paths meet, a register is known if all of them say the same. No instruction moves, so that all that
//! names one by its number stays right; what is not needed becomes a jump to the next one, which the verifier takes out. Branches that are never
//! taken go too, as long as something else leads to where they did: the verifier refuses instructions that nothing leads to. Those that are
//! always taken it finds itself, with what they jump over.

use std::collections::{BTreeMap, BTreeSet};

use super::{insns::*, values::*};

/// More than ever needed until nothing changes; each round is right by itself.
const ROUNDS_MAX: usize = 32;

/// A section's instructions, the constants that they load, and which of them load an address among these: by number, the offset there.
pub(super) struct Code<'a> {
    pub(super) insns: Vec<Insn>,
    pub(super) addresses: BTreeMap<usize, usize>,
    /// Instructions that load what only the kernel or the loader knows.
    pub(super) foreign: BTreeSet<usize>,
    pub(super) constants: &'a [u8],
    pub(super) entries: Vec<usize>,
}

impl Code<'_> {
    /// Replaces what can be known.
    pub(super) fn simplify(&mut self) {
        for _ in 0..ROUNDS_MAX {
            let before = self.insns.clone();
            let never = self.propagate();
            self.remove_branches(&never);
            self.remove_unread();
            if self.insns == before {
                break;
            }
        }
    }

    /// The values of the registers before each instruction, as far as all ways there agree; none where no way leads. (Wegman and Zadeck 1991.)
    fn known(&self) -> Vec<Option<Registers>> {
        let mut before: Vec<Option<Registers>> = vec![None; self.insns.len()];
        let mut open: Vec<(usize, Registers)> = self.entries.iter().map(|&at| (at, [None; 16])).collect();
        while let Some((at, arriving)) = open.pop() {
            let Some(there) = before.get_mut(at) else { continue };
            let merged = there.map_or(arriving, |there| meet(there, arriving));
            if *there == Some(merged) {
                continue;
            }
            *there = Some(merged);
            let insn = self.insns[at];
            let after = self.after(at, merged);
            let taken = decide(insn, &merged);
            if let Some(target) = insn.target(at).filter(|_| taken != Some(false)) {
                open.push((target, after));
            }
            if !insn.ends() && taken != Some(true) {
                open.push((at + if insn.code == LD_IMM64 { 2 } else { 1 }, after));
            }
        }
        before
    }

    /// The registers after the instruction `at`.
    fn after(&self, at: usize, mut known: Registers) -> Registers {
        let insn = self.insns[at];
        let result = self.result(at, &known);
        let writes = insn.writes();
        (0..16).filter(|register| writes >> register & 1 != 0).for_each(|register| known[register] = None);
        if result.is_some() {
            known[insn.dst()] = result;
        }
        known
    }

    /// Writes what the registers hold into the instructions. Gives the branches that are never taken.
    fn propagate(&mut self) -> Vec<usize> {
        let mut never = vec![];
        for (at, known) in self.known().into_iter().enumerate() {
            let (insn, Some(known)) = (self.insns[at], known) else { continue };
            match self.result(at, &known) {
                Some(Known::Value(value)) if insn.is_alu() || insn.class() == LDX => self.write(at, value),
                _ => self.insns[at] = neutral(second(insn, &known).unwrap_or(insn)),
            }
            if decide(insn, &known) == Some(false) {
                never.push(at);
            }
        }
        never
    }

    /// Takes branches out, but for those that alone lead somewhere.
    fn remove_branches(&mut self, branches: &[usize]) {
        let reached = self.reached();
        for &at in branches {
            let branch = std::mem::replace(&mut self.insns[at], NOP);
            if self.reached() != reached {
                self.insns[at] = branch;
            }
        }
    }

    /// Marks the instructions that can be reached.
    fn reached(&self) -> Vec<bool> {
        let mut reached = vec![false; self.insns.len()];
        let mut open = self.entries.clone();
        while let Some(at) = open.pop() {
            let Some(new) = reached.get_mut(at).filter(|reached| !**reached) else { continue };
            *new = true;
            open.extend(self.insns[at].target(at));
            if !self.insns[at].ends() {
                open.push(at + 1);
            }
        }
        reached
    }

    /// The value of the destination after the instruction `at`.
    fn result(&self, at: usize, known: &Registers) -> Option<Known> {
        let insn = self.insns[at];
        if insn.code == LD_IMM64 {
            if let Some(&offset) = self.addresses.get(&at) {
                return Some(Known::Constant(offset));
            }
            let value = || u64::from(insn.imm as u32) | u64::from(self.insns[at + 1].imm as u32) << 32;
            return self.is_number(at).then(|| Known::Value(value()));
        }
        if insn.class() == LDX {
            let Some(Known::Constant(base)) = known[insn.src()] else { return None };
            let from = base.checked_add_signed(insn.off.into())?;
            return Some(Known::Value(load(self.constants.get(from..)?, insn.code)?));
        }
        if !insn.is_binary() || insn.off != 0 {
            return None;
        }
        let second = if insn.code & X != 0 { known[insn.src()]? } else { Known::Value(i64::from(insn.imm) as u64) };
        if insn.operation() == MOV && insn.class() == ALU64 {
            return Some(second);
        }
        let Known::Value(second) = second else { return None };
        let first = match known[insn.dst()] {
            Some(Known::Value(first)) => first,
            _ if insn.operation() == MOV => 0,
            _ => return None,
        };
        calculate(insn, first, second).map(Known::Value)
    }

    /// Makes the instruction `at` one that sets its destination to `value`, if there is one.
    fn write(&mut self, at: usize, value: u64) {
        let dst = self.insns[at].dst();
        // Two halves that loaded the address of what is loaded here, and of nothing else, can hold all of its value.
        let pair = at.wrapping_sub(2);
        if let Some(insn) = set(dst, value) {
            self.insns[at] = insn;
        } else if self.insns[at].class() == LDX
            && self.insns[at].src() == dst
            && self.addresses.contains_key(&pair)
            && self.insns[pair].dst() == dst
            && !self.insns.iter().enumerate().any(|(from, insn)| insn.target(from) == Some(at))
        {
            self.addresses.remove(&pair);
            self.insns[pair].imm = value as i32;
            self.insns[pair + 1].imm = (value >> 32) as i32;
            self.insns[at] = NOP;
        }
    }

    /// True if it loads two halves of a number, and nothing else.
    fn is_number(&self, at: usize) -> bool {
        !self.addresses.contains_key(&at) && !self.foreign.contains(&at) && self.insns[at].src() == 0
    }

    /// Takes out what sets a register that nobody reads afterwards.
    fn remove_unread(&mut self) {
        let live = self.live();
        let mut at = 0;
        while at < self.insns.len() {
            let insn = self.insns[at];
            let two = insn.code == LD_IMM64;
            // Addresses of other things than constants stay: who loads the program counts on them.
            let ours = !two || self.addresses.contains_key(&at) || self.is_number(at);
            if insn.is_pure() && ours && live[at] >> insn.dst() & 1 == 0 {
                self.insns[at] = NOP;
                if two {
                    self.insns[at + 1] = NOP;
                    self.addresses.remove(&at);
                }
            }
            at += if two { 2 } else { 1 };
        }
    }

    /// Registers that may be read after each instruction, as bits.
    fn live(&self) -> Vec<u16> {
        let mut before = vec![0u16; self.insns.len() + 1];
        let mut after = vec![0u16; self.insns.len()];
        loop {
            let mut changed = false;
            for at in (0..self.insns.len()).rev() {
                let insn = self.insns[at];
                // The second half of an instruction of two has the code 0, which is no other's: it passes on what is behind it.
                let next = if insn.ends() { 0 } else { before[at + 1] };
                after[at] = next | insn.target(at).and_then(|target| before.get(target)).copied().unwrap_or(0);
                let reads = if insn.code == 0 { 0 } else { insn.reads() };
                let live = reads | after[at] & !insn.overwrites();
                changed |= live != before[at];
                before[at] = live;
            }
            if !changed {
                return after;
            }
        }
    }
}

#[cfg(test)]
#[path = "tests.rs"]
mod tests;
