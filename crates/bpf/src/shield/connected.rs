//! Connections whose SYNs go to the kernel, as bits by a hash (`src/bpf/shield_connected.h`).

use std::{
    net::{IpAddr, SocketAddr},
    os::fd::AsFd,
    sync::atomic::Ordering,
};

use libbpf_rs::MapHandle;
use sys::map_mmap::SharedMemory;

use super::PROGRAM;
use crate::xdp::XdpError;

/// CONNECTED_BITS.
const BITS: usize = 1 << 20;

/// Which connections there may be. The kernel program sets bits too, from the moment that it is attached.
#[derive(Debug)]
pub struct Connected(SharedMemory);

impl Connected {
    /// Of the map.
    pub(super) const BYTES: usize = BITS / 8;

    pub(super) fn of(map: &MapHandle) -> Result<Self, XdpError> {
        let failed =
            |source| XdpError::Map { program: PROGRAM, operation: "map the connections of SYN cookies", source };
        SharedMemory::of(map.as_fd(), Self::BYTES, 0).map(Self).map_err(failed)
    }

    /// Notes that there is a connection.
    pub fn note(&self, local: SocketAddr, peer: SocketAddr) {
        let bit = bit(local, peer);
        self.0.word(bit / 64 * 8).fetch_or(1 << (bit % 64), Ordering::Relaxed);
    }

    /// Whether there may be such a connection.
    pub fn may(&self, local: SocketAddr, peer: SocketAddr) -> bool {
        let bit = bit(local, peer);
        self.0.word(bit / 64 * 8).load(Ordering::Relaxed) >> (bit % 64) & 1 != 0
    }

    /// The share of SYNs that have to be looked up although there is no such connection: of the bits that are set, 0 to 1. Bits of connections that ended
    /// stay.
    pub fn filled(&self) -> f64 {
        let ones = |word| u64::from(self.0.word(word * 8).load(Ordering::Relaxed).count_ones());
        (0..BITS / 64).map(ones).sum::<u64>() as f64 / BITS as f64
    }

    /// Forgets all. Those that there are have to be noted right after.
    pub fn clear(&self) {
        (0..BITS / 64).for_each(|word| self.0.word(word * 8).store(0, Ordering::Relaxed));
    }
}

fn mix(value: u64) -> u64 {
    let value = value.wrapping_mul(0x9e37_79b9_7f4a_7c15);
    value ^ value >> 32
}

/// An address, as the program folds it.
fn folded(address: IpAddr) -> u64 {
    let word = |bytes: &[u8], at: usize| bytes[at..].first_chunk().map_or(0, |b| u64::from(u32::from_ne_bytes(*b)));
    match address.to_canonical() {
        IpAddr::V4(a) => word(&a.octets(), 0),
        IpAddr::V6(a) => {
            let bytes = a.octets();
            mix(word(&bytes, 4) << 32 | word(&bytes, 0)) ^ (word(&bytes, 12) << 32 | word(&bytes, 8))
        }
    }
}

/// The bit of a connection: connected_bit() of a packet from its peer.
fn bit(local: SocketAddr, peer: SocketAddr) -> usize {
    let hash = mix(mix(folded(peer.ip())) ^ folded(local.ip()));
    (mix(hash ^ (u64::from(peer.port()) << 16 | u64::from(local.port()))) >> 44) as usize
}
