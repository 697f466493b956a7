//! Settings, handles and counts of a node.

use std::ops::RangeInclusive;

/// Default range of ephemeral ports: the dynamic ports of IANA.
pub const FREE_PORTS: RangeInclusive<u16> = 49_152..=u16::MAX;

/// Settings of a node.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NodeSettings {
    /// Name, at most 255 bytes.
    pub name: String,
    /// Random number of this start.
    pub epoch: u32,
    /// Payload bytes of the longest frame.
    pub payload_max: u16,
    /// Frames that a connection buffers in each direction.
    pub slots: u32,
    /// Secret key from which connection numbers and initial sequence numbers are derived.
    pub secret: u128,
    /// Ephemeral ports.
    pub ports: RangeInclusive<u16>,
}

/// Handle of a connection.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Handle(pub(super) u32);

impl Handle {
    /// The number, for other languages; never 0.
    pub fn number(self) -> u32 {
        self.0
    }

    /// The handle with this number, which may belong to no connection.
    pub fn of(number: u32) -> Self {
        Self(number)
    }
}

/// Counts of frames and offers without a connection.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct NodeCounts {
    /// Truncated frames.
    pub short: u64,
    /// Frames of another version, without notices ([`Node::other_versions`]).
    pub version: u64,
    pub version_notices_sent: u64,
    pub version_notices_received: u64,
    /// Frames of an unknown kind.
    pub kind: u64,
    /// Frames with a wrong checksum.
    pub checksum: u64,
    /// Frames for no connection, or not from its peer.
    pub unknown: u64,
    /// Offers to a port without a listener.
    pub refused: u64,
    /// Offers without room in the backlog or the node.
    pub busy: u64,
    /// Offers whose answer was not acknowledged, as those with a forged address.
    pub half_open: u64,
    /// Frames from a ring that was more than half full.
    pub congested: u64,
    /// Answered probes.
    pub probed: u64,
    /// Nodes that announced a name in use ([`Node::duplicate_names`]).
    pub duplicate_names: u64,
}

/// Both endpoints of an open connection, for [`Node::probe_orphan`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Endpoints<P> {
    pub peer: P,
    /// Port of this end.
    pub port: u16,
    /// Port of the peer.
    pub peer_port: u16,
    /// The peer's number of the connection.
    pub peer_number: u32,
    /// Epoch of this end.
    pub epoch: u32,
}
