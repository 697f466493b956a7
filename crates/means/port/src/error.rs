//! What can go wrong at a port.

use std::io;

use host::interface::NoInterface;
use model::{Classified, ErrorClass};

/// A port that could not be opened, or that failed while it was read.
#[derive(Debug, thiserror::Error)]
pub enum PortError {
    /// There is no interface of that name here.
    #[error(transparent)]
    NoInterface(#[from] NoInterface),
    /// The interface is down, so that nothing can arrive.
    #[error("the interface {interface} is down: bring it up with `ip link set {interface} up`")]
    InterfaceDown {
        /// The interface.
        interface: String,
    },
    /// The interface went away or was taken down while it was read.
    #[error("the interface {interface} went away or was taken down during the capture")]
    Vanished {
        /// The interface.
        interface: String,
    },
    /// A capability is missing.
    #[error("{backend} on {interface} needs {capability}: run as root or give the program that capability")]
    Privilege {
        /// The backend.
        backend: &'static str,
        /// The interface.
        interface: String,
        /// The capability by its kernel name, such as `CAP_NET_RAW`.
        capability: &'static str,
    },
    /// This interface or this kernel cannot do this backend; the reason says why and what to do.
    #[error("{backend} cannot be used on {interface}: {reason}")]
    Unsupported {
        /// The backend.
        backend: &'static str,
        /// The interface.
        interface: String,
        /// Why, and the way out.
        reason: String,
    },
    /// A setting that no backend can take.
    #[error("{backend}: {reason}")]
    Setting {
        /// The backend.
        backend: &'static str,
        /// What is wrong with which setting, and what is allowed.
        reason: String,
    },
    /// A system call failed for a reason that is not told apart above.
    #[error("{backend} on {interface}: cannot {operation}: {source}")]
    System {
        /// The backend.
        backend: &'static str,
        /// The interface.
        interface: String,
        /// What was tried.
        operation: String,
        /// What the kernel answered.
        source: io::Error,
    },
}

impl Classified for PortError {
    fn class(&self) -> ErrorClass {
        match self {
            Self::Setting { .. } => ErrorClass::Usage,
            Self::NoInterface(_)
            | Self::InterfaceDown { .. }
            | Self::Vanished { .. }
            | Self::Privilege { .. }
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
