//! The handle of a program, and the result of each call.

use std::{
    borrow::Cow,
    cell::RefCell,
    ffi::{CStr, c_char},
    panic::{AssertUnwindSafe, catch_unwind},
};

use link::{BrokerCarrier, Claim, Engine};

use crate::errno::Failed;

/// `struct ek_link`: the ports and the connections of one program.
#[derive(Debug)]
pub(crate) struct Link {
    pub(crate) engine: Engine<BrokerCarrier>,
    pub(crate) claim: Claim,
    /// The ports that it listens on, and whether for streams.
    pub(crate) listens: Vec<u16>,
    why: Cow<'static, CStr>,
    /// A call did not come to its end: what it left is not to be trusted.
    broken: bool,
}

/// A handle may go from one thread to another, as the header says.
const _: () = {
    const fn is_send<T: Send>() {}
    is_send::<Link>();
};

thread_local! {
    /// Text of the last failed call of this thread without a handle.
    static WHY: RefCell<Cow<'static, CStr>> = const { RefCell::new(Cow::Borrowed(c"")) };
}

const BROKEN: Failed = Failed::new(
    libc::ENOTRECOVERABLE,
    c"an earlier call met an error of evenkeel itself: close the handle and open another",
);
const NO_HANDLE: Failed = Failed::wrong(c"the handle is NULL");

impl Link {
    pub(crate) fn new(claim: Claim, engine: Engine<BrokerCarrier>) -> Self {
        Self { engine, claim, listens: Vec::new(), why: Cow::Borrowed(c""), broken: false }
    }
}

/// Runs a call with a handle; returns its result, or a negative error number.
///
/// # Safety
/// `link` is NULL, or of `ek_link_open` and not closed, and no other call uses it meanwhile.
#[inline]
pub(crate) unsafe fn call(link: *mut Link, work: impl FnOnce(&mut Link) -> Result<isize, Failed>) -> isize {
    // SAFETY: NULL becomes none; otherwise the caller says that it is a live handle that nobody else uses.
    let Some(link) = (unsafe { link.as_mut() }) else { return keep(NO_HANDLE) };
    let done = match link.broken {
        true => Err(BROKEN),
        // Nothing may unwind into C.
        false => catch_unwind(AssertUnwindSafe(|| work(link))).unwrap_or_else(|_| {
            link.broken = true;
            Err(BROKEN)
        }),
    };
    match done {
        Ok(number) => number,
        Err(failed) => {
            link.why = failed.why;
            -(failed.errno as isize)
        }
    }
}

/// Runs a call without a handle.
pub(crate) fn call_alone(work: impl FnOnce() -> Result<(), Failed>) -> isize {
    match catch_unwind(AssertUnwindSafe(work)).unwrap_or(Err(BROKEN)) {
        Ok(()) => 0,
        Err(failed) => keep(failed),
    }
}

fn keep(failed: Failed) -> isize {
    WHY.with_borrow_mut(|why| *why = failed.why);
    -(failed.errno as isize)
}

/// Why the last call with this handle that failed did; without a handle, of this thread.
///
/// # Safety
/// The contract of [`call`].
#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn ek_link_error(link: *const Link) -> *const c_char {
    // SAFETY: NULL becomes none; otherwise the caller says that it is a live handle that nobody else changes.
    match unsafe { link.as_ref() } {
        Some(link) => link.why.as_ptr(),
        // It stays where it is until this thread's next call of that kind fails.
        None => WHY.with_borrow(|why| why.as_ptr()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_panic_ends_a_call_and_says_so() {
        assert_eq!(call_alone(|| panic!("as a test wants it")), -(libc::ENOTRECOVERABLE as isize));
        // SAFETY: NULL is no handle; the text is this thread's, and stays until its next call fails.
        let why = unsafe { CStr::from_ptr(ek_link_error(std::ptr::null())) };
        assert!(why.to_str().is_ok_and(|why| why.contains("open another")));
        // SAFETY: NULL is no handle.
        assert_eq!(unsafe { call(std::ptr::null_mut(), |_| Ok(1)) }, -(libc::EINVAL as isize));
    }
}
