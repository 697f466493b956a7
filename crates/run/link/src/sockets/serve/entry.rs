//! What the broker's loop has, and how far it is.

use std::{net::SocketAddr, os::fd::OwnedFd, time::Instant};

use transport::Handle;

use super::{
    direct::Direct,
    guests::{Counted, Sent},
    stages::{Keyed, Keys},
    wishes::Connects,
};
use crate::{Address, claim::Talk, sockets::flow::Flow};

/// What a connection's two addresses are, and who is where.
#[derive(Debug, Clone)]
pub(super) struct Who {
    pub(super) local: SocketAddr,
    pub(super) peer: SocketAddr,
    pub(super) node: String,
    pub(super) program: String,
}

/// How far something is.
#[derive(Debug)]
pub(super) enum Stage {
    /// A program has come, and not asked yet.
    Asks { talk: Sent<Talk>, asks: Counted, since: Instant },
    /// It wants to be connected.
    Connects(Box<Connects>),
    /// Another node has a connection for us, and has not said which.
    Named { stream: Handle, node: Address, bytes: Vec<u8>, since: Instant },
    /// The listener of this node is connected to.
    Offered { stream: Handle, who: Who, tcp: OwnedFd, is_answered: bool },
    /// Another node's broker is to hear one line.
    Tells { stream: Handle, node: Address, line: Vec<u8> },
    /// It carries bytes. The TCP socket that was connected holds its port.
    Open { flow: Box<Flow>, who: Who, direct: Direct, holds: Option<Sent<OwnedFd>> },
    /// Its program carries the bytes. The descriptor that the program has, too, tells when nobody holds the end any more.
    Direct { end: OwnedFd, who: Who, direct: Direct, holds: Option<Sent<OwnedFd>> },
}

impl Keyed for Stage {
    fn keys(&self) -> Keys {
        let none = Keys::default();
        let names = |who: &Who| Some((who.local, who.peer));
        match self {
            Self::Asks { .. } => none,
            Self::Connects(wish) => Keys { port_to: wish.stream.as_ref().map(|stream| stream.node), ..none },
            Self::Named { node, .. } => Keys { unnamed: Some(*node), ..none },
            Self::Offered { who, .. } | Self::Direct { who, .. } => Keys { names: names(who), ..none },
            Self::Tells { node, .. } => Keys { port_to: Some(*node), tells: true, ..none },
            Self::Open { who, direct, .. } => Keys { names: names(who), port_to: direct.node(), ..none },
        }
    }
}
