//! Entries of the broker's table: requests, connections and notices, each with its state ([`crate::sockets`] has the picture).

use std::{net::SocketAddr, os::fd::OwnedFd, time::Instant};

use transport::Handle;

use super::{
    entries::{Keyed, Keys},
    handover::Handover,
    pending_accepts::PendingAccept,
    pending_connects::PendingConnect,
    users::{Counted, Received},
};
use crate::{Address, claim::MessageSocket, sockets::flow::Flow};

/// Addresses of a connection, the node at its other end, and its program.
#[derive(Debug, Clone)]
pub(super) struct Label {
    pub(super) local: SocketAddr,
    pub(super) peer: SocketAddr,
    pub(super) node: String,
    pub(super) program: String,
}

#[derive(Debug)]
pub(super) enum Entry {
    /// A program that has connected, and made no request yet.
    Requester { socket: Received<MessageSocket>, asks: Counted, since: Instant },
    /// A connect that is not answered yet.
    PendingConnect(Box<PendingConnect>),
    /// A stream of another broker without a head yet.
    Unnamed { stream: Handle, node: Address, bytes: Vec<u8>, since: Instant },
    /// A TCP connection to a listener of this node, which waits for accept(2).
    PendingAccept(PendingAccept),
    /// A notice to another node's broker.
    Notice { stream: Handle, node: Address, line: Vec<u8> },
    /// A connection whose bytes this broker moves. The TCP socket that was connected keeps its port.
    Brokered { flow: Box<Flow>, label: Label, handover: Handover, port_holder: Option<Received<OwnedFd>> },
    /// A connection whose bytes its program moves. `end` is open in the program, too, and reports when no process holds the other end.
    TakenOver { end: OwnedFd, label: Label, handover: Handover, port_holder: Option<Received<OwnedFd>> },
}

impl Keyed for Entry {
    fn keys(&self) -> Keys {
        let none = Keys::default();
        let names = |label: &Label| Some((label.local, label.peer));
        match self {
            Self::Requester { .. } => none,
            Self::PendingConnect(pending) => {
                Keys { port_to: pending.stream.as_ref().map(|stream| stream.node), ..none }
            }
            Self::Unnamed { node, .. } => Keys { unnamed: Some(*node), ..none },
            Self::PendingAccept(PendingAccept { label, node, .. }) => {
                Keys { names: names(label), pending: Some(*node), ..none }
            }
            Self::TakenOver { label, .. } => Keys { names: names(label), ..none },
            Self::Notice { node, .. } => Keys { port_to: Some(*node), notices: true, ..none },
            Self::Brokered { label, handover, .. } => Keys { names: names(label), port_to: handover.node(), ..none },
        }
    }
}
