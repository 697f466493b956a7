//! One end of a way.

use std::time::{Duration, Instant};

use bpf::XdpMode;
use model::link_bench::Receive;
use sys::{
    packet::{Batch, PacketSocket},
    packet_batch::PacketBatch,
};
use wire::Mac;

use super::{
    MessagesError,
    bed::Bed,
    brokered::brokered,
    plan::Way,
    sockets::{Datagrams, tcp},
    xdp,
};
use link::{Engine, Handle, Raw, State};

/// Nobody waits longer for a message.
pub(super) const LONG: Duration = Duration::from_secs(10);
/// An end that sleeps looks up so often.
pub(super) const STEP: Duration = Duration::from_millis(100);
/// Spins of a loop between two looks at the clock.
const SPINS: u32 = 1 << 12;
/// The port that an end of link listens on.
pub(super) const PORT: u16 = 1100;
/// The EtherType of bare frames: the second that IEEE 802 leaves to local experiments.
pub(super) const BARE: u16 = 0x88b6;
pub(super) const ETHERNET_BYTES: usize = 14;
const FRAMES: usize = 64;
const BUFFER: u32 = 8 << 20;

/// An end that sends and receives messages, or bytes.
pub(super) trait End: Send {
    fn send(&mut self, message: &[u8]) -> Result<(), MessagesError>;

    /// Receives a message that fills the place.
    fn receive(&mut self, place: &mut [u8]) -> Result<(), MessagesError>;

    /// Does what the other end may still need once its last message is here or sent; at most for a while.
    fn serve(&mut self) -> Result<(), MessagesError> {
        Ok(())
    }
}

/// Ends a loop that spins for too long.
#[derive(Default)]
pub(super) struct Patience {
    spins: u32,
    began: Option<Instant>,
}

impl Patience {
    #[inline]
    pub(super) fn spin(&mut self, who: &'static str) -> Result<(), MessagesError> {
        std::hint::spin_loop();
        self.spins += 1;
        if !self.spins.is_multiple_of(SPINS) {
            return Ok(());
        }
        let began = *self.began.get_or_insert_with(Instant::now);
        if began.elapsed() < LONG { Ok(()) } else { Err(MessagesError::Silent(who)) }
    }
}

/// Both ends of a way, ready; none with the reason if this machine does not let it wait so.
pub(super) fn pair(bed: &Bed, way: Way, receive: Receive) -> Result<Result<[Box<dyn End>; 2], String>, MessagesError> {
    Ok(Ok(match way {
        Way::Link | Way::LinkSockets => link(bed, way, receive, false)?.map(|end| Box::new(end) as Box<dyn End>),
        Way::Packet => {
            let end = |i: usize| {
                let (here, there) = (&bed.places[i], &bed.places[1 - i]);
                here.space.run(|| {
                    Frames::open(here.link.index, [there.link.mac, here.link.mac], bed.conditions.mtu, receive)
                })?
            };
            [Box::new(end(0)?), Box::new(end(1)?)]
        }
        Way::Xdp => xdp::pair(bed, receive)?.map(|end| Box::new(end) as Box<dyn End>),
        Way::Udp => match Datagrams::pair(bed, receive)? {
            Ok(ends) => ends.map(|end| Box::new(end) as Box<dyn End>),
            Err(why) => return Ok(Err(why)),
        },
        Way::Broker => brokered(bed, receive)?.map(|end| Box::new(end) as Box<dyn End>),
        Way::Tcp => match tcp(bed, receive)? {
            Ok(ends) => ends.map(|end| Box::new(end) as Box<dyn End>),
            Err(why) => return Ok(Err(why)),
        },
    }))
}

/// Bytes of the ring of each end, as programs get them of a broker.
pub(super) const RING_BYTES: usize = 4 << 20;

/// An end of a connection of link.
pub(super) struct Native {
    pub(super) engine: Engine<Raw>,
    pub(super) handle: Handle,
    spin: Duration,
}

/// Both ends of a connection of link: a stream, or messages.
pub(super) fn link(bed: &Bed, way: Way, receive: Receive, stream: bool) -> Result<[Native; 2], MessagesError> {
    let [a, b] = &bed.places;
    let raw = |name: &str| match way {
        Way::Link => Raw::open_ring(name, XdpMode::Native, RING_BYTES),
        _ => Raw::open(name),
    };
    let mut here = a.space.run(|| Engine::new(raw(&a.link.name)?, "a"))??;
    let mut there = b.space.run(|| Engine::new(raw(&b.link.name)?, "b"))??;
    there.listen(PORT, stream, 1)?;
    let ours = here.connect(there.carrier().address(), PORT, stream)?;
    let (mut theirs, mut patience) = (None, Patience::default());
    while theirs.is_none() || here.state(ours) != Some(State::Open) {
        here.poll()?;
        there.poll()?;
        theirs = theirs.or_else(|| there.accept(PORT));
        patience.spin("link")?;
    }
    let theirs = theirs.ok_or(MessagesError::Silent("link"))?;
    Ok([Native::new(here, ours, receive), Native::new(there, theirs, receive)])
}

impl Native {
    pub(super) fn new(engine: Engine<Raw>, handle: Handle, receive: Receive) -> Self {
        let spin = if receive == Receive::Sleeping { Duration::ZERO } else { LONG };
        Self { engine, handle, spin }
    }

    /// Turns until a frame came.
    pub(super) fn wait(&mut self) -> Result<(), MessagesError> {
        self.engine.wait(self.spin, STEP)?;
        Ok(())
    }
}

impl End for Native {
    fn send(&mut self, message: &[u8]) -> Result<(), MessagesError> {
        let began = Instant::now();
        loop {
            match self.engine.send(self.handle, message) {
                Err(link::LinkError::Send(link::SendError::Full)) if began.elapsed() < LONG => self.wait()?,
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
            if self.engine.wait(self.spin, STEP)? == 0 && began.get_or_insert_with(Instant::now).elapsed() > LONG {
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
            socket.set_receive_buffer(BUFFER)?;
            socket.set_ignore_outgoing()?;
            socket.bind_for(index, BARE)
        };
        set().map_err(link::LinkError::from)?;
        let mut frame = vec![0; frame_max];
        frame[..6].copy_from_slice(&to.0);
        frame[6..12].copy_from_slice(&from.0);
        frame[12..14].copy_from_slice(&BARE.to_be_bytes());
        let out = PacketBatch::open(index, frame_max, BUFFER as usize).map_err(link::LinkError::from)?;
        let sleeps = receive == Receive::Sleeping;
        Ok(Self { socket, batch: Batch::new(FRAMES, frame_max), out, frame, sleeps })
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
        let (mut at, mut patience, mut slept) = (0, Patience::default(), Duration::ZERO);
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
                self.socket.wait(STEP).map_err(link::LinkError::from)?;
                slept += began.elapsed();
                if slept > LONG {
                    return Err(MessagesError::Silent("AF_PACKET"));
                }
            } else if count == 0 {
                patience.spin("AF_PACKET")?;
            }
        }
        Ok(())
    }
}
