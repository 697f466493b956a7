//! An instruction of BPF (RFC 9669): its reads, writes and effects.

use zerocopy::{FromBytes, Immutable, IntoBytes};

/// `struct bpf_insn` (include/uapi/linux/bpf.h).
#[derive(Debug, Clone, Copy, PartialEq, Eq, FromBytes, IntoBytes, Immutable)]
#[repr(C)]
pub(super) struct Insn {
    pub(super) code: u8,
    /// Destination in the low half, source in the high one.
    pub(super) regs: u8,
    pub(super) off: i16,
    pub(super) imm: i32,
}

pub(super) const LDX: u8 = 1;
pub(super) const ST: u8 = 2;
pub(super) const STX: u8 = 3;
pub(super) const ALU32: u8 = 4;
pub(super) const JMP: u8 = 5;
pub(super) const JMP32: u8 = 6;
pub(super) const ALU64: u8 = 7;
/// Of `code`: the source is a register.
pub(super) const X: u8 = 8;
pub(super) const OPERATION: u8 = 0xf0;
pub(super) const ADD: u8 = 0x00;
pub(super) const SUB: u8 = 0x10;
pub(super) const MUL: u8 = 0x20;
pub(super) const OR: u8 = 0x40;
pub(super) const AND: u8 = 0x50;
pub(super) const LSH: u8 = 0x60;
pub(super) const RSH: u8 = 0x70;
pub(super) const NEG: u8 = 0x80;
pub(super) const XOR: u8 = 0xa0;
pub(super) const MOV: u8 = 0xb0;
pub(super) const ARSH: u8 = 0xc0;
pub(super) const END: u8 = 0xd0;
pub(super) const JA: u8 = 0;
pub(super) const CALL: u8 = 0x80;
pub(super) const EXIT: u8 = 0x90;
/// `may_goto`.
pub(super) const JCOND: u8 = 0xe0;
/// Of loads: of memory, without sign.
pub(super) const MEM: u8 = 0x60;
pub(super) const ATOMIC: u8 = 0xc0;
pub(super) const MODE: u8 = 0xe0;
/// The first half of the only instruction of two.
pub(super) const LD_IMM64: u8 = 0x18;
pub(super) const NOP: Insn = Insn { code: JMP | JA, regs: 0, off: 0, imm: 0 };
/// Registers that a call may read, and those that it does not keep.
pub(super) const ARGUMENTS: u16 = 0b11_1110;
pub(super) const LOST: u16 = 0b11_1111;

impl Insn {
    pub(super) fn class(self) -> u8 {
        self.code & 7
    }

    pub(super) fn dst(self) -> usize {
        usize::from(self.regs & 15)
    }

    pub(super) fn src(self) -> usize {
        usize::from(self.regs >> 4)
    }

    pub(super) fn is_alu(self) -> bool {
        matches!(self.class(), ALU32 | ALU64)
    }

    pub(super) fn is_jump(self) -> bool {
        matches!(self.class(), JMP | JMP32)
    }

    pub(super) fn operation(self) -> u8 {
        self.code & OPERATION
    }

    /// Nothing follows but where it jumps to.
    pub(super) fn ends(self) -> bool {
        self.is_jump() && (self.operation() == JA || (self.class() == JMP && self.operation() == EXIT)) && self != NOP
    }

    /// The target of its jump, if it is the instruction `at`.
    pub(super) fn target(self, at: usize) -> Option<usize> {
        if !self.is_jump() || self == NOP || (self.class() == JMP && matches!(self.operation(), CALL | EXIT)) {
            return None;
        }
        // `gotol` has the distance in the larger field.
        let distance = if self.code == JMP32 | JA { self.imm as isize } else { self.off.into() };
        at.checked_add_signed(1 + distance)
    }

    /// Has a second operand, which is the source register or the immediate value.
    pub(super) fn is_binary(self) -> bool {
        self.is_alu() && !matches!(self.operation(), NEG | END)
    }

    pub(super) fn compares(self) -> bool {
        self.is_jump() && !matches!(self.operation(), JA | CALL | EXIT | JCOND)
    }

    /// Registers that it reads, as bits.
    pub(super) fn reads(self) -> u16 {
        let (dst, src) = (1 << self.dst(), 1 << self.src());
        let second = if self.code & X != 0 { src } else { 0 };
        match self.class() {
            0 if self.code == LD_IMM64 => 0,
            LDX => src,
            ST => dst,
            STX if self.code & MODE == ATOMIC => dst | src | 1,
            STX => dst | src,
            ALU32 | ALU64 if !self.is_binary() => dst,
            ALU32 | ALU64 if self.operation() == MOV => second,
            ALU32 | ALU64 => dst | second,
            JMP | JMP32 if self.compares() => dst | second,
            JMP if self.operation() == CALL => ARGUMENTS,
            JMP if self.operation() == EXIT => 1,
            JMP | JMP32 => 0,
            // The old loads of packets.
            _ => u16::MAX,
        }
    }

    /// Registers that it may change, as bits.
    pub(super) fn writes(self) -> u16 {
        match self.class() {
            0 if self.code == LD_IMM64 => 1 << self.dst(),
            LDX | ALU32 | ALU64 => 1 << self.dst(),
            STX if self.code & MODE == ATOMIC => 1 << self.src() | 1,
            JMP if self.operation() == CALL => LOST,
            0 if self.code != 0 => LOST,
            _ => 0,
        }
    }

    /// Registers of which nothing stays, as bits.
    pub(super) fn overwrites(self) -> u16 {
        match self.class() {
            0 if self.code != LD_IMM64 => 0,
            STX => 0,
            _ => self.writes(),
        }
    }

    /// Does nothing but change its destination.
    pub(super) fn is_pure(self) -> bool {
        self.is_alu() || self.code == LD_IMM64
    }
}
