//! Gaps of a reading: a later one must not take all that was ever counted there for the count of the interval.

use std::{collections::BTreeSet, fmt};

#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum SocketKind {
    Tcp,
    /// A TCP socket that listens.
    TcpListener,
    Udp,
    Raw,
    /// AF_PACKET: a packet tap.
    Packet,
}

/// A source that a reading may lack.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Source {
    /// The counters of IP, ICMP, UDP and TCP.
    Protocols,
    Conntrack,
    /// Netfilter's rules, of all kinds.
    Rules,
    /// Netfilter's rules of the old kind: `iptables` or `ip6tables`.
    OldRules(&'static str),
    /// Queueing disciplines and classes.
    Qdiscs,
    /// The interfaces, and with them their drivers' counters.
    Links,
    Sockets(SocketKind),
}

impl fmt::Display for Source {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Protocols => "the counters of the protocols",
            Self::Conntrack => "connection tracking",
            Self::Rules => "netfilter's rules",
            Self::OldRules(family) => return write!(f, "the rules of {family}"),
            Self::Qdiscs => "the queueing disciplines",
            Self::Links => "the interfaces",
            Self::Sockets(SocketKind::Tcp) => "the TCP connections",
            Self::Sockets(SocketKind::TcpListener) => "the TCP sockets that listen",
            Self::Sockets(SocketKind::Udp) => "the UDP sockets",
            Self::Sockets(SocketKind::Raw) => "the raw sockets",
            Self::Sockets(SocketKind::Packet) => "the packet taps",
        })
    }
}

#[derive(Debug, Default)]
pub(super) struct Unread {
    pub(super) notes: Vec<String>,
    /// The sources of which nothing, or not everything, was read.
    pub(super) missed: BTreeSet<Source>,
}

impl Unread {
    /// Nothing, or not everything, was read of a source.
    pub(super) fn miss(&mut self, source: Source, why: String) {
        self.missed.insert(source);
        self.notes.push(why);
    }
}
