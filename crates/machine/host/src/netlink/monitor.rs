//! Changes of the machine's networking as they happen.

use std::{
    io,
    os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd},
    time::Duration,
};

use netlink_packet_core::NetlinkBuffer;
use nix::{
    errno::Errno,
    poll::{PollFd, PollFlags, PollTimeout, poll},
    sys::socket::{
        AddressFamily, NetlinkAddr, SockFlag, SockProtocol, SockType, bind, recvfrom, setsockopt, socket,
        sockopt::{RcvBuf, RcvBufForce},
    },
};

use super::{
    BUFFER_BYTES, attributes, messages,
    route::{self, Address, Neighbour, Route, Rule},
    u32_at,
};
use crate::interface::{Link, link};

/// Groups of the routing family: links, neighbours, addresses, routes, rules, nexthop objects (RTNLGRP_… of linux/rtnetlink.h).
const ROUTE_GROUPS: [u32; 9] = [1, 3, 5, 7, 8, 9, 11, 19, 32];
/// Changes of nftables (NFNLGRP_NFTABLES of linux/netfilter/nfnetlink.h).
const NFTABLES_GROUP: u32 = 7;
/// NFNL_SUBSYS_NFTABLES << 8 | NFT_MSG_NEWGEN: the end of each transaction.
const NEWGEN: u16 = 10 << 8 | 15;
/// `struct nfgenmsg`: family, version, resource.
const NFGENMSG_BYTES: usize = 4;
const GEN_ID: u16 = 1;
const AF_UNSPEC: u8 = 0;
const NEXTHOP: [u16; 2] = [104, 105];
/// `struct nhmsg`: family, scope, protocol, reserved, flags.
const NHMSG_BYTES: usize = 8;
const NHA_ID: u16 = 1;
const NLM_F_REPLACE: u16 = 0x100;
/// A message of one interface is about 1.5 KiB, and takes twice that of the buffer.
const RECEIVE_BYTES: usize = 4 << 20;
/// Messages read at once, so that a storm does not keep the caller from the rest of its work.
const MESSAGES_MAX: usize = 4096;

/// The change of an object.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Change {
    /// Added or changed.
    Set,
    /// Put in place of another one: for a route, of the one with the same table, prefix and metric.
    Replaced,
    Gone,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Event {
    /// An interface, by its index.
    Link(Change, u32, Box<Link>),
    Address(Change, Address),
    /// A route. Of an IPv6 route of several hops, a hop may come and go alone: the prefix is best read anew.
    Route(Change, Route),
    Rule(Change, Rule),
    Neighbour(Change, Neighbour),
    /// A nexthop object, by its number: routes by it go elsewhere.
    Nexthop(Change, u32),
    /// The rules of nftables, with their generation now.
    Nftables(u32),
    /// Changes came faster than they were read, and some are lost. Whatever was told before is not to be relied on: all is to be read anew.
    Lost,
}

/// Listens to changes in the network namespace of the thread that opened it. Rules of iptables-legacy tell nobody of themselves.
///
/// Open it first and read all that is there then: so nothing falls in between, and what comes twice says the same.
#[derive(Debug)]
pub struct Monitor {
    listeners: Vec<Listener>,
    buffer: Vec<u8>,
}

#[derive(Debug)]
struct Listener {
    socket: OwnedFd,
    /// Messages were lost; those still waiting are older.
    behind: bool,
}

impl Monitor {
    pub fn open() -> io::Result<Self> {
        Self::with_buffer(RECEIVE_BYTES)
    }

    /// Opens a monitor with a receive buffer of so many bytes.
    pub fn with_buffer(bytes: usize) -> io::Result<Self> {
        let route = Listener::open(SockProtocol::NetlinkRoute, &ROUTE_GROUPS, bytes)?;
        let listeners = std::iter::once(route).chain(nftables(bytes)?).collect();
        Ok(Self { listeners, buffer: vec![0; BUFFER_BYTES] })
    }

    /// Begins to listen to changes of nftables alone; none: this kernel has no nftables.
    pub fn of_nftables() -> io::Result<Option<Self>> {
        let listener = nftables(RECEIVE_BYTES)?;
        Ok(listener.map(|listener| Self { listeners: vec![listener], buffer: vec![0; BUFFER_BYTES] }))
    }

    /// The sockets, for a poll of the caller's own: readable when there is something for [`Monitor::read`].
    pub fn sockets(&self) -> impl Iterator<Item = BorrowedFd<'_>> {
        self.listeners.iter().map(|listener| listener.socket.as_fd())
    }

    /// Waits for a change; false when none came in time.
    ///
    /// # Errors
    /// The poll fails, a signal's interruption included.
    pub fn wait(&self, timeout: Duration) -> io::Result<bool> {
        let mut sockets: Vec<PollFd<'_>> = self.sockets().map(|s| PollFd::new(s, PollFlags::POLLIN)).collect();
        let timeout = PollTimeout::try_from(timeout).unwrap_or(PollTimeout::MAX);
        Ok(poll(&mut sockets, timeout)? > 0)
    }

    /// Hands on what came, without waiting, in the kernel's order; routing and nftables are not in order among each other.
    pub fn read(&mut self, mut each: impl FnMut(Event)) -> io::Result<()> {
        for listener in &mut self.listeners {
            listener.read(&mut self.buffer, &mut each)?;
        }
        Ok(())
    }
}

fn nftables(bytes: usize) -> io::Result<Option<Listener>> {
    match Listener::open(SockProtocol::NetlinkNetFilter, &[NFTABLES_GROUP], bytes) {
        Ok(listener) => Ok(Some(listener)),
        Err(e) if matches!(e.raw_os_error(), Some(libc::EPROTONOSUPPORT | libc::ENOENT)) => Ok(None),
        Err(e) => Err(e),
    }
}

impl Listener {
    fn open(protocol: SockProtocol, groups: &[u32], bytes: usize) -> io::Result<Self> {
        let flags = SockFlag::SOCK_CLOEXEC | SockFlag::SOCK_NONBLOCK;
        let socket = socket(AddressFamily::Netlink, SockType::Raw, flags, protocol)?;
        // Beyond the machine's limit takes CAP_NET_ADMIN; without it the limit is what there is.
        setsockopt(&socket, RcvBufForce, &bytes).or_else(|_| setsockopt(&socket, RcvBuf, &bytes))?;
        let groups = groups.iter().fold(0, |all, group| all | 1 << (group - 1));
        bind(socket.as_raw_fd(), &NetlinkAddr::new(0, groups))?;
        Ok(Self { socket, behind: false })
    }

    fn read(&mut self, buffer: &mut [u8], each: &mut impl FnMut(Event)) -> io::Result<()> {
        for _ in 0..MESSAGES_MAX {
            match recvfrom::<NetlinkAddr>(self.socket.as_raw_fd(), buffer) {
                // From the kernel, not from another process.
                Ok((read, Some(from))) if from.pid() == 0 && !self.behind => {
                    messages(&buffer[..read]).map_while(Result::ok).filter_map(|m| event(&m)).for_each(&mut *each);
                }
                Ok(_) | Err(Errno::EINTR) => {}
                // What waits is older than what is to be read anew.
                Err(Errno::ENOBUFS) => self.behind = true,
                Err(Errno::EAGAIN) => {
                    if std::mem::take(&mut self.behind) {
                        each(Event::Lost);
                    }
                    break;
                }
                Err(e) => return Err(e.into()),
            }
        }
        Ok(())
    }
}

/// The change that a message tells of; none: of something else, or not whole.
fn event(message: &NetlinkBuffer<&[u8]>) -> Option<Event> {
    let (kind, payload) = (message.message_type(), message.payload());
    let is = |[new, gone]: [u16; 2]| match kind {
        _ if kind == gone => Some(Change::Gone),
        _ if kind != new => None,
        _ if message.flags() & NLM_F_REPLACE != 0 => Some(Change::Replaced),
        _ => Some(Change::Set),
    };
    let of = |[new, gone, _]: [u16; 3]| is([new, gone]);
    if let Some(change) = of(link::LINK) {
        // Of a port of a bridge its place there is told again by itself.
        let (index, link) = (*payload.first()? == AF_UNSPEC).then(|| link::parse(payload))??;
        return Some(Event::Link(change, index, Box::new(link)));
    }
    if let Some(change) = of(route::ADDRESS) {
        return Some(Event::Address(change, route::address(payload)?));
    }
    if let Some(change) = of(route::ROUTE) {
        return Some(Event::Route(change, route::route(payload)?));
    }
    if let Some(change) = of(route::RULE) {
        return Some(Event::Rule(change, route::rule(payload)?));
    }
    if let Some(change) = of(route::NEIGHBOUR) {
        return Some(Event::Neighbour(change, route::neighbour(payload)?));
    }
    let number = |header: usize, number: u16| attributes(payload.get(header..)?).find(|a| a.kind() == number);
    if let Some(change) = is(NEXTHOP) {
        return Some(Event::Nexthop(change, u32_at(number(NHMSG_BYTES, NHA_ID)?.value(), 0)?));
    }
    (kind == NEWGEN).then(|| {
        number(NFGENMSG_BYTES, GEN_ID)?.value().first_chunk().map(|id| Event::Nftables(u32::from_be_bytes(*id)))
    })?
}
