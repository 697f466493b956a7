//! What can go wrong in a lab.

use std::io;

use model::{Classified, ErrorClass};

/// A lab that could not be built.
#[derive(Debug, thiserror::Error)]
pub enum LabError {
    /// A tag with characters that a name must not have.
    #[error("`{0}` cannot name a lab: use letters and digits")]
    BadTag(String),
    /// Making, entering or removing a namespace failed.
    #[error("cannot {what} the network namespace {name}: {source}{}", hint(.source))]
    Namespace {
        /// The operation.
        what: &'static str,
        /// The namespace.
        name: String,
        /// The cause.
        source: io::Error,
    },
    /// There is no interface of that name in the namespace.
    #[error(transparent)]
    NoInterface(#[from] host::interface::NoInterface),
    /// A request to the kernel about a link, an address or a neighbour failed.
    #[error("cannot {what} {object}: {source}{}", hint(.source))]
    Link {
        /// The operation.
        what: &'static str,
        /// The interface or address.
        object: String,
        /// The cause.
        source: io::Error,
    },
    /// A setting of an interface could not be written.
    #[error("cannot set {path} to {value}: {source}{}", hint(.source))]
    Setting {
        /// The file.
        path: String,
        /// What was to be written.
        value: String,
        /// The cause.
        source: io::Error,
    },
    /// A NAPI kernel thread did not appear or could not be pinned.
    #[error("cannot pin the NAPI threads of {interface}: {why}")]
    Napi {
        /// The interface.
        interface: String,
        /// What is missing.
        why: String,
    },
    /// An offload could not be switched.
    #[error(transparent)]
    Ethtool(#[from] sys::ethtool::EthtoolError),
    /// A kernel program of a box could not be loaded or attached.
    #[error(transparent)]
    Xdp(#[from] bpf::XdpError),
    /// The program `nft` is missing or refused.
    #[error("cannot run `nft {what}`, which a firewall of the lab needs: {said}")]
    Nft {
        /// Its arguments.
        what: String,
        /// What it said.
        said: String,
    },
    /// A thread of the lab panicked.
    #[error("a thread in the network namespace {0} panicked")]
    Panicked(String),
}

fn hint(source: &io::Error) -> &'static str {
    match source.raw_os_error() {
        Some(libc_eperm) if libc_eperm == nix::errno::Errno::EPERM as i32 => {
            " (a lab needs CAP_SYS_ADMIN and CAP_NET_ADMIN: run as root)"
        }
        Some(e) if e == nix::errno::Errno::EOPNOTSUPP as i32 => " (this kernel lacks veth or network namespaces)",
        _ => "",
    }
}

impl Classified for LabError {
    fn class(&self) -> ErrorClass {
        match self {
            Self::BadTag(_) => ErrorClass::Usage,
            Self::Panicked(_) => ErrorClass::Internal,
            _ => ErrorClass::Lacking,
        }
    }
}
