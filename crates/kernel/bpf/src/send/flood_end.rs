//! The far end of a flood: answers to sources that do not exist end there, counted; those to the clients pass.

use std::{
    mem::MaybeUninit,
    net::{IpAddr, Ipv4Addr, Ipv6Addr},
    os::fd::AsFd,
};

use libbpf_rs::MapHandle;
use sys::packet::Instruction;

use crate::{
    bytes::word64,
    capture::filter::{Filter, LoadedFilter},
    link::{XdpError, XdpLink, XdpMode},
    program::Program,
    skel::{
        flood_end::{FloodEndSkelBuilder, types::flood_end_count},
        xdp_drop::{XdpDropSkelBuilder, types::drop_count},
    },
};

const PROGRAM: Program = Program("flood_end");

const _: () = assert!(size_of::<flood_end_count>() == 4 * size_of::<u64>());
const _: () = assert!(size_of::<drop_count>() == 2 * size_of::<u64>());

/// The program on an interface, until it is dropped.
#[derive(Debug)]
pub struct FloodEnd {
    _link: XdpLink,
    /// A filter in front of the program, with IPv6.
    _filter: Option<LoadedFilter>,
    counts: MapHandle,
    /// The place of the SYN-ACKs in a CPU's counts, in words.
    syn_acks: usize,
}

impl FloodEnd {
    /// Attaches it natively; packets to `network` with that prefix length pass, and so do those of the other IP version.
    ///
    /// # Errors
    /// See [`XdpLink::attach`]; [`crate::ProgramError::Setting`] for a prefix that is too long.
    pub fn attach(interface: &str, network: IpAddr, prefix_len: u8) -> Result<Self, XdpError> {
        if prefix_len > if network.is_ipv4() { 32 } else { 128 } {
            return Err(XdpError::setting(format!("{network}/{prefix_len} is no prefix")));
        }
        match network {
            IpAddr::V4(network) => Self::ipv4(interface, network, prefix_len),
            IpAddr::V6(network) => Self::ipv6(interface, network, prefix_len),
        }
    }

    /// Packets to others end, SYN-ACK or not.
    fn ipv4(interface: &str, network: Ipv4Addr, prefix_len: u8) -> Result<Self, XdpError> {
        let mask = u32::MAX.checked_shl(32 - u32::from(prefix_len)).unwrap_or(0);
        let mut object = MaybeUninit::uninit();
        let mut open = PROGRAM.open::<FloodEndSkelBuilder>(&mut object)?;
        if let Some(knobs) = open.maps.rodata_data.as_deref_mut() {
            knobs.flood_mask = mask.to_be();
            knobs.flood_network = (network.to_bits() & mask).to_be();
        }
        let skel = PROGRAM.load(open)?;
        let link = XdpLink::attach(skel.progs.flood_end.as_fd(), PROGRAM, interface, XdpMode::Native)?;
        let counts = PROGRAM.map(&skel.maps.flood_counts)?;
        Ok(Self { _link: link, _filter: None, counts, syn_acks: 1 })
    }

    /// SYN-ACKs to others end; all else passes, and there is no more than a few resets of it.
    fn ipv6(interface: &str, network: Ipv6Addr, prefix_len: u8) -> Result<Self, XdpError> {
        let filter = Filter::from_classic(&syn_acks_to_others(network, prefix_len))
            .map_err(|e| XdpError::setting(e.to_string()))?;
        let mut object = MaybeUninit::uninit();
        let skel = PROGRAM.load(PROGRAM.open::<XdpDropSkelBuilder>(&mut object)?)?;
        let filter = filter.load(skel.progs.xdp_drop.as_fd(), true)?;
        let link = XdpLink::attach(filter.entry(), PROGRAM, interface, XdpMode::Native)?;
        let counts = PROGRAM.map(&skel.maps.drop_counts)?;
        Ok(Self { _link: link, _filter: Some(filter), counts, syn_acks: 0 })
    }

    /// SYN-ACKs that ended here so far, over all CPUs.
    pub fn syn_acks(&self) -> Result<u64, XdpError> {
        let counts = PROGRAM.per_cpu(&self.counts, "read the map of counts")?;
        Ok(counts.iter().map(|count| word64(count, 8 * self.syn_acks)).sum())
    }
}

/// Takes SYN-ACKs of TCP right behind an IPv6 header that go to none of `network`: nobody sends extension headers to a source that does
/// not exist. Classic BPF (linux/bpf_common.h), as libpcap would make it.
fn syn_acks_to_others(network: Ipv6Addr, prefix_len: u8) -> Vec<Instruction> {
    const LOAD_WORD: u16 = 0x20;
    const LOAD_HALF: u16 = 0x28;
    const LOAD_BYTE: u16 = 0x30;
    const AND: u16 = 0x54;
    const IF_EQUAL: u16 = 0x15;
    const RETURN: u16 = 0x06;
    const ETHERNET: u32 = 14;
    const SYN_ACK: u32 = 0x12;
    let step = |code, k| Instruction { code, jt: 0, jf: 0, k };
    let mut program = Vec::new();
    // Whatever is not so passes: the jump's way is known at the end.
    for (load, at, mask, wanted) in [
        (LOAD_HALF, 12, None, 0x86dd),
        (LOAD_BYTE, ETHERNET + 6, None, 6),
        (LOAD_BYTE, ETHERNET + 40 + 13, Some(SYN_ACK), SYN_ACK),
    ] {
        program.push(step(load, at));
        program.extend(mask.map(|mask| step(AND, mask)));
        program.push(Instruction { code: IF_EQUAL, jt: 0, jf: u8::MAX, k: wanted });
    }
    let to_others = program.len();
    for (n, word) in (0u32..).zip(network.octets().chunks_exact(4)) {
        let bits = u32::from(prefix_len).saturating_sub(32 * n).min(32);
        let mask = u32::MAX.checked_shl(32 - bits).unwrap_or(0);
        let word = u32::from_be_bytes([word[0], word[1], word[2], word[3]]);
        program.push(step(LOAD_WORD, ETHERNET + 24 + 4 * n));
        program.push(step(AND, mask));
        program.push(Instruction { code: IF_EQUAL, jt: 0, jf: u8::MAX, k: word & mask });
    }
    let pass = program.len();
    program.push(step(RETURN, 0));
    let take = program.len();
    program.push(step(RETURN, u32::MAX));
    for (at, instruction) in program.iter_mut().enumerate() {
        if instruction.code == IF_EQUAL {
            let to = if at < to_others { pass } else { take };
            instruction.jf = (to - at - 1) as u8;
        }
    }
    program
}
