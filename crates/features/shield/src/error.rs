//! What can go wrong in the shield.

use std::{io, path::PathBuf};

use model::{Classified, ErrorClass};
use rules::RulesError;

/// A failure of the shield: what was tried, on what, why it failed and what to do.
#[allow(missing_docs, reason = "the messages say it")]
#[derive(Debug, thiserror::Error)]
pub enum ShieldError {
    /// Rules that cannot be understood or compiled.
    #[error(transparent)]
    Rules(#[from] RulesError),
    #[error("cannot {operation} {}: {source}", path.display())]
    Place {
        /// What was to be done with it.
        operation: &'static str,
        path: PathBuf,
        source: io::Error,
    },
    #[error(
        "process {pid} runs a shield on {interface} already; reload its rules with `evenkeel shield reload {interface}`, or end it with `evenkeel shield stop {interface}`"
    )]
    Tended { interface: String, pid: String },
    #[error("{interface} has no shield")]
    None { interface: String },
    #[error(
        "nobody runs the shield of {interface}; take it over with new rules by `evenkeel shield run {interface} --rules FILE`"
    )]
    Untended { interface: String },
    #[error(
        "{interface} belongs to the shield of {of}; use `evenkeel shield status {first}`, `evenkeel shield stop {first}`"
    )]
    OfAnother {
        interface: String,
        /// What that shield is of, one interface or two.
        of: String,
        first: String,
    },
    #[error(
        "{interface} runs a shield (program {id}), but this process cannot see its maps at {}. Nothing was changed. Inside `ip netns exec`, /sys is another \
         one: use `nsenter --net=/run/netns/NAME evenkeel shield …` instead. Elsewhere, go to the mount namespace in which the shield was started",
        path.display()
    )]
    Hidden { interface: String, id: u32, path: PathBuf },
    #[error("{what}; {instead}. To do it all the same: --force")]
    CutsOff { what: String, instead: String },
    #[error(
        "cannot see whether {interface} has a shield: run as root{}",
        program.map_or_else(String::new, |id| format!(" (it runs an XDP program, id {id})"))
    )]
    Unseen { interface: String, program: Option<u32> },
    #[error("no BPF file system at {}{why}", path.display())]
    NoBpfFileSystem {
        path: PathBuf,
        /// Why none was mounted, and what to do.
        why: String,
    },
    #[error("{0}")]
    Lacking(String),
    #[error("{0}")]
    Usage(String),
    /// The control socket, events or metrics.
    #[error(transparent)]
    Serve(#[from] serve::ServeError),
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
            Self::Serve(error) => error.class(),
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
