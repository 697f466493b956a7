//! What can go wrong in the shield.

use std::{fmt, io, path::PathBuf};

use model::{Classified, ErrorClass};

/// Something wrong in a file, and where.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Problem {
    /// The file's name, as the user gave it.
    pub file: String,
    /// 1 for the first.
    pub line: usize,
    /// In characters, 1 for the first.
    pub column: usize,
    /// What is wrong.
    pub what: String,
    /// What to write instead.
    pub instead: Option<String>,
}

impl fmt::Display for Problem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // What a file says may be shown on a terminal, which must not obey it.
        write!(f, "{}:{}:{}: {}", self.file, self.line, self.column, plain(&self.what))?;
        match &self.instead {
            Some(instead) => write!(f, "; {}", plain(instead)),
            None => Ok(()),
        }
    }
}

/// With control characters as they are escaped in source text.
fn plain(text: &str) -> String {
    text.chars().map(|c| if c.is_control() { c.escape_default().to_string() } else { c.to_string() }).collect()
}

fn lines(problems: &[Problem]) -> String {
    problems.iter().map(Problem::to_string).collect::<Vec<_>>().join("\n")
}

/// A failure of the shield: what was tried, on what, why it failed and what to do.
#[derive(Debug, thiserror::Error)]
pub enum ShieldError {
    /// Files of rules or sets say what cannot be understood.
    #[error("{}", lines(.0))]
    Rules(Vec<Problem>),
    /// A file cannot be read.
    #[error("cannot read {what} from {}: {source}", path.display())]
    Read {
        /// What it was to hold.
        what: &'static str,
        /// The file.
        path: PathBuf,
        /// Why.
        source: io::Error,
    },
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
    #[error("{interface} has no shield; start one with `evenkeel shield run {interface} --rules FILE`")]
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
    /// An interface, or a packet ring on one.
    #[error(transparent)]
    Port(#[from] port::PortError),
    /// The kernel program.
    #[error(transparent)]
    Xdp(#[from] bpf::XdpError),
    /// More rules than rows have bits.
    #[error(
        "{given} rules, but the kernel's tables have room for {max}: join rules that do the same, or put their prefixes into one set"
    )]
    TooManyRules {
        /// How many there are, the management allow-list included.
        given: usize,
        /// How many there may be.
        max: usize,
    },
    /// A rule names a set that is not there.
    #[error(
        "rule \"{rule}\" names the set \"{set}\", which does not exist: define it under [sets], or correct the name"
    )]
    UnknownSet {
        /// The rule's name.
        rule: String,
        /// The set's name.
        set: String,
    },
    /// The values of a field fall into more classes than a table can number.
    #[error(
        "the rules divide the {field} into {classes} classes, and a table can number {max}: use fewer different conditions on it"
    )]
    TooManyClasses {
        /// The field, in words.
        field: &'static str,
        /// How many classes there would be.
        classes: usize,
        /// How many there may be.
        max: usize,
    },
    /// No hash table holds the IPv6 prefixes of a field.
    #[error(
        "the {prefixes} IPv6 prefixes in the {field} do not fit a hash table: split the set, or use shorter prefixes"
    )]
    Crowded {
        /// The field, in words.
        field: &'static str,
        /// How many prefixes are longer than 32 bits.
        prefixes: usize,
    },
    /// No counter is left for a rule.
    #[error("no counter is left for rule \"{rule}\": all {capacity} are in use")]
    NoCounter {
        /// The rule's name.
        rule: String,
        /// Counters there are.
        capacity: usize,
    },
    /// A saved capture cannot be opened or read.
    #[error("cannot read the capture {}: {reason}", path.display())]
    Capture {
        /// The file.
        path: PathBuf,
        /// Why.
        reason: String,
    },
}

impl Classified for ShieldError {
    fn class(&self) -> ErrorClass {
        match self {
            // As in every verb: what the machine lacks.
            Self::Xdp(bpf::XdpError::NoInterface { .. }) | Self::Port(port::PortError::NoInterface { .. }) => {
                ErrorClass::Lacking
            }
            Self::Xdp(error) => error.class(),
            Self::Event(error) => error.class(),
            Self::Port(error) => error.class(),
            Self::Place { .. }
            | Self::Lacking(_)
            | Self::Hidden { .. }
            | Self::Unseen { .. }
            | Self::NoBpfFileSystem { .. } => ErrorClass::Lacking,
            Self::Rules(_)
            | Self::Usage(_)
            | Self::Tended { .. }
            | Self::Untended { .. }
            | Self::None { .. }
            | Self::OfAnother { .. }
            | Self::Read { .. }
            | Self::TooManyRules { .. }
            | Self::UnknownSet { .. }
            | Self::TooManyClasses { .. }
            | Self::Crowded { .. }
            | Self::CutsOff { .. }
            | Self::NoCounter { .. }
            | Self::Capture { .. } => ErrorClass::Usage,
        }
    }
}
