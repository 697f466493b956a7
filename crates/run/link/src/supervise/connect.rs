//! connect and listen.

use std::os::fd::AsFd;

use nix::errno::Errno;
use sys::{
    fds,
    socket_kind::{SocketKind, is_fresh_tcp},
};

use super::{
    Sockets, address,
    caller::{Caller, Done, Stop, copy_timeouts, is_nonblocking, set_nonblocking},
    epolls::Epolls,
};

/// Bytes of the longest address that is looked at: struct sockaddr_storage.
const ADDRESS_MAX: usize = 128;

/// connect(fd, address, length)
pub(super) fn connect(caller: &Caller<'_>, sockets: &dyn Sockets, epolls: &Epolls) -> Result<Done, Stop> {
    let ours = caller.descriptor()?;
    let kind = SocketKind::of(&ours).map_err(|_| Stop::Leave)?;
    if !kind.is_tcp() && !kind.is_unix_stream() {
        return Err(Stop::Leave);
    }
    let len = usize::try_from(caller.number(2)).map_err(|_| Stop::Leave)?;
    let mut bytes = [0; ADDRESS_MAX];
    let bytes = bytes.get_mut(..len).ok_or(Stop::Leave)?;
    caller.read(caller.pointer(1).ok_or(Stop::Leave)?, bytes).map_err(|_| Stop::Leave)?;
    let to = address::decode(bytes).ok_or(Stop::Leave)?;
    if kind.is_unix_stream() {
        let is_end = sockets.names(ours.as_fd()).is_some();
        return Err(if is_end { Errno::EISCONN.into() } else { Stop::Leave });
    }
    // Only Multipath TCP that nothing was done with yet does not say its state.
    if !is_fresh_tcp(&ours).unwrap_or(true) || (to.is_ipv6() && kind.domain == nix::libc::AF_INET) {
        return Err(Stop::Leave);
    }
    let end = caller.as_its_user(|| sockets.connect(ours.as_fd(), to))??.ok_or(Stop::Leave)?;
    set_nonblocking(end.as_fd(), is_nonblocking(ours.as_fd())?)?;
    copy_timeouts(&ours, &end)?;
    let watchers = epolls.watching(caller, &ours);
    caller.replace(end.as_fd(), caller.closes_on_exec())?;
    for watcher in watchers {
        watcher.watch(&ours, &end)?;
    }
    Ok(Done::Value(0))
}

/// listen(fd, backlog): done here, so that it has been done when [`Sockets::listens`] hears of it.
pub(super) fn listens(caller: &Caller<'_>, sockets: &dyn Sockets) -> Result<Done, Stop> {
    let ours = caller.descriptor()?;
    if !SocketKind::of(&ours).map_err(|_| Stop::Leave)?.is_tcp() {
        return Err(Stop::Leave);
    }
    fds::listen(&ours, caller.number(1))?;
    // Without it no connection comes over link.
    let _ = caller.as_its_user(|| sockets.listens(ours.as_fd()));
    Ok(Done::Value(0))
}
