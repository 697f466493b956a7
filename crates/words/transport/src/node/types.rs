//! Settings, handles and counts of a node.

use std::ops::RangeInclusive;

/// The ports that are given to whoever asks for none, unless a node has others: those that IANA registers to nobody.
pub const FREE_PORTS: RangeInclusive<u16> = 49_152..=u16::MAX;

/// Settings of a node.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NodeSettings {
    /// Its name, at most 255 bytes.
    pub name: String,
    /// Drawn at random when it starts.
    pub epoch: u32,
    /// The longest payload of a frame.
    pub payload_max: u16,
    /// Frames that each connection keeps each way.
    pub slots: u32,
    /// Known to nobody else: the numbers of its connections and the first ones of their frames follow from it.
    pub secret: u128,
    /// The ports that it gives to whoever asks for none.
    pub ports: RangeInclusive<u16>,
}

/// A connection of this node.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Handle(pub(super) u32);

impl Handle {
    /// Its number, as other languages hold it; never 0.
    pub fn number(self) -> u32 {
        self.0
    }

    /// The connection of this number. Of any other number there is none, as of a connection that ended and rested.
    pub fn of(number: u32) -> Self {
        Self(number)
    }
}

/// Counts of a node beside its connections.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct NodeCounts {
    /// Frames that were shorter than they say.
    pub short: u64,
    /// Of another version, notices of it left out ([`Node::other_versions`]).
    pub version: u64,
    /// Notices that this node speaks another version than theirs, to those who sent such frames.
    pub version_notices_sent: u64,
    /// Notices that another node speaks another version.
    pub version_notices_received: u64,
    /// Of an unknown kind.
    pub kind: u64,
    /// With a wrong checksum.
    pub checksum: u64,
    /// For a connection that is not there, or not from its peer.
    pub unknown: u64,
    /// Offers to a port where nobody listens.
    pub refused: u64,
    /// Offers that a listener, or the node, had no room for.
    pub busy: u64,
    /// Offers whose answer was not acknowledged, by an address that nobody has for example.
    pub half_open: u64,
    /// Frames that had met congestion on this node's way in.
    pub congested: u64,
    /// Probes of this node that were answered.
    pub probed: u64,
    /// Hellos of nodes whose name another node, or this one, has ([`Node::namesakes`]), each once.
    pub namesakes: u64,
}

/// What another one has to know of an open connection to ask its peer about it ([`Node::ask_for`]).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Ends<P> {
    pub peer: P,
    /// The port at this end.
    pub port: u16,
    /// The port at the other end.
    pub peer_port: u16,
    /// The other end's number of the connection.
    pub peer_number: u32,
    /// The epoch of this end.
    pub epoch: u32,
}
