//! Messages and streams between nodes over Ethernet: the protocol of docs/protocol/link.md as a pure state machine. Time and frames go in, frames and
//! states come out; nothing here touches a clock, a socket or memory of another process.
//!
//! - [`Header`] is what stands ahead of every payload.
//! - [`Connection`] is one end of a connection: reliable, in order, each message once.
//! - [`Node`] finds the connection of a frame, and makes those that others open.
//!
//! Payloads under way lie in pages of one pool for each node, and no cost of a frame grows with the window. The tests put ends on networks that lose,
//! double, damage, delay and forge, in virtual time.

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
    budget::{Budget, Part},
    connection::{Connection, Counts, Outgoing, PEER_TIMEOUT, REST_TIME, SendError, Settings, State},
    echo::Echo,
    header::{BadFrame, Flags, HEADER_BYTES, Header, Kind, Offer, Reason, VERSION},
    node::{Ends, FREE_PORTS, Handle, Node, NodeCounts, NodeSettings},
    peers::{Namesakes, Peer},
    serial::Serial,
    version::OtherVersion,
};

/// A moment or a time in nanoseconds, from a beginning that does not matter.
pub type Nanos = u64;
