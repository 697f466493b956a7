//! Questions and settings of network drivers through the ethtool ioctl (include/uapi/linux/ethtool.h).
//!
//! A question that the driver does not answer is `Ok(None)`: most drivers lack some of them. The handle belongs to the
//! network namespace of the thread that opened it.

use std::{ffi::c_void, io, num::NonZeroUsize, os::fd::AsRawFd, os::fd::OwnedFd, ptr::NonNull};

use nix::sys::{
    mman::{self, MapFlags, ProtFlags},
    socket::{self, AddressFamily, SockFlag, SockType},
};
use serde::{Deserialize, Serialize};

use crate::interface::NoInterface;

const GDRVINFO: u32 = 0x03;
const GCOALESCE: u32 = 0x0e;
const SCOALESCE: u32 = 0x0f;
const GRINGPARAM: u32 = 0x10;
const SRINGPARAM: u32 = 0x11;
const GPAUSEPARAM: u32 = 0x12;
const GSTRINGS: u32 = 0x1b;
const GSTATS: u32 = 0x1d;
const GFEATURES: u32 = 0x3a;
const SFEATURES: u32 = 0x3b;
const GCHANNELS: u32 = 0x3c;
const SCHANNELS: u32 = 0x3d;
const GRSSH: u32 = 0x46;
const SRSSH: u32 = 0x47;

const SS_STATS: u32 = 1;
const SS_FEATURES: u32 = 4;
const SS_RSS_HASH_FUNCS: u32 = 5;
/// The length of every string in a string set.
const STRING_LEN: usize = 32;
/// SFEATURES: some of the requested bits cannot be changed.
const F_UNSUPPORTED: i32 = 1;
/// The room for one request and its answer: 32,000 strings.
const ARENA_BYTES: usize = 1 << 20;

#[derive(Debug, thiserror::Error)]
pub enum EthtoolError {
    #[error("cannot prepare ethtool requests: {0}")]
    Open(io::Error),
    #[error(transparent)]
    NoInterface(#[from] NoInterface),
    #[error("{iface}: the driver cannot change `{feature}`")]
    Fixed { iface: String, feature: String },
    #[error("{iface}: the kernel has no feature `{feature}` (`ethtool -k {iface}` lists them)")]
    NoFeature { iface: String, feature: String },
    #[error("{iface}: cannot {operation}: {source}{}", hint(source))]
    Refused { iface: String, operation: &'static str, source: io::Error },
}

fn hint(source: &io::Error) -> &'static str {
    match source.raw_os_error() {
        Some(libc::EPERM) => " (it takes the capability CAP_NET_ADMIN: run as root)",
        Some(libc::EINVAL) => " (beyond what the driver takes)",
        _ => "",
    }
}

model::classified!(EthtoolError: Lacking, Usage: NoFeature);

/// The driver and its place (`ethtool -i`).
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct DriverInfo {
    /// The driver, such as `ixgbe`.
    pub driver: String,
    /// Its version; for drivers of the kernel itself the kernel's release.
    pub version: String,
    pub firmware: String,
    /// The bus address, such as `0000:03:00.0`; empty for virtual devices.
    pub bus: String,
}

/// Ring sizes in descriptors (`ethtool -g`).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct Rings {
    pub rx: u32,
    pub rx_max: u32,
    pub tx: u32,
    pub tx_max: u32,
}

/// Channel counts (`ethtool -l`).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct Channels {
    pub rx: u32,
    pub rx_max: u32,
    pub tx: u32,
    pub tx_max: u32,
    pub combined: u32,
    pub combined_max: u32,
}

/// Interrupt coalescing (`ethtool -c`). The ioctl says 0 for a field that the driver lacks.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct CoalesceParam {
    /// Microseconds to wait after a received frame.
    pub rx_usecs: u32,
    /// Frames to wait for.
    pub rx_frames: u32,
    /// Microseconds to wait after a transmitted frame.
    pub tx_usecs: u32,
    /// Frames to wait for.
    pub tx_frames: u32,
    pub adaptive_rx: bool,
    pub adaptive_tx: bool,
}

/// Flow control by pause frames (`ethtool -a`).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct PauseParam {
    /// Negotiated with the peer.
    pub autoneg: bool,
    /// Pause frames of the peer are obeyed.
    pub rx: bool,
    /// Pause frames are sent when the ring runs full.
    pub tx: bool,
}

/// A feature of an interface (`ethtool -k`), by the kernel's name for it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FeatureState {
    /// The kernel's name, such as `rx-gro`.
    pub name: String,
    pub on: bool,
    /// True if it cannot be changed.
    pub fixed: bool,
}

/// Receive-side scaling (`ethtool -x`).
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct Rss {
    /// The queue for each slot of the hash; empty when the driver does not show it.
    pub indirection: Vec<u32>,
    /// The hash key; empty when the driver does not show it.
    pub key: Vec<u8>,
    /// The hash function, such as `toeplitz`.
    pub function: Option<String>,
}

/// Asks and sets by ethtool ioctls.
#[derive(Debug)]
pub struct Ethtool {
    socket: OwnedFd,
    arena: Arena,
}

impl Ethtool {
    /// Opens a handle for the network namespace of this thread.
    ///
    /// # Errors
    /// When the process has no file descriptor or memory left.
    pub fn open() -> Result<Self, EthtoolError> {
        let open = |e: nix::Error| EthtoolError::Open(e.into());
        let socket = socket::socket(AddressFamily::Inet, SockType::Datagram, SockFlag::SOCK_CLOEXEC, None)
            // A kernel without IPv4 still has netlink sockets, which take device ioctls as well.
            .or_else(|_| socket::socket(AddressFamily::Netlink, SockType::Raw, SockFlag::SOCK_CLOEXEC, None))
            .map_err(open)?;
        Ok(Self { socket, arena: Arena::new().map_err(open)? })
    }

    /// The driver and its place.
    pub fn driver(&mut self, iface: &str) -> Result<Option<DriverInfo>, EthtoolError> {
        let answered = self.ask(iface, "ask for the driver", &[GDRVINFO], 196)?;
        let text = |at| text(&self.arena.bytes()[at..at + STRING_LEN]);
        Ok(answered.map(|_| DriverInfo { driver: text(4), version: text(36), firmware: text(68), bus: text(100) }))
    }

    pub fn rings(&mut self, iface: &str) -> Result<Option<Rings>, EthtoolError> {
        let answered = self.ask(iface, "ask for the ring sizes", &[GRINGPARAM], 36)?;
        let w = |i| self.arena.word(i);
        Ok(answered.map(|_| Rings { rx_max: w(1), tx_max: w(4), rx: w(5), tx: w(8) }))
    }

    /// Sets the ring sizes (the maxima are passed over). The link may go down for a moment.
    ///
    /// # Errors
    /// As [`Ethtool::driver`]; when the driver refuses.
    pub fn set_rings(&mut self, iface: &str, rings: Rings) -> Result<(), EthtoolError> {
        const OPERATION: &str = "set the ring sizes";
        self.must(iface, OPERATION, &[GRINGPARAM], 36)?;
        self.arena.put(&[(0, SRINGPARAM), (5, rings.rx), (8, rings.tx)]);
        self.again(iface, OPERATION).map(drop)
    }

    pub fn channels(&mut self, iface: &str) -> Result<Option<Channels>, EthtoolError> {
        let answered = self.ask(iface, "ask for the channel counts", &[GCHANNELS], 36)?;
        let w = |i| self.arena.word(i);
        Ok(answered.map(|_| Channels {
            rx_max: w(1),
            tx_max: w(2),
            combined_max: w(4),
            rx: w(5),
            tx: w(6),
            combined: w(8),
        }))
    }

    /// Sets the channel counts (the maxima are passed over). The link may go down for a moment.
    ///
    /// # Errors
    /// As [`Ethtool::driver`]; when the driver refuses.
    pub fn set_channels(&mut self, iface: &str, channels: Channels) -> Result<(), EthtoolError> {
        const OPERATION: &str = "set the channel counts";
        self.must(iface, OPERATION, &[GCHANNELS], 36)?;
        self.arena.put(&[(0, SCHANNELS), (5, channels.rx), (6, channels.tx), (8, channels.combined)]);
        self.again(iface, OPERATION).map(drop)
    }

    pub fn coalesce(&mut self, iface: &str) -> Result<Option<CoalesceParam>, EthtoolError> {
        let answered = self.ask(iface, "ask for interrupt coalescing", &[GCOALESCE], 92)?;
        let w = |i| self.arena.word(i);
        Ok(answered.map(|_| CoalesceParam {
            rx_usecs: w(1),
            rx_frames: w(2),
            tx_usecs: w(5),
            tx_frames: w(6),
            adaptive_rx: w(10) != 0,
            adaptive_tx: w(11) != 0,
        }))
    }

    /// Sets interrupt coalescing; what [`CoalesceParam`] does not name stays as it is.
    ///
    /// # Errors
    /// As [`Ethtool::driver`]; when the driver refuses.
    pub fn set_coalesce(&mut self, iface: &str, c: CoalesceParam) -> Result<(), EthtoolError> {
        const OPERATION: &str = "set interrupt coalescing";
        self.must(iface, OPERATION, &[GCOALESCE], 92)?;
        self.arena.put(&[
            (0, SCOALESCE),
            (1, c.rx_usecs),
            (2, c.rx_frames),
            (5, c.tx_usecs),
            (6, c.tx_frames),
            (10, u32::from(c.adaptive_rx)),
            (11, u32::from(c.adaptive_tx)),
        ]);
        self.again(iface, OPERATION).map(drop)
    }

    /// Flow control by pause frames.
    pub fn pause(&mut self, iface: &str) -> Result<Option<PauseParam>, EthtoolError> {
        let answered = self.ask(iface, "ask for pause frames", &[GPAUSEPARAM], 16)?;
        let on = |i| self.arena.word(i) != 0;
        Ok(answered.map(|_| PauseParam { autoneg: on(1), rx: on(2), tx: on(3) }))
    }

    /// Every feature, in the kernel's order.
    pub fn features(&mut self, iface: &str) -> Result<Option<Vec<FeatureState>>, EthtoolError> {
        let Some(names) = self.strings(iface, SS_FEATURES)? else { return Ok(None) };
        let blocks = names.len().div_ceil(32);
        let answered = self.ask(iface, "ask for the features", &[GFEATURES, blocks as u32], 8 + blocks * 16)?;
        let feature = |(bit, name): (usize, String)| {
            let block = 2 + bit / 32 * 4;
            let is = |word: usize| self.arena.word(block + word) >> (bit % 32) & 1 == 1;
            let (available, active, never_changed) = (is(0), is(2), is(3));
            FeatureState { name, on: active, fixed: !available || never_changed }
        };
        Ok(answered.map(|_| names.into_iter().enumerate().filter(|(_, n)| !n.is_empty()).map(feature).collect()))
    }

    /// Turns a feature on or off, by the kernel's name for it.
    ///
    /// # Errors
    /// As [`Ethtool::driver`]; when there is no such feature or the driver cannot change it.
    pub fn set_feature(&mut self, iface: &str, feature: &str, on: bool) -> Result<(), EthtoolError> {
        let names = self.strings(iface, SS_FEATURES)?.unwrap_or_default();
        let Some(bit) = names.iter().position(|name| name == feature) else {
            return Err(EthtoolError::NoFeature { iface: iface.to_owned(), feature: feature.to_owned() });
        };
        let blocks = names.len().div_ceil(32);
        let mut request = vec![0; 2 + blocks * 2];
        request[0] = SFEATURES;
        request[1] = blocks as u32;
        request[2 + bit / 32 * 2] = 1 << (bit % 32);
        request[3 + bit / 32 * 2] = u32::from(on) << (bit % 32);
        let flags = self.must(iface, "set a feature", &request, request.len() * 4)?;
        if flags & F_UNSUPPORTED != 0 {
            return Err(EthtoolError::Fixed { iface: iface.to_owned(), feature: feature.to_owned() });
        }
        Ok(())
    }

    /// The RSS table, key and hash function.
    pub fn rss(&mut self, iface: &str) -> Result<Option<Rss>, EthtoolError> {
        const OPERATION: &str = "ask for the RSS table";
        if self.ask(iface, OPERATION, &[GRSSH], 28)?.is_none() {
            return Ok(None);
        }
        let limit = ARENA_BYTES / 16;
        let (slots, key_len) = ((self.arena.word(2) as usize).min(limit), (self.arena.word(3) as usize).min(limit));
        if slots + key_len == 0 {
            let functions = self.arena.bytes()[16];
            return Ok(Some(Rss { function: self.hash_function(iface, functions)?, ..Rss::default() }));
        }
        let len = 28 + slots * 4 + key_len;
        if self.ask(iface, OPERATION, &[GRSSH, 0, slots as u32, key_len as u32], len)?.is_none() {
            return Ok(None);
        }
        let indirection = (0..slots).map(|slot| self.arena.word(7 + slot)).collect();
        let key = self.arena.bytes()[28 + slots * 4..len].to_vec();
        let functions = self.arena.bytes()[16];
        Ok(Some(Rss { indirection, key, function: self.hash_function(iface, functions)? }))
    }

    /// Sets the RSS table: the queue for each slot, as many as the driver has slots.
    ///
    /// # Errors
    /// As [`Ethtool::driver`]; when the length does not fit or a queue does not exist.
    pub fn set_rss_indir(&mut self, iface: &str, indirection: &[u32]) -> Result<(), EthtoolError> {
        // Key length 0 and function 0: both stay as they are.
        let mut request = vec![SRSSH, 0, indirection.len() as u32, 0, 0, 0, 0];
        request.extend_from_slice(indirection);
        self.must(iface, "set the RSS table", &request, request.len() * 4).map(drop)
    }

    /// The names of the driver's own counters, in the order of their values.
    pub fn stat_names(&mut self, iface: &str) -> Result<Option<Vec<String>>, EthtoolError> {
        self.strings(iface, SS_STATS)
    }

    /// The values of the driver's own counters, written over `values`. False when the driver has none. Their number
    /// changes with the channels: compare it with the names'.
    pub fn stat_values(&mut self, iface: &str, values: &mut Vec<u64>) -> Result<bool, EthtoolError> {
        values.clear();
        // As for `strings`: a count of 0 asks for all.
        if self.ask(iface, "ask for the driver's counters", &[GSTATS, 0], 8)?.is_none() {
            return Ok(false);
        }
        let count = (self.arena.word(1) as usize).min((ARENA_BYTES - 8) / 8);
        let bytes = &self.arena.bytes()[8..8 + count * 8];
        values.extend(bytes.chunks_exact(8).map(|b| u64::from_ne_bytes(b.try_into().expect("chunks of eight"))));
        Ok(true)
    }

    fn hash_function(&mut self, iface: &str, functions: u8) -> Result<Option<String>, EthtoolError> {
        let names = self.strings(iface, SS_RSS_HASH_FUNCS)?.unwrap_or_default();
        Ok(names.into_iter().enumerate().find(|(bit, _)| *bit < 8 && functions >> bit & 1 == 1).map(|(_, name)| name))
    }

    /// A string set. The answer says itself how many strings it holds.
    fn strings(&mut self, iface: &str, set: u32) -> Result<Option<Vec<String>>, EthtoolError> {
        // A length of 0 asks for all: kernels either pass over the length or compare one that is not 0 with their own.
        if self.ask(iface, "ask for names", &[GSTRINGS, set, 0], 12)?.is_none() {
            return Ok(None);
        }
        let count = (self.arena.word(2) as usize).min((ARENA_BYTES - 12) / STRING_LEN);
        let names = self.arena.bytes()[12..12 + count * STRING_LEN].chunks_exact(STRING_LEN).map(text).collect();
        Ok(Some(names))
    }

    /// Writes a request into the arena and makes it; none when the driver does not have it. `len` is how much of the
    /// arena to clear.
    fn ask(
        &mut self,
        iface: &str,
        operation: &'static str,
        request: &[u32],
        len: usize,
    ) -> Result<Option<i32>, EthtoolError> {
        if request.len() * 4 > ARENA_BYTES {
            let source = io::Error::from_raw_os_error(libc::EINVAL);
            return Err(EthtoolError::Refused { iface: iface.to_owned(), operation, source });
        }
        self.arena.clear(len.max(request.len() * 4));
        for (index, word) in request.iter().enumerate() {
            self.arena.put(&[(index, *word)]);
        }
        match self.again(iface, operation) {
            Ok(answer) => Ok(Some(answer)),
            Err(EthtoolError::Refused { source, .. }) if source.raw_os_error() == Some(libc::EOPNOTSUPP) => Ok(None),
            Err(e) => Err(e),
        }
    }

    fn must(&mut self, iface: &str, operation: &'static str, request: &[u32], len: usize) -> Result<i32, EthtoolError> {
        self.ask(iface, operation, request, len)?.ok_or_else(|| EthtoolError::Refused {
            iface: iface.to_owned(),
            operation,
            source: io::Error::from_raw_os_error(libc::EOPNOTSUPP),
        })
    }

    fn again(&mut self, iface: &str, operation: &'static str) -> Result<i32, EthtoolError> {
        let no_interface = || NoInterface::here(iface).into();
        if iface.is_empty() || iface.len() >= libc::IFNAMSIZ || iface.contains('\0') {
            return Err(no_interface());
        }
        // SAFETY: all bits zero is a valid ifreq: an array of characters and a union of plain data.
        let mut request: libc::ifreq = unsafe { std::mem::zeroed() };
        for (to, from) in request.ifr_name.iter_mut().zip(iface.bytes()) {
            *to = from as libc::c_char;
        }
        request.ifr_ifru.ifru_data = self.arena.start.as_ptr().cast();
        // SAFETY: SIOCETHTOOL reads an ifreq, which `request` is, and then reads and writes forwards from ifru_data. That
        // is the start of the arena, which is borrowed mutably here, so that no reference into it lives. However much the
        // kernel writes (the counts can grow between two requests), it meets the inaccessible page behind the arena
        // before any other memory, and answers EFAULT. The arena holds plain bytes: any content is valid.
        let answer = unsafe { libc::ioctl(self.socket.as_raw_fd(), libc::SIOCETHTOOL as _, &raw mut request) };
        if answer >= 0 {
            return Ok(answer);
        }
        let source = io::Error::last_os_error();
        match source.raw_os_error() {
            Some(libc::ENODEV) => Err(no_interface()),
            _ => Err(EthtoolError::Refused { iface: iface.to_owned(), operation, source }),
        }
    }
}

/// Memory for one request, with an inaccessible page behind it.
#[derive(Debug)]
struct Arena {
    start: NonNull<c_void>,
}

// SAFETY: the mapping belongs to this value alone and is reached only through its borrows.
unsafe impl Send for Arena {}

impl Arena {
    fn len_with_guard() -> NonZeroUsize {
        // 64 KiB is a multiple of every page size in use.
        NonZeroUsize::new(ARENA_BYTES + (1 << 16)).expect("a positive constant")
    }

    fn new() -> nix::Result<Self> {
        let flags = MapFlags::MAP_PRIVATE | MapFlags::MAP_NORESERVE;
        // SAFETY: a fresh anonymous mapping at an address of the kernel's choice touches nobody's memory.
        let start = unsafe { mman::mmap_anonymous(None, Self::len_with_guard(), ProtFlags::PROT_NONE, flags)? };
        let arena = Self { start };
        // SAFETY: the range is the first part of the mapping just made, which nothing refers to yet.
        unsafe { mman::mprotect(start, ARENA_BYTES, ProtFlags::PROT_READ | ProtFlags::PROT_WRITE)? };
        Ok(arena)
    }

    fn bytes(&self) -> &[u8] {
        // SAFETY: the first ARENA_BYTES are mapped readable and zero or written; the borrow of self keeps them from
        // being written or unmapped.
        unsafe { std::slice::from_raw_parts(self.start.as_ptr().cast(), ARENA_BYTES) }
    }

    fn bytes_mut(&mut self) -> &mut [u8] {
        // SAFETY: as in `bytes`, writable too; the mutable borrow of self makes it the only reference.
        unsafe { std::slice::from_raw_parts_mut(self.start.as_ptr().cast(), ARENA_BYTES) }
    }

    fn clear(&mut self, len: usize) {
        self.bytes_mut()[..len.min(ARENA_BYTES)].fill(0);
    }

    fn word(&self, index: usize) -> u32 {
        let bytes = &self.bytes()[index * 4..index * 4 + 4];
        u32::from_ne_bytes(bytes.try_into().expect("four bytes"))
    }

    fn put(&mut self, words: &[(usize, u32)]) {
        for &(index, word) in words {
            self.bytes_mut()[index * 4..index * 4 + 4].copy_from_slice(&word.to_ne_bytes());
        }
    }
}

impl Drop for Arena {
    fn drop(&mut self) {
        // SAFETY: the mapping is this value's own and no reference into it outlives the value. Failure would only leak.
        let _ = unsafe { mman::munmap(self.start, Self::len_with_guard().get()) };
    }
}

/// The text in front of the first zero byte.
fn text(bytes: &[u8]) -> String {
    let end = bytes.iter().position(|&b| b == 0).unwrap_or(bytes.len());
    String::from_utf8_lossy(&bytes[..end]).trim().to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_loopback_answers_what_it_has() {
        let mut ethtool = Ethtool::open().unwrap();
        let features = ethtool.features("lo").unwrap().expect("every interface has features");
        assert!(features.iter().any(|f| f.name == "loopback" && f.on && f.fixed), "{features:?}");
        assert!(features.iter().any(|f| f.name == "tx-generic-segmentation" && !f.fixed));
        assert_eq!(ethtool.rings("lo").unwrap(), None);
        assert_eq!(ethtool.rss("lo").unwrap(), None);
        let mut values = vec![7];
        assert!(!ethtool.stat_values("lo", &mut values).unwrap() && values.is_empty());
    }

    #[test]
    fn wrong_names_are_reported() {
        let mut ethtool = Ethtool::open().unwrap();
        for name in ["ekmissing", "", "a-name-longer-than-fifteen", "nul\0"] {
            assert!(matches!(ethtool.driver(name), Err(EthtoolError::NoInterface(n)) if n.name == name));
        }
        let error = ethtool.set_feature("lo", "rx-everything", true).unwrap_err();
        assert!(matches!(error, EthtoolError::NoFeature { .. }), "{error}");
    }

    #[test]
    fn a_table_larger_than_any_driver_takes_is_refused() {
        let mut ethtool = Ethtool::open().unwrap();
        let error = ethtool.set_rss_indir("lo", &vec![0; ARENA_BYTES]).unwrap_err();
        assert!(matches!(error, EthtoolError::Refused { .. }), "{error}");
    }
}
