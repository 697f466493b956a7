//! What happens to a router's fast path: one event, one line of JSON (`evenkeel.route.event/1`).

use std::fmt;

use serde::{Deserialize, Serialize};

use crate::{
    CpuSet,
    route::{Obstacle, RouteMode, ShadowResult},
};

/// Something that happened, without its time.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "event", rename_all = "kebab-case")]
pub enum RouteEvent {
    /// Another mode, and why.
    Mode {
        /// Who forwards from now on.
        mode: RouteMode,
        why: String,
    },
    /// Something that the fast path cannot honour appeared.
    Obstacle(Obstacle),
    Cleared(Obstacle),
    /// A port ended: removed, or its program taken off by another tool.
    PortEnded {
        /// In words, with the port's name.
        why: String,
    },
    /// A port's program was put back into its place in the chain, which others had emptied.
    PutBack {
        /// In words, with the port's name.
        what: String,
    },
    /// A port's interface has another name.
    Renamed {
        from: String,
        to: String,
    },
    /// The fast path can send out of a port again, or no longer.
    Sends {
        interface: String,
        /// It can. What leaves by a port that cannot goes up to the kernel.
        sends: bool,
    },
    /// Something happened to the rules.
    Rules {
        what: String,
    },
    /// CPUs went offline or came back.
    Cpus {
        /// Those that forward now; none: the cores that receive.
        cpus: CpuSet,
    },
    /// The trial in shadow ended.
    Compared(ShadowResult),
}

impl RouteEvent {
    /// Its name, as in JSON.
    pub fn word(&self) -> &'static str {
        match self {
            Self::Mode { .. } => "mode",
            Self::Obstacle(_) => "obstacle",
            Self::Cleared(_) => "cleared",
            Self::PortEnded { .. } => "port-ended",
            Self::PutBack { .. } => "put-back",
            Self::Renamed { .. } => "renamed",
            Self::Sends { .. } => "sends",
            Self::Rules { .. } => "rules",
            Self::Cpus { .. } => "cpus",
            Self::Compared(_) => "compared",
        }
    }
}

/// In a line; `{:#}` has what to do about it too.
impl fmt::Display for RouteEvent {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Mode { mode, why } => write!(f, "mode {}: {why}", mode.name()),
            Self::Obstacle(it) if f.alternate() => write!(f, "obstacle: {} ({}): {}", it.what, it.code, it.remedy),
            Self::Obstacle(it) => write!(f, "obstacle: {} ({})", it.what, it.code),
            Self::Cleared(it) if it.code == "consent" => {
                write!(f, "cleared ({}): a rule of nftables marks connections", it.code)
            }
            Self::Cleared(it) => write!(f, "cleared ({}), which was: {}", it.code, it.what),
            Self::PortEnded { why } => write!(f, "a port ended: {why}"),
            Self::Renamed { from, to } => write!(f, "{from} was renamed to {to}"),
            Self::Sends { interface, sends: true } => write!(f, "the fast path sends by {interface} again"),
            Self::Sends { interface, sends: false } => {
                write!(
                    f,
                    "packets leaving by {interface} go through the kernel: it takes no redirected frames any more"
                )
            }
            Self::Rules { what } | Self::PutBack { what } => f.write_str(what),
            Self::Cpus { cpus } if cpus.is_empty() => {
                f.write_str("CPUs went offline or came back: each CPU forwards what it receives")
            }
            Self::Cpus { cpus } => write!(f, "CPUs went offline or came back: CPU {cpus} forwards"),
            Self::Compared(result) => write!(f, "{result}"),
        }
    }
}

/// An event with its time.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct RouteMoment {
    /// RFC 3339, UTC.
    pub at: String,
    #[serde(flatten)]
    pub what: RouteEvent,
}
