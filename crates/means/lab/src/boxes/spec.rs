//! The description of a box: plain data.

use crate::{Mac, link::Network};

#[derive(Debug, Clone, PartialEq, Eq)]
pub enum BoxKind {
    /// Nothing: sender and receiver are joined directly.
    Wire,
    Router,
    /// The kernel routes, past rules of nftables in the forward hook.
    Firewall(Ruleset),
    Bridge,
    /// An XDP program forwards by the kernel's routes and neighbours, before a socket buffer is made.
    XdpFib,
    /// The kernel routes, and its ports take and give frames by XDP redirect: whoever builds it puts a program there that forwards.
    XdpRouter,
    /// An XDP program counts and drops each frame where it enters, before a socket buffer is made.
    XdpDrop,
    /// A mirror port: taps see the frames, the stack drops them right after, as they are for another MAC address.
    Capture,
}

impl BoxKind {
    /// True if there is a receiver behind the box.
    pub fn forwards(&self) -> bool {
        self.routes() || *self == Self::Bridge
    }

    /// True if it forwards by IP address.
    pub fn routes(&self) -> bool {
        matches!(self, Self::Router | Self::Firewall(_)) || self.redirects()
    }

    /// True if frames cross it by XDP redirect.
    pub fn redirects(&self) -> bool {
        matches!(self, Self::XdpFib | Self::XdpRouter)
    }
}

/// The rules of a firewall. Whatever their number, the last one alone matches, and accepts.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Ruleset {
    /// The number of rules (in a set: addresses, and the rule that accepts), at least 1.
    pub rules: u32,
    /// The last rule asks for the state of the connection, which makes the kernel track every flow.
    pub stateful: bool,
    pub form: RuleForm,
}

/// The form of the addresses that a firewall refuses.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum RuleForm {
    /// A rule for each: each packet is held against all of them (RFC 2544, section 11.4.1).
    Linear,
    /// A rule for each, one half for what enters by one interface, the other for what enters by the other: each packet is held against
    /// all interfaces and half of the addresses.
    PerSide,
    /// A rule with a set: one lookup.
    Set,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Family {
    /// IPv4, in 198.18.0.0/15 (RFC 2544).
    #[default]
    V4,
    /// IPv6, in 2001:2::/48 (RFC 5180).
    V6,
}

/// The threads that work off the receive queues of the box.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub enum Napi {
    /// The core of the sender, in its soft interrupts ("inline"): a sender that is faster than the box is slowed down by it.
    #[default]
    Inline,
    /// A kernel thread per queue ("apart"): real overload. That of the entry's queue `i` is on CPU `i` modulo their number; the exit
    /// begins with the second CPU, so that each direction has a core where there are two.
    Threads(Vec<u32>),
}

/// The treatment of frames at the receiver (and, in the other direction, at the sender).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Sink {
    /// To [`NOBODY`](super::NOBODY)'s MAC address: counted by the interface, seen by taps, dropped by the stack.
    #[default]
    Discard,
    /// Frames go to the receiver's stack, at one address.
    Host,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct BoxSpec {
    pub kind: BoxKind,
    pub family: Family,
    /// Queues of each interface, in each direction.
    pub queues: u32,
    /// The threads that work off the receive queues.
    pub napi: Napi,
    /// The treatment of frames at their end.
    pub sink: Sink,
}

impl BoxSpec {
    /// An IPv4 box with one queue, worked off inline, whose frames are discarded at their end.
    pub fn new(kind: BoxKind) -> Self {
        Self { kind, family: Family::V4, queues: 1, napi: Napi::Inline, sink: Sink::Discard }
    }
}

/// The way of a frame, and its source.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Target {
    pub mac: Mac,
    pub source_mac: Mac,
    /// Source addresses that the box takes.
    pub sources: Network,
    /// Destination addresses that the box forwards.
    pub destinations: Network,
}
