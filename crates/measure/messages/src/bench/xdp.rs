//! The ends of AF_XDP: bare frames that pass no socket buffer when they come, without any protocol.

use std::{
    os::fd::AsFd,
    time::{Duration, Instant},
};

use bpf::{XdpMode, XskRedirect};
use model::link_bench::Receive;
use sys::xsk::{CopyMode, XskReceiver, XskSender, XskSettings};
use wire::Mac;

use super::{
    MessagesError,
    bed::Bed,
    end::{BARE_ETHERTYPE, ETHERNET_BYTES, End, MESSAGE_TIMEOUT, SLEEP_MAX, SpinTimeout},
};
use link::LinkError;

/// Queues of each interface: a socket that sends and one that receives cannot share a queue.
pub(super) const QUEUE_COUNT: u32 = 2;
const FRAME_COUNT: u32 = 1024;
/// The kernel keeps 256 of them for itself.
const FRAME_BYTES: u32 = 4096;

/// Bare frames: a message longer than one is cut into several.
pub(super) struct Frames {
    // The program goes first: one that redirects to a closed socket loses frames.
    _program: XskRedirect,
    receiver: XskReceiver,
    sender: XskSender,
    head: [u8; ETHERNET_BYTES],
    payload_max: usize,
    sleeps: bool,
}

pub(super) fn pair(bed: &Bed, receive: Receive) -> Result<[Frames; 2], MessagesError> {
    let end = |i: usize| -> Result<Frames, MessagesError> {
        let (here, there) = (&bed.places[i], &bed.places[1 - i]);
        here.space.run(|| {
            // Workload goes out of a queue of a veth comes in by that queue of the other end.
            let [receives, sends] = [1 - i as u32, i as u32];
            Frames::open(
                &here.link.name,
                here.link.index,
                [receives, sends],
                [there.link.mac, here.link.mac],
                bed,
                receive,
            )
        })?
    };
    Ok([end(0)?, end(1)?])
}

impl Frames {
    fn open(
        interface: &str,
        ifindex: u32,
        [receives, sends]: [u32; 2],
        [to, from]: [Mac; 2],
        bed: &Bed,
        receive: Receive,
    ) -> Result<Self, MessagesError> {
        let settings = |queue| XskSettings {
            ifindex,
            queue,
            frames: FRAME_COUNT,
            frame_bytes: FRAME_BYTES,
            copy: CopyMode::Any,
            huge_pages: false,
            busy_poll: None,
            node: None,
        };
        let receiver = XskReceiver::open(&settings(receives)).map_err(MessagesError::Xsk)?;
        let sender = XskSender::open(&settings(sends)).map_err(MessagesError::Xsk)?;
        let mut program = XskRedirect::load(QUEUE_COUNT, None).map_err(LinkError::from)?;
        program.set_socket(receives, receiver.as_fd()).map_err(LinkError::from)?;
        program.attach(interface, XdpMode::Native).map_err(LinkError::from)?;
        let mut head = [0; ETHERNET_BYTES];
        head[..6].copy_from_slice(&to.0);
        head[6..12].copy_from_slice(&from.0);
        head[12..].copy_from_slice(&BARE_ETHERTYPE.to_be_bytes());
        let sleeps = receive == Receive::Sleeping;
        Ok(Self { _program: program, receiver, sender, head, payload_max: bed.conditions.mtu as usize, sleeps })
    }
}

impl End for Frames {
    fn send(&mut self, message: &[u8]) -> Result<(), MessagesError> {
        let mut pieces = message.chunks(self.payload_max).peekable();
        let mut spin_timeout = SpinTimeout::default();
        while pieces.peek().is_some() {
            let room = self.sender.room();
            let head = &self.head;
            self.sender.submit(room.min(pieces.len() as u32), |place| {
                let piece = pieces.next().unwrap_or_default();
                let end = ETHERNET_BYTES + piece.len();
                place[..ETHERNET_BYTES].copy_from_slice(head);
                place[ETHERNET_BYTES..end].copy_from_slice(piece);
                end
            });
            while !self.sender.kick().map_err(MessagesError::Xsk)? {
                self.sender.reap();
                spin_timeout.spin("AF_XDP")?;
            }
        }
        Ok(())
    }

    fn receive(&mut self, place: &mut [u8]) -> Result<(), MessagesError> {
        let (mut at, mut spin_timeout, mut slept) = (0, SpinTimeout::default(), Duration::ZERO);
        while at < place.len() {
            let count = self.receiver.receive(FRAME_COUNT, |frame| {
                let piece = frame.get(ETHERNET_BYTES..).unwrap_or_default();
                let len = piece.len().min(place.len() - at);
                place[at..at + len].copy_from_slice(&piece[..len]);
                at += len;
            });
            if count == 0 && self.sleeps {
                let began = Instant::now();
                self.receiver.wait(SLEEP_MAX).map_err(MessagesError::Xsk)?;
                slept += began.elapsed();
                if slept > MESSAGE_TIMEOUT {
                    return Err(MessagesError::Silent("AF_XDP"));
                }
            } else if count == 0 {
                spin_timeout.spin("AF_XDP")?;
            }
        }
        Ok(())
    }
}
