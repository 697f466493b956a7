//! What can be wrong with a stream of packets, before and while it is sent.

use std::{io, net::IpAddr, path::PathBuf};

use host::interface::NoInterface;
use model::{Classified, ErrorClass};

/// A stream that cannot or must not be sent, or that failed on the way.
#[derive(Debug, thiserror::Error)]
pub enum TrafficError {
    /// A text that is no rate, range, size or prefix.
    #[error("`{text}` is no {what}: {expected}")]
    Text {
        /// The text.
        text: String,
        /// What it should be.
        what: &'static str,
        /// What it should look like.
        expected: &'static str,
    },
    /// Settings that contradict each other or that nothing can send.
    #[error("{0}")]
    Setting(String),
    /// A destination that the sending rules do not allow.
    #[error(
        "{destination}{origin} is outside of 198.18.0.0/15 and 2001:2::/48, which are set aside for tests (RFC 2544, RFC 5180, RFC 6815): \
         if that network is yours to load, name it with --allow-destination {destination}/{}", if .destination.is_ipv4() { 32 } else { 128 }
    )]
    Destination {
        /// The destination.
        destination: IpAddr,
        /// Where it comes from, such as ` (packet 7 of FILE)`, or nothing.
        origin: String,
    },
    /// A frame of a capture file that is not IP.
    #[error(
        "packet {packet} of {} is not IP (EtherType 0x{ether_type:04x}), so that no rule can say whom it reaches: \
         leave it out of the file, send inside a lab, or allow it with --allow-non-ip", path.display()
    )]
    NotIp {
        /// The file.
        path: PathBuf,
        /// The packet's number, from 1.
        packet: u64,
        /// Its EtherType.
        ether_type: u16,
    },
    /// An interface that others depend on.
    #[error(
        "{interface} carries the default route of this machine: test traffic there needs the networks that it may reach, \
         named with --allow-destination PREFIX"
    )]
    LiveInterface {
        /// The interface.
        interface: String,
    },
    /// There is no interface of that name here.
    #[error(transparent)]
    NoInterface(#[from] NoInterface),
    /// The interface is down.
    #[error("the interface {interface} is down: bring it up with `ip link set {interface} up`")]
    Down {
        /// The interface.
        interface: String,
    },
    /// Nothing is at the other end.
    #[error(
        "the interface {interface} has no carrier, so that frames would go nowhere: bring up the other end (of a veth: its peer), or plug the cable in"
    )]
    NoCarrier {
        /// The interface.
        interface: String,
    },
    /// The interface is gone or down in the middle of a run.
    #[error(
        "the interface {interface} went away or was taken down in mid-run, after {handed} frames were handed to it"
    )]
    Vanished {
        /// The interface.
        interface: String,
        /// Frames handed to the kernel until then.
        handed: u64,
    },
    /// The interface cannot do the backend.
    #[error("{backend} cannot send on {interface}: {reason}")]
    Unsupported {
        /// The backend.
        backend: &'static str,
        /// The interface.
        interface: String,
        /// Why, and the way out.
        reason: String,
    },
    /// A capture file that cannot be read.
    #[error("cannot read {}: {reason}", path.display())]
    File {
        /// The file.
        path: PathBuf,
        /// Why.
        reason: String,
    },
    /// A capture file that breaks off or is malformed.
    #[error("{} is damaged behind packet {good}: {reason}", path.display())]
    Damaged {
        /// The file.
        path: PathBuf,
        /// Packets that could be read before.
        good: u64,
        /// What is wrong.
        reason: String,
    },
    /// A CPU that is not there.
    #[error("there is no CPU {cpu} to send from: this machine has {online}")]
    NoCpu {
        /// The CPU.
        cpu: u32,
        /// Those that are online.
        online: model::CpuSet,
    },
    /// A CPU that a sender cannot run on.
    #[error("cannot run a sender on CPU {cpu}: {source}")]
    Cpu {
        /// The CPU.
        cpu: u32,
        /// What the kernel answered.
        source: io::Error,
    },
    /// A file of the kernel that cannot be read.
    #[error("cannot read {path}: {source}")]
    Read {
        /// The path.
        path: String,
        /// What the kernel answered.
        source: io::Error,
    },
    /// A packet that cannot be built.
    #[error(transparent)]
    Wire(#[from] wire::WireError),
    /// The live-frame sender failed.
    #[error(transparent)]
    Live(#[from] bpf::XdpError),
    /// The transmit ring failed.
    #[error(transparent)]
    Ring(#[from] sys::packet_tx::PacketTxError),
    /// The AF_XDP sink failed.
    #[error(transparent)]
    Port(#[from] port::PortError),
    /// A sender's thread panicked.
    #[error("a sender stopped by a fault of its own: {0}")]
    Panic(String),
}

impl Classified for TrafficError {
    fn class(&self) -> ErrorClass {
        use sys::packet_tx::PacketTxError as Tx;
        match self {
            Self::Text { .. }
            | Self::Setting(_)
            | Self::NoCpu { .. }
            | Self::Destination { .. }
            | Self::NotIp { .. }
            | Self::LiveInterface { .. }
            | Self::File { .. }
            | Self::Damaged { .. }
            | Self::Wire(_)
            | Self::Ring(Tx::WrongFormat { .. } | Tx::TooLong) => ErrorClass::Usage,
            Self::NoInterface(_)
            | Self::Down { .. }
            | Self::NoCarrier { .. }
            | Self::Vanished { .. }
            | Self::Unsupported { .. }
            | Self::Cpu { .. } => ErrorClass::Lacking,
            Self::Ring(Tx::Open(_) | Tx::Bind { .. } | Tx::Map { .. } | Tx::Send(_)) => ErrorClass::Lacking,
            Self::Live(e) => e.class(),
            Self::Port(e) => e.class(),
            Self::Ring(_) | Self::Read { .. } | Self::Panic(_) => ErrorClass::Internal,
        }
    }
}
