//! The program's descriptors: one word for each number, which a call reads without a lock.
//!
//! A number may be reused after a close that this library does not see. So an entry of a brokered connection is only a hint; one of a connection that is
//! taken over is cleared when its pair reports that no process holds it ([`crate::helper`]).

use std::{
    ffi::c_int,
    sync::atomic::{AtomicU32, Ordering::Relaxed},
};

use link::sockets::takeover::ConnectionId;

/// Numbers from this one on are left to the broker.
const DESCRIPTORS_MAX: usize = 1 << 16;
const KIND: u32 = 0b11 << 30;
const CONNECTED: u32 = 0b01 << 30;
const ACCEPTED: u32 = 0b10 << 30;
const REGISTERED: u32 = 0b11 << 30;

static TABLE: [AtomicU32; DESCRIPTORS_MAX] = [const { AtomicU32::new(0) }; DESCRIPTORS_MAX];
/// Highest number of a connection taken over so far, plus one.
static TOP: AtomicU32 = AtomicU32::new(0);
/// Descriptors of connections taken over.
static REGISTERED_COUNT: AtomicU32 = AtomicU32::new(0);

/// A descriptor of the program.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Descriptor {
    /// No connection of the cluster, or left to the broker for good.
    Other,
    /// The broker moves its bytes; `calls` counts reads and writes.
    Brokered { is_accepted: bool, calls: u32 },
    /// Its connection is known to this process's engine: it joins or is taken over.
    Registered(ConnectionId),
}

/// A descriptor of the program.
#[inline]
pub(crate) fn get(fd: c_int) -> Descriptor {
    let word = usize::try_from(fd).ok().and_then(|fd| TABLE.get(fd)).map_or(0, |word| word.load(Relaxed));
    match word & KIND {
        CONNECTED => Descriptor::Brokered { is_accepted: false, calls: word & !KIND },
        ACCEPTED => Descriptor::Brokered { is_accepted: true, calls: word & !KIND },
        REGISTERED => Descriptor::Registered(word & !KIND),
        _ => Descriptor::Other,
    }
}

pub(crate) fn set(fd: c_int, what: Descriptor) {
    let Some(word) = usize::try_from(fd).ok().and_then(|fd| TABLE.get(fd)) else { return };
    let new = match what {
        Descriptor::Other => 0,
        Descriptor::Brokered { is_accepted, calls } => (if is_accepted { ACCEPTED } else { CONNECTED }) | calls & !KIND,
        Descriptor::Registered(id) => REGISTERED | id & !KIND,
    };
    let old = word.swap(new, Relaxed);
    match (old & KIND == REGISTERED, new & KIND == REGISTERED) {
        (false, true) => {
            TOP.fetch_max(fd.unsigned_abs() + 1, Relaxed);
            REGISTERED_COUNT.fetch_add(1, Relaxed);
        }
        (true, false) => {
            REGISTERED_COUNT.fetch_sub(1, Relaxed);
        }
        _ => {}
    }
}

/// True if any connection is taken over.
#[inline]
pub(crate) fn has_registered() -> bool {
    REGISTERED_COUNT.load(Relaxed) > 0
}

/// True if any connection was ever taken over.
pub(crate) fn has_started() -> bool {
    TOP.load(Relaxed) > 0
}

/// Calls `each` with every descriptor of a connection taken over.
pub(crate) fn each_registered(mut each: impl FnMut(c_int, ConnectionId)) {
    for fd in 0..TOP.load(Relaxed).cast_signed() {
        if let Descriptor::Registered(id) = get(fd) {
            each(fd, id);
        }
    }
}
