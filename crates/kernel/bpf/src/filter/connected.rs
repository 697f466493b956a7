//! A Bloom filter of the connections whose SYNs go to the kernel (`src/filter/cookie/connected.h`).

use std::{
    io,
    net::{IpAddr, SocketAddr},
    sync::atomic::Ordering,
};

use libbpf_rs::MapHandle;
use sys::map_mmap::SharedMemory;

use super::PROGRAM;
use crate::link::XdpError;

/// CONNECTED_BITS: bits of the filter.
const BITS: usize = 1 << 20;
/// The offset of `complete`, behind the bits.
const COMPLETE: usize = BITS / 8;
/// The offsets of both halves of `key`.
const KEY: [usize; 2] = [COMPLETE + 8, COMPLETE + 16];
/// The offset of `withheld`.
const WITHHELD: usize = COMPLETE + 24;
/// Share of set bits above which too many SYNs of a flood are looked up in vain.
const FILL_RATIO_MAX: f64 = 0.25;

/// The filter. The kernel program sets bits too, while its rules challenge, and goes by them only while they are
/// known to be complete; if not, it looks for each SYN's connection.
#[derive(Debug)]
pub struct Connected(SharedMemory);

impl Connected {
    /// Length of the map's value.
    pub(super) const BYTES: usize = COMPLETE + 64;

    pub(super) fn of(map: &MapHandle) -> Result<Self, XdpError> {
        Ok(Self(PROGRAM.memory(map, Self::BYTES, "map the connections of SYN cookies")?))
    }

    pub fn insert(&self, local: SocketAddr, peer: SocketAddr) {
        let bit = bit(local, peer);
        self.0.word(bit / 64 * 8).fetch_or(1 << (bit % 64), Ordering::Relaxed);
    }

    /// True if there may be such a connection.
    pub fn may_contain(&self, local: SocketAddr, peer: SocketAddr) -> bool {
        let bit = bit(local, peer);
        self.0.word(bit / 64 * 8).load(Ordering::Relaxed) >> (bit % 64) & 1 != 0
    }

    /// Inserts all connections that `read` gives as local and peer: those that exist once rules challenge. Bits of
    /// connections that ended go if there are too many of them.
    pub fn rebuild<E>(&self, read: impl FnOnce() -> Result<Vec<(SocketAddr, SocketAddr)>, E>) -> Result<(), E> {
        self.mark_incomplete();
        if self.is_saturated() {
            self.clear();
        }
        read()?.into_iter().for_each(|(local, peer)| self.insert(local, peer));
        self.0.word(COMPLETE).store(1, Ordering::Release);
        Ok(())
    }

    /// The key of cookies, the same for whoever has the map; made at random the first time.
    pub fn cookie_key(&self) -> io::Result<[u64; 2]> {
        let mut key = [0; 2];
        for (part, at) in key.iter_mut().zip(KEY) {
            let random = getrandom::u64()?.max(1);
            // Another process may be at it too.
            let exchanged = self.0.word(at).compare_exchange(0, random, Ordering::Relaxed, Ordering::Relaxed);
            *part = exchanged.map_or_else(|there| there, |_| random);
        }
        Ok(key)
    }

    /// Withholds host mode's answers, so that each SYN goes to the kernel. Valid cookies are accepted either way.
    pub fn set_withheld(&self, withheld: bool) {
        self.0.word(WITHHELD).store(withheld.into(), Ordering::Release);
    }

    /// Marks the filter incomplete: connections may exist that have no bit.
    pub fn mark_incomplete(&self) {
        self.0.word(COMPLETE).store(0, Ordering::Release);
    }

    /// True if what has no bit is no connection, so that the program need not look it up.
    pub fn is_complete(&self) -> bool {
        self.0.word(COMPLETE).load(Ordering::Acquire) != 0
    }

    /// True if so many bits are set, also by ended connections, that the filter is to be rebuilt.
    pub fn is_saturated(&self) -> bool {
        self.fill_ratio() > FILL_RATIO_MAX
    }

    /// Share of bits that are set, 0 to 1: the share of SYNs looked up in vain.
    pub fn fill_ratio(&self) -> f64 {
        let ones = |word| u64::from(self.0.word(word * 8).load(Ordering::Relaxed).count_ones());
        (0..BITS / 64).map(ones).sum::<u64>() as f64 / BITS as f64
    }

    pub fn clear(&self) {
        (0..BITS / 64).for_each(|word| self.0.word(word * 8).store(0, Ordering::Relaxed));
    }
}

fn mix(value: u64) -> u64 {
    let value = value.wrapping_mul(0x9e37_79b9_7f4a_7c15);
    value ^ value >> 32
}

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

/// Bit of a connection: connected_bit() of a packet from its peer.
fn bit(local: SocketAddr, peer: SocketAddr) -> usize {
    let hash = mix(mix(folded(peer.ip())) ^ folded(local.ip()));
    (mix(hash ^ (u64::from(peer.port()) << 16 | u64::from(local.port()))) >> 44) as usize
}
