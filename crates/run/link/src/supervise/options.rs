//! Names and options of an end: what TCP would have answered, and AF_UNIX does not know.

use std::{
    net::SocketAddr,
    os::fd::{AsFd, OwnedFd},
};

use nix::libc;
use sys::{
    seccomp_notify::{Call, Rule, SocketOption},
    socket_kind::SocketKind,
};

use super::{
    Sockets, address,
    caller::{Caller, Done, Stop},
};
use crate::sockets::{OF_SOCKET, option, set_option};

/// The options that are answered here; all others are as AF_UNIX has them, and go past.
pub(super) fn rules() -> [Rule; 2] {
    let all = |level| SocketOption { level, names: Vec::new() };
    let of_protocols = [libc::IPPROTO_TCP, libc::IPPROTO_IP, libc::IPPROTO_IPV6].map(all);
    let of_socket = SocketOption { level: libc::SOL_SOCKET, names: OF_SOCKET.to_vec() };
    let options = [&of_protocols[..], &[of_socket]].concat();
    [Call::Getsockopt, Call::Setsockopt].map(|call| Rule { call, options: options.clone() })
}

/// The descriptor of the call if it is an end, and its addresses.
fn end(caller: &Caller<'_>, sockets: &dyn Sockets) -> Result<(OwnedFd, SocketAddr, SocketAddr), Stop> {
    let ours = caller.descriptor()?;
    if !SocketKind::of(&ours).map_err(|_| Stop::Leave)?.is_unix_stream() {
        return Err(Stop::Leave);
    }
    let (local, peer) = sockets.names(ours.as_fd()).ok_or(Stop::Leave)?;
    Ok((ours, local, peer))
}

/// getsockname(fd, address, length) and getpeername.
pub(super) fn name(caller: &Caller<'_>, sockets: &dyn Sockets, of_peer: bool) -> Result<Done, Stop> {
    let (_end, local, peer) = end(caller, sockets)?;
    let name = if of_peer { peer } else { local };
    caller.fill(caller.place(1, 2)?, &address::encode(name))?;
    Ok(Done::Value(0))
}

/// getsockopt(fd, level, name, value, length)
pub(super) fn get(caller: &Caller<'_>, sockets: &dyn Sockets) -> Result<Done, Stop> {
    let (end, local, _) = end(caller, sockets)?;
    let figures = || caller.as_its_user(|| sockets.figures(end.as_fd())).ok().flatten();
    let value = option(caller.number(1), caller.number(2), local.is_ipv6(), figures).map_err(Stop::Fails)?;
    caller.fill_option(caller.place(3, 4)?, &value)?;
    Ok(Done::Value(0))
}

/// setsockopt(fd, level, name, value, length)
pub(super) fn set(caller: &Caller<'_>, sockets: &dyn Sockets) -> Result<Done, Stop> {
    end(caller, sockets)?;
    set_option(caller.number(1), caller.number(2)).map_err(Stop::Fails)?;
    Ok(Done::Value(0))
}
