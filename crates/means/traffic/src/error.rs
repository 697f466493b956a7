//! Failures of a stream of packets, before and while it is sent.

use std::{io, net::IpAddr, path::PathBuf};

use host::interface::NoInterface;
use model::{Classified, ErrorClass};

/// A stream that cannot or must not be sent, or that failed on the way.
#[derive(Debug, thiserror::Error)]
pub enum TrafficError {
    #[error("`{text}` is no {what}: {expected}")]
    Text { text: String, what: &'static str, expected: &'static str },
    #[error("{0}")]
    Setting(String),
    #[error(
        "{destination}{origin} is outside of 198.18.0.0/15 and 2001:2::/48, which are set aside for tests (RFC 2544, RFC 5180, RFC 6815): \
         if that network is yours to load, name it with --allow-destination {destination}/{}", if .destination.is_ipv4() { 32 } else { 128 }
    )]
    Destination {
        destination: IpAddr,
        /// Its origin, such as ` (packet 7 of FILE)`, or nothing.
        origin: String,
    },
    #[error(
        "packet {packet} of {} is not IP (EtherType 0x{ether_type:04x}), so that no rule can say whom it reaches: \
         leave it out of the file, send inside a lab, or allow it with --allow-non-ip", path.display()
    )]
    NotIp { path: PathBuf, packet: u64, ether_type: u16 },
    #[error(
        "{interface} carries the default route of this machine: test traffic there needs the networks that it may reach, \
         named with --allow-destination PREFIX"
    )]
    LiveInterface { interface: String },
    #[error(transparent)]
    NoInterface(#[from] NoInterface),
    #[error("the interface {interface} is down: bring it up with `ip link set {interface} up`")]
    Down { interface: String },
    #[error(
        "{interface} has no Ethernet addresses (a tunnel of IP packets?), and gen sends Ethernet frames: name another interface"
    )]
    NoEthernet { interface: String },
    #[error(
        "the interface {interface} has no carrier, so that frames would go nowhere: bring up the other end (of a veth: its peer), or plug the cable in"
    )]
    NoCarrier { interface: String },
    #[error(
        "the interface {interface} went away or was taken down in mid-run, after {submitted} frames were handed to it"
    )]
    Vanished {
        interface: String,
        /// Frames handed to the kernel until then.
        submitted: u64,
    },
    #[error("{backend} cannot send on {interface}: {reason}")]
    Unsupported { backend: &'static str, interface: String, reason: String },
    #[error("cannot read {}: {reason}", path.display())]
    File { path: PathBuf, reason: String },
    #[error("{} is damaged after packet {good}: {reason}", path.display())]
    Damaged { path: PathBuf, good: u64, reason: String },
    #[error("there is no CPU {cpu} to send from: this machine has {online}")]
    NoCpu { cpu: u32, online: model::CpuSet },
    #[error("cannot run a sender on CPU {cpu}: {source}")]
    Cpu { cpu: u32, source: io::Error },
    #[error("cannot read {path}: {source}")]
    Read { path: String, source: io::Error },
    #[error(transparent)]
    Wire(#[from] wire::WireError),
    #[error(transparent)]
    Live(#[from] bpf::XdpError),
    #[error(transparent)]
    Ring(#[from] sys::packet_tx::PacketTxError),
    #[error(transparent)]
    Port(#[from] port::PortError),
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
            | Self::NoEthernet { .. }
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
