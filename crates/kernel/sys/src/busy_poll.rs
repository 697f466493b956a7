//! Sockets that poll for packets in their calls.

use std::{
    io,
    mem::size_of,
    os::fd::{AsFd, AsRawFd},
};

/// Lets receive calls of a socket poll its receive queue for so many microseconds before they sleep (SO_BUSY_POLL).
///
/// # Errors
/// EPERM without CAP_NET_ADMIN for more than net.core.busy_read.
pub fn set(socket: &impl AsFd, microseconds: u32) -> io::Result<()> {
    let value = i32::try_from(microseconds).unwrap_or(i32::MAX);
    // SAFETY: the pointer and the length describe the live value; the kernel copies it during the call.
    let result = unsafe {
        libc::setsockopt(
            socket.as_fd().as_raw_fd(),
            libc::SOL_SOCKET,
            libc::SO_BUSY_POLL,
            (&raw const value).cast(),
            size_of::<i32>() as libc::socklen_t,
        )
    };
    if result < 0 { Err(io::Error::last_os_error()) } else { Ok(()) }
}

/// The NAPI instance through which the last packet of a socket came (SO_INCOMING_NAPI_ID); none if it came by none, and there is nothing to poll.
///
/// # Errors
/// ENOPROTOOPT on a kernel without busy polling.
pub fn napi_id(socket: &impl AsFd) -> io::Result<Option<u32>> {
    let mut value: u32 = 0;
    let mut length = size_of::<u32>() as libc::socklen_t;
    // SAFETY: both pointers are to live values, and the length is that of the first.
    let result = unsafe {
        libc::getsockopt(
            socket.as_fd().as_raw_fd(),
            libc::SOL_SOCKET,
            libc::SO_INCOMING_NAPI_ID,
            (&raw mut value).cast(),
            &raw mut length,
        )
    };
    if result < 0 { Err(io::Error::last_os_error()) } else { Ok((value != 0).then_some(value)) }
}

#[cfg(test)]
mod tests {
    use std::net::UdpSocket;

    use super::*;

    #[test]
    fn a_socket_that_got_nothing_has_no_napi_instance() {
        let socket = UdpSocket::bind("127.0.0.1:0").unwrap();
        assert_eq!(napi_id(&socket).unwrap(), None);
    }
}
