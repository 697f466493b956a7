//! Settings, state and counts of a connection.

use crate::{HEADER_BYTES, Reason, Serial};

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Settings {
    pub epoch: u32,
    /// The local number of the connection, not 0.
    pub number: u32,
    /// The first number of its frames.
    pub first: Serial,
    pub port: u16,
    /// Port of the peer.
    pub peer_port: u16,
    /// The longest payload of a frame.
    pub payload_max: u16,
    /// Frames buffered in each direction, rounded up to a power of two.
    pub slots: u32,
    /// True: a stream of bytes; false: messages.
    pub stream: bool,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum State {
    /// The offer is not accepted yet.
    Opening,
    /// Data can be sent.
    Open,
    /// Both ends have closed, and all data is acknowledged.
    TimeWait,
    /// Ended before all bytes had arrived.
    Failed(Reason),
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Counts {
    /// Data frames sent, retransmissions included.
    pub sent: u64,
    pub resent: u64,
    /// Data frames received, without duplicates.
    pub received: u64,
    pub duplicates: u64,
    /// Frames beyond the credit.
    pub no_room: u64,
    /// Frames of another epoch, or invalid in the state.
    pub unexpected: u64,
    /// Acknowledgements that signalled congestion.
    pub echoes: u64,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Outgoing<'a> {
    /// The header with its checksum.
    pub head: [u8; HEADER_BYTES],
    pub payload: &'a [u8],
}

/// Error of a send.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum SendError {
    /// The send buffer is full (EAGAIN).
    #[error("no room until the other end has taken more")]
    Full,
    /// The message is longer than the send buffer (EMSGSIZE).
    #[error("the message is longer than the room of the connection")]
    TooLong,
    /// The sending direction is closed, or the connection has ended (EPIPE).
    #[error("this end is closed")]
    Closed,
}
