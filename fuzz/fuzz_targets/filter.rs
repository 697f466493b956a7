//! Classic filters: any program is translated or refused.

#![cfg_attr(feature = "run", no_main)]

use bpf::Filter;
use libfuzzer_sys::fuzz_target;
use sys::packet::Instruction;

fuzz_target!(|bytes: &[u8]| {
    let instruction = |b: &[u8]| Instruction {
        code: u16::from_ne_bytes([b[0], b[1]]),
        jt: b[2],
        jf: b[3],
        k: u32::from_ne_bytes([b[4], b[5], b[6], b[7]]),
    };
    let program: Vec<Instruction> = bytes.chunks_exact(8).map(instruction).collect();
    let _ = Filter::from_classic(&program);
});

#[cfg(not(feature = "run"))]
fn main() {}
