//! Messages between nodes over plain Ethernet: what carries the protocol of docs/protocol/link.md, and one node of it.
//!
//! - A [`Carrier`] takes frames to other nodes and brings theirs: [`Raw`] over Ethernet by AF_PACKET, [`Udp`] behind UDP; [`BrokerCarrier`] is what the broker chose.
//! - An [`Engine`] is a node on a carrier: connections, messages, streams, time.
//! - A [`broker`] answers for the node, and gives each program of it ports of its own ([`Claim`]), past which its frames go.
//! - [`sockets`] carry the TCP connections of programs that know nothing of link.
//! - Programs that know nothing of it are [supervised](supervise): their TCP connections become others.
//!
//! A program enters its connections in a file that it shares with the broker, which tells their other ends when it is gone. Sockets of other users than
//! root's are in a namespace whose door looks at what they send.

mod address;
pub mod broker;
mod broker_carrier;
mod burst;
mod carrier;
pub mod check;
mod claim;
pub mod copy;
mod engine;
mod error;
mod guard;
mod log;
mod orphans;
mod pings;
mod ports;
mod raw;
pub mod rights;
pub mod sockets;
pub mod supervise;
mod table;
mod udp;
pub mod unit;

pub use self::{
    address::{Address, NoAddress, UDP_PORT},
    broker::{Paths, Receive},
    broker_carrier::BrokerCarrier,
    carrier::Carrier,
    claim::Claim,
    engine::Engine,
    error::LinkError,
    raw::{Raw, Wire},
    udp::{Udp, UdpSettings},
};
pub use transport::{Counts, Handle, NodeCounts, Peer, Reason, SendError, State};

/// The EtherType of the protocol: the first that IEEE 802 leaves to local experiments.
pub const ETHERTYPE: u16 = 0x88b5;
