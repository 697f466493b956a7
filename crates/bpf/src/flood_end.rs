//! The far end of a flood: answers to sources that do not exist end there, counted; those to the clients pass.

use std::{mem::MaybeUninit, net::Ipv4Addr, os::fd::AsFd};

use libbpf_rs::{
    MapHandle,
    skel::{OpenSkel, SkelBuilder},
};

use crate::{
    redirect::{number, per_cpu},
    skel::flood_end::{FloodEndSkelBuilder, types::flood_end_count},
    xdp::{XdpError, XdpLink, XdpMode, quiet_libbpf},
};

const PROGRAM: &str = "flood_end";

const _: () = assert!(size_of::<flood_end_count>() == 4 * size_of::<u64>());

/// What came to an interface with [`FloodEnd`].
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct FloodEndCounts {
    /// Frames for the clients, and frames that are not IPv4.
    pub passed: u64,
    /// SYN-ACKs to others.
    pub syn_acks: u64,
    /// Resets to others.
    pub resets: u64,
    /// What else went to others.
    pub others: u64,
}

/// The program on an interface, until it is dropped.
#[derive(Debug)]
pub struct FloodEnd {
    _link: XdpLink,
    counts: MapHandle,
}

impl FloodEnd {
    /// Attaches it natively; IPv4 packets to `network` with that prefix length pass.
    ///
    /// # Errors
    /// See [`XdpLink::attach`]; [`XdpError::Setting`] for a prefix longer than 32.
    pub fn attach(interface: &str, network: Ipv4Addr, prefix_len: u8) -> Result<Self, XdpError> {
        quiet_libbpf();
        if prefix_len > 32 {
            return Err(XdpError::Setting(format!("{network}/{prefix_len} is no prefix of IPv4")));
        }
        let mask = u32::MAX.checked_shl(32 - u32::from(prefix_len)).unwrap_or(0);
        let failed = |source| XdpError::load(PROGRAM, source);
        let mut object = MaybeUninit::uninit();
        let mut open = FloodEndSkelBuilder::default().open(&mut object).map_err(failed)?;
        if let Some(knobs) = open.maps.rodata_data.as_deref_mut() {
            knobs.flood_mask = mask.to_be();
            knobs.flood_network = (network.to_bits() & mask).to_be();
        }
        let skel = open.load().map_err(failed)?;
        let link = XdpLink::attach(skel.progs.flood_end.as_fd(), PROGRAM, interface, XdpMode::Native)?;
        Ok(Self { _link: link, counts: MapHandle::try_from(&skel.maps.flood_counts).map_err(failed)? })
    }

    /// What came so far, over all CPUs.
    ///
    /// # Errors
    /// The kernel does not give the map.
    pub fn counts(&self) -> Result<FloodEndCounts, XdpError> {
        let mut sum = FloodEndCounts::default();
        for count in per_cpu(&self.counts, PROGRAM, "read the map flood_counts")? {
            let word = |n: usize| count.get(8 * n..).map_or(0, number);
            sum.passed += word(0);
            sum.syn_acks += word(1);
            sum.resets += word(2);
            sum.others += word(3);
        }
        Ok(sum)
    }
}
