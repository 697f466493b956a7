//! One end of a connection between machines.

use std::{
    io::{Read, Write},
    net::{Ipv4Addr, TcpListener, TcpStream, UdpSocket},
    os::fd::AsFd,
    time::{Duration, Instant},
};

use bpf::{XdpError, XdpMode};
use model::link_bench::Receive;
use wire::Mac;

use super::super::{
    MessagesError,
    bulk::Stream,
    end::{End, Frames, MESSAGE_TIMEOUT, Native, PORT},
    plan::Transport,
    sockets::{Datagrams, set_up, wait_as},
};
use link::{Engine, LinkError, Raw, State};

use crate::{bridged::RING_BYTES, remote::Facts};

/// Time between two checks for the other end.
const CHECK_PERIOD: Duration = Duration::from_millis(1);

/// Kind of an end.
#[derive(Debug, Clone, Copy)]
pub(super) struct Kind {
    pub(super) transport: Transport,
    pub(super) receive: Receive,
    /// True for bytes, false for messages.
    pub(super) stream: bool,
}

pub(super) enum Single {
    Messages(Box<dyn End>),
    Bytes(Box<dyn Stream>),
}

impl Single {
    pub(super) fn end(&mut self) -> &mut dyn End {
        match self {
            Self::Messages(end) => &mut **end,
            Self::Bytes(stream) => &mut **stream,
        }
    }
}

/// An end that waits for the other one.
pub(super) enum Waiting {
    Link(Box<Engine<Raw>>),
    Tcp(TcpListener),
    Udp(UdpSocket),
    Packet(Box<Frames>),
}

/// An end, or why this machine cannot receive so.
pub(super) type Opened = Result<Single, String>;

fn address(facts: &Facts) -> Result<Ipv4Addr, String> {
    facts
        .address
        .map(|(address, _)| address)
        .ok_or_else(|| format!("{} of {} has no IPv4 address", facts.interface, facts.machine.hostname))
}

fn engine(transport: Transport, ours: &Facts) -> Result<Result<Engine<Raw>, String>, MessagesError> {
    let raw = match transport {
        Transport::Link => Raw::open_ring(&ours.interface, XdpMode::Native, RING_BYTES),
        _ => Raw::open(&ours.interface),
    };
    match raw {
        // A driver may run no program in its XDP hook, or another program sits there. A broker there would take part in every row.
        Err(why) if transport == Transport::Link && !matches!(why, LinkError::Xdp(XdpError::Taken { .. })) => {
            Ok(Err(format!("{}: {why}", ours.machine.hostname)))
        }
        raw => Ok(Ok(Engine::new(raw?, &ours.machine.hostname)?)),
    }
}

fn native(engine: Engine<Raw>, handle: link::Handle, kind: Kind) -> Single {
    let end = Native::new(engine, handle, kind.receive);
    if kind.stream { Single::Bytes(Box::new(end)) } else { Single::Messages(Box::new(end)) }
}

fn tcp(stream: TcpStream, kind: Kind) -> Single {
    if kind.stream { Single::Bytes(Box::new(stream)) } else { Single::Messages(Box::new(stream)) }
}

/// The far end, as far as it comes without the near one; with its port, where it has one.
pub(super) fn wait_for(kind: Kind, ours: &Facts, theirs: Mac) -> Result<Result<(Waiting, u16), String>, MessagesError> {
    let system = MessagesError::system;
    Ok(Ok(match kind.transport {
        Transport::Link | Transport::LinkSockets => {
            let mut engine = match engine(kind.transport, ours)? {
                Ok(engine) => engine,
                Err(why) => return Ok(Err(why)),
            };
            engine.listen(PORT, kind.stream, 1)?;
            (Waiting::Link(Box::new(engine)), PORT)
        }
        Transport::Packet => {
            let frames = Frames::open(ours.ifindex, [theirs, ours.mac()?], ours.mtu, kind.receive)?;
            (Waiting::Packet(Box::new(frames)), 0)
        }
        Transport::Tcp | Transport::Udp => {
            let address = match address(ours) {
                Ok(address) => address,
                Err(why) => return Ok(Err(why)),
            };
            let (waiting, at) = if kind.transport == Transport::Tcp {
                let listener = TcpListener::bind((address, 0)).map_err(system("listen"))?;
                let at = listener.local_addr();
                (Waiting::Tcp(listener), at)
            } else {
                let socket = UdpSocket::bind((address, 0)).map_err(system("bind a UDP socket"))?;
                let at = socket.local_addr();
                (Waiting::Udp(socket), at)
            };
            (waiting, at.map_err(system("read an address"))?.port())
        }
        Transport::Xdp | Transport::Broker => return Ok(Err(lab_alone(kind.transport))),
    }))
}

fn lab_alone(transport: Transport) -> String {
    match transport {
        Transport::Xdp => "the driver chooses the queue of bare frames; without INTERFACE, a lab measures it".into(),
        _ => "run its programs on both machines by `evenkeel link run`; without INTERFACE, a lab measures it".into(),
    }
}

impl Waiting {
    /// The same once the near end has come.
    pub(super) fn connect(self, kind: Kind) -> Result<Opened, MessagesError> {
        let system = MessagesError::system;
        match self {
            Self::Link(mut engine) => {
                let began = Instant::now();
                loop {
                    engine.wait(Duration::ZERO, CHECK_PERIOD)?;
                    if let Some(handle) = engine.accept(PORT) {
                        return Ok(Ok(native(*engine, handle, kind)));
                    }
                    if began.elapsed() > MESSAGE_TIMEOUT {
                        return Err(MessagesError::Silent("link"));
                    }
                }
            }
            Self::Packet(frames) => Ok(Ok(Single::Messages(frames))),
            Self::Tcp(listener) => {
                let mut stream = accept(&listener)?;
                set_up(&stream)?;
                stream.read_exact(&mut [0]).map_err(system("read"))?;
                stream.write_all(&[0]).map_err(system("write"))?;
                Ok(ready(&stream, kind.receive)?.map_or_else(|| Ok(tcp(stream, kind)), Err))
            }
            Self::Udp(socket) => {
                socket.set_read_timeout(Some(MESSAGE_TIMEOUT)).map_err(system("set a time-out"))?;
                let (_, from) = socket.recv_from(&mut [0]).map_err(system("receive a datagram"))?;
                socket.connect(from).map_err(system("connect a UDP socket"))?;
                socket.send(&[0]).map_err(system("send a datagram"))?;
                Ok(datagrams(socket, kind)?)
            }
        }
    }
}

/// The near end, with the far one waiting at `port`.
pub(super) fn connect(kind: Kind, [ours, theirs]: [&Facts; 2], port: u16) -> Result<Opened, MessagesError> {
    let system = MessagesError::system;
    let to = match (kind.transport, address(theirs)) {
        (Transport::Tcp | Transport::Udp, Err(why)) => return Ok(Err(why)),
        (_, address) => (address.unwrap_or(Ipv4Addr::UNSPECIFIED), port),
    };
    match kind.transport {
        Transport::Link | Transport::LinkSockets => {
            let mut engine = match engine(kind.transport, ours)? {
                Ok(engine) => engine,
                Err(why) => return Ok(Err(why)),
            };
            let (handle, began) = (engine.connect(theirs.mac()?, port, kind.stream)?, Instant::now());
            while engine.state(handle) != Some(State::Open) {
                engine.wait(Duration::ZERO, CHECK_PERIOD)?;
                if began.elapsed() > MESSAGE_TIMEOUT {
                    return Err(MessagesError::Silent("link"));
                }
            }
            Ok(Ok(native(engine, handle, kind)))
        }
        Transport::Packet => {
            let frames = Frames::open(ours.ifindex, [theirs.mac()?, ours.mac()?], ours.mtu, kind.receive)?;
            Ok(Ok(Single::Messages(Box::new(frames))))
        }
        Transport::Tcp => {
            let mut stream = TcpStream::connect_timeout(&to.into(), MESSAGE_TIMEOUT).map_err(system("connect"))?;
            set_up(&stream)?;
            stream.write_all(&[0]).map_err(system("write"))?;
            stream.read_exact(&mut [0]).map_err(system("read"))?;
            Ok(ready(&stream, kind.receive)?.map_or_else(|| Ok(tcp(stream, kind)), Err))
        }
        Transport::Udp => {
            let from = address(ours).unwrap_or(Ipv4Addr::UNSPECIFIED);
            let socket = UdpSocket::bind((from, 0)).map_err(system("bind a UDP socket"))?;
            socket.connect(to).map_err(system("connect a UDP socket"))?;
            socket.set_read_timeout(Some(MESSAGE_TIMEOUT)).map_err(system("set a time-out"))?;
            socket.send(&[0]).map_err(system("send a datagram"))?;
            socket.recv(&mut [0]).map_err(system("receive a datagram"))?;
            Ok(datagrams(socket, kind)?)
        }
        Transport::Xdp | Transport::Broker => Ok(Err(lab_alone(kind.transport))),
    }
}

fn datagrams(socket: UdpSocket, kind: Kind) -> Result<Opened, MessagesError> {
    if let Some(why) = wait_as(&socket, kind.receive)? {
        return Ok(Err(why));
    }
    socket.set_nonblocking(kind.receive == Receive::Spinning).map_err(MessagesError::system("set a socket"))?;
    Ok(Ok(Single::Messages(Box::new(Datagrams::of(socket)))))
}

/// Lets a TCP end wait as it is to; why not, where it cannot.
fn ready(stream: &TcpStream, receive: Receive) -> Result<Option<String>, MessagesError> {
    if let Some(why) = wait_as(&stream.as_fd(), receive)? {
        return Ok(Some(why));
    }
    stream.set_nonblocking(receive == Receive::Spinning).map_err(MessagesError::system("set a socket"))?;
    Ok(None)
}

/// The connection that comes; the near end may have failed meanwhile.
pub(super) fn accept(listener: &TcpListener) -> Result<TcpStream, MessagesError> {
    let failed = MessagesError::system;
    listener.set_nonblocking(true).map_err(failed("set a socket"))?;
    let began = Instant::now();
    loop {
        match listener.accept() {
            Ok((stream, _)) => {
                stream.set_nonblocking(false).map_err(failed("set a socket"))?;
                return Ok(stream);
            }
            Err(e) if e.kind() == std::io::ErrorKind::WouldBlock && began.elapsed() < MESSAGE_TIMEOUT => {
                std::thread::sleep(CHECK_PERIOD);
            }
            Err(e) if e.kind() == std::io::ErrorKind::WouldBlock => return Err(MessagesError::Silent("TCP")),
            Err(source) => return Err(MessagesError::System { operation: "accept a connection", source }),
        }
    }
}
