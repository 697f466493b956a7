//! Netlink sockets of families that `nix` has no name for.

use std::{
    io,
    os::fd::{FromRawFd, OwnedFd},
};

/// A socket of the family NETLINK_XFRM: policies of IPsec.
///
/// # Errors
/// The kernel has no IPsec (EPROTONOSUPPORT), or this sandbox refuses.
pub fn xfrm_socket() -> io::Result<OwnedFd> {
    // SAFETY: no pointer is passed.
    let fd = unsafe { libc::socket(libc::AF_NETLINK, libc::SOCK_RAW | libc::SOCK_CLOEXEC, libc::NETLINK_XFRM) };
    if fd < 0 {
        return Err(io::Error::last_os_error());
    }
    // SAFETY: the kernel has just made this descriptor for us; nobody else owns it.
    Ok(unsafe { OwnedFd::from_raw_fd(fd) })
}
