//! The place where the sides of programs ask, and the lines that two brokers exchange before the bytes of a connection.

use std::{
    fs, io,
    net::SocketAddr,
    os::{
        fd::{AsFd, AsRawFd, OwnedFd},
        unix::fs::PermissionsExt,
    },
    path::Path,
};

use nix::{
    fcntl::{FcntlArg, OFlag, fcntl},
    sys::socket::{AddressFamily, Backlog, SockFlag, SockType, UnixAddr, bind, listen, socket},
};
use serde::{Deserialize, Serialize};

use super::ask::Offer;

/// Bytes of such a line at the most.
pub(super) const LINE_MAX: usize = 512;
/// Programs that may wait to be heard.
const WAITING: i32 = 1024;

/// What the broker of the program that connects says first.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Head {
    /// The address of the program that connects.
    pub(super) from: SocketAddr,
    /// The address that it connects to.
    pub(super) to: SocketAddr,
    /// The connection is there, and this is told of it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) about: Option<About>,
}

/// What a broker tells the other one of a connection that is there.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub(super) enum About {
    /// The program that connected would carry it itself.
    Offer(Offer),
    /// The program that carried it itself has ended without closing it.
    Broke,
}

/// What the other one answers.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(super) enum Taken {
    /// The connection waits for accept(2); bytes follow.
    Yes,
    /// It cannot be.
    No(String),
}

/// A line of it.
pub(super) fn line(what: &impl Serialize) -> Vec<u8> {
    let mut line = serde_json::to_vec(what).unwrap_or_default();
    line.push(b'\n');
    line
}

/// Takes the first line off, once it is whole.
pub(super) fn take_line(bytes: &mut Vec<u8>) -> Option<Vec<u8>> {
    let end = bytes.iter().position(|&b| b == b'\n')?;
    let rest = bytes.split_off(end + 1);
    Some(std::mem::replace(bytes, rest))
}

/// The socket that any program of this network namespace may ask at.
pub(super) fn listener(path: &Path) -> io::Result<OwnedFd> {
    // The lock is ours: what is there is of one that was killed.
    let _ = fs::remove_file(path);
    let flags = SockFlag::SOCK_CLOEXEC | SockFlag::SOCK_NONBLOCK;
    let fd = socket(AddressFamily::Unix, SockType::SeqPacket, flags, None)?;
    bind(fd.as_raw_fd(), &UnixAddr::new(path)?)?;
    fs::set_permissions(path, fs::Permissions::from_mode(0o666))?;
    listen(&fd, Backlog::new(WAITING)?)?;
    Ok(fd)
}

/// Calls on it do not wait any more.
pub(super) fn no_wait(fd: &impl AsFd) -> io::Result<()> {
    let flags = OFlag::from_bits_retain(fcntl(fd, FcntlArg::F_GETFL)?);
    fcntl(fd, FcntlArg::F_SETFL(flags | OFlag::O_NONBLOCK))?;
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_is_taken_once_it_is_whole_and_the_rest_stays() {
        let mut bytes = line(&Taken::Yes);
        let all = bytes.clone();
        bytes.pop();
        assert_eq!(take_line(&mut bytes), None);
        bytes.extend_from_slice(b"\nSSH-2.0");
        assert_eq!(take_line(&mut bytes).as_deref(), Some(&all[..]));
        assert_eq!(bytes, b"SSH-2.0");
    }
}
