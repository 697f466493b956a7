//! One end of a connection.

use std::time::{Duration, Instant};

use bpf::XdpMode;
use model::link_bench::Receive;
use sys::{
    affinity::pin_current_thread,
    packet::{Batch, PacketSocket},
    packet_batch::PacketBatch,
};
use wire::Mac;

use super::{
    MessagesError,
    bed::Bed,
    brokered::brokered,
    plan::Transport,
    sockets::{Datagrams, tcp},
    xdp,
};
use crate::bridged::{RING_BYTES, connected};
use link::{Engine, Handle, Raw};

/// Time to wait for a message.
pub(super) const MESSAGE_TIMEOUT: Duration = Duration::from_secs(10);
/// Longest sleep of an end.
pub(super) const SLEEP_MAX: Duration = Duration::from_millis(100);
/// Iterations between two readings of the clock.
const SPINS_PER_CLOCK_READ: u32 = 1 << 12;
/// The port that an end of link listens on.
pub(super) const PORT: u16 = 1100;
/// The EtherType of bare frames: the second that IEEE 802 leaves to local experiments.
pub(super) const BARE_ETHERTYPE: u16 = 0x88b6;
pub(super) const ETHERNET_BYTES: usize = 14;
const BATCH_FRAMES: usize = 64;
const SOCKET_BUFFER_BYTES: u32 = 8 << 20;

/// Binds this thread to its CPU.
pub(super) fn pin(cpu: u32) -> Result<(), MessagesError> {
    pin_current_thread(cpu).map_err(MessagesError::system("bind a thread to its CPU"))
}

/// An end that sends and receives messages, or bytes.
pub(super) trait End: Send {
    fn send(&mut self, message: &[u8]) -> Result<(), MessagesError>;

    /// Receives a message that fills the place.
    fn receive(&mut self, place: &mut [u8]) -> Result<(), MessagesError>;

    /// Serves the other end after the last message, for a while.
    fn serve(&mut self) -> Result<(), MessagesError> {
        Ok(())
    }
}

/// Timeout of a spinning loop.
#[derive(Default)]
pub(super) struct SpinTimeout {
    spins: u32,
    began: Option<Instant>,
}

impl SpinTimeout {
    #[inline]
    pub(super) fn spin(&mut self, who: &'static str) -> Result<(), MessagesError> {
        std::hint::spin_loop();
        self.spins += 1;
        if !self.spins.is_multiple_of(SPINS_PER_CLOCK_READ) {
            return Ok(());
        }
        let began = *self.began.get_or_insert_with(Instant::now);
        if began.elapsed() < MESSAGE_TIMEOUT { Ok(()) } else { Err(MessagesError::Silent(who)) }
    }
}

/// Both ends of a connection; the inner error is why this machine cannot receive so.
pub(super) fn pair(
    bed: &Bed,
    transport: Transport,
    receive: Receive,
) -> Result<Result<[Box<dyn End>; 2], String>, MessagesError> {
    Ok(Ok(match transport {
        Transport::Link | Transport::LinkSockets => {
            link(bed, transport, receive, false)?.map(|end| Box::new(end) as Box<dyn End>)
        }
        Transport::Packet => {
            let end = |i: usize| {
                let (here, there) = (&bed.places[i], &bed.places[1 - i]);
                here.space.run(|| {
                    Frames::open(here.link.index, [there.link.mac, here.link.mac], bed.conditions.mtu, receive)
                })?
            };
            [Box::new(end(0)?), Box::new(end(1)?)]
        }
        Transport::Xdp => xdp::pair(bed, receive)?.map(|end| Box::new(end) as Box<dyn End>),
        Transport::Udp => match Datagrams::pair(bed, receive)? {
            Ok(ends) => ends.map(|end| Box::new(end) as Box<dyn End>),
            Err(why) => return Ok(Err(why)),
        },
        Transport::Broker => brokered(bed, receive)?.map(|end| Box::new(end) as Box<dyn End>),
        Transport::Tcp => match tcp(bed, receive)? {
            Ok(ends) => ends.map(|end| Box::new(end) as Box<dyn End>),
            Err(why) => return Ok(Err(why)),
        },
    }))
}

/// An end of a connection of link.
pub(super) struct Native {
    pub(super) engine: Engine<Raw>,
    pub(super) handle: Handle,
    spin: Duration,
}

/// Both ends of a connection of link: a stream, or messages.
pub(super) fn link(
    bed: &Bed,
    transport: Transport,
    receive: Receive,
    stream: bool,
) -> Result<[Native; 2], MessagesError> {
    let [a, b] = &bed.places;
    let raw = |name: &str| match transport {
        Transport::Link => Raw::open_ring(name, XdpMode::Native, RING_BYTES),
        _ => Raw::open(name),
    };
    let mut here = a.space.run(|| Engine::new(raw(&a.link.name)?, "a"))??;
    let mut there = b.space.run(|| Engine::new(raw(&b.link.name)?, "b"))??;
    there.listen(PORT, stream, 1)?;
    let [ours, theirs] = connected(&mut here, &mut there, PORT, stream)?;
    Ok([Native::new(here, ours, receive), Native::new(there, theirs, receive)])
}

impl Native {
    pub(super) fn new(engine: Engine<Raw>, handle: Handle, receive: Receive) -> Self {
        let spin = if receive == Receive::Sleeping { Duration::ZERO } else { MESSAGE_TIMEOUT };
        Self { engine, handle, spin }
    }

    /// Polls until a frame arrives.
    pub(super) fn wait(&mut self) -> Result<(), MessagesError> {
        self.engine.wait(self.spin, SLEEP_MAX)?;
        Ok(())
    }
}

impl End for Native {
    fn send(&mut self, message: &[u8]) -> Result<(), MessagesError> {
        let began = Instant::now();
        loop {
            match self.engine.send(self.handle, message) {
                Err(link::LinkError::Send(link::SendError::Full)) if began.elapsed() < MESSAGE_TIMEOUT => {
                    self.wait()?;
                }
                other => return Ok(other?),
            }
        }
    }

    fn receive(&mut self, place: &mut [u8]) -> Result<(), MessagesError> {
        let mut began = None;
        loop {
            if self.engine.receive(self.handle, place)?.is_some() {
                return Ok(());
            }
            if self.engine.wait(self.spin, SLEEP_MAX)? == 0
                && began.get_or_insert_with(Instant::now).elapsed() > MESSAGE_TIMEOUT
            {
                return Err(MessagesError::Silent("link"));
            }
        }
    }

    fn serve(&mut self) -> Result<(), MessagesError> {
        self.engine.wait(Duration::ZERO, Duration::from_millis(1))?;
        Ok(())
    }
}

/// Bare frames: a message longer than one is cut into several.
pub(super) struct Frames {
    socket: PacketSocket,
    batch: Batch,
    out: PacketBatch,
    frame: Vec<u8>,
    sleeps: bool,
}

impl Frames {
    pub(super) fn open(index: u32, [to, from]: [Mac; 2], mtu: u32, receive: Receive) -> Result<Self, MessagesError> {
        let frame_max = ETHERNET_BYTES + mtu as usize;
        let socket = PacketSocket::open().map_err(link::LinkError::from)?;
        let set = || {
            socket.set_receive_buffer(SOCKET_BUFFER_BYTES)?;
            socket.set_ignore_outgoing()?;
            socket.bind_for(index, BARE_ETHERTYPE)
        };
        set().map_err(link::LinkError::from)?;
        let mut frame = vec![0; frame_max];
        frame[..6].copy_from_slice(&to.0);
        frame[6..12].copy_from_slice(&from.0);
        frame[12..14].copy_from_slice(&BARE_ETHERTYPE.to_be_bytes());
        let out = PacketBatch::open(index, frame_max, SOCKET_BUFFER_BYTES as usize).map_err(link::LinkError::from)?;
        let sleeps = receive == Receive::Sleeping;
        Ok(Self { socket, batch: Batch::new(BATCH_FRAMES, frame_max), out, frame, sleeps })
    }

    fn flush(&mut self) -> Result<(), MessagesError> {
        self.out.flush().map_err(link::LinkError::from)?;
        Ok(())
    }
}

impl End for Frames {
    fn send(&mut self, message: &[u8]) -> Result<(), MessagesError> {
        for piece in message.chunks(self.frame.len() - ETHERNET_BYTES) {
            let end = ETHERNET_BYTES + piece.len();
            self.frame[ETHERNET_BYTES..end].copy_from_slice(piece);
            if !self.out.push(&self.frame[..end]) {
                self.flush()?;
                self.out.push(&self.frame[..end]);
            }
        }
        self.flush()
    }

    fn receive(&mut self, place: &mut [u8]) -> Result<(), MessagesError> {
        let (mut at, mut spin_timeout, mut slept) = (0, SpinTimeout::default(), Duration::ZERO);
        while at < place.len() {
            let count = self.batch.receive(&self.socket).map_err(link::LinkError::from)?;
            for packet in self.batch.packets(count) {
                let piece = packet.data.get(ETHERNET_BYTES..).unwrap_or_default();
                let len = piece.len().min(place.len() - at);
                place[at..at + len].copy_from_slice(&piece[..len]);
                at += len;
            }
            if count == 0 && self.sleeps {
                let began = Instant::now();
                self.socket.wait(SLEEP_MAX).map_err(link::LinkError::from)?;
                slept += began.elapsed();
                if slept > MESSAGE_TIMEOUT {
                    return Err(MessagesError::Silent("AF_PACKET"));
                }
            } else if count == 0 {
                spin_timeout.spin("AF_PACKET")?;
            }
        }
        Ok(())
    }
}
