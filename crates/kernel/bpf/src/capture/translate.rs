//! Classic BPF to eBPF, instruction by instruction.
//!
//! A lives in r7, X in r8, the context in r6, M[] on the stack, the frame's length in r9. A load beyond the end of the frame and a division
//! by zero reject the frame, and shifts by 32 and more give 0, all as in libpcap's own interpreter.

use libbpf_rs::libbpf_sys::{self, bpf_insn};
use sys::packet::Instruction;

/// A classic filter that cannot be translated.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum FilterError {
    #[error(
        "the filter cannot run in XDP: its instruction {at} (code {code:#06x}, k {k:#x}) is unknown there; use another backend"
    )]
    Instruction { at: usize, code: u16, k: u32 },
    #[error("the filter is broken: its instruction {at} leads beyond its end")]
    Jump { at: usize },
    #[error("a filter of {0} instructions cannot run in XDP: it must have 1 to 4096, and fewer if it jumps far")]
    Length(usize),
}

model::classified!(FilterError: Lacking, Internal: Jump);

/// BPF_LD | BPF_DW | BPF_IMM: an instruction of two slots.
pub(crate) const LOAD_64: u8 = 0x18;
/// Places at the end of a translated filter, counted from its end, for what is known only when it is loaded.
pub(crate) struct End;

impl End {
    /// The descriptor of the filter's own program array, twice.
    pub(crate) const TARGETS: [usize; 2] = [16, 11];
    /// The descriptor of the array with what follows, and the index there.
    pub(crate) const REST: usize = 6;
    pub(crate) const REST_INDEX: usize = 4;
    pub(crate) const VERDICT: usize = 2;
}

const R0: u8 = 0;
const R1: u8 = 1;
const R2: u8 = 2;
const R3: u8 = 3;
const R4: u8 = 4;
const CTX: u8 = 6;
const A: u8 = 7;
const X: u8 = 8;
const LEN: u8 = 9;
const FP: u8 = 10;
/// The place of the bytes that a load through the helper gives.
const BUFFER: i16 = -8;
/// M[0], the others above it.
const SCRATCH: i16 = -8 - 16 * 4;
/// The highest offset into a frame that is looked at; the verifier wants a bound.
const OFFSET_MAX: i32 = 0x7fff;

// Instruction classes and operations of eBPF (linux/bpf.h, linux/bpf_common.h).
const ALU: u8 = 0x04;
const ALU64: u8 = 0x07;
const JMP: u8 = 0x05;
const JMP32: u8 = 0x06;
const MOV: u8 = 0xb0;
const ADD: u8 = 0x00;
const LSH: u8 = 0x60;
const AND: u8 = 0x50;
const REG: u8 = 0x08;
const JA: u8 = 0x00;
const JEQ: u8 = 0x10;
const JGT: u8 = 0x20;
const JGE: u8 = 0x30;
const JSET: u8 = 0x40;
const CALL: u8 = 0x80;
const EXIT: u8 = 0x90;
const LDX: u8 = 0x61;
const STX: u8 = 0x63;
const SIZE_W: u8 = 0x00;
const SIZE_H: u8 = 0x08;
const SIZE_B: u8 = 0x10;
const TO_BE: u8 = 0xdc;

const XDP_MD_DATA: i16 = 0;
const XDP_MD_DATA_END: i16 = 4;

#[derive(Clone, Copy)]
enum Label {
    /// The beginning of a classic instruction.
    Classic(usize),
    Reject,
    Accept,
}

struct Translation {
    insns: Vec<bpf_insn>,
    jumps: Vec<(usize, Label)>,
}

impl Translation {
    fn emit(&mut self, code: u8, dst: u8, src: u8, off: i16, imm: i32) -> usize {
        let mut insn = bpf_insn { code, off, imm, ..Default::default() };
        insn.set_dst_reg(dst);
        insn.set_src_reg(src);
        self.insns.push(insn);
        self.insns.len() - 1
    }

    fn jump(&mut self, code: u8, dst: u8, src: u8, imm: i32, to: Label) {
        let at = self.emit(code, dst, src, 0, imm);
        self.jumps.push((at, to));
    }

    /// A jump that is always taken. The verifier refuses code that cannot be reached, and what follows here may be that: so the jump is
    /// written as a condition, which is true of every number.
    fn always(&mut self, to: Label) {
        self.jump(JMP | JGE, A, 0, 0, to);
    }

    /// Lets the jump at `at` lead to the next instruction.
    fn land(&mut self, at: usize) {
        self.insns[at].off = (self.insns.len() - at - 1) as i16;
    }

    fn prologue(&mut self, classic: &[Instruction]) {
        self.emit(ALU64 | MOV | REG, CTX, R1, 0, 0);
        self.emit(ALU64 | MOV, A, 0, 0, 0);
        self.emit(ALU64 | MOV, X, 0, 0, 0);
        if classic.iter().any(|i| matches!(u32::from(i.code), ST_A | ST_X | LD_M | LDX_M)) {
            for slot in 0..16 {
                self.emit(STX, FP, A, SCRATCH + slot * 4, 0);
            }
        }
        if classic.iter().any(|i| matches!(u32::from(i.code), LD_LEN | LDX_LEN)) {
            self.emit(JMP | CALL, 0, 0, 0, libbpf_sys::BPF_FUNC_xdp_get_buff_len as i32);
            self.emit(ALU | MOV | REG, LEN, R0, 0, 0);
        }
    }

    /// Loads `bytes` (1, 2, 4) at `k`, or at X + `k`, into `dst`, in host order.
    fn load(&mut self, dst: u8, bytes: i32, k: u32, indexed: bool) {
        let size = match bytes {
            1 => SIZE_B,
            2 => SIZE_H,
            _ => SIZE_W,
        };
        let limit = OFFSET_MAX - bytes;
        if k > limit as u32 {
            self.always(Label::Reject);
            return;
        }
        // r3: the offset, bounded.
        if indexed {
            self.emit(ALU | MOV | REG, R3, X, 0, 0);
            // In 64 bits: where X + k passes 32 bits libpcap rejects the frame and does not wrap around.
            self.emit(ALU64 | ADD, R3, 0, 0, k as i32);
            self.jump(JMP | JGT, R3, 0, limit, Label::Reject);
        } else {
            self.emit(ALU64 | MOV, R3, 0, 0, k as i32);
        }
        // Where the frame is linear: look at it.
        self.emit(LDX, R2, CTX, XDP_MD_DATA, 0);
        self.emit(LDX, R4, CTX, XDP_MD_DATA_END, 0);
        self.emit(ALU64 | ADD | REG, R2, R3, 0, 0);
        self.emit(ALU64 | MOV | REG, R1, R2, 0, 0);
        self.emit(ALU64 | ADD, R1, 0, 0, bytes);
        let slow = self.emit(JMP | JGT | REG, R1, R4, 0, 0);
        self.emit(LDX | size, dst, R2, 0, 0);
        let done = self.emit(JMP | JA, 0, 0, 0, 0);
        // Elsewhere: ask for a copy.
        self.land(slow);
        self.emit(ALU64 | MOV | REG, R1, CTX, 0, 0);
        self.emit(ALU64 | MOV | REG, R2, R3, 0, 0);
        self.emit(ALU64 | MOV | REG, R3, FP, 0, 0);
        self.emit(ALU64 | ADD, R3, 0, 0, i32::from(BUFFER));
        self.emit(ALU64 | MOV, R4, 0, 0, bytes);
        self.emit(JMP | CALL, 0, 0, 0, libbpf_sys::BPF_FUNC_xdp_load_bytes as i32);
        self.jump(JMP | JNE, R0, 0, 0, Label::Reject);
        self.emit(LDX | size, dst, FP, BUFFER, 0);
        self.land(done);
        if bytes > 1 {
            self.emit(TO_BE, dst, 0, 0, bytes * 8);
        }
    }

    /// A = A op K, or A = A op X.
    fn arithmetic(&mut self, op: u8, with_x: bool, k: u32) {
        const SHIFTS: [u8; 2] = [0x60, 0x70];
        const DIVISIONS: [u8; 2] = [0x30, 0x90];
        match (SHIFTS.contains(&op), DIVISIONS.contains(&op), with_x) {
            (true, _, false) if k > 31 => {
                self.emit(ALU | MOV, A, 0, 0, 0);
            }
            (true, _, true) => {
                let small = self.emit(JMP32 | JLT, X, 0, 0, 32);
                self.emit(ALU | MOV, A, 0, 0, 0);
                let done = self.emit(JMP | JA, 0, 0, 0, 0);
                self.land(small);
                self.emit(ALU | op | REG, A, X, 0, 0);
                self.land(done);
            }
            (_, true, false) if k == 0 => self.always(Label::Reject),
            (_, true, true) => {
                self.jump(JMP32 | JEQ, X, 0, 0, Label::Reject);
                self.emit(ALU | op | REG, A, X, 0, 0);
            }
            (_, _, true) => {
                self.emit(ALU | op | REG, A, X, 0, 0);
            }
            (_, _, false) => {
                self.emit(ALU | op, A, 0, 0, k.cast_signed());
            }
        }
    }

    /// Calls entry `index` of a program array, and goes on here if it is empty.
    fn tail_call(&mut self, index: i32) {
        self.emit(ALU64 | MOV | REG, R1, CTX, 0, 0);
        self.emit(LOAD_64, R2, libbpf_sys::BPF_PSEUDO_MAP_FD as u8, 0, 0);
        self.emit(0, 0, 0, 0, 0);
        self.emit(ALU64 | MOV, R3, 0, 0, index);
        self.emit(JMP | CALL, 0, 0, 0, libbpf_sys::BPF_FUNC_tail_call as i32);
    }

    /// Writes the two ends, for frames that are taken and that are not: they go to the entries of the filter's own array, and where these are empty
    /// (its owner was killed this moment) to what follows in the chain.
    fn epilogue(&mut self) -> (usize, usize) {
        let accept = self.insns.len();
        self.tail_call(0);
        let reject = self.insns.len();
        self.tail_call(1);
        self.tail_call(0);
        self.emit(ALU64 | MOV, R0, 0, 0, libbpf_sys::XDP_PASS as i32);
        self.emit(JMP | EXIT, 0, 0, 0, 0);
        (accept, reject)
    }
}

const JNE: u8 = 0x50;
const JLT: u8 = 0xa0;

// Classic BPF, by its full codes (linux/filter.h).
const LD_W_ABS: u32 = 0x20;
const LD_H_ABS: u32 = 0x28;
const LD_B_ABS: u32 = 0x30;
const LD_W_IND: u32 = 0x40;
const LD_H_IND: u32 = 0x48;
const LD_B_IND: u32 = 0x50;
const LD_IMM: u32 = 0x00;
const LD_M: u32 = 0x60;
const LD_LEN: u32 = 0x80;
const LDX_IMM: u32 = 0x01;
const LDX_M: u32 = 0x61;
const LDX_LEN: u32 = 0x81;
const LDX_MSH: u32 = 0xb1;
const ST_A: u32 = 0x02;
const ST_X: u32 = 0x03;
const RET_K: u32 = 0x06;
const RET_A: u32 = 0x16;
const TAX: u32 = 0x07;
const TXA: u32 = 0x87;
const NEG: u8 = 0x80;

pub(crate) fn translate(classic: &[Instruction]) -> Result<Vec<bpf_insn>, FilterError> {
    if !(1..=4096).contains(&classic.len()) {
        return Err(FilterError::Length(classic.len()));
    }
    let mut t = Translation { insns: Vec::with_capacity(classic.len() * 8), jumps: Vec::new() };
    t.prologue(classic);
    let mut starts = Vec::with_capacity(classic.len());
    for (at, insn) in classic.iter().enumerate() {
        starts.push(t.insns.len());
        one(&mut t, at, insn, classic.len())?;
    }
    let (accept, reject) = t.epilogue();
    for (at, label) in std::mem::take(&mut t.jumps) {
        let to = match label {
            Label::Classic(n) => starts[n],
            Label::Accept => accept,
            Label::Reject => reject,
        };
        t.insns[at].off = i16::try_from(to - at - 1).map_err(|_| FilterError::Length(classic.len()))?;
    }
    Ok(t.insns)
}

fn one(t: &mut Translation, at: usize, insn: &Instruction, total: usize) -> Result<(), FilterError> {
    let Instruction { code, k, .. } = *insn;
    let unknown = || FilterError::Instruction { at, code, k };
    // The kernel gives meanings of its own (protocol, interface, ...) to loads far beyond any frame.
    const ANCILLARY: u32 = 0xffe0_0000;
    let falls_through = !matches!(u32::from(code), RET_K | RET_A) && code & 7 != u16::from(JMP);
    if falls_through && at + 1 == total {
        return Err(FilterError::Jump { at });
    }
    match u32::from(code) {
        LD_W_ABS | LD_H_ABS | LD_B_ABS if k >= ANCILLARY => return Err(unknown()),
        LD_W_ABS => t.load(A, 4, k, false),
        LD_H_ABS => t.load(A, 2, k, false),
        LD_B_ABS => t.load(A, 1, k, false),
        LD_W_IND => t.load(A, 4, k, true),
        LD_H_IND => t.load(A, 2, k, true),
        LD_B_IND => t.load(A, 1, k, true),
        LDX_MSH => {
            t.load(X, 1, k, false);
            t.emit(ALU | AND, X, 0, 0, 0xf);
            t.emit(ALU | LSH, X, 0, 0, 2);
        }
        LD_IMM => drop(t.emit(ALU | MOV, A, 0, 0, k.cast_signed())),
        LDX_IMM => drop(t.emit(ALU | MOV, X, 0, 0, k.cast_signed())),
        LD_LEN => drop(t.emit(ALU | MOV | REG, A, LEN, 0, 0)),
        LDX_LEN => drop(t.emit(ALU | MOV | REG, X, LEN, 0, 0)),
        LD_M | LDX_M | ST_A | ST_X if k > 15 => return Err(unknown()),
        LD_M => drop(t.emit(LDX, A, FP, SCRATCH + 4 * k as i16, 0)),
        LDX_M => drop(t.emit(LDX, X, FP, SCRATCH + 4 * k as i16, 0)),
        ST_A => drop(t.emit(STX, FP, A, SCRATCH + 4 * k as i16, 0)),
        ST_X => drop(t.emit(STX, FP, X, SCRATCH + 4 * k as i16, 0)),
        TAX => drop(t.emit(ALU | MOV | REG, X, A, 0, 0)),
        TXA => drop(t.emit(ALU | MOV | REG, A, X, 0, 0)),
        RET_K => t.always(if k == 0 { Label::Reject } else { Label::Accept }),
        RET_A => {
            t.jump(JMP32 | JEQ, A, 0, 0, Label::Reject);
            t.always(Label::Accept);
        }
        _ => return branch_or_alu(t, at, insn, total),
    }
    Ok(())
}

fn branch_or_alu(t: &mut Translation, at: usize, insn: &Instruction, total: usize) -> Result<(), FilterError> {
    let Instruction { code, jt, jf, k } = *insn;
    let target = |distance: u32| {
        let to = at as u64 + 1 + u64::from(distance);
        if to < total as u64 { Ok(Label::Classic(to as usize)) } else { Err(FilterError::Jump { at }) }
    };
    let (Ok(class), Ok(op)) = (u8::try_from(code & 0x07), u8::try_from(code & 0xf0)) else {
        return Err(FilterError::Instruction { at, code, k });
    };
    let with_x = code & u16::from(REG) != 0;
    match (class, op) {
        (ALU, NEG) if !with_x => drop(t.emit(ALU | NEG, A, 0, 0, 0)),
        (ALU, 0x00..=0x70 | 0x90 | 0xa0) if code < 0x100 => t.arithmetic(op, with_x, k),
        (JMP, JA) if code == 0x05 => t.always(target(k)?),
        (JMP, JEQ | JGT | JGE | JSET) if code < 0x100 => {
            let (yes, no) = (target(u32::from(jt))?, target(u32::from(jf))?);
            if with_x {
                t.jump(JMP32 | op | REG, A, X, 0, yes);
            } else {
                t.jump(JMP32 | op, A, 0, k.cast_signed(), yes);
            }
            t.always(no);
        }
        _ => return Err(FilterError::Instruction { at, code, k }),
    }
    Ok(())
}
