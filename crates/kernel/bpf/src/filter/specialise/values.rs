//! Constant folding of single instructions.

use super::insns::*;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Known {
    Value(u64),
    /// An address among the constants.
    Constant(usize),
}

pub(super) type Registers = [Option<Known>; 16];

/// `dst = value`, if one instruction can say it.
pub(super) fn set(dst: usize, value: u64) -> Option<Insn> {
    let insn = |class, imm| Insn { code: class | MOV, regs: dst as u8, off: 0, imm };
    // The first extends the sign, the second clears the upper half.
    i32::try_from(value as i64).ok().map(|imm| insn(ALU64, imm)).or_else(|| {
        let low = u32::try_from(value).ok()?;
        Some(insn(ALU32, low as i32))
    })
}

/// The instruction with its second operand, whose value is known, as an immediate one.
pub(super) fn second(insn: Insn, known: &Registers) -> Option<Insn> {
    const DIV: u8 = 0x30;
    const MOD: u8 = 0x90;
    let plain = insn.is_binary() && insn.off == 0 && !matches!(insn.operation(), DIV | MOD);
    if insn.code & X == 0 || !(plain || insn.compares()) {
        return None;
    }
    let Some(Known::Value(value)) = known[insn.src()] else { return None };
    let imm = match insn.class() {
        ALU32 | JMP32 => value as i32,
        _ => i32::try_from(value as i64).ok()?,
    };
    let bits = if insn.class() == ALU64 { 64 } else { 32 };
    let shifts = insn.is_alu() && matches!(insn.operation(), LSH | RSH | ARSH);
    (!shifts || (0..bits).contains(&imm)).then_some(Insn { code: insn.code & !X, regs: insn.regs & 15, imm, ..insn })
}

/// An operation that changes nothing, or leaves nothing, as what it is.
pub(super) fn neutral(insn: Insn) -> Insn {
    if insn.code & X != 0 {
        return insn;
    }
    match (insn.class(), insn.operation(), insn.imm) {
        (ALU64, ADD | SUB | OR | XOR | LSH | RSH | ARSH, 0) | (ALU64, MUL, 1) => NOP,
        (ALU64, AND, 0) => Insn { code: ALU64 | MOV, ..insn },
        _ => insn,
    }
}

pub(super) fn meet(one: Registers, other: Registers) -> Registers {
    std::array::from_fn(|register| one[register].filter(|known| other[register] == Some(*known)))
}

/// True if a branch is taken; none: unknown, or no branch.
pub(super) fn decide(insn: Insn, known: &Registers) -> Option<bool> {
    if !insn.compares() {
        return None;
    }
    let Known::Value(first) = known[insn.dst()]? else { return None };
    let second = match insn.code & X {
        0 => i64::from(insn.imm) as u64,
        _ => match known[insn.src()]? {
            Known::Value(second) => second,
            Known::Constant(_) => return None,
        },
    };
    let cut = |value: u64| if insn.class() == JMP32 { u64::from(value as u32) } else { value };
    let (first, second) = (cut(first), cut(second));
    match insn.operation() {
        0x10 => Some(first == second),
        0x20 => Some(first > second),
        0x30 => Some(first >= second),
        0x40 => Some(first & second != 0),
        0x50 => Some(first != second),
        0xa0 => Some(first < second),
        0xb0 => Some(first <= second),
        // The signed ones.
        _ => None,
    }
}

/// The result of an operation on two known values; none for those that are not worth it.
pub(super) fn calculate(insn: Insn, first: u64, second: u64) -> Option<u64> {
    let wide = insn.class() == ALU64;
    let cut = |value: u64| if wide { value } else { u64::from(value as u32) };
    let (first, second) = (cut(first), cut(second));
    let bits = if wide { 64 } else { 32 };
    Some(cut(match insn.operation() {
        MOV => second,
        ADD => first.wrapping_add(second),
        SUB => first.wrapping_sub(second),
        MUL => first.wrapping_mul(second),
        OR => first | second,
        AND => first & second,
        XOR => first ^ second,
        LSH if second < bits => first << second,
        RSH if second < bits => first >> second,
        _ => return None,
    }))
}

/// The value that a load of `code` finds at the beginning of `bytes`, in the machine's order.
pub(super) fn load(bytes: &[u8], code: u8) -> Option<u64> {
    const WORD: u8 = MEM | LDX;
    const HALF: u8 = MEM | LDX | 0x08;
    const BYTE: u8 = MEM | LDX | 0x10;
    const DOUBLE: u8 = MEM | LDX | 0x18;
    Some(match code {
        BYTE => (*bytes.first()?).into(),
        HALF => u16::from_ne_bytes(*bytes.first_chunk()?).into(),
        WORD => u32::from_ne_bytes(*bytes.first_chunk()?).into(),
        DOUBLE => u64::from_ne_bytes(*bytes.first_chunk()?),
        _ => return None,
    })
}
