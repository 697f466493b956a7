//! The header, 32 bytes in network byte order ahead of every payload (docs/protocol/link.md).

use wire::checksum::Sum;

use crate::Serial;

pub const HEADER_BYTES: usize = 32;
/// The version that this crate speaks.
pub const VERSION: u8 = 1;
/// Version of the one frame that nodes of all versions read (version.rs).
pub(crate) const NOTICE: u8 = 0;
/// Frames after the cumulative acknowledgement that a header can acknowledge.
pub(crate) const RECEIVED_BITS: u32 = 32;

/// Offset of the checksum.
const CHECKSUM_AT: usize = 30;

#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Kind {
    /// A part of a message or stream. Only data frames use up a sequence number.
    Data,
    /// Requests an acknowledgement.
    Probe,
    Ack,
    /// Opens a connection; the payload is an offer.
    Open,
    /// Accepts it; the payload is an offer.
    OpenAck,
    /// Ends a connection, or refuses it; the payload is a reason.
    Reset,
    /// The listener's backlog is full.
    Busy,
    /// Announces a node; the payload is its name.
    Hello,
}

impl Kind {
    const ALL: [Self; 8] =
        [Self::Data, Self::Probe, Self::Ack, Self::Open, Self::OpenAck, Self::Reset, Self::Busy, Self::Hello];

    fn number(self) -> u8 {
        Self::ALL.iter().position(|&kind| kind == self).map_or(0, |at| at as u8)
    }
}

/// The flags of a header.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Hash)]
pub struct Flags(pub u8);

impl Flags {
    /// The first part of a message.
    pub const FIRST: Self = Self(1);
    /// The last part of a message.
    pub const LAST: Self = Self(2);
    /// The sender wants an acknowledgement at once.
    pub const ASK: Self = Self(4);
    /// The frame is a retransmission.
    pub const AGAIN: Self = Self(8);
    /// The frame met congestion.
    pub const CONGESTED: Self = Self(16);
    /// Frames that this one acknowledges met congestion.
    pub const ECHO: Self = Self(32);
    /// The sender has closed.
    pub const FIN: Self = Self(64);
    /// The receive buffer is full: the credit is 0.
    pub const NOT_READY: Self = Self(128);

    /// True if all of `other` are set.
    pub fn has(self, other: Self) -> bool {
        self.0 & other.0 == other.0
    }

    /// The union of both.
    #[must_use]
    pub fn with(self, other: Self) -> Self {
        Self(self.0 | other.0)
    }

    /// The union of both if `on`.
    #[must_use]
    pub fn with_if(self, on: bool, other: Self) -> Self {
        if on { self.with(other) } else { self }
    }
}

/// A header. Its length and checksum are computed from the payload.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Header {
    pub kind: Kind,
    pub flags: Flags,
    /// Port of the sender.
    pub from_port: u16,
    /// Port of the receiver.
    pub to_port: u16,
    /// The receiver's number of the connection; 0: none yet.
    pub connection: u32,
    /// Random number of the sending node's start.
    pub epoch: u32,
    /// Of data its number; of an offer and its answer the first number; of a reset the answered number; else the next number.
    pub sequence: Serial,
    /// Cumulative acknowledgement: all frames before this number.
    pub acknowledged: Serial,
    /// Selective acknowledgement: bit `i` is number `acknowledged + 1 + i`.
    pub received: u32,
    /// Receive window in frames from `acknowledged` on.
    pub credit: u16,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, thiserror::Error)]
pub enum BadFrame {
    /// Shorter than a header.
    #[error("shorter than a header of {HEADER_BYTES} bytes")]
    Short,
    /// Another version of the protocol.
    #[error("version {theirs} of the protocol; this node speaks {VERSION}")]
    Version { theirs: u8 },
    #[error("kind {number} is not one of version {VERSION}")]
    Kind { number: u8 },
    /// The payload is longer than the frame.
    #[error("the payload is longer than the frame")]
    Length,
    /// The checksum is wrong.
    #[error("wrong checksum")]
    Checksum,
}

impl Header {
    /// Reads the header and the payload of a frame. Padding after the payload is ignored.
    ///
    /// # Errors
    /// The frame is invalid.
    pub fn read(frame: &[u8]) -> Result<(Self, &[u8]), BadFrame> {
        Self::read_as(VERSION, frame)
    }

    /// [`Header::read`] for another version of the same format.
    pub(crate) fn read_as(version: u8, frame: &[u8]) -> Result<(Self, &[u8]), BadFrame> {
        let (head, rest) = frame.split_first_chunk::<HEADER_BYTES>().ok_or(BadFrame::Short)?;
        let (theirs, number) = (head[0] >> 4, head[0] & 15);
        if theirs != version {
            return Err(BadFrame::Version { theirs });
        }
        let kind = *Kind::ALL.get(usize::from(number)).ok_or(BadFrame::Kind { number })?;
        let half = |at: usize| u16::from_be_bytes([head[at], head[at + 1]]);
        let word = |at: usize| u32::from_be_bytes([head[at], head[at + 1], head[at + 2], head[at + 3]]);
        let payload = rest.get(..usize::from(half(2))).ok_or(BadFrame::Length)?;
        // What holds the checksum sums up to zero.
        if Sum::new().bytes(head).bytes(payload).finish() != 0 {
            return Err(BadFrame::Checksum);
        }
        let header = Self {
            kind,
            flags: Flags(head[1]),
            from_port: half(4),
            to_port: half(6),
            connection: word(8),
            epoch: word(12),
            sequence: Serial(word(16)),
            acknowledged: Serial(word(20)),
            received: word(24),
            credit: half(28),
        };
        Ok((header, payload))
    }

    /// The bytes of the header for `payload`, at most 65,535 bytes.
    pub fn write(&self, payload: &[u8]) -> [u8; HEADER_BYTES] {
        self.write_as(VERSION, payload)
    }

    /// [`Header::write`] for another version of the same format.
    pub(crate) fn write_as(&self, version: u8, payload: &[u8]) -> [u8; HEADER_BYTES] {
        let mut head = [0; HEADER_BYTES];
        let mut put = |at: usize, bytes: &[u8]| head[at..at + bytes.len()].copy_from_slice(bytes);
        put(0, &[version << 4 | self.kind.number(), self.flags.0]);
        put(2, &(payload.len() as u16).to_be_bytes());
        put(4, &self.from_port.to_be_bytes());
        put(6, &self.to_port.to_be_bytes());
        put(8, &self.connection.to_be_bytes());
        put(12, &self.epoch.to_be_bytes());
        put(16, &self.sequence.0.to_be_bytes());
        put(20, &self.acknowledged.0.to_be_bytes());
        put(24, &self.received.to_be_bytes());
        put(28, &self.credit.to_be_bytes());
        let sum = Sum::new().bytes(&head).bytes(payload).finish();
        head[CHECKSUM_AT..].copy_from_slice(&sum.to_be_bytes());
        head
    }
}

/// Parameters of an end in an offer or its answer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Offer {
    /// Its number of the connection, which the peer writes into its frames; not 0.
    pub connection: u32,
    /// Longest payload that it accepts.
    pub payload_max: u16,
    /// True: a stream of bytes; false: messages.
    pub stream: bool,
}

impl Offer {
    pub const BYTES: usize = 8;

    pub fn read(payload: &[u8]) -> Option<Self> {
        let &[a, b, c, d, e, f, kind, _] = payload.first_chunk::<{ Self::BYTES }>()?;
        let connection = u32::from_be_bytes([a, b, c, d]);
        let offer = Self { connection, payload_max: u16::from_be_bytes([e, f]), stream: kind == 1 };
        (connection != 0 && offer.payload_max > 0 && kind < 2).then_some(offer)
    }

    pub fn bytes(&self) -> [u8; Self::BYTES] {
        let [a, b, c, d] = self.connection.to_be_bytes();
        let [e, f] = self.payload_max.to_be_bytes();
        [a, b, c, d, e, f, u8::from(self.stream), 0]
    }
}

/// Reason of a reset.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, thiserror::Error)]
pub enum Reason {
    /// The port has no listener (ECONNREFUSED).
    #[error("nobody listens on that port")]
    Refused,
    /// The receiver has no such connection: it restarted, or ended it (ECONNRESET).
    #[error("the other end does not know the connection: its node restarted, or it ended")]
    Unknown,
    /// The application ended without closing it (ECONNRESET).
    #[error("the other application ended without closing it")]
    Aborted,
    /// The ends have different kinds: messages and a stream (EPROTOTYPE).
    #[error("one end wants messages, the other a stream")]
    Mismatch,
    /// The peer did not answer (ETIMEDOUT).
    #[error("nothing arrived for 10 s")]
    TimedOut,
    /// A policy forbids the connection (EACCES).
    #[error("the other node does not allow it")]
    Forbidden,
    /// The peer uses another version of the protocol (EPROTONOSUPPORT).
    #[error("the other node speaks another version of the protocol")]
    Version,
}

impl Reason {
    const ALL: [Self; 7] =
        [Self::Refused, Self::Unknown, Self::Aborted, Self::Mismatch, Self::TimedOut, Self::Forbidden, Self::Version];

    /// Parses a reason; anything else is [`Reason::Unknown`].
    pub fn read(payload: &[u8]) -> Self {
        let known = payload.first().and_then(|&number| Self::ALL.get(usize::from(number)));
        known.copied().unwrap_or(Self::Unknown)
    }

    pub fn bytes(self) -> [u8; 1] {
        [Self::ALL.iter().position(|&reason| reason == self).map_or(0, |at| at as u8)]
    }
}
