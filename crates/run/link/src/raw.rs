//! The protocol as the payload of Ethernet frames, by AF_PACKET.

use std::{
    io,
    net::SocketAddr,
    os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd, RawFd},
    time::Duration,
};

use bpf::{LinkPort, LinkRing, LinkSettings, XdpMode};
use host::{
    interface::{index, links},
    netlink::Netlink,
};
use nix::{
    errno::Errno,
    poll::{PollFd, PollFlags, ppoll},
    sys::{
        epoll::{Epoll, EpollEvent, EpollFlags},
        time::TimeSpec,
    },
};
use serde::{Deserialize, Serialize};
use sys::{
    packet::{Batch, PacketError, PacketSocket},
    packet_batch::PacketBatch,
    packet_tx::PacketTxError,
};
use transport::{Endpoints, HEADER_BYTES, Kind};
use wire::Mac;

use crate::{Address, Carrier, ETHERTYPE, LinkError, burst::Bursts, table::Table};

const ETHERNET_BYTES: usize = 14;
/// Frames that one system call reads.
const READ_FRAMES_MAX: usize = 32;
/// Polls of an empty ring between two reads of the socket, which gets frames while the ring's XDP program is away.
const RING_POLLS_PER_READ: u32 = 256;
/// Least payload of a frame.
const PAYLOAD_BYTES_MIN: u32 = 64;
/// Bytes of the socket's receive and send buffer.
const SOCKET_BUFFER_BYTES: u32 = 8 << 20;

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Wire {
    pub interface: String,
    pub index: u32,
    #[serde(with = "text")]
    pub address: Mac,
    /// Bytes of the longest payload of a frame behind its headers.
    pub payload_max: u16,
    /// This node's address behind UDP; none: frames go over plain Ethernet.
    pub udp: Option<SocketAddr>,
}

impl Wire {
    /// An interface of this network namespace.
    ///
    /// # Errors
    /// There is none of that name, it carries no Ethernet, or its frames are too short.
    pub fn of(interface: &str) -> Result<Self, LinkError> {
        match Self::of_any(interface)? {
            wire if wire.address == Mac::default() => Err(LinkError::NotEthernet { interface: interface.to_owned() }),
            wire => Ok(wire),
        }
    }

    /// The same; one that is no Ethernet has the address 0.
    pub(crate) fn of_any(interface: &str) -> Result<Self, LinkError> {
        let system = |operation| move |source| LinkError::System { operation, source };
        let mut route = Netlink::route().map_err(system("ask the kernel for its interfaces"))?;
        let index = index(interface)?;
        let mut all = links(&mut route).map_err(system("read the interfaces"))?;
        let link = all.remove(&index).unwrap_or_default();
        let address: Mac = link.address.parse().unwrap_or_default();
        let least = HEADER_BYTES as u32 + PAYLOAD_BYTES_MIN;
        if link.mtu < least {
            return Err(LinkError::Mtu { interface: interface.to_owned(), mtu: link.mtu, least });
        }
        let payload_max = u16::try_from(link.mtu - HEADER_BYTES as u32).unwrap_or(u16::MAX);
        Ok(Self { interface: interface.to_owned(), index, address, payload_max, udp: None })
    }

    pub fn node(&self) -> Address {
        self.udp.map_or(Address::Ethernet(self.address), Address::Udp)
    }

    fn frame_max(&self) -> usize {
        ETHERNET_BYTES + HEADER_BYTES + usize::from(self.payload_max)
    }

    /// A socket that receives its frames of messages, those that `filter` passes, and one that sends.
    pub(crate) fn sockets(&self, filter: Option<BorrowedFd<'_>>) -> Result<(PacketSocket, PacketBatch), LinkError> {
        let socket = PacketSocket::open()?;
        socket.set_receive_buffer(SOCKET_BUFFER_BYTES)?;
        socket.set_ignore_outgoing()?;
        if let Some(filter) = filter {
            socket.set_filter_ebpf(filter)?;
            socket.lock_filter()?;
        }
        socket.bind_for(self.index, ETHERTYPE)?;
        let sends = PacketBatch::open(self.index, self.frame_max(), SOCKET_BUFFER_BYTES as usize)?;
        // It receives nothing, but whoever has it could bind it.
        filter.map_or(Ok(()), |filter| sends.lock_filter(filter))?;
        Ok((socket, sends))
    }
}

/// True if a frame with this Ethernet header is looked at. Each node would answer one to a group, and each would hear an answer to a group: only hellos
/// are said to all.
fn is_heard(head: &[u8], frame: &[u8]) -> bool {
    let [to_group, from_group] = [0, 6].map(|at: usize| head.get(at).is_some_and(|byte| byte & 1 != 0));
    !from_group && (!to_group || frame.first().is_some_and(|version_kind| version_kind & 15 == Kind::Hello as u8))
}

/// An address as people write it.
mod text {
    use serde::{Deserialize, Deserializer, Serializer, de::Error};
    use wire::Mac;

    pub(super) fn serialize<S: Serializer>(mac: &Mac, to: S) -> Result<S::Ok, S::Error> {
        to.collect_str(mac)
    }

    pub(super) fn deserialize<'de, D: Deserializer<'de>>(from: D) -> Result<Mac, D::Error> {
        String::deserialize(from)?.parse().map_err(D::Error::custom)
    }
}

/// Frames on one interface, in its VLAN or untagged.
#[derive(Debug)]
pub struct Raw {
    wire: Wire,
    socket: PacketSocket,
    batch: Batch,
    out: PacketBatch,
    /// The Ethernet header of what is sent.
    head: [u8; ETHERNET_BYTES],
    /// Ring filled by XDP. Without it, or once the XDP program is detached, the socket receives all frames.
    ring: Option<LinkRing>,
    /// Looks at an empty ring since the last look at the socket.
    looks: u32,
    /// Sender of bursts; none: not allowed.
    bursts: Option<Bursts>,
    /// The broker's table of open connections.
    table: Option<Table>,
    /// The program `ek_link`, where this is its only user.
    program: Option<LinkPort>,
    /// The interface is down: what is sent is lost, until it is up again.
    is_down: bool,
}

impl Raw {
    /// All frames of messages on an interface of this network namespace. Where a broker serves, [`crate::Claim`] instead shares them.
    ///
    /// # Errors
    /// As [`Wire::of`]; CAP_NET_RAW lacks.
    pub fn open(interface: &str) -> Result<Self, LinkError> {
        let wire = Wire::of(interface)?;
        let (socket, out) = wire.sockets(None)?;
        Ok(Self::with(wire, socket, out))
    }

    /// The same by a ring of `bytes` out of the XDP hook, whose program goes with this.
    ///
    /// # Errors
    /// As there; the driver runs no program in that mode, or another one sits there.
    pub fn open_ring(interface: &str, mode: XdpMode, bytes: usize) -> Result<Self, LinkError> {
        let mut raw = Self::open(interface)?;
        let mut program = LinkPort::attach(interface, mode, LinkSettings { checked: false, answers_on_veth: false })?;
        raw.ring = Some(program.endpoint(0..=u16::MAX, bytes)?);
        raw.program = Some(program);
        Ok(raw.with_bursts())
    }

    /// Lets it load a program, once many frames are sent at once, that sends those faster. It keeps descriptors of it open.
    pub(crate) fn with_bursts(self) -> Self {
        Self { bursts: Some(Bursts::new()), ..self }
    }

    /// The mode of the program in the XDP hook, where this is its only user.
    pub fn mode(&self) -> Option<XdpMode> {
        self.program.as_ref().map(LinkPort::mode)
    }

    pub(crate) fn with(wire: Wire, socket: PacketSocket, out: PacketBatch) -> Self {
        let frame_max = wire.frame_max();
        let mut head = [0; ETHERNET_BYTES];
        head[6..12].copy_from_slice(&wire.address.0);
        head[12..14].copy_from_slice(&ETHERTYPE.to_be_bytes());
        Self {
            socket,
            batch: Batch::new(READ_FRAMES_MAX, frame_max),
            out,
            head,
            wire,
            ring: None,
            looks: 0,
            bursts: None,
            table: None,
            program: None,
            is_down: false,
        }
    }

    /// The same on sockets that another process opened, and with a ring and a table that it made.
    pub(crate) fn of(
        wire: Wire,
        receives: OwnedFd,
        sends: OwnedFd,
        ring: Option<LinkRing>,
        table: Option<Table>,
    ) -> Self {
        let out = PacketBatch::of(sends, wire.frame_max());
        Self { ring, table, ..Self::with(wire, receives.into(), out) }
    }

    /// The descriptors that it has open.
    pub(crate) fn descriptors(&self) -> Vec<RawFd> {
        let mut all = vec![self.socket.as_fd().as_raw_fd(), self.out.as_fd().as_raw_fd()];
        all.extend(self.ring.iter().flat_map(|ring| ring.descriptors().map(|fd| fd.as_raw_fd())));
        all.extend(self.table.iter().map(|table| table.as_fd().as_raw_fd()));
        all
    }

    /// An interface that is down may come up again, and the kernel then goes on with its sockets and its program; one that is gone does not.
    fn goes_on(&mut self, operation: &'static str, source: io::Error) -> Result<(), LinkError> {
        let down = source.raw_os_error() == Some(Errno::ENETDOWN as i32);
        if down && self.socket.is_bound() {
            self.is_down = true;
            return Ok(());
        }
        Err(LinkError::System { operation, source })
    }

    pub fn wire(&self) -> &Wire {
        &self.wire
    }

    pub fn address(&self) -> Mac {
        self.wire.address
    }
}

impl Carrier for Raw {
    type Address = Mac;

    fn payload_max(&self) -> u16 {
        self.wire.payload_max
    }

    fn everyone(&self) -> &[Mac] {
        const { &[Mac([0xff; 6])] }
    }

    #[inline]
    fn receive(&mut self, mut on: impl FnMut(Mac, &[u8], bool)) -> Result<usize, LinkError> {
        if let Some(ring) = &mut self.ring {
            let congested = ring.filled() > ring.bytes() / 2;
            let count = ring.consume(|from, _, frame| on(Mac(from), frame, congested));
            self.looks += 1;
            if count > 0 || self.looks < RING_POLLS_PER_READ {
                return Ok(count);
            }
            self.looks = 0;
        }
        let count = match self.batch.receive(&self.socket) {
            Ok(count) => count,
            Err(PacketError::Receive(source)) => {
                self.goes_on("receive on the interface", source)?;
                return Ok(0);
            }
            Err(error) => return Err(error.into()),
        };
        for packet in self.batch.packets(count) {
            if let Some((head, frame)) = packet.data.split_at_checked(ETHERNET_BYTES)
                && is_heard(head, frame)
            {
                on(Mac([head[6], head[7], head[8], head[9], head[10], head[11]]), frame, false);
            }
        }
        Ok(count)
    }

    #[inline]
    fn send(&mut self, to: Mac, head: &[u8; HEADER_BYTES], payload: &[u8]) -> Result<(), LinkError> {
        self.head[..6].copy_from_slice(&to.0);
        if !self.out.push_parts([&self.head, head, payload]) {
            self.flush()?;
            self.out.push_parts([&self.head, head, payload]);
        }
        Ok(())
    }

    #[inline]
    fn flush(&mut self) -> Result<(), LinkError> {
        if let Some(bursts) = &mut self.bursts
            && bursts.send(&mut self.out, &self.wire.interface, self.wire.frame_max())
        {
            return Ok(());
        }
        if self.out.waiting() == 0 {
            return Ok(());
        }
        // What finds no room is sent again as if the network had lost it.
        match self.out.flush() {
            Ok(_) => self.is_down = false,
            Err(PacketTxError::Send(source)) => self.goes_on("send on the interface", source)?,
            Err(error) => return Err(error.into()),
        }
        Ok(())
    }

    fn is_down(&self) -> bool {
        self.is_down
    }

    fn wait(&mut self, at_most: Duration) -> Result<bool, LinkError> {
        let socket = PollFd::new(self.socket.as_fd(), PollFlags::POLLIN);
        let woken = match &self.ring {
            None => sleep(&mut [socket], at_most)?,
            Some(ring) => {
                let woken = match ring.sleep() {
                    true => sleep(&mut [socket, PollFd::new(ring.as_fd(), PollFlags::POLLIN)], at_most)?,
                    false => Woken::Frames,
                };
                ring.awake();
                woken
            }
        };
        self.looks = RING_POLLS_PER_READ;
        let failed = woken == Woken::Failed;
        if let Some(source) = failed.then(|| self.socket.take_error()).transpose()?.flatten() {
            self.goes_on("receive on the interface", source)?;
        }
        Ok(woken != Woken::Signal)
    }

    fn watch(&self, epoll: &Epoll) -> Result<(), LinkError> {
        let rings = self.ring.iter().map(AsFd::as_fd);
        for fd in [self.socket.as_fd()].into_iter().chain(rings) {
            epoll
                .add(fd, EpollEvent::new(EpollFlags::EPOLLIN, 0))
                .map_err(|e| LinkError::System { operation: "wait for frames by epoll", source: e.into() })?;
        }
        Ok(())
    }

    fn sleep(&mut self) -> bool {
        // What wakes is perhaps for the socket.
        self.looks = RING_POLLS_PER_READ;
        self.ring.as_ref().is_none_or(LinkRing::sleep)
    }

    fn awake(&mut self) {
        if let Some(ring) = &self.ring {
            ring.awake();
        }
    }

    fn set_connection(&mut self, slot: u32, endpoints: Option<Endpoints<Mac>>) {
        if let Some(table) = &self.table {
            table.set(slot, endpoints);
        }
    }

    fn clear_connections(&mut self) {
        if let Some(table) = &self.table {
            table.clear();
        }
    }
}

/// The end of a sleep.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Woken {
    /// Frames arrived, or the time is over.
    Frames,
    Signal,
    /// The first of the descriptors reports an error.
    Failed,
}

/// Sleeps until one is readable. Timers of link are due within microseconds, which poll(2) cannot wait for.
pub(crate) fn sleep(waits: &mut [PollFd<'_>], at_most: Duration) -> Result<Woken, LinkError> {
    match ppoll(waits, Some(TimeSpec::from_duration(at_most)), None) {
        Err(Errno::EINTR) => return Ok(Woken::Signal),
        done => done.map_err(|e| LinkError::System { operation: "wait for frames", source: e.into() })?,
    };
    let failed = waits[0].revents().is_some_and(|what| what.intersects(PollFlags::POLLERR | PollFlags::POLLNVAL));
    Ok(if failed { Woken::Failed } else { Woken::Frames })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn frames_to_groups_are_hellos_and_none_is_from_a_group() {
        let [one, all] = [[2, 0, 0, 0, 0, 1], [0xff; 6]];
        let heard = |to: [u8; 6], from: [u8; 6], kind: Kind| is_heard(&[to, from].concat(), &[1 << 4 | kind as u8]);
        assert!(heard(one, one, Kind::Probe) && heard(one, one, Kind::Hello) && heard(all, one, Kind::Hello));
        assert!(!heard(all, one, Kind::Probe) && !heard(all, one, Kind::Open));
        assert!(!heard(one, all, Kind::Probe) && !heard(all, all, Kind::Hello));
        assert!(!is_heard(&[all, one].concat(), &[]));
    }
}
