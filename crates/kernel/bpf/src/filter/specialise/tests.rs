//! Simplified programs do what they did: random ones, run by a small interpreter.

use proptest::prelude::*;

use super::*;

/// The address of the constants, for the interpreter.
const BASE: u64 = 1 << 40;

/// All registers at the program's end; none if it loads from elsewhere.
fn run(code: &Code<'_>, inputs: [u64; 5]) -> Option<Vec<u64>> {
    let mut registers = vec![0u64; 16];
    registers[1..6].copy_from_slice(&inputs);
    let mut at = 0;
    loop {
        let insn = *code.insns.get(at)?;
        let second = if insn.code & X != 0 { registers[insn.src()] } else { i64::from(insn.imm) as u64 };
        let dst = insn.dst();
        let all: Registers = std::array::from_fn(|register| Some(Known::Value(registers[register])));
        let mut next = at + 1;
        if insn.code == LD_IMM64 {
            let number = u64::from(insn.imm as u32) | u64::from(code.insns[at + 1].imm as u32) << 32;
            registers[dst] = code.addresses.get(&at).map_or(number, |offset| BASE + *offset as u64);
            next += 1;
        } else if insn.class() == LDX {
            let from = registers[insn.src()].wrapping_add_signed(insn.off.into()).checked_sub(BASE)?;
            registers[dst] = load(code.constants.get(from as usize..)?, insn.code)?;
        } else if insn.is_alu() {
            registers[dst] = calculate(insn, registers[dst], second)?;
        } else if insn.operation() == EXIT && insn.class() == JMP {
            return Some(registers);
        } else if insn != NOP && decide(insn, &all).unwrap_or(true) {
            next = insn.target(at)?;
        }
        at = next;
    }
}

/// An instruction, or the two of one; `None` in place of a distance: to be filled in.
fn piece() -> impl Strategy<Value = Vec<Insn>> {
    let register = 0u8..6;
    let pair = (register.clone(), register.clone());
    let operation = prop::sample::select(vec![ADD, SUB, MUL, OR, AND, XOR, MOV, LSH, RSH]);
    let branch = prop::sample::select(vec![0x10u8, 0x20, 0x30, 0x40, 0x50, 0xa0, 0xb0]);
    let insn = |code, dst: u8, src: u8, off, imm| Insn { code, regs: dst | src << 4, off, imm };
    prop_oneof![
        4 => (operation, pair.clone(), any::<bool>(), any::<bool>(), -3i32..40).prop_map(move |(op, (dst, src), wide, x, imm)| {
            let shifts = matches!(op, LSH | RSH);
            let (x, imm) = if shifts { (0, imm.rem_euclid(32)) } else { (if x { X } else { 0 }, imm) };
            vec![insn(op | x | if wide { ALU64 } else { ALU32 }, dst, if x == 0 { 0 } else { src }, 0, if x == 0 { imm } else { 0 })]
        }),
        2 => (branch, pair.clone(), any::<bool>(), any::<bool>(), 0i32..3, 1i16..12).prop_map(move |(op, (dst, src), wide, x, imm, off)| {
            let class = if wide { JMP } else { JMP32 };
            vec![insn(op | class | if x { X } else { 0 }, dst, if x { src } else { 0 }, off, if x { 0 } else { imm })]
        }),
        1 => (1i16..6).prop_map(move |off| vec![insn(JMP | JA, 0, 0, off, 0)]),
        1 => (register.clone(), any::<i64>()).prop_map(move |(dst, value)| {
            vec![insn(LD_IMM64, dst, 0, 0, value as i32), insn(0, 0, 0, 0, (value >> 32) as i32)]
        }),
        // The address of a constant, marked by its second half until the test takes it out.
        3 => (register.clone(), 0i32..24).prop_map(move |(dst, offset)| {
            vec![insn(LD_IMM64, dst, 0, 0, offset), insn(0, 0, 0, 1, 0)]
        }),
        3 => (pair, 0i16..8, prop::sample::select(vec![0x61u8, 0x69, 0x71, 0x79])).prop_map(move |((dst, src), off, code)| {
            vec![insn(code, dst, src, off, 0)]
        }),
    ]
}

/// All pieces one after the other, then the end. No jump leads into the middle of an instruction of two, or behind the end.
fn program(pieces: Vec<Vec<Insn>>, constants: &[u8]) -> Code<'_> {
    let mut insns: Vec<Insn> = pieces.into_iter().flatten().collect();
    insns.push(Insn { code: JMP | EXIT, regs: 0, off: 0, imm: 0 });
    let mut addresses = BTreeMap::new();
    for at in 0..insns.len() {
        if insns[at].code == 0 && insns[at].off == 1 {
            insns[at].off = 0;
            addresses.insert(at - 1, insns[at - 1].imm as usize);
        }
    }
    for at in 0..insns.len() {
        let Some(target) = insns[at].target(at) else { continue };
        let target = target.min(insns.len() - 1);
        let target = target + usize::from(insns[target].code == 0);
        insns[at].off = (target - at - 1) as i16;
    }
    Code { insns, addresses, foreign: BTreeSet::new(), constants, entries: vec![0] }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(4000))]

    #[test]
    fn simplified_programs_do_what_they_did(
        pieces in prop::collection::vec(piece(), 1..30),
        constants in prop::collection::vec(prop_oneof![Just(0u8), Just(1), any::<u8>()], 40),
        inputs in prop::collection::vec(prop::array::uniform5(prop_oneof![0u64..3, any::<u64>()]), 8),
    ) {
        let mut code = program(pieces, &constants);
        let before: Vec<_> = inputs.iter().map(|inputs| run(&code, *inputs)).collect();
        let reached = code.reached();
        code.simplify();
        // Of the registers only the first counts: it is what the end reads.
        for (inputs, before) in inputs.iter().zip(before) {
            let Some(before) = before else { continue };
            prop_assert_eq!(run(&code, *inputs).map(|registers| registers[0]), Some(before[0]));
        }
        for (at, (was, is)) in reached.iter().zip(code.reached()).enumerate() {
            prop_assert!(!was || is || code.insns[at].code == 0 || code.insns[at] == NOP, "nothing leads to {}", at);
        }
    }
}

#[test]
fn constants_become_immediate_and_what_nobody_reads_goes() {
    let insn = |code, regs, off, imm| Insn { code, regs, off, imm };
    let constants = [7u8, 0, 0, 0, 0, 0, 0, 0, 0xff, 0xff, 0xff, 0xff, 0xff, 0, 0, 0];
    let mut code = Code {
        insns: vec![
            // r2 = *(u64 *)7; r1 &= r2
            insn(LD_IMM64, 2, 0, 0),
            insn(0, 0, 0, 0),
            insn(0x79, 0x22, 0, 0),
            insn(ALU64 | AND | X, 0x21, 0, 0),
            // if r2 == 0 goto the end: never, and the end is reached otherwise.
            insn(JMP | 0x10, 2, 3, 0),
            // r3 = *(u64 *)0xff_ffff_ffff; r1 += r3: too large for an immediate value.
            insn(LD_IMM64, 3, 0, 8),
            insn(0, 0, 0, 0),
            insn(0x79, 0x33, 0, 0),
            insn(ALU64 | ADD | X, 0x31, 0, 0),
            insn(ALU64 | MOV | X, 0x10, 0, 0),
            insn(JMP | EXIT, 0, 0, 0),
        ],
        addresses: BTreeMap::from([(0, 0), (5, 8)]),
        foreign: BTreeSet::new(),
        constants: &constants,
        entries: vec![0],
    };
    let before = run(&code, [12, 0, 0, 0, 0]).map(|registers| registers[0]);
    code.simplify();
    let expected = [
        NOP,
        NOP,
        NOP,
        insn(ALU64 | AND, 1, 0, 7),
        NOP,
        insn(LD_IMM64, 3, 0, -1),
        insn(0, 0, 0, 0xff),
        NOP,
        insn(ALU64 | ADD | X, 0x31, 0, 0),
        insn(ALU64 | MOV | X, 0x10, 0, 0),
        insn(JMP | EXIT, 0, 0, 0),
    ];
    assert_eq!(code.insns, expected);
    assert!(code.addresses.is_empty());
    assert_eq!(
        (before, run(&code, [12, 0, 0, 0, 0]).map(|registers| registers[0])),
        (Some(4 + 0xff_ffff_ffff), before)
    );
}

#[test]
fn branches_and_sums_are_those_of_the_kernel() {
    let insn = |code, imm| Insn { code, regs: 1, off: 0, imm };
    let decided = |code, first, imm| {
        let mut known = [None; 16];
        known[1] = Some(Known::Value(first));
        decide(insn(code, imm), &known)
    };
    for (operation, below, same, above) in [
        (0x10, false, true, false),
        (0x20, false, false, true),
        (0x30, false, true, true),
        (0x50, true, false, true),
        (0xa0, true, false, false),
        (0xb0, true, true, false),
    ] {
        let all = [4, 5, 6].map(|first| decided(JMP | operation, first, 5));
        assert_eq!(all, [below, same, above].map(Some), "{operation:#x}");
        // 64 bits, an immediate value with its sign; and 32 bits.
        assert_eq!(decided(JMP | operation, u64::MAX, -1), Some(same));
        assert_eq!(decided(JMP | operation, 5 | 1 << 32, 5), Some(above));
        assert_eq!(decided(JMP32 | operation, 5 | 1 << 32, 5), Some(same));
    }
    assert_eq!([2, 4].map(|bits| decided(JMP | 0x40, 6, bits)), [Some(true); 2]);
    assert_eq!(
        (decided(JMP | 0x40, 6, 9), decided(JMP | 0x60, 6, 9), decided(JMP | JA, 6, 9)),
        (Some(false), None, None)
    );
    for (operation, sum) in [(ADD, 9), (SUB, 3), (MUL, 18), (OR, 7), (AND, 2), (XOR, 5), (LSH, 48), (RSH, 0), (MOV, 3)]
    {
        assert_eq!(calculate(insn(ALU64 | operation, 0), 6, 3), Some(sum), "{operation:#x}");
    }
    assert_eq!(calculate(insn(ALU32 | SUB, 0), 3, 6), Some(0xffff_fffd));
    assert_eq!(calculate(insn(ALU64 | SUB, 0), 3, 6), Some(-3i64 as u64));
}
