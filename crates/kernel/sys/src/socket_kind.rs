//! Kind of a descriptor that another program has made: its family, its type, its protocol, its state.

use std::{
    io, mem,
    os::fd::{AsFd, AsRawFd},
};

use nix::fcntl::{FcntlArg, fcntl};

/// A kind of socket, in the numbers of socket(2).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct SocketKind {
    /// The family, as AF_INET.
    pub domain: i32,
    /// The type, as SOCK_STREAM, without flags.
    pub kind: i32,
    /// The protocol, as IPPROTO_TCP.
    pub protocol: i32,
}

impl SocketKind {
    /// The kind of a socket.
    ///
    /// # Errors
    /// ENOTSOCK for what is none.
    pub fn of(fd: &impl AsFd) -> io::Result<Self> {
        let of = |name| option(fd, libc::SOL_SOCKET, name, 0);
        Ok(Self { domain: of(libc::SO_DOMAIN)?, kind: of(libc::SO_TYPE)?, protocol: of(libc::SO_PROTOCOL)? })
    }

    /// True for TCP and Multipath TCP, which falls back to TCP.
    pub fn is_tcp(self) -> bool {
        matches!(self.domain, libc::AF_INET | libc::AF_INET6)
            && self.kind == libc::SOCK_STREAM
            && matches!(self.protocol, libc::IPPROTO_TCP | libc::IPPROTO_MPTCP)
    }

    /// True for a stream of this machine (AF_UNIX).
    pub fn is_unix_stream(self) -> bool {
        self.domain == libc::AF_UNIX && self.kind == libc::SOCK_STREAM
    }
}

/// The network namespace of a socket, as a number that no other one has: SO_NETNS_COOKIE, since Linux 5.14.
///
/// # Errors
/// ENOTSOCK for what is none.
pub fn network_namespace(fd: &impl AsFd) -> io::Result<u64> {
    option(fd, libc::SOL_SOCKET, libc::SO_NETNS_COOKIE, 0)
}

/// The states of TCP that are asked for (include/net/tcp_states.h).
const ESTABLISHED: u8 = 1;
const CLOSE: u8 = 7;

/// True for a new TCP socket: neither connected, nor connecting, nor listening.
///
/// # Errors
/// EOPNOTSUPP and the like for other sockets.
pub fn is_fresh_tcp(fd: &impl AsFd) -> io::Result<bool> {
    Ok(tcp_state(fd)? == CLOSE)
}

/// True if a TCP socket is connected, and neither side has closed.
///
/// # Errors
/// EOPNOTSUPP and the like for other sockets.
pub fn is_established_tcp(fd: &impl AsFd) -> io::Result<bool> {
    Ok(tcp_state(fd)? == ESTABLISHED)
}

fn tcp_state(fd: &impl AsFd) -> io::Result<u8> {
    // The state is the first byte of struct tcp_info, of which the kernel gives as much as is asked for.
    option(fd, libc::IPPROTO_TCP, libc::TCP_INFO, 0u8)
}

/// True for a pipe. No file system is asked, which could wait.
pub fn is_pipe(fd: &impl AsFd) -> bool {
    fcntl(fd.as_fd(), FcntlArg::F_GETPIPE_SZ).is_ok()
}

/// A number of socket options can be read as.
trait Number: Copy {}
impl Number for i32 {}
impl Number for u64 {}
impl Number for u8 {}

fn option<T: Number>(fd: &impl AsFd, level: i32, name: i32, mut value: T) -> io::Result<T> {
    let mut len = mem::size_of::<T>() as libc::socklen_t;
    let place = (&raw mut value).cast();
    // SAFETY: the descriptor is alive; the kernel writes at most `len` bytes into the number, of which every pattern is one.
    let result = unsafe { libc::getsockopt(fd.as_fd().as_raw_fd(), level, name, place, &raw mut len) };
    if result < 0 { Err(io::Error::last_os_error()) } else { Ok(value) }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::{
        net::{TcpListener, TcpStream, UdpSocket},
        os::unix::net::UnixStream,
    };

    #[test]
    fn kinds_are_distinguished() {
        let kind = |fd: &dyn Fn() -> std::os::fd::OwnedFd| SocketKind::of(&fd()).unwrap();
        let tcp = kind(&|| TcpListener::bind("127.0.0.1:0").unwrap().into());
        assert!(tcp.is_tcp() && !tcp.is_unix_stream());
        assert!(!kind(&|| UdpSocket::bind("127.0.0.1:0").unwrap().into()).is_tcp());
        let unix = kind(&|| UnixStream::pair().unwrap().0.into());
        assert!(unix.is_unix_stream() && !unix.is_tcp());
        let file = std::fs::File::open("/dev/null").unwrap();
        assert_eq!(SocketKind::of(&file).unwrap_err().raw_os_error(), Some(libc::ENOTSOCK));
    }

    #[test]
    fn a_socket_is_fresh_until_it_connects_or_listens() {
        use nix::sys::socket::{AddressFamily, SockFlag, SockType, socket};
        let fresh = socket(AddressFamily::Inet, SockType::Stream, SockFlag::SOCK_CLOEXEC, None).unwrap();
        assert!(is_fresh_tcp(&fresh).unwrap());
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        assert!(!is_fresh_tcp(&listener).unwrap());
        let connected = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        assert!(!is_fresh_tcp(&connected).unwrap() && is_established_tcp(&connected).unwrap());
        assert!(!is_established_tcp(&listener).unwrap());
        assert!(is_fresh_tcp(&UnixStream::pair().unwrap().0).is_err());
    }

    #[test]
    fn a_pipe_is_known_without_its_file_system() {
        let (read, write) = nix::unistd::pipe().unwrap();
        assert!(is_pipe(&read) && is_pipe(&write));
        assert!(!is_pipe(&UnixStream::pair().unwrap().0));
        assert!(!is_pipe(&std::fs::File::open("/dev/null").unwrap()));
    }
}
