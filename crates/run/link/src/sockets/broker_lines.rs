//! The socket for requests of programs, and the lines that two brokers exchange before the bytes of a connection.

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

use super::{broker_client::Offer, socket_address::read_canonical};

pub(super) const LINE_MAX: usize = 512;
const REQUEST_BACKLOG: i32 = 1024;

/// First line of a stream between brokers, by that of the program that connects.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Head {
    /// Address of the program that connects.
    #[serde(deserialize_with = "read_canonical")]
    pub(super) from: SocketAddr,
    /// Address that it connects to.
    #[serde(deserialize_with = "read_canonical")]
    pub(super) to: SocketAddr,
    /// A notice about an existing connection, and no new one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) about: Option<Notice>,
}

/// A notice of one broker to the other about an existing connection.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub(super) enum Notice {
    /// The program that connected offers to carry it.
    Offer(Offer),
    /// The program that carried it has ended without closing it.
    Broke,
}

/// The other broker's answer to the first line.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(super) enum Taken {
    /// The connection waits for accept(2); bytes follow.
    Yes,
    /// Refused, for this reason.
    No(String),
}

/// A value as a line of JSON.
pub(super) fn line(what: &impl Serialize) -> Vec<u8> {
    let mut line = serde_json::to_vec(what).unwrap_or_default();
    line.push(b'\n');
    line
}

/// Takes the first line off, once it is complete.
pub(super) fn take_line(bytes: &mut Vec<u8>) -> Option<Vec<u8>> {
    let end = bytes.iter().position(|&b| b == b'\n')?;
    let rest = bytes.split_off(end + 1);
    Some(std::mem::replace(bytes, rest))
}

/// The socket for requests of any program of this network namespace.
pub(super) fn listener(path: &Path) -> io::Result<OwnedFd> {
    // This broker has the lock, so the file is one of a killed broker.
    let _ = fs::remove_file(path);
    let flags = SockFlag::SOCK_CLOEXEC | SockFlag::SOCK_NONBLOCK;
    let fd = socket(AddressFamily::Unix, SockType::SeqPacket, flags, None)?;
    bind(fd.as_raw_fd(), &UnixAddr::new(path)?)?;
    fs::set_permissions(path, fs::Permissions::from_mode(0o666))?;
    listen(&fd, Backlog::new(REQUEST_BACKLOG)?)?;
    Ok(fd)
}

pub(super) fn no_wait(fd: &impl AsFd) -> io::Result<()> {
    let flags = OFlag::from_bits_retain(fcntl(fd, FcntlArg::F_GETFL)?);
    fcntl(fd, FcntlArg::F_SETFL(flags | OFlag::O_NONBLOCK))?;
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_address_is_one_however_a_broker_writes_it() {
        let head = |from: &str, to: &str| {
            serde_json::from_str::<Head>(&format!(r#"{{"from":"{from}","to":"{to}"}}"#)).unwrap()
        };
        assert_eq!(head("[fd00::1%3]:40000", "[fd00::2%7]:7000"), head("[fd00::1]:40000", "[fd00::2]:7000"));
        assert_eq!(head("[::ffff:10.0.0.1]:40000", "10.0.0.2:7000"), head("10.0.0.1:40000", "10.0.0.2:7000"));
    }

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
