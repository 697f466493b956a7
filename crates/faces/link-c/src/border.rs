//! Pointers that come from C.

use std::{
    ffi::{CStr, c_char, c_void},
    slice,
};

use crate::errno::Failed;

const NULL: Failed = Failed::wrong(c"a pointer to what is to be filled in or read is NULL");
const TOO_LONG: Failed = Failed::wrong(c"a length is more than half of the address space");
const NO_BYTES: Failed = Failed::new(libc::EFAULT, c"the address of bytes is NULL and their number is not 0");

/// Writes what a call gives by a pointer.
///
/// # Safety
/// `to` is NULL, or may be written as a `T`.
pub(crate) unsafe fn give<T>(to: *mut T, value: T) -> Result<(), Failed> {
    if to.is_null() {
        return Err(NULL);
    }
    // SAFETY: it is not NULL, and the caller says that a `T` may be written there.
    unsafe { to.write(value) };
    Ok(())
}

/// Refuses a NULL result, before the call does anything.
pub(crate) fn has_place<T>(to: *mut T) -> Result<(), Failed> {
    if to.is_null() { Err(NULL) } else { Ok(()) }
}

/// A text that ends with a 0.
///
/// # Safety
/// `text` is NULL, or ends with a 0 and does not change while the result is used.
pub(crate) unsafe fn text<'a>(text: *const c_char) -> Result<&'a str, Failed> {
    if text.is_null() {
        return Err(NULL);
    }
    // SAFETY: it is not NULL, and the caller says that it ends with a 0 and stays as it is.
    let text = unsafe { CStr::from_ptr(text) };
    text.to_str().map_err(|_| Failed::wrong(c"the name of the node is not UTF-8"))
}

/// Bytes to read.
///
/// # Safety
/// `at` has `len` bytes that do not change while the result is used, or `at` is NULL.
#[inline]
pub(crate) unsafe fn bytes<'a>(at: *const c_void, len: usize) -> Result<&'a [u8], Failed> {
    match (at.is_null(), len) {
        (_, 0) => Ok(&[]),
        (true, _) => Err(NO_BYTES),
        (false, len) if isize::try_from(len).is_err() => Err(TOO_LONG),
        // SAFETY: it is neither NULL nor too long, and the caller says that so many bytes are there and stay as they are. Bytes of foreign memory
        // that nobody has set have some value.
        _ => Ok(unsafe { slice::from_raw_parts(at.cast(), len) }),
    }
}

/// Bytes to fill.
///
/// # Safety
/// `at` has `len` bytes that nobody else uses while the result is used, or `at` is NULL.
#[inline]
pub(crate) unsafe fn place<'a>(at: *mut c_void, len: usize) -> Result<&'a mut [u8], Failed> {
    match (at.is_null(), len) {
        (_, 0) => Ok(&mut []),
        (true, _) => Err(NO_BYTES),
        (false, len) if isize::try_from(len).is_err() => Err(TOO_LONG),
        // SAFETY: it is neither NULL nor too long, and the caller says that so many bytes are there for this call alone. Bytes of foreign memory that
        // nobody has set have some value.
        _ => Ok(unsafe { slice::from_raw_parts_mut(at.cast(), len) }),
    }
}

/// Elements of an array of C, by their pointers: what they point at is not looked at here.
#[inline]
pub(crate) fn elements<T>(array: *mut T, count: usize) -> Result<impl Iterator<Item = *mut T>, Failed> {
    if array.is_null() && count > 0 {
        return Err(NULL);
    }
    if count > isize::MAX as usize / size_of::<T>() {
        return Err(TOO_LONG);
    }
    Ok((0..count).map(move |at| array.wrapping_add(at)))
}

#[cfg(test)]
mod tests {
    use std::ptr;

    use super::*;

    #[test]
    fn pointers_to_nothing_are_reported() {
        let errno = |failed: Failed| failed.errno;
        assert_eq!(has_place(ptr::null_mut::<u32>()).map_err(errno), Err(libc::EINVAL));
        assert_eq!(elements(ptr::null_mut::<u32>(), 1).map(|_| ()).map_err(errno), Err(libc::EINVAL));
        assert_eq!(elements(ptr::null_mut::<u32>(), 0).map(Iterator::count).map_err(errno), Ok(0));
        let mut word = 0u32;
        assert_eq!(elements(&raw mut word, usize::MAX / 4).map(|_| ()).map_err(errno), Err(libc::EINVAL));
        let byte = (&raw mut word).cast();
        // SAFETY: NULL and lengths that are refused are not followed; a length of 0 is not either.
        unsafe {
            assert_eq!(text(ptr::null()).map_err(errno), Err(libc::EINVAL));
            assert_eq!(text(c"\xff".as_ptr()).map_err(errno), Err(libc::EINVAL));
            assert_eq!(bytes(ptr::null(), 0).map_err(errno), Ok(&[][..]));
            assert_eq!(bytes(ptr::null(), 1).map_err(errno), Err(libc::EFAULT));
            assert_eq!(bytes(byte, usize::MAX).map_err(errno), Err(libc::EINVAL));
            assert_eq!(place(ptr::null_mut(), 1).map_err(errno), Err(libc::EFAULT));
            assert_eq!(place(byte, usize::MAX).map_err(errno), Err(libc::EINVAL));
            assert_eq!(give(ptr::null_mut(), 1u32).map_err(errno), Err(libc::EINVAL));
        }
    }
}
