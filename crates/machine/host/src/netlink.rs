//! Netlink, the kernel's way to tell of its networking: one socket that asks, into a buffer kept for the next time ([`Netlink`]), what the routing
//! family answers ([`route`], [`tc`]), and one that listens to changes ([`monitor`]).

pub mod conntrack;
pub mod monitor;
pub mod route;
pub mod tc;

use std::{
    io,
    os::fd::{AsRawFd, OwnedFd},
};

use netlink_packet_core::{NetlinkBuffer, NlaBuffer, NlasIterator};
use nix::sys::{
    socket::{
        AddressFamily, MsgFlags, NetlinkAddr, SockFlag, SockProtocol, SockType, bind, recv, send, setsockopt, socket,
        sockopt::ReceiveTimeout,
    },
    time::{TimeVal, TimeValLike},
};

const GENL_ID_CTRL: u16 = 0x10;
const CTRL_CMD_GETFAMILY: u8 = 3;
const CTRL_ATTR_FAMILY_ID: u16 = 1;
const CTRL_ATTR_FAMILY_NAME: u16 = 2;
/// `struct genlmsghdr`: command, version, reserved.
pub(crate) const GENL_HEADER_BYTES: usize = 4;
const NLMSG_ERROR: u16 = 2;
const NLMSG_DONE: u16 = 3;
const NLM_F_DUMP_INTR: u16 = 0x10;
/// NLM_F_REQUEST | NLM_F_ACK
pub const ONE: u16 = 0x1 | 0x4;
/// NLM_F_REQUEST | NLM_F_ROOT | NLM_F_MATCH
pub const DUMP: u16 = 0x1 | 0x100 | 0x200;
/// The kernel fills at most 32 KiB per read of a dump.
const BUFFER_BYTES: usize = 64 << 10;
/// Changes interrupt a dump, which then may lack what was there all the time: so often is asked again.
const ATTEMPTS_MAX: u32 = 10;

/// A socket of one netlink family, in the network namespace of the thread that opened it.
#[derive(Debug)]
pub struct Netlink {
    socket: OwnedFd,
    buffer: Vec<u8>,
    request: Vec<u8>,
    sequence: u32,
    /// The last answer is of more than one moment.
    interrupted: bool,
}

impl Netlink {
    /// Opens the socket.
    ///
    /// # Errors
    /// The kernel lacks this family, or this sandbox refuses it.
    pub fn open(protocol: SockProtocol) -> io::Result<Self> {
        Self::of(socket(AddressFamily::Netlink, SockType::Raw, SockFlag::SOCK_CLOEXEC, protocol)?)
    }

    /// Opens one to links, addresses, routes and neighbours (NETLINK_ROUTE) in this thread's namespace.
    pub fn route() -> io::Result<Self> {
        Self::open(SockProtocol::NetlinkRoute)
    }

    /// The same for policies of IPsec.
    ///
    /// # Errors
    /// The kernel has no IPsec, or this sandbox refuses the family.
    pub fn xfrm() -> io::Result<Self> {
        Self::of(sys::netlink::xfrm_socket()?)
    }

    fn of(socket: OwnedFd) -> io::Result<Self> {
        bind(socket.as_raw_fd(), &NetlinkAddr::new(0, 0))?;
        // The kernel answers at once; this only keeps a fault from hanging the program.
        setsockopt(&socket, ReceiveTimeout, &TimeVal::seconds(2))?;
        Ok(Self { socket, buffer: vec![0; BUFFER_BYTES], request: Vec::new(), sequence: 0, interrupted: false })
    }

    /// The number of a generic netlink family; none when the kernel has no such family.
    pub(crate) fn family(&mut self, name: &str) -> io::Result<Option<u16>> {
        let mut body = vec![CTRL_CMD_GETFAMILY, 1, 0, 0];
        push_attribute(&mut body, CTRL_ATTR_FAMILY_NAME, &[name.as_bytes(), b"\0"].concat());
        let mut family = None;
        let answered = self.ask(GENL_ID_CTRL, ONE, &body, |_, payload| {
            family = attributes(payload.get(GENL_HEADER_BYTES..).unwrap_or_default())
                .find(|a| a.kind() == CTRL_ATTR_FAMILY_ID)
                .and_then(|a| a.value().first_chunk().map(|id| u16::from_ne_bytes(*id)))
                .or(family);
        });
        match answered {
            Err(e) if e.kind() == io::ErrorKind::NotFound => Ok(None),
            Err(e) => Err(e),
            Ok(()) => Ok(family),
        }
    }

    /// Asks for all objects of a kind and parses them; the numbers are those of an answer, of an end and of the request, `header` the bytes of the
    /// kernel's structure in front of the attributes, which say that nothing is left out.
    ///
    /// # Errors
    /// The kernel refuses the list, or it changes faster than it can be read ([`io::ErrorKind::Interrupted`]).
    pub(crate) fn dump<T>(
        &mut self,
        [new, _, get]: [u16; 3],
        header: usize,
        parse: impl Fn(&[u8]) -> Option<T>,
    ) -> io::Result<Vec<T>> {
        for _ in 0..ATTEMPTS_MAX {
            let mut found = Vec::new();
            self.ask(get, DUMP, &vec![0; header], |kind, payload| {
                if kind == new {
                    found.extend(parse(payload));
                }
            })?;
            if !self.interrupted {
                return Ok(found);
            }
        }
        Err(io::ErrorKind::Interrupted.into())
    }

    /// Sends one request and calls `each` with type and payload of every message of the answer.
    pub fn ask(&mut self, kind: u16, flags: u16, body: &[u8], mut each: impl FnMut(u16, &[u8])) -> io::Result<()> {
        self.interrupted = false;
        self.sequence = self.sequence.wrapping_add(1);
        self.request.clear();
        self.request.extend_from_slice(&(16 + body.len() as u32).to_ne_bytes());
        self.request.extend_from_slice(&kind.to_ne_bytes());
        self.request.extend_from_slice(&flags.to_ne_bytes());
        self.request.extend_from_slice(&self.sequence.to_ne_bytes());
        self.request.extend_from_slice(&0u32.to_ne_bytes());
        self.request.extend_from_slice(body);
        send(self.socket.as_raw_fd(), &self.request, MsgFlags::empty())?;
        loop {
            let read = match recv(self.socket.as_raw_fd(), &mut self.buffer, MsgFlags::empty()) {
                Err(nix::Error::EINTR) => continue,
                other => other?,
            };
            if read == 0 {
                return Err(io::ErrorKind::UnexpectedEof.into());
            }
            let mut done = false;
            for message in messages(&self.buffer[..read]) {
                let message = message?;
                if message.sequence_number() != self.sequence {
                    continue;
                }
                self.interrupted |= message.flags() & NLM_F_DUMP_INTR != 0;
                done = done || verdict(&message, &mut each)?;
            }
            if done {
                return Ok(());
            }
        }
    }
}

/// The messages of one read; a broken one ends the walk.
fn messages(mut rest: &[u8]) -> impl Iterator<Item = io::Result<NetlinkBuffer<&[u8]>>> {
    std::iter::from_fn(move || {
        if rest.is_empty() {
            return None;
        }
        let message = NetlinkBuffer::new_checked(rest).map_err(|e| io::Error::new(io::ErrorKind::InvalidData, e));
        let length = message.as_ref().map_or(rest.len(), |m| (m.length() as usize).next_multiple_of(4).min(rest.len()));
        rest = &rest[length..];
        Some(message)
    })
}

/// Hands a message of the answer on; true when the answer is complete.
fn verdict(message: &NetlinkBuffer<&[u8]>, each: &mut impl FnMut(u16, &[u8])) -> io::Result<bool> {
    match message.message_type() {
        NLMSG_DONE => return Ok(true),
        NLMSG_ERROR => {
            let code = message.payload().first_chunk().map_or(0, |b| i32::from_ne_bytes(*b));
            return if code == 0 { Ok(true) } else { Err(io::Error::from_raw_os_error(-code)) };
        }
        kind => each(kind, message.payload()),
    }
    Ok(false)
}

/// The attributes in `bytes` by number; a broken one ends the walk.
pub(crate) fn attributes(bytes: &[u8]) -> impl Iterator<Item = NlaBuffer<&[u8]>> {
    NlasIterator::new(bytes).map_while(Result::ok)
}

pub(crate) fn text(bytes: &[u8]) -> String {
    let end = bytes.iter().position(|&b| b == 0).unwrap_or(bytes.len());
    String::from_utf8_lossy(&bytes[..end]).into_owned()
}

pub(crate) fn u32_at(bytes: &[u8], at: usize) -> Option<u32> {
    bytes.get(at..at.checked_add(4)?)?.try_into().ok().map(u32::from_ne_bytes)
}

pub(crate) fn push_attribute(body: &mut Vec<u8>, kind: u16, value: &[u8]) {
    body.extend_from_slice(&(4 + value.len() as u16).to_ne_bytes());
    body.extend_from_slice(&kind.to_ne_bytes());
    body.extend_from_slice(value);
    body.resize(body.len().next_multiple_of(4), 0);
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn no_answer_makes_it_panic(bytes in prop::collection::vec(any::<u8>(), 0..200), length in 0u32..64) {
            let mut message = bytes;
            if message.len() >= 16 {
                message[..4].copy_from_slice(&length.to_ne_bytes());
            }
            let mut attributes_seen = 0;
            for message in messages(&message).map_while(Result::ok) {
                let _ = verdict(&message, &mut |_, payload| attributes_seen += attributes(payload).count());
            }
            prop_assert!(attributes_seen <= 200);
        }
    }
}
