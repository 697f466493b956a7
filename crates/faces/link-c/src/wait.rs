//! Time: polls, waits, and the descriptor of other loops.

use std::{ffi::c_int, os::fd::AsRawFd, time::Duration};

use crate::handle::{Link, call};

/// # Safety
/// The contract of [`call`].
#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn ek_link_poll(link: *mut Link) -> c_int {
    // SAFETY: the caller keeps to what `call` asks for.
    unsafe { call(link, |link| Ok(link.engine.poll()? as isize)) as c_int }
}

/// # Safety
/// The contract of [`call`].
#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn ek_link_wait(link: *mut Link, spin_ns: u64, timeout_ns: i64) -> c_int {
    let at_most = u64::try_from(timeout_ns).map_or(Duration::MAX, Duration::from_nanos);
    let work = |link: &mut Link| Ok(link.engine.wait(Duration::from_nanos(spin_ns), at_most)? as isize);
    // SAFETY: the caller keeps to what `call` asks for.
    unsafe { call(link, work) as c_int }
}

/// # Safety
/// The contract of [`call`].
#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn ek_link_fd(link: *mut Link) -> c_int {
    // SAFETY: the caller keeps to what `call` asks for.
    unsafe { call(link, |link| Ok(link.engine.descriptor()?.as_raw_fd() as isize)) as c_int }
}

/// # Safety
/// The contract of [`call`].
#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn ek_link_arm(link: *mut Link) -> c_int {
    // SAFETY: the caller keeps to what `call` asks for.
    unsafe { call(link, |link| Ok(isize::from(link.engine.arm()?))) as c_int }
}
