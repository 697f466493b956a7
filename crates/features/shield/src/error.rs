//! What can go wrong in the shield.

use std::{io, path::PathBuf};

use model::{Classified, ErrorClass};
use rules::RulesError;

/// A failure of the shield: what was tried, on what, why it failed and what to do.
#[derive(Debug, thiserror::Error)]
pub enum ShieldError {
    /// Rules that cannot be understood or compiled.
    #[error(transparent)]
    Rules(#[from] RulesError),
    /// A file or folder of the running shield cannot be used.
    #[error("cannot {operation} {}: {source}", path.display())]
    Place {
        /// What was to be done with it.
        operation: &'static str,
        /// Which.
        path: PathBuf,
        /// Why.
        source: io::Error,
    },
    /// Another process tends the shield of the interface.
    #[error(
        "process {pid} runs a shield on {interface} already; reload its rules with `evenkeel shield reload {interface}`, or end it with `evenkeel shield stop {interface}`"
    )]
    Tended {
        /// The interface.
        interface: String,
        /// The process.
        pid: String,
    },
    /// There is no shield there.
    #[error("{interface} has no shield")]
    None {
        /// The interface.
        interface: String,
    },
    /// Nobody runs it.
    #[error(
        "nobody runs the shield of {interface}; take it over with new rules by `evenkeel shield run {interface} --rules FILE`"
    )]
    Untended {
        /// The interface.
        interface: String,
    },
    /// The shield of another interface has this one.
    #[error(
        "{interface} belongs to the shield of {of}; use `evenkeel shield status {first}`, `evenkeel shield stop {first}`"
    )]
    OfAnother {
        /// The interface.
        interface: String,
        /// What that shield is of, one interface or two.
        of: String,
        /// By which name it goes.
        first: String,
    },
    /// The program runs, and its pins are not to be seen.
    #[error(
        "{interface} runs a shield (program {id}), but this process cannot see its maps at {}. Nothing was changed. Inside `ip netns exec`, /sys is another \
         one: use `nsenter --net=/run/netns/NAME evenkeel shield …` instead. Elsewhere, go to the mount namespace in which the shield was started",
        path.display()
    )]
    Hidden {
        /// The interface.
        interface: String,
        /// The program's id.
        id: u32,
        /// Where they would be.
        path: PathBuf,
    },
    /// The rules would end the ssh session that they are asked for from.
    #[error("{what}; {instead}. To do it all the same: --force")]
    CutsOff {
        /// Which rule, and which session.
        what: String,
        /// What to do.
        instead: String,
    },
    /// Whether there is a shield cannot be seen by this user.
    #[error(
        "cannot see whether {interface} has a shield: run as root{}",
        program.map_or_else(String::new, |id| format!(" (it runs an XDP program, id {id})"))
    )]
    Unseen {
        /// The interface.
        interface: String,
        /// The XDP program on it.
        program: Option<u32>,
    },
    /// There is no BPF file system to keep the shield in.
    #[error("no BPF file system at {}{why}", path.display())]
    NoBpfFileSystem {
        /// Where one is wanted.
        path: PathBuf,
        /// Why none was mounted, and what to do.
        why: String,
    },
    /// What the machine lacks.
    #[error("{0}")]
    Lacking(String),
    /// What was asked for cannot be.
    #[error("{0}")]
    Usage(String),
    /// Events or metrics.
    #[error(transparent)]
    Event(#[from] crate::events::EventError),
    /// There is no interface of that name here.
    #[error(transparent)]
    NoInterface(#[from] host::interface::NoInterface),
    /// A packet ring on an interface.
    #[error(transparent)]
    Port(#[from] port::PortError),
    /// The kernel program.
    #[error(transparent)]
    Xdp(#[from] bpf::XdpError),
}

impl Classified for ShieldError {
    fn class(&self) -> ErrorClass {
        match self {
            // As in every verb: what the machine lacks.
            Self::Xdp(bpf::XdpError::NoInterface { .. }) => ErrorClass::Lacking,
            Self::NoInterface(error) => error.class(),
            Self::Xdp(error) => error.class(),
            Self::Event(error) => error.class(),
            Self::Port(error) => error.class(),
            Self::Place { .. }
            | Self::Lacking(_)
            | Self::Hidden { .. }
            | Self::Unseen { .. }
            | Self::NoBpfFileSystem { .. } => ErrorClass::Lacking,
            Self::Rules(error) => error.class(),
            Self::Usage(_)
            | Self::Tended { .. }
            | Self::Untended { .. }
            | Self::None { .. }
            | Self::OfAnother { .. }
            | Self::CutsOff { .. } => ErrorClass::Usage,
        }
    }
}
