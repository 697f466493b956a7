//! AF_PACKET receive: the socket, its fanout group, the TPACKET_V3 ring and batched receive.
//!
//! The source of every constant and layout is include/uapi/linux/if_packet.h; packet(7) describes the options.

mod batch;
pub mod classic;
mod ring;
mod socket;

pub use batch::{Batch, Received};
pub use ring::{Block, RingFrame, RingLayout, RxRing};
pub use socket::{
    FANOUT_MEMBERS_MAX, Fanout, FanoutAlgorithm, Instruction, LinkState, PacketSocket, Readiness, Statistics,
};

use std::io;

/// A step of AF_PACKET receive that failed.
#[derive(Debug, thiserror::Error)]
pub enum PacketError {
    #[error("cannot open a packet socket: {0}")]
    Open(#[source] io::Error),
    #[error("cannot set {option} on a packet socket: {source}")]
    Option {
        /// The option by its kernel name, with the value where it matters.
        option: String,
        source: io::Error,
    },
    #[error("cannot bind a packet socket to interface index {index}: {source}")]
    Bind { index: u32, source: io::Error },
    #[error("cannot make a ring of this layout: {0}")]
    Layout(String),
    #[error("cannot map a packet ring of {bytes} bytes: {source}")]
    Map { bytes: usize, source: io::Error },
    #[error("cannot wait for packets: {0}")]
    Poll(#[source] io::Error),
    #[error("cannot receive packets: {0}")]
    Receive(#[source] io::Error),
}

impl PacketError {
    /// The kernel's answer, where a system call failed.
    pub fn os_error(&self) -> Option<&io::Error> {
        match self {
            Self::Open(source)
            | Self::Option { source, .. }
            | Self::Bind { source, .. }
            | Self::Map { source, .. }
            | Self::Poll(source)
            | Self::Receive(source) => Some(source),
            Self::Layout(_) => None,
        }
    }
}
