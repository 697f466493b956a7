//! Failures of a port.

use std::io;

use host::interface::NoInterface;
use model::{Classified, ErrorClass};

/// A port that could not be opened, or that failed while it was read.
#[derive(Debug, thiserror::Error)]
pub enum PortError {
    #[error(transparent)]
    NoInterface(#[from] NoInterface),
    #[error("the interface {interface} is down: bring it up with `ip link set {interface} up`")]
    InterfaceDown { interface: String },
    /// Reported once by a source, which goes on when the interface is up again.
    #[error("the interface {interface} went down")]
    Down { interface: String },
    #[error("the interface {interface} was removed, or moved to another network namespace, during the capture")]
    Vanished { interface: String },
    #[error("the capture on {interface} ended: {why}")]
    TakenOff { interface: String, why: String },
    #[error("{backend} on {interface} needs {capability}: run as root or give the program that capability")]
    Privilege {
        backend: &'static str,
        interface: String,
        /// The capability by its kernel name, such as `CAP_NET_RAW`.
        capability: &'static str,
    },
    #[error("{backend} cannot be used on {interface}: {reason}")]
    Unsupported { backend: &'static str, interface: String, reason: String },
    #[error("{backend}: {reason}")]
    Setting {
        backend: &'static str,
        /// The wrong setting, and what is allowed.
        reason: String,
    },
    /// A setting of an interface keeps something from working, or cannot be read.
    #[error("{0}")]
    Asking(String),
    #[error("{backend} on {interface}: cannot {operation}: {source}")]
    System { backend: &'static str, interface: String, operation: String, source: io::Error },
}

impl Classified for PortError {
    fn class(&self) -> ErrorClass {
        match self {
            Self::Setting { .. } => ErrorClass::Usage,
            Self::NoInterface(_)
            | Self::InterfaceDown { .. }
            | Self::Down { .. }
            | Self::Vanished { .. }
            | Self::TakenOff { .. }
            | Self::Privilege { .. }
            | Self::Asking(_)
            | Self::Unsupported { .. } => ErrorClass::Lacking,
            Self::System { source, .. } => match source.raw_os_error() {
                Some(libc::EPERM | libc::EACCES | libc::ENOMEM | libc::ENODEV | libc::ENETDOWN | libc::ENXIO) => {
                    ErrorClass::Lacking
                }
                _ => ErrorClass::Internal,
            },
        }
    }
}
