//! Errors of the shield.

use std::{io, path::PathBuf};

use model::{Classified, ErrorClass};
use rules::RulesError;

/// A failure of the shield: what was tried, on what, why it failed and what to do.
#[derive(Debug, thiserror::Error)]
pub enum ShieldError {
    #[error(transparent)]
    Rules(#[from] RulesError),
    #[error("cannot {operation} {}: {source}", path.display())]
    File { operation: &'static str, path: PathBuf, source: io::Error },
    #[error(
        "process {pid} runs a shield on {interface} already; reload its rules with `evenkeel shield reload {interface}`, or end it with `evenkeel shield stop {interface}`"
    )]
    AlreadyRunning { interface: String, pid: String },
    #[error(
        "process {pid} starts a shield on {interface} and does not answer; look at what it prints, or end it with `kill {pid}`"
    )]
    Starting { interface: String, pid: String },
    #[error("{interface} has no shield")]
    NoShield { interface: String },
    #[error(
        "no process runs the shield of {interface}; take it over with `evenkeel shield run {interface} --rules FILE`"
    )]
    NoProcess { interface: String },
    #[error(
        "{interface} belongs to the shield of {of}; use `evenkeel shield status {first}`, `evenkeel shield stop {first}`"
    )]
    OtherShield {
        interface: String,
        /// The interfaces of that shield, one or two.
        of: String,
        first: String,
    },
    #[error(
        "{interface} runs a shield (program {id}), but this process cannot see its maps at {}. Nothing was changed. Inside `ip netns exec`, /sys is another \
         one: use `nsenter --net=/run/netns/NAME evenkeel shield …` instead. Elsewhere, go to the mount namespace in which the shield was started",
        path.display()
    )]
    PinsHidden { interface: String, id: u32, path: PathBuf },
    #[error(
        "nothing is filtered on {interface}: another tool removed the shield (as `bpftool link detach` does) after its process had ended. Start it with \
         `evenkeel shield run {interface} --rules FILE`, or clean up with `evenkeel shield stop {interface}`"
    )]
    Detached { interface: String },
    #[error(
        "the shield of an earlier process on {interface} is damaged: {source}. Remove it with `evenkeel shield stop {interface}`"
    )]
    Damaged { interface: String, source: bpf::XdpError },
    #[error(
        "the process that runs the shield of {interface} cannot be asked: its folder {} was removed. Find it with `pgrep -af 'evenkeel shield'` and end it \
         with `kill PID`",
        path.display()
    )]
    Unreachable { interface: String, path: PathBuf },
    #[error("{what}; {instead}. To load them anyway: --force")]
    LocksOut { what: String, instead: String },
    #[error(
        "cannot see whether {interface} has a shield: run as root{}",
        program.map_or_else(String::new, |id| format!(" (it runs an XDP program, id {id})"))
    )]
    NotVisible { interface: String, program: Option<u32> },
    #[error("no BPF file system at {}{why}", path.display())]
    NoBpfFileSystem {
        path: PathBuf,
        /// The reason why none was mounted, and what to do.
        why: String,
    },
    #[error("`{text}` is not two interfaces: write their names as in --between eth0,eth1")]
    NotAPair { text: String },
    #[error("frames cannot cross between {interface} and itself: name two interfaces, as in --between eth0,eth1")]
    SameInterface { interface: String },
    #[error("--backend ring needs two interfaces: name them with --between A,B")]
    RingsNeedTwo,
    #[error(
        "--backend ring always fails closed, as this process carries the frames: remove --fail open, or use --backend xdp"
    )]
    RingsFailClosed,
    #[error("an XDP shield of an earlier process is on {interface}: remove it with `evenkeel shield stop {interface}`")]
    LeftoverXdp { interface: String },
    #[error(
        "the shield of an earlier process on {interface} runs in {mode} mode: use --xdp-mode {mode}, or remove it with `evenkeel shield stop {interface}`"
    )]
    LeftoverMode { interface: String, mode: bpf::XdpMode },
    #[error(
        "the shield of an earlier process there is of {of}: name the same, or remove it with `evenkeel shield stop {interface}`"
    )]
    LeftoverPair { interface: String, of: String },
    #[error("no rules: give a file with --rules FILE, or a rule with --rule \"drop protocol=udp source-port=53\"")]
    NoRules,
    #[error("{} is no regular file and cannot be read again: to reload, start the shield with a file", path.display())]
    NotReloadable { path: PathBuf },
    #[error("cannot {operation} {interface}: {source}")]
    Link { operation: &'static str, interface: String, source: io::Error },
    #[error("cannot start a thread: {0}")]
    Thread(io::Error),
    #[error("the interface of index {index} was removed, and the shield with it")]
    Removed { index: u32 },
    #[error("the shield of {name} has ended: {why}")]
    Ended { name: String, why: String },
    /// The machine, or an interface, is not as it has to be.
    #[error("{0}")]
    Lacking(String),
    /// Two steps failed, the second of which did not wait for the first.
    #[error("{first}; {second}")]
    Both { first: Box<Self>, second: Box<Self> },
    #[error(transparent)]
    Serve(#[from] serve::ServeError),
    #[error(transparent)]
    NoInterface(#[from] host::interface::NoInterface),
    #[error(transparent)]
    Port(#[from] port::PortError),
    #[error(transparent)]
    Xdp(#[from] bpf::XdpError),
}

impl ShieldError {
    /// This error, with that of the step before if it failed too.
    pub(crate) fn after(self, step: Result<(), Self>) -> Self {
        match step {
            Ok(()) => self,
            Err(first) => Self::Both { first: Box::new(first), second: Box::new(self) },
        }
    }
}

impl Classified for ShieldError {
    fn class(&self) -> ErrorClass {
        match self {
            Self::NoInterface(error) => error.class(),
            Self::Xdp(error) => error.class(),
            Self::Serve(error) => error.class(),
            Self::Port(error) => error.class(),
            Self::Both { second, .. } => second.class(),
            Self::File { .. }
            | Self::Lacking(_)
            | Self::Link { .. }
            | Self::Thread(_)
            | Self::Removed { .. }
            | Self::Ended { .. }
            | Self::PinsHidden { .. }
            | Self::Detached { .. }
            | Self::Damaged { .. }
            | Self::Unreachable { .. }
            | Self::AlreadyRunning { .. }
            | Self::NotVisible { .. }
            | Self::NoBpfFileSystem { .. } => ErrorClass::Lacking,
            Self::Rules(error) => error.class(),
            Self::NotAPair { .. }
            | Self::SameInterface { .. }
            | Self::RingsNeedTwo
            | Self::RingsFailClosed
            | Self::LeftoverXdp { .. }
            | Self::LeftoverMode { .. }
            | Self::LeftoverPair { .. }
            | Self::NoRules
            | Self::NotReloadable { .. }
            | Self::NoProcess { .. }
            | Self::Starting { .. }
            | Self::NoShield { .. }
            | Self::OtherShield { .. }
            | Self::LocksOut { .. } => ErrorClass::Usage,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn of_two_failed_steps_both_are_reported() {
        let second = || ShieldError::Thread(io::ErrorKind::WouldBlock.into());
        assert_eq!(second().after(Ok(())).to_string(), second().to_string());
        let both = second().after(Err(ShieldError::NoRules));
        assert_eq!(both.to_string(), format!("{}; {}", ShieldError::NoRules, second()));
        assert_eq!(both.class(), second().class());
    }
}
