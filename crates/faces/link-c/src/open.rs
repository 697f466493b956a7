//! Opening and closing, and what a handle tells of its node.

use std::{
    ffi::{CStr, c_char, c_int},
    ptr,
};

use link::Claim;

use crate::{
    border::{elements, give, has_place},
    handle::{Link, call, call_alone},
};

const VERSION: &CStr = match CStr::from_bytes_with_nul(concat!(env!("CARGO_PKG_VERSION"), "\0").as_bytes()) {
    Ok(version) => version,
    Err(_) => panic!("a version has no 0 in it"),
};
/// EK_LINK_NAME_BYTES and EK_LINK_ADDRESS_BYTES.
const NAME_BYTES: usize = 256;
pub(crate) const ADDRESS_BYTES: usize = 18;

/// `struct ek_link_node`.
#[repr(C)]
pub(crate) struct NodeOfC {
    name: [u8; NAME_BYTES],
    address: [u8; ADDRESS_BYTES],
}

/// A text that ends with a 0, shortened at a whole character if it must be.
pub(crate) fn text_of_c<const N: usize>(text: &str) -> [u8; N] {
    let text = text.split('\0').next().unwrap_or_default();
    let mut end = text.len().min(N - 1);
    while !text.is_char_boundary(end) {
        end -= 1;
    }
    let text = &text[..end];
    let mut bytes = [0; N];
    bytes[..text.len()].copy_from_slice(text.as_bytes());
    bytes
}

#[unsafe(no_mangle)]
pub(crate) extern "C" fn ek_link_version() -> *const c_char {
    VERSION.as_ptr()
}

/// # Safety
/// `out` is NULL, or a pointer may be written there.
#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn ek_link_open(out: *mut *mut Link) -> c_int {
    let opened = || {
        // SAFETY: the caller says that it may be written unless it is NULL, which is told.
        unsafe { give(out, ptr::null_mut()) }?;
        let (claim, engine) = Claim::take()?;
        let link = Box::into_raw(Box::new(Link::new(claim, engine)));
        // SAFETY: as before.
        unsafe { give(out, link) }
    };
    call_alone(opened) as c_int
}

/// # Safety
/// `link` is NULL, or of [`ek_link_open`], not closed, and never used again.
#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn ek_link_close(link: *mut Link) {
    if !link.is_null() {
        // SAFETY: it came from `Box::into_raw` in `ek_link_open`, and the caller gives it up.
        let link = unsafe { Box::from_raw(link) };
        // Nobody is there who could be told.
        let _ = call_alone(|| {
            drop(link);
            Ok(())
        });
    }
}

/// # Safety
/// `link` as for [`call`]; `nodes` is NULL, or has room for `count`.
#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn ek_link_nodes(link: *mut Link, nodes: *mut NodeOfC, count: usize) -> c_int {
    let work = |link: &mut Link| {
        let places = elements(nodes, count)?;
        let known = link.claim.nodes()?;
        for (node, place) in known.iter().zip(places) {
            let node = NodeOfC { name: text_of_c(&node.name), address: text_of_c(&node.address) };
            // SAFETY: the caller says that there is room for `count`, of which this is one.
            unsafe { give(place, node) }?;
        }
        Ok(known.len() as isize)
    };
    // SAFETY: the caller keeps to what `call` asks for.
    unsafe { call(link, work) as c_int }
}

/// # Safety
/// `link` as for [`call`]; `address` is NULL, or has room for [`ADDRESS_BYTES`].
#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn ek_link_address(link: *mut Link, address: *mut c_char) -> c_int {
    let address: *mut [u8; ADDRESS_BYTES] = address.cast();
    let work = |link: &mut Link| {
        has_place(address)?;
        let text = text_of_c(&link.engine.carrier().address().to_string());
        // SAFETY: the caller says that there is room for so many bytes.
        unsafe { give(address, text) }.map(|()| 0)
    };
    // SAFETY: the caller keeps to what `call` asks for.
    unsafe { call(link, work) as c_int }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_text_that_is_too_long_ends_at_a_whole_character() {
        assert_eq!(text_of_c::<4>("abcd"), *b"abc\0");
        assert_eq!(text_of_c::<4>("abü"), *b"ab\0\0");
        assert_eq!(text_of_c::<8>("a\0b"), *b"a\0\0\0\0\0\0\0");
    }
}
