//! The translated filter says of every frame what libpcap's own interpreter says of it.

#![allow(unsafe_code, reason = "libpcap's interpreter and the kernel's run of a bare program")]

use std::os::fd::{AsFd, AsRawFd, FromRawFd, OwnedFd};

use bpf::{Filter, FilterError};
use libbpf_rs::libbpf_sys::{self, bpf_insn};
use pcap::{BpfProgram, Capture, Linktype};
use proptest::{
    prelude::*,
    sample::select,
    test_runner::{Config, TestRunner},
};
use sys::{libpcap::Pcap, packet::Instruction};
use testbed::privileged;

/// The answer of the program behind the filter, so that it is told from XDP_PASS.
const TAKEN: u32 = libbpf_sys::XDP_TX;

const FILTERS: [&str; 19] = [
    "ip",
    "ip6 and udp",
    "tcp port 80",
    "udp and dst port 53 or arp",
    "host 198.18.0.1",
    "src net 198.18.0.0/15 and not tcp",
    "vlan 7 and ip",
    "tcp[tcpflags] & (tcp-syn|tcp-ack) == tcp-syn",
    "ip[2:2] > 576",
    "greater 200 and less 1000",
    "ip proto 17 and ip[6:2] & 0x1fff = 0",
    "ether multicast",
    "icmp[icmptype] = icmp-echo",
    "ip6 host 2001:2::1",
    "portrange 1000-2000",
    "ip and (ip[8] << 2) / 3 > 60 and ip[9] % 5 != 1",
    "tcp and ((ip[2:2] - ((ip[0]&0xf)<<2)) - ((tcp[12]&0xf0)>>2)) != 0",
    "ip[(ip[8] & 15) - 10] > 100",
    "ether[100:4] < 0x20000000 or ip[ip[8]:2] > ip[10:2]",
];

fn compile(text: &str) -> (BpfProgram, Vec<Instruction>) {
    let program = Capture::dead(Linktype::ETHERNET).and_then(|c| c.compile(text, true)).expect(text);
    let instructions = Pcap::of_link_type(1).and_then(|ethernet| ethernet.compile(text)).expect(text);
    (program, instructions)
}

/// A program that says that it was reached.
fn target(frags: bool) -> OwnedFd {
    let insns = [
        bpf_insn { code: 0xb7, imm: TAKEN as i32, ..Default::default() },
        bpf_insn { code: 0x95, ..Default::default() },
    ];
    let mut opts = libbpf_sys::bpf_prog_load_opts {
        sz: size_of::<libbpf_sys::bpf_prog_load_opts>() as _,
        expected_attach_type: libbpf_sys::BPF_XDP,
        prog_flags: if frags { libbpf_sys::BPF_F_XDP_HAS_FRAGS } else { 0 },
        ..Default::default()
    };
    let (name, licence) = (c"ek_target".as_ptr(), c"GPL".as_ptr());
    // SAFETY: the strings end in NUL, and the instructions and the options outlive the call.
    let fd = unsafe {
        libbpf_sys::bpf_prog_load(libbpf_sys::BPF_PROG_TYPE_XDP, name, licence, insns.as_ptr(), 2, &raw mut opts)
    };
    assert!(fd >= 0, "cannot load the target: {fd}");
    // SAFETY: the kernel has just made it for us.
    unsafe { OwnedFd::from_raw_fd(fd) }
}

fn takes(filter: &bpf::LoadedFilter, frame: &[u8]) -> bool {
    let mut opts = libbpf_sys::bpf_test_run_opts {
        sz: size_of::<libbpf_sys::bpf_test_run_opts>() as _,
        data_in: frame.as_ptr().cast(),
        data_size_in: frame.len() as u32,
        repeat: 1,
        ..Default::default()
    };
    // SAFETY: the frame and the options outlive the call, and no output buffer is given.
    let code = unsafe { libbpf_sys::bpf_prog_test_run_opts(filter.entry().as_raw_fd(), &raw mut opts) };
    assert_eq!(code, 0, "test run of {} bytes", frame.len());
    match opts.retval {
        TAKEN => true,
        libbpf_sys::XDP_PASS => false,
        other => panic!("verdict {other}"),
    }
}

/// Frames that look real enough for filters to take some of them, and then cut or garbled.
fn frames(longest: usize) -> impl Strategy<Value = Vec<u8>> {
    let ethernet = select(vec![[0x08, 0x00], [0x86, 0xdd], [0x08, 0x06], [0x81, 0x00]]);
    let inner = select(vec![[0x08, 0x00], [0x86, 0xdd]]);
    let protocol = select(vec![1u8, 6, 17, 58, 47]);
    let port = select(vec![53u16, 80, 1000, 1999, 2001, 65535]);
    let noise = prop::collection::vec(any::<u8>(), 14..longest);
    (noise, ethernet, inner, protocol, port.clone(), port, any::<[u8; 4]>()).prop_map(
        |(mut frame, kind, inner, protocol, source, destination, dice)| {
            let mut put = |at: usize, bytes: &[u8]| {
                for (n, &byte) in bytes.iter().enumerate() {
                    if let Some(place) = frame.get_mut(at + n) {
                        *place = byte;
                    }
                }
            };
            put(12, &kind);
            let mut ip = 14;
            if kind == [0x81, 0x00] {
                put(14, &[dice[0] & 0xf0, 7]);
                put(16, &inner);
                ip = 18;
            }
            let v4 = kind == [0x08, 0x00] || (ip == 18 && inner == [0x08, 0x00]);
            let transport = if v4 {
                let words = 5 + dice[1] % 3;
                put(ip, &[0x40 | words]);
                put(ip + 9, &[protocol]);
                if dice[2] & 3 != 0 {
                    put(ip + 6, &[0, 0]);
                    put(ip + 12, &[198, 18, 0, dice[3] & 1, 198, 19, 0, 1]);
                }
                ip + 4 * words as usize
            } else {
                put(ip, &[0x60]);
                put(ip + 6, &[protocol]);
                put(ip + 8, &[0x20, 1, 0, 2, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, dice[3] & 1]);
                ip + 40
            };
            put(transport, &source.to_be_bytes());
            put(transport + 2, &destination.to_be_bytes());
            if protocol == 1 {
                put(transport, &[8]);
            }
            put(transport + 12, &[0x50, 0x02 | dice[0] & 0x10]);
            frame
        },
    )
}

fn agree(frags: bool, cases: u32, longest: usize) {
    let target = target(frags);
    let filters: Vec<_> = FILTERS
        .iter()
        .map(|text| {
            let (program, insns) = compile(text);
            let filter = Filter::from_classic(&insns).expect(text);
            (text, program, filter.load(target.as_fd(), frags).unwrap_or_else(|e| panic!("{text}: {e}")))
        })
        .collect();
    let taken = std::cell::RefCell::new(vec![0u32; filters.len()]);
    let mut runner = TestRunner::new(Config { cases, failure_persistence: None, ..Config::default() });
    runner
        .run(&frames(longest), |frame| {
            for (n, (text, program, filter)) in filters.iter().enumerate() {
                let expected = program.filter(&frame);
                prop_assert_eq!(takes(filter, &frame), expected, "{} of {} bytes", text, frame.len());
                taken.borrow_mut()[n] += u32::from(expected);
            }
            Ok(())
        })
        .unwrap_or_else(|e| panic!("{e}"));
    for ((text, ..), taken) in filters.iter().zip(taken.into_inner()) {
        assert!(taken > 0 && taken < cases, "`{text}` took {taken} of {cases} frames: it proves nothing");
    }
}

#[test]
fn translated_filters_agree_with_libpcap_on_10000_frames() {
    let Some(()) = privileged() else { return };
    agree(false, 10_000, 1500);
}

#[test]
fn they_agree_where_frames_are_longer_than_a_page() {
    let Some(()) = privileged() else { return };
    agree(true, 1_000, 9000);
}

/// Hand-made programs for what libpcap's compiler does not emit.
#[test]
fn every_instruction_agrees_with_libpcap() {
    let Some(()) = privileged() else { return };
    let target = target(false);
    let frame: Vec<u8> = (0..64).map(|n| n * 3 + 1).collect();
    let shifts_and_divisions = [0x64, 0x6c, 0x74, 0x7c, 0x34, 0x3c, 0x94, 0x9c, 0xa4, 0xac, 0x84, 0x44, 0x4c, 0x2c];
    for code in shifts_and_divisions {
        for x in [0u32, 1, 7, 31, 32, 33, 0xffff_ffff] {
            let text = |k: u32| Instruction { code, jt: 0, jf: 0, k };
            let expected = oracle(code, u32::from_be_bytes([frame[8], frame[9], frame[10], frame[11]]), x);
            let insns = [
                Instruction { code: 0x01, jt: 0, jf: 0, k: x },
                Instruction { code: 0x20, jt: 0, jf: 0, k: 8 },
                Instruction { code: 0x02, jt: 0, jf: 0, k: 3 },
                text(x),
                Instruction { code: 0x61, jt: 0, jf: 0, k: 3 },
                Instruction { code: 0x15, jt: 0, jf: 1, k: expected.unwrap_or(0) },
                Instruction { code: 0x06, jt: 0, jf: 0, k: 65535 },
                Instruction { code: 0x06, jt: 0, jf: 0, k: 0 },
            ];
            let filter = Filter::from_classic(&insns).expect("a filter").load(target.as_fd(), false).expect("loads");
            assert_eq!(takes(&filter, &frame), expected.is_some(), "code {code:#x}, x {x}");
        }
    }
}

#[test]
fn code_that_cannot_be_reached_is_no_obstacle() {
    let Some(()) = privileged() else { return };
    let target = target(false);
    let one = |code, k| Instruction { code, jt: 0, jf: 0, k };
    let always = [one(0x06, 1)];
    let never = [one(0x06, 0)];
    let beyond = [one(0x20, 0x1_0000), one(0x06, 1)];
    let jumped = [one(0x05, 1), one(0x06, 0), one(0x06, 1)];
    for (insns, expected) in [(&always[..], true), (&never, false), (&beyond, false), (&jumped, true)] {
        let filter = Filter::from_classic(insns).expect("a filter").load(target.as_fd(), false).expect("loads");
        assert_eq!(takes(&filter, &[0; 60]), expected, "{insns:?}");
    }
}

/// A op x by the rules of libpcap's interpreter; none where it rejects the frame.
fn oracle(code: u16, a: u32, x: u32) -> Option<u32> {
    match code & 0xf0 {
        0x20 => Some(a.wrapping_mul(x)),
        0x60 => Some(a.checked_shl(x).unwrap_or(0)),
        0x70 => Some(a.checked_shr(x).unwrap_or(0)),
        0x30 => a.checked_div(x),
        0x90 => a.checked_rem(x),
        0xa0 => Some(a ^ x),
        0x40 => Some(a | x),
        0x80 => Some(a.wrapping_neg()),
        _ => unreachable!(),
    }
}

#[test]
fn broken_filters_are_refused() {
    let ret = Instruction { code: 0x06, jt: 0, jf: 0, k: 1 };
    let jump = Instruction { code: 0x15, jt: 9, jf: 0, k: 0 };
    let ancillary = Instruction { code: 0x28, jt: 0, jf: 0, k: 0xffff_f000 };
    let unknown = Instruction { code: 0x1234, jt: 0, jf: 0, k: 0 };
    let error = |insns: &[Instruction]| Filter::from_classic(insns).expect_err("refused");
    assert_eq!(error(&[Instruction { code: 0x05, k: 7, ..ret }, ret]), FilterError::Jump { at: 0 });
    assert_eq!(error(&[]), FilterError::Length(0));
    assert_eq!(error(&[jump, ret]), FilterError::Jump { at: 0 });
    assert_eq!(error(&[Instruction { code: 0x20, ..ret }]), FilterError::Jump { at: 0 });
    assert!(matches!(error(&[ancillary, ret]), FilterError::Instruction { at: 0, .. }));
    assert!(matches!(error(&[unknown, ret]), FilterError::Instruction { at: 0, .. }));
}
