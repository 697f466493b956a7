//! The ends of UDP and TCP.

use std::{
    io::{self, ErrorKind, Read, Write},
    net::{TcpListener, TcpStream, UdpSocket},
    os::fd::AsFd,
};

use model::link_bench::Receive;
use sys::busy_poll;

use super::{
    MessagesError,
    bed::{ADDRESSES, Bed},
    end::{End, MESSAGE_TIMEOUT, SpinTimeout},
};

/// Busy-poll time of a receive call, in microseconds.
const BUSY_POLL_US: u32 = 1_000_000;

/// Both ends, or why this machine cannot receive so.
pub(super) type Pair<E> = Result<[E; 2], String>;

/// Asks for a way to wait once something has come by; why not, where there is nothing to poll.
pub(super) fn wait_as(socket: &impl AsFd, receive: Receive) -> Result<Option<String>, MessagesError> {
    if receive != Receive::Polling {
        return Ok(None);
    }
    let failed = MessagesError::system("read the NAPI instance of a socket");
    if busy_poll::napi_id(socket).map_err(failed)?.is_none() {
        return Ok(Some(
            "the link has no NAPI instance to poll (SO_INCOMING_NAPI_ID is 0): its frames go through the backlog of a CPU"
                .into(),
        ));
    }
    busy_poll::set(socket, BUSY_POLL_US).map_err(MessagesError::system("set SO_BUSY_POLL"))?;
    Ok(None)
}

/// An end of UDP.
pub(super) struct Datagrams {
    socket: UdpSocket,
}

/// Sets a TCP connection up: without Nagle's delay, and with an end to every wait.
pub(super) fn set_up(stream: &TcpStream) -> Result<(), MessagesError> {
    let system = MessagesError::system;
    stream.set_nodelay(true).map_err(system("set TCP_NODELAY"))?;
    stream.set_read_timeout(Some(MESSAGE_TIMEOUT)).map_err(system("set a time-out"))?;
    stream.set_write_timeout(Some(MESSAGE_TIMEOUT)).map_err(system("set a time-out"))
}

impl Datagrams {
    /// The end of a connected socket.
    pub(super) fn of(socket: UdpSocket) -> Self {
        Self { socket }
    }

    pub(super) fn pair(bed: &Bed, receive: Receive) -> Result<Pair<Self>, MessagesError> {
        let bind = |i: usize| bed.places[i].space.run(|| UdpSocket::bind((ADDRESSES[i], 0)));
        let system = MessagesError::system;
        let ends = [bind(0)?.map_err(system("bind a UDP socket"))?, bind(1)?.map_err(system("bind a UDP socket"))?];
        for (end, other) in [(0, 1), (1, 0)] {
            let to = ends[other].local_addr().map_err(system("read an address"))?;
            ends[end].connect(to).map_err(system("connect a UDP socket"))?;
            ends[end].set_read_timeout(Some(MESSAGE_TIMEOUT)).map_err(system("set a time-out"))?;
        }
        // Workload has come once says where from.
        for [from, to] in [[0, 1], [1, 0]] {
            ends[from].send(&[0]).map_err(system("send a datagram"))?;
            ends[to].recv(&mut [0]).map_err(system("receive a datagram"))?;
        }
        for end in &ends {
            if let Some(why) = wait_as(end, receive)? {
                return Ok(Err(why));
            }
            end.set_nonblocking(receive == Receive::Spinning).map_err(system("set a socket"))?;
        }
        Ok(Ok(ends.map(|socket| Self { socket })))
    }
}

impl End for Datagrams {
    fn send(&mut self, message: &[u8]) -> Result<(), MessagesError> {
        let mut spin_timeout = SpinTimeout::default();
        loop {
            match self.socket.send(message) {
                Ok(_) => return Ok(()),
                Err(e) if e.kind() == ErrorKind::WouldBlock => spin_timeout.spin("UDP")?,
                Err(source) => return Err(MessagesError::System { operation: "send a datagram", source }),
            }
        }
    }

    fn receive(&mut self, place: &mut [u8]) -> Result<(), MessagesError> {
        let mut spin_timeout = SpinTimeout::default();
        loop {
            match self.socket.recv(place) {
                Ok(_) => return Ok(()),
                Err(e) if e.kind() == ErrorKind::WouldBlock => spin_timeout.spin("UDP")?,
                Err(source) => return Err(MessagesError::System { operation: "receive a datagram", source }),
            }
        }
    }
}

/// A TCP connection between both places.
pub(super) fn tcp(bed: &Bed, receive: Receive) -> Result<Pair<TcpStream>, MessagesError> {
    let system = MessagesError::system;
    let [a, b] = &bed.places;
    let listener = b.space.run(|| TcpListener::bind((ADDRESSES[1], 0)))?.map_err(system("listen"))?;
    let to = listener.local_addr().map_err(system("read an address"))?;
    let here = a.space.run(|| TcpStream::connect(to))?.map_err(system("connect"))?;
    let (there, _) = listener.accept().map_err(system("accept a connection"))?;
    let mut ends = [here, there];
    ends.iter().try_for_each(set_up)?;
    for [from, to] in [[0, 1], [1, 0]] {
        ends[from].write_all(&[0]).map_err(system("write"))?;
        ends[to].read_exact(&mut [0]).map_err(system("read"))?;
    }
    for end in &ends {
        if let Some(why) = wait_as(end, receive)? {
            return Ok(Err(why));
        }
        end.set_nonblocking(receive == Receive::Spinning).map_err(system("set a socket"))?;
    }
    Ok(Ok(ends))
}

/// Does a part of a message until there is nothing left.
fn all(len: usize, mut part: impl FnMut(usize) -> io::Result<usize>) -> Result<(), MessagesError> {
    let (mut at, mut spin_timeout) = (0, SpinTimeout::default());
    while at < len {
        match part(at) {
            Ok(0) => return Err(MessagesError::Short("TCP")),
            Ok(count) => at += count,
            Err(e) if e.kind() == ErrorKind::WouldBlock => spin_timeout.spin("TCP")?,
            Err(source) => return Err(MessagesError::System { operation: "exchange bytes over TCP", source }),
        }
    }
    Ok(())
}

impl End for TcpStream {
    fn send(&mut self, message: &[u8]) -> Result<(), MessagesError> {
        all(message.len(), |at| self.write(&message[at..]))
    }

    fn receive(&mut self, place: &mut [u8]) -> Result<(), MessagesError> {
        all(place.len(), |at| self.read(&mut place[at..]))
    }
}
