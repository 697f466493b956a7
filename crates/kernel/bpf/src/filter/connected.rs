//! Connections whose SYNs go to the kernel, as bits by a hash (`src/filter/cookie/connected.h`).

use std::{
    io,
    net::{IpAddr, SocketAddr},
    sync::atomic::Ordering,
};

use libbpf_rs::MapHandle;
use sys::map_mmap::SharedMemory;

use super::PROGRAM;
use crate::link::XdpError;

/// CONNECTED_BITS.
const BITS: usize = 1 << 20;
/// The offset of `complete`, behind the bits.
const COMPLETE: usize = BITS / 8;
/// Likewise of `key`.
const KEY: [usize; 2] = [COMPLETE + 8, COMPLETE + 16];
/// Likewise of `withheld`.
const WITHHELD: usize = COMPLETE + 24;
/// More bits than this are too many: SYNs of a flood are looked up in vain.
const CROWDED: f64 = 0.25;

/// The connections that there may be. The kernel program sets bits too, while its rules challenge. It goes by the bits only while they are
/// known to be complete; if not, it looks for each SYN's connection.
#[derive(Debug)]
pub struct Connected(SharedMemory);

impl Connected {
    /// Of the map.
    pub(super) const BYTES: usize = COMPLETE + 64;

    pub(super) fn of(map: &MapHandle) -> Result<Self, XdpError> {
        Ok(Self(PROGRAM.memory(map, Self::BYTES, "map the connections of SYN cookies")?))
    }

    pub fn note(&self, local: SocketAddr, peer: SocketAddr) {
        let bit = bit(local, peer);
        self.0.word(bit / 64 * 8).fetch_or(1 << (bit % 64), Ordering::Relaxed);
    }

    /// True if there may be such a connection.
    pub fn may(&self, local: SocketAddr, peer: SocketAddr) -> bool {
        let bit = bit(local, peer);
        self.0.word(bit / 64 * 8).load(Ordering::Relaxed) >> (bit % 64) & 1 != 0
    }

    /// Notes all connections, which `read` gives as local and peer when it is called: those that are there once rules challenge. Bits of
    /// connections that ended go if there are too many of them.
    ///
    /// # Errors
    /// Those of `read`; then each SYN is looked up.
    pub fn renew<E>(&self, read: impl FnOnce() -> Result<Vec<(SocketAddr, SocketAddr)>, E>) -> Result<(), E> {
        self.doubt();
        if self.is_crowded() {
            self.clear();
        }
        read()?.into_iter().for_each(|(local, peer)| self.note(local, peer));
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

    /// From now on host mode answers no SYN, and each goes to the kernel; or it answers them again. Right cookies of before are taken either way.
    pub fn withhold(&self, answers: bool) {
        self.0.word(WITHHELD).store(answers.into(), Ordering::Release);
    }

    /// From now on there may be connections that the program does not see.
    pub fn doubt(&self) {
        self.0.word(COMPLETE).store(0, Ordering::Release);
    }

    /// True if the program takes what has no bit for no connection, and does not look it up.
    pub fn is_complete(&self) -> bool {
        self.0.word(COMPLETE).load(Ordering::Acquire) != 0
    }

    /// True if so many bits are set, those of connections that ended included, that it is time to [`Connected::renew`] them.
    pub fn is_crowded(&self) -> bool {
        self.filled() > CROWDED
    }

    /// The share of bits that are set, 0 to 1: of SYNs that are looked up although there is no such connection.
    pub fn filled(&self) -> f64 {
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

/// The bit of a connection: connected_bit() of a packet from its peer.
fn bit(local: SocketAddr, peer: SocketAddr) -> usize {
    let hash = mix(mix(folded(peer.ip())) ^ folded(local.ip()));
    (mix(hash ^ (u64::from(peer.port()) << 16 | u64::from(local.port()))) >> 44) as usize
}
