//! Addresses of TCP sockets.

use std::{
    net::{IpAddr, SocketAddr},
    os::fd::{AsFd, AsRawFd},
};

use nix::sys::socket::{SockaddrStorage, getpeername, getsockname};
use serde::{Deserialize, Deserializer};

/// Local address of a socket, canonical, and whether the socket is of IPv6.
pub(super) fn local(tcp: &impl AsFd) -> Option<(SocketAddr, bool)> {
    shown(&getsockname::<SockaddrStorage>(tcp.as_fd().as_raw_fd()).ok()?)
}

/// Peer address of a socket, as [`local`].
pub(super) fn peer(tcp: &impl AsFd) -> Option<(SocketAddr, bool)> {
    shown(&getpeername::<SockaddrStorage>(tcp.as_fd().as_raw_fd()).ok()?)
}

fn shown(address: &SockaddrStorage) -> Option<(SocketAddr, bool)> {
    let v4 = address.as_sockaddr_in().map(|v4| SocketAddr::new(v4.ip().into(), v4.port()));
    let v6 = || address.as_sockaddr_in6().map(|v6| canonical(SocketAddr::new(v6.ip().into(), v6.port())));
    v4.map(|v4| (v4, false)).or_else(|| v6().map(|v6| (v6, true)))
}

/// An address as an IPv6 socket has it, if `is_v6`.
pub(super) fn as_of(is_v6: bool, address: SocketAddr) -> SocketAddr {
    match address.ip() {
        IpAddr::V4(v4) if is_v6 => SocketAddr::new(v4.to_ipv6_mapped().into(), address.port()),
        _ => address,
    }
}

/// An IPv4-mapped address as one of IPv4; one of IPv6 without scope and flow label, by which equal addresses would differ.
pub(super) fn canonical(address: SocketAddr) -> SocketAddr {
    SocketAddr::new(address.ip().to_canonical(), address.port())
}

/// Reads an address of an untrusted message: connections are compared by it.
pub(super) fn read_canonical<'de, D: Deserializer<'de>>(text: D) -> Result<SocketAddr, D::Error> {
    SocketAddr::deserialize(text).map(canonical)
}
