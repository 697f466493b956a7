//! The TCP addresses of an end of a pair, which are its name in the abstract namespace of Unix sockets.

use std::{
    net::SocketAddr,
    os::fd::{AsFd, AsRawFd},
};

use nix::{
    errno::Errno,
    sys::socket::{UnixAddr, bind, getsockname},
};

/// Prefix of a name. Two IPv6 addresses and a number have to fit into 107 bytes.
const MARK: &str = "ek ";

/// Names an end by its local address, its peer's, and a unique number.
pub(super) fn name(end: &impl AsFd, local: SocketAddr, peer: SocketAddr, number: u64) -> Result<(), Errno> {
    let name = format!("{MARK}{local} {peer} {number:x}");
    bind(end.as_fd().as_raw_fd(), &UnixAddr::new_abstract(name.as_bytes())?)
}

/// Local and peer address of an end; none: it is another descriptor.
pub fn names(end: &impl AsFd) -> Option<(SocketAddr, SocketAddr)> {
    let name = getsockname::<UnixAddr>(end.as_fd().as_raw_fd()).ok()?;
    parse(name.as_abstract()?)
}

/// Local and peer address in a name; none: it is another name.
pub fn parse(name: &[u8]) -> Option<(SocketAddr, SocketAddr)> {
    let mut words = std::str::from_utf8(name).ok()?.strip_prefix(MARK)?.split(' ');
    Some((words.next()?.parse().ok()?, words.next()?.parse().ok()?))
}

#[cfg(test)]
mod tests {
    use std::os::unix::net::UnixStream;

    use super::*;

    #[test]
    fn an_end_says_its_addresses_and_another_none() {
        let (end, other) = UnixStream::pair().unwrap();
        let long = "[2001:db8:ffff:ffff:ffff:ffff:ffff:ffff]:65535".parse().unwrap();
        let mapped = "[::ffff:10.0.0.2]:22".parse().unwrap();
        assert_eq!(names(&end), None);
        name(&end, long, long, 0x00ff_ffff).unwrap();
        assert_eq!(names(&end), Some((long, long)));
        assert_eq!(names(&other), None);
        name(&other, mapped, long, 1).unwrap();
        assert_eq!(names(&other), Some((mapped, long)));
        assert_eq!(parse(b"ek 10.0.0.1:80"), None);
        assert_eq!(parse(b"dbus-1"), None);
    }
}
