//! Numbers by which the broker finds connections, each kind of its own type.

use std::{io, os::fd::AsFd};

use nix::sys::{
    epoll::{EpollEvent, EpollFlags},
    stat::fstat,
};
use sys::fds::socket_cookie;

/// Number of an entry of the broker's table, and its token in epoll. No number is used twice.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) struct EntryId(pub(super) u64);

/// Cookie of a socket (SO_COOKIE). The kernel uses none twice.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(super) struct Cookie(u64);

#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Inode(pub(super) u64);

impl EntryId {
    /// The least and the greatest number.
    pub(super) const MIN: Self = Self(0);
    pub(super) const MAX: Self = Self(u64::MAX);

    pub(super) fn event(self, what: EpollFlags) -> EpollEvent {
        EpollEvent::new(what, self.0)
    }
}

impl Cookie {
    pub(super) fn of(socket: &impl AsFd) -> io::Result<Self> {
        socket_cookie(socket).map(Self)
    }
}

impl From<u64> for Cookie {
    fn from(cookie: u64) -> Self {
        Self(cookie)
    }
}

impl Inode {
    pub(super) fn of(socket: &impl AsFd) -> io::Result<Self> {
        Ok(Self(fstat(socket.as_fd())?.st_ino))
    }
}
