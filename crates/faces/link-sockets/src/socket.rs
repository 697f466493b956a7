//! Queries of a socket.

use std::{ffi::c_int, mem};

use libc::{AF_INET, AF_INET6, IPPROTO_TCP, SO_DOMAIN, SO_PROTOCOL, SO_TYPE, SOCK_STREAM, SOL_SOCKET, socklen_t};

use crate::{
    address,
    real::{Errno, real},
};

/// True if both addresses of a connection are the same host, as for those that the broker makes.
pub(crate) fn is_from_here(fd: c_int) -> bool {
    let (own, peer) = (address::of(real().getsockname, fd), address::of(real().getpeername, fd));
    own.zip(peer).is_some_and(|(own, peer)| own.ip() == peer.ip())
}

/// A numeric option of a socket (SOL_SOCKET).
pub(crate) fn option(fd: c_int, name: c_int) -> Option<c_int> {
    let mut value: c_int = 0;
    let mut len = mem::size_of_val(&value) as socklen_t;
    // SAFETY: the place is as long as `len` says.
    let done = unsafe { (real().getsockopt)(fd, SOL_SOCKET, name, (&raw mut value).cast(), &raw mut len) };
    (done == 0).then_some(value)
}

/// True if it is a TCP stream socket. Keeps errno.
pub(crate) fn is_tcp(fd: c_int) -> bool {
    let _errno = Errno::keep();
    matches!(option(fd, SO_DOMAIN), Some(AF_INET | AF_INET6))
        && option(fd, SO_TYPE) == Some(SOCK_STREAM)
        && option(fd, SO_PROTOCOL) == Some(IPPROTO_TCP)
}
