//! Messages and streams between nodes over Ethernet: the protocol of docs/protocol/link.md as a pure state machine. Time and frames go in, frames and
//! states come out; nothing here touches a clock, a socket or memory of another process.
//!
//! - [`Header`] precedes each payload.
//! - [`Connection`] is one end of a connection: reliable, in order, each message once.
//! - [`Node`] looks up the connection of a frame, and accepts connections.
//!
//! Payloads in flight are in pages of one pool per node, and no cost of a frame grows with the window. The tests run in virtual time, on networks that
//! lose, duplicate, damage, delay and forge frames.

mod budget;
mod connection;
mod echo;
mod header;
mod node;
mod order;
mod peers;
mod receiver;
mod rtt;
mod sender;
mod serial;
mod slots;
mod version;
mod window;

pub use self::{
    budget::{Budget, Charge},
    connection::{Connection, Counts, Outgoing, PEER_TIMEOUT, SendError, Settings, State, TIME_WAIT},
    echo::Echo,
    header::{BadFrame, Flags, HEADER_BYTES, Header, Kind, Offer, Reason, VERSION},
    node::{Endpoints, FREE_PORTS, Handle, Node, NodeCounts, NodeSettings},
    peers::{DuplicateName, Peer},
    serial::Serial,
    version::OtherVersion,
};

/// A time or a duration in nanoseconds, with any origin.
pub type Nanos = u64;
