//! Socket addresses of C.

use std::{
    ffi::c_int,
    mem,
    net::{Ipv4Addr, Ipv6Addr, SocketAddr, SocketAddrV6},
    ptr,
};

use libc::{
    AF_INET, AF_INET6, AF_UNIX, sa_family_t, sockaddr, sockaddr_in, sockaddr_in6, sockaddr_storage, sockaddr_un,
    socklen_t,
};

use crate::{
    real::{Errno, GetName, real},
    reentry::is_busy,
};

/// Reads an address of IPv4 or IPv6.
///
/// # Safety
/// `at` is null or points to `len` readable bytes.
pub(crate) unsafe fn read(at: *const sockaddr, len: socklen_t) -> Option<SocketAddr> {
    let len = len as usize;
    if at.is_null() || len < mem::size_of::<sa_family_t>() {
        return None;
    }
    // SAFETY: there are so many bytes, by the caller; they need not be aligned.
    let family = i32::from(unsafe { ptr::read_unaligned(at.cast::<sa_family_t>()) });
    if family == AF_INET && len >= mem::size_of::<sockaddr_in>() {
        // SAFETY: as above.
        let v4 = unsafe { ptr::read_unaligned(at.cast::<sockaddr_in>()) };
        let ip = Ipv4Addr::from(v4.sin_addr.s_addr.to_ne_bytes());
        return Some(SocketAddr::new(ip.into(), u16::from_be(v4.sin_port)));
    }
    if family == AF_INET6 && len >= mem::size_of::<sockaddr_in6>() {
        // SAFETY: as above.
        let v6 = unsafe { ptr::read_unaligned(at.cast::<sockaddr_in6>()) };
        let ip = Ipv6Addr::from(v6.sin6_addr.s6_addr);
        return Some(SocketAddrV6::new(ip, u16::from_be(v6.sin6_port), 0, v6.sin6_scope_id).into());
    }
    None
}

/// Calls such a function: the address and its length.
pub(crate) fn call(name: GetName, fd: c_int) -> Option<(sockaddr_storage, socklen_t)> {
    // SAFETY: all zeros are a storage; the call writes at most its length.
    unsafe {
        let mut storage: sockaddr_storage = mem::zeroed();
        let mut len = mem::size_of_val(&storage) as socklen_t;
        (name(fd, (&raw mut storage).cast(), &raw mut len) == 0).then_some((storage, len))
    }
}

/// Calls such a function; none: the address is not of IPv4 or IPv6.
pub(crate) fn of(name: GetName, fd: c_int) -> Option<SocketAddr> {
    let (storage, len) = call(name, fd)?;
    // SAFETY: the storage is alive, and as long as `len` at least.
    unsafe { read((&raw const storage).cast(), len) }
}

/// Local and peer address of an end of a pair; none: it is another descriptor. Keeps errno.
pub(crate) fn names(fd: c_int) -> Option<(SocketAddr, SocketAddr)> {
    // This library itself wants the Unix socket's own name.
    if is_busy() {
        return None;
    }
    let _errno = Errno::keep();
    let (storage, len) = call(real().getsockname, fd)?;
    if i32::from(storage.ss_family) != AF_UNIX {
        return None;
    }
    // SAFETY: the storage is alive and at least as long as an address of a Unix socket; any bytes are one.
    let unix = unsafe { ptr::read((&raw const storage).cast::<sockaddr_un>()) };
    let path = (len as usize).checked_sub(mem::offset_of!(sockaddr_un, sun_path))?;
    // A name in the abstract namespace begins with a zero.
    let name: Vec<u8> = unix.sun_path.get(..path)?.iter().map(|&c| c.cast_unsigned()).collect();
    link::sockets::parse_name(name.strip_prefix(b"\0")?)
}

/// Writes an address as getpeername(2) does: truncated to the room, with its whole length.
///
/// # Safety
/// `len` is null or points to a length, and `at` to so many writable bytes, or it is null.
pub(crate) unsafe fn write(address: SocketAddr, at: *mut sockaddr, len: *mut socklen_t) {
    if at.is_null() || len.is_null() {
        return;
    }
    match address {
        SocketAddr::V4(v4) => {
            // SAFETY: all zeros are an address.
            let mut sin: sockaddr_in = unsafe { mem::zeroed() };
            sin.sin_family = AF_INET as sa_family_t;
            sin.sin_port = v4.port().to_be();
            sin.sin_addr.s_addr = u32::from_ne_bytes(v4.ip().octets());
            // SAFETY: by the caller.
            unsafe { put(&sin, at, len) };
        }
        SocketAddr::V6(v6) => {
            // SAFETY: all zeros are an address.
            let mut sin6: sockaddr_in6 = unsafe { mem::zeroed() };
            sin6.sin6_family = AF_INET6 as sa_family_t;
            sin6.sin6_port = v6.port().to_be();
            sin6.sin6_addr.s6_addr = v6.ip().octets();
            // SAFETY: by the caller.
            unsafe { put(&sin6, at, len) };
        }
    }
}

/// # Safety
/// As [`write`], neither being null.
unsafe fn put<T>(what: &T, at: *mut sockaddr, len: *mut socklen_t) {
    let whole = mem::size_of::<T>();
    // SAFETY: `len` points to the room that `at` has, by the caller.
    unsafe {
        let room = (*len as usize).min(whole);
        ptr::copy_nonoverlapping(ptr::from_ref(what).cast::<u8>(), at.cast::<u8>(), room);
        *len = whole as socklen_t;
    }
}
