//! Classic BPF run in this process, for packets of a file and for backends without a filter in the kernel.

use super::Instruction;

/// Words of scratch memory (BPF_MEMWORDS).
const SCRATCH: usize = 16;
/// Instructions after which a program counts as endless: `protochain` has loops.
const STEPS: u32 = 1 << 16;

fn load(data: &[u8], at: u64, size: u16) -> Option<u32> {
    let bytes = data.get(usize::try_from(at).ok()?..)?;
    Some(match u32::from(size) {
        libc::BPF_W => u32::from_be_bytes(bytes.get(..4)?.try_into().ok()?),
        libc::BPF_H => u32::from(u16::from_be_bytes(bytes.get(..2)?.try_into().ok()?)),
        _ => u32::from(*bytes.first()?),
    })
}

fn compute(operation: u32, a: u32, operand: u32) -> Option<u32> {
    Some(match operation {
        libc::BPF_ADD => a.wrapping_add(operand),
        libc::BPF_SUB => a.wrapping_sub(operand),
        libc::BPF_MUL => a.wrapping_mul(operand),
        libc::BPF_DIV => a.checked_div(operand)?,
        libc::BPF_MOD => a.checked_rem(operand)?,
        libc::BPF_AND => a & operand,
        libc::BPF_OR => a | operand,
        libc::BPF_XOR => a ^ operand,
        libc::BPF_LSH => a.checked_shl(operand).unwrap_or(0),
        libc::BPF_RSH => a.checked_shr(operand).unwrap_or(0),
        libc::BPF_NEG => a.wrapping_neg(),
        _ => return None,
    })
}

/// True if a program asks for nothing but bytes and lengths: what the kernel alone knows of a packet (its direction, its interface, a tag that was
/// taken out) lies at offsets below zero.
pub fn reads_packet_only(program: &[Instruction]) -> bool {
    let asks_kernel = |i: &Instruction| {
        let code = u32::from(i.code);
        let loads =
            matches!(code & 0x07, libc::BPF_LD | libc::BPF_LDX) && matches!(code & 0xe0, libc::BPF_ABS | libc::BPF_IND);
        loads && i.k.cast_signed() < 0
    };
    !program.iter().any(asks_kernel)
}

/// True if the program keeps a packet of `wire_len` bytes of which `data` is there. A load beyond the data, a division by zero and what is no
/// instruction reject it, as in libpcap.
pub fn accepts(program: &[Instruction], data: &[u8], wire_len: u32) -> bool {
    run(program, data, wire_len).is_some_and(|bytes| bytes != 0)
}

fn run(program: &[Instruction], data: &[u8], wire_len: u32) -> Option<u32> {
    let (mut a, mut x, mut scratch, mut at) = (0u32, 0u32, [0u32; SCRATCH], 0usize);
    for _ in 0..STEPS {
        let Instruction { code, jt, jf, k } = *program.get(at)?;
        at += 1;
        let code = u32::from(code);
        let (class, mode, size) = (code & 0x07, code & 0xe0, (code & 0x18) as u16);
        let operand = if code & libc::BPF_X != 0 { x } else { k };
        match class {
            libc::BPF_LD | libc::BPF_LDX => {
                let value = match mode {
                    libc::BPF_IMM => k,
                    libc::BPF_ABS => load(data, u64::from(k), size)?,
                    libc::BPF_IND => load(data, u64::from(x) + u64::from(k), size)?,
                    libc::BPF_MEM => *scratch.get(k as usize)?,
                    libc::BPF_LEN => wire_len,
                    libc::BPF_MSH => (load(data, u64::from(k), libc::BPF_B as u16)? & 0x0f) << 2,
                    _ => return None,
                };
                *(if class == libc::BPF_LD { &mut a } else { &mut x }) = value;
            }
            libc::BPF_ST => *scratch.get_mut(k as usize)? = a,
            libc::BPF_STX => *scratch.get_mut(k as usize)? = x,
            libc::BPF_ALU => a = compute(code & 0xf0, a, operand)?,
            libc::BPF_JMP => {
                let taken = match code & 0xf0 {
                    // A loop jumps back: the distance has a sign.
                    libc::BPF_JA => {
                        at = at.checked_add_signed(isize::try_from(k as i32).ok()?)?;
                        continue;
                    }
                    libc::BPF_JEQ => a == operand,
                    libc::BPF_JGT => a > operand,
                    libc::BPF_JGE => a >= operand,
                    libc::BPF_JSET => a & operand != 0,
                    _ => return None,
                };
                at += usize::from(if taken { jt } else { jf });
            }
            libc::BPF_RET => return Some(if code & 0x18 == libc::BPF_A { a } else { k }),
            // BPF_MISC: BPF_TXA and BPF_TAX.
            _ if code & 0xf8 == 0x80 => a = x,
            _ => x = a,
        }
    }
    None
}

#[cfg(test)]
mod tests {
    use pcap::{Capture, Linktype};
    use proptest::prelude::*;

    use super::*;
    use crate::libpcap::Pcap;

    fn compiled(filter: &str) -> Vec<Instruction> {
        Pcap::of_link_type(1).and_then(|ethernet| ethernet.compile(filter)).expect(filter)
    }

    #[test]
    fn what_the_kernel_alone_knows_is_distinguished_from_bytes() {
        let asks = |filter: &str| reads_packet_only(&compiled(filter));
        assert_eq!((asks("vlan 5 and udp"), asks("outbound and udp"), asks("ip6 protochain 6")), (true, false, true));
    }

    #[test]
    fn a_program_without_an_end_ends() {
        // ja -1, as libpcap writes its loops.
        let endless = [Instruction { code: 5, jt: 0, jf: 0, k: u32::MAX }];
        assert!(!accepts(&endless, &[0; 60], 60));
    }

    const FILTERS: [&str; 12] = [
        "udp port 53",
        "tcp[tcpflags] & tcp-syn != 0",
        "ip6 protochain 6",
        "vlan 100 and udp",
        "greater 40",
        "less 30",
        "len > 33",
        "ip[6:2] & 0x1fff != 0",
        "ether[0] & 1 != 0 and not ip6",
        "mpls 5",
        "src net 198.18.0.0/15",
        "udp[4:2] * 2 > 50 or ip[8] / 3 = 2",
    ];

    proptest! {
        /// On whole packets libpcap's own interpreter is the oracle.
        #[test]
        fn whole_packets_are_judged_as_by_libpcap(
            head in prop::sample::select(vec![[8u8, 0, 0x45], [0x86, 0xdd, 0x60], [0x81, 0, 0], [0x88, 0x47, 0]]),
            mut data in prop::collection::vec(prop_oneof![Just(0u8), Just(6), Just(17), Just(53), any::<u8>()], 0..80),
        ) {
            if data.len() > 15 {
                data[12..15].copy_from_slice(&head);
            }
            for filter in FILTERS {
                let theirs = Capture::dead(Linktype::ETHERNET).unwrap().compile(filter, true).unwrap();
                prop_assert_eq!(accepts(&compiled(filter), &data, data.len() as u32), theirs.filter(&data), "{}", filter);
            }
        }
    }

    #[test]
    fn a_cut_packet_has_its_length_on_the_wire() {
        for (filter, keeps_it) in [("greater 1000", true), ("less 200", false), ("len > 1000", true), ("udp", false)] {
            assert_eq!(accepts(&compiled(filter), &[0; 12], 1400), keeps_it, "{filter}");
        }
    }
}
