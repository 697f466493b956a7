//! Settings, state and counts of a connection.

use crate::{HEADER_BYTES, Reason, Serial};

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Settings {
    pub epoch: u32,
    /// This end's number of the connection, not 0.
    pub number: u32,
    /// The first number of its frames.
    pub first: Serial,
    /// This application's port, and the other's.
    pub port: u16,
    /// The port of the other application.
    pub peer_port: u16,
    /// The longest payload of a frame.
    pub payload_max: u16,
    /// Frames that are kept each way, rounded up to a power of two.
    pub slots: u32,
    /// A stream of bytes rather than messages.
    pub stream: bool,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum State {
    /// Offered, and not accepted yet.
    Opening,
    /// Data can be sent.
    Open,
    /// Both ends have sent all and heard so: it rests until its number can be used again.
    Resting,
    /// Ended before all bytes had arrived.
    Failed(Reason),
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Counts {
    /// Frames of data that were sent, again or for the first time.
    pub sent: u64,
    pub resent: u64,
    /// New frames of data that arrived.
    pub received: u64,
    /// Frames that had arrived before.
    pub again: u64,
    /// Frames beyond the credit.
    pub no_room: u64,
    /// Frames of another epoch, or that do not fit the state.
    pub strange: u64,
    /// Acknowledgements that told of congestion.
    pub echoes: u64,
}

/// A frame that is to be sent: the payload follows the header.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Outgoing<'a> {
    /// The header, its checksum included.
    pub head: [u8; HEADER_BYTES],
    pub payload: &'a [u8],
}

/// Why nothing was sent.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum SendError {
    /// No room at the moment (EAGAIN).
    #[error("no room until the other end has taken more")]
    Full,
    /// Longer than all of this end's room (EMSGSIZE).
    #[error("the message is longer than the room of the connection")]
    TooLong,
    /// This end has said that nothing follows, or the connection has ended (EPIPE).
    #[error("this end is closed")]
    Closed,
}
