//! The program's descriptors: one word for each number, which a call reads without a lock.
//!
//! A number may be reused after a close that this library does not see. So an entry of a brokered connection is only a hint; one of a connection that is
//! carried here is cleared when its pair reports that no process holds it ([`crate::helper`]).

use std::{
    ffi::c_int,
    sync::atomic::{AtomicU32, Ordering::Relaxed},
};

use link::sockets::direct::Id;

/// Numbers from this one on are left to the broker.
const DESCRIPTORS_MAX: usize = 1 << 16;
const KIND: u32 = 0b11 << 30;
const CONNECTED: u32 = 0b01 << 30;
const ACCEPTED: u32 = 0b10 << 30;
const CARRIED: u32 = 0b11 << 30;

static TABLE: [AtomicU32; DESCRIPTORS_MAX] = [const { AtomicU32::new(0) }; DESCRIPTORS_MAX];
/// Highest number of a connection carried here so far, plus one.
static TOP: AtomicU32 = AtomicU32::new(0);
/// Descriptors of connections carried here.
static CARRIED_COUNT: AtomicU32 = AtomicU32::new(0);

/// What a descriptor is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum What {
    /// Nothing of ours.
    Other,
    /// A connection that the broker carries: whether this program accepted it, and the calls that came for it.
    Brokered { is_accepted: bool, calls: u32 },
    /// One that is carried here.
    Carried(Id),
}

/// What a descriptor is.
#[inline]
pub(crate) fn get(fd: c_int) -> What {
    let word = usize::try_from(fd).ok().and_then(|fd| TABLE.get(fd)).map_or(0, |word| word.load(Relaxed));
    match word & KIND {
        CONNECTED => What::Brokered { is_accepted: false, calls: word & !KIND },
        ACCEPTED => What::Brokered { is_accepted: true, calls: word & !KIND },
        CARRIED => What::Carried(word & !KIND),
        _ => What::Other,
    }
}

/// Records what a descriptor is.
pub(crate) fn set(fd: c_int, what: What) {
    let Some(word) = usize::try_from(fd).ok().and_then(|fd| TABLE.get(fd)) else { return };
    let new = match what {
        What::Other => 0,
        What::Brokered { is_accepted, calls } => (if is_accepted { ACCEPTED } else { CONNECTED }) | calls & !KIND,
        What::Carried(id) => CARRIED | id & !KIND,
    };
    let old = word.swap(new, Relaxed);
    match (old & KIND == CARRIED, new & KIND == CARRIED) {
        (false, true) => {
            TOP.fetch_max(fd.unsigned_abs() + 1, Relaxed);
            CARRIED_COUNT.fetch_add(1, Relaxed);
        }
        (true, false) => {
            CARRIED_COUNT.fetch_sub(1, Relaxed);
        }
        _ => {}
    }
}

/// Whether any connection is carried here.
#[inline]
pub(crate) fn has_carried() -> bool {
    CARRIED_COUNT.load(Relaxed) > 0
}

/// Whether any ever was.
pub(crate) fn has_started() -> bool {
    TOP.load(Relaxed) > 0
}

/// Calls `each` with every descriptor of a connection carried here.
pub(crate) fn each_carried(mut each: impl FnMut(c_int, Id)) {
    for fd in 0..TOP.load(Relaxed).cast_signed() {
        if let What::Carried(id) = get(fd) {
            each(fd, id);
        }
    }
}
