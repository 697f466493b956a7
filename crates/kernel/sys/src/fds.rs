//! Descriptors that came over a Unix socket.

use std::{
    io,
    os::fd::{AsFd, AsRawFd, FromRawFd, OwnedFd, RawFd},
    ptr,
};

/// Takes over the descriptors of control messages that nix has just read, each once.
pub fn received(messages: impl Iterator<Item = Vec<RawFd>>) -> Vec<OwnedFd> {
    // SAFETY: the kernel made these descriptors for this process in the recvmsg(2) that read the messages; nobody else owns them.
    messages.flatten().filter(|fd| *fd >= 0).map(|fd| unsafe { OwnedFd::from_raw_fd(fd) }).collect()
}

/// The kernel's number of a socket (SO_COOKIE), which no other has as long as the kernel runs.
pub fn socket_cookie(socket: &impl AsFd) -> io::Result<u64> {
    let mut cookie = 0u64;
    let mut len = size_of::<u64>() as libc::socklen_t;
    // SAFETY: the kernel writes at most `len` bytes to `cookie`, which is as long and outlives the call.
    let result = unsafe {
        libc::getsockopt(
            socket.as_fd().as_raw_fd(),
            libc::SOL_SOCKET,
            libc::SO_COOKIE,
            (&raw mut cookie).cast(),
            &raw mut len,
        )
    };
    if result < 0 { Err(io::Error::last_os_error()) } else { Ok(cookie) }
}

/// Has the other ends of a Unix socket pass no descriptors to it (SO_PASSRIGHTS, since Linux 6.16): what is dropped unread would be closed here.
///
/// # Errors
/// ENOPROTOOPT before that.
pub fn pass_no_rights(socket: &impl AsFd) -> io::Result<()> {
    const SO_PASSRIGHTS: libc::c_int = 83;
    let off: libc::c_int = 0;
    // SAFETY: the descriptor is alive; the kernel reads as many bytes of the number as it has.
    let result = unsafe {
        libc::setsockopt(
            socket.as_fd().as_raw_fd(),
            libc::SOL_SOCKET,
            SO_PASSRIGHTS,
            (&raw const off).cast(),
            size_of_val(&off) as libc::socklen_t,
        )
    };
    if result < 0 { Err(io::Error::last_os_error()) } else { Ok(()) }
}

/// Has a socket listen, with any backlog that another program gives: the kernel takes a negative one for the longest that it allows.
pub fn listen(socket: &impl AsFd, backlog: i32) -> io::Result<()> {
    // SAFETY: the descriptor is alive; the call takes numbers.
    let result = unsafe { libc::listen(socket.as_fd().as_raw_fd(), backlog) };
    if result < 0 { Err(io::Error::last_os_error()) } else { Ok(()) }
}

/// Accepts the next connection of a listening socket.
pub fn accept(listener: &impl AsFd) -> io::Result<OwnedFd> {
    // SAFETY: the descriptor is alive; no address is asked for.
    let fd =
        unsafe { libc::accept4(listener.as_fd().as_raw_fd(), ptr::null_mut(), ptr::null_mut(), libc::SOCK_CLOEXEC) };
    if fd < 0 {
        return Err(io::Error::last_os_error());
    }
    // SAFETY: accept4(2) has just made this descriptor, and nobody else owns it.
    Ok(unsafe { OwnedFd::from_raw_fd(fd) })
}
