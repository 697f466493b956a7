//! Errors of link.

use std::{io, path::PathBuf};

use model::{Classified, ErrorClass};
use sys::{packet::PacketError, packet_tx::PacketTxError, seccomp_notify::StartError};
use transport::{Reason, SendError};

/// Something that could not be done.
#[derive(Debug, thiserror::Error)]
pub enum LinkError {
    #[error(transparent)]
    NoInterface(#[from] host::interface::NoInterface),
    #[error("{interface} has no Ethernet address: messages between nodes need an Ethernet interface, or a VLAN on one")]
    NotEthernet { interface: String },
    #[error(
        "{interface} has no IP address of the family of the peers: give it one by `ip address add`, or leave out --over udp"
    )]
    NoIp { interface: String },
    #[error("the UDP port of {at} is taken: `ss -ulpn` shows by whom")]
    UdpTaken { at: std::net::SocketAddr },
    #[error("{interface} has an MTU of {mtu}: a frame of a message needs at least {least}")]
    Mtu { interface: String, mtu: u32, least: u32 },
    #[error("cannot {operation}: {source}")]
    System { operation: &'static str, source: io::Error },
    #[error(transparent)]
    Receive(#[from] PacketError),
    #[error(transparent)]
    Transmit(#[from] PacketTxError),
    #[error("cannot send: {0}")]
    Send(#[from] SendError),
    #[error("this message of {0} bytes is longer than the buffer")]
    Short(usize),
    #[error("the connection ended: {0}")]
    Ended(Reason),
    #[error("no broker serves in this network namespace: start one with `evenkeel link serve INTERFACE`")]
    NoBroker,
    #[error(
        "no broker of this network namespace serves a cluster: start one with `evenkeel link serve INTERFACE --cluster PREFIX`"
    )]
    NoCluster,
    #[error("a broker serves in this network namespace already, as process {pid}: `evenkeel link stop` ends it")]
    Serves { pid: String },
    #[error("the broker refuses: {why}")]
    Refused { why: String, source: io::Error },
    #[error(transparent)]
    Serve(#[from] serve::ServeError),
    #[error(transparent)]
    Program(#[from] bpf::ProgramError),
    #[error(transparent)]
    Xdp(#[from] bpf::XdpError),
    #[error(transparent)]
    Guard(#[from] lab::LabError),
    #[error("cannot receive files below {}: {source}", path.display())]
    NoFolder { path: PathBuf, source: io::Error },
    #[error("the file became shorter while it was read: {left} bytes are missing")]
    Shrank { left: u64 },
    #[error("the length of the file is not known (it is told as 0, as in /proc): copy it to a plain file first")]
    Unsized,
    #[error("no file copied: {why}")]
    NotTaken { why: String },
    #[error("the file arrived changed: its SHA-256 is {ours} here and {theirs} there")]
    Differs { ours: String, theirs: String },
    #[error("no node {name} answers: `evenkeel link nodes` shows those that do")]
    NoNode { name: String },
    #[error("{name} is this node: name another one, as `evenkeel link nodes` shows them")]
    ThisNode { name: String },
    #[error("{count} nodes are called {name}, at {addresses}: name one by its address")]
    SameName { name: String, count: usize, addresses: String },
    #[error("cannot carry the cluster {prefix} on this interface: {why}")]
    Cluster { prefix: String, why: String },
    #[error("all connections are in use")]
    Full,
    #[error("port {0} of this node has a listener already")]
    Listens(u16),
    #[error("cannot start {program}: {source}")]
    NotStarted { program: String, source: StartError },
}

impl Classified for LinkError {
    fn class(&self) -> ErrorClass {
        match self {
            Self::NoInterface(e) => e.class(),
            Self::Serve(e) => e.class(),
            Self::Program(e) => e.class(),
            Self::Xdp(e) => e.class(),
            Self::Guard(e) => e.class(),
            Self::NotEthernet { .. }
            | Self::Mtu { .. }
            | Self::NoIp { .. }
            | Self::UdpTaken { .. }
            | Self::Cluster { .. }
            | Self::Full
            | Self::Listens(_)
            | Self::NoBroker
            | Self::NoCluster
            | Self::NotTaken { .. }
            | Self::NoFolder { .. }
            | Self::Ended(_)
            | Self::NoNode { .. }
            | Self::ThisNode { .. }
            | Self::Unsized
            | Self::SameName { .. }
            | Self::Serves { .. }
            | Self::NotStarted { .. }
            | Self::Refused { .. } => ErrorClass::Lacking,
            Self::Receive(e) => e.os_error().map_or(ErrorClass::Internal, of_system),
            Self::System { source, .. } => of_system(source),
            Self::Shrank { .. } | Self::Differs { .. } | Self::Transmit(_) | Self::Send(_) | Self::Short(_) => {
                ErrorClass::Internal
            }
        }
    }
}

fn of_system(error: &io::Error) -> ErrorClass {
    match error.kind() {
        io::ErrorKind::PermissionDenied | io::ErrorKind::NetworkDown => ErrorClass::Lacking,
        _ => ErrorClass::Internal,
    }
}

impl LinkError {
    /// The warning that nodes at these addresses have one name.
    pub fn same_name(name: &str, addresses: &[&str]) -> Self {
        Self::SameName { name: name.to_owned(), count: addresses.len(), addresses: some_of(addresses) }
    }
}

/// The first few, and how many more there are.
pub(crate) fn some_of(addresses: &[&str]) -> String {
    const SHOWN_MAX: usize = 4;
    let shown = addresses[..addresses.len().min(SHOWN_MAX)].join(", ");
    match addresses.len().saturating_sub(SHOWN_MAX) {
        0 => shown,
        more => format!("{shown} and {more} more"),
    }
}
