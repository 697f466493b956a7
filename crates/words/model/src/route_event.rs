//! Events of a router's fast path, each a line of JSON (`evenkeel.route.event/1`).

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
        /// The mode from now on.
        mode: RouteMode,
        reason: String,
    },
    /// Something that the fast path cannot honour appeared.
    Obstacle(Obstacle),
    Cleared(Obstacle),
    /// A port ended: removed, or its program taken off by another tool.
    PortEnded {
        /// The reason in words, with the port's name.
        reason: String,
    },
    /// A port's program was put back into its place in the chain, which others had emptied.
    Reattached {
        /// The event in words, with the port's name.
        what: String,
    },
    /// A port's interface has another name.
    Renamed {
        from: String,
        to: String,
    },
    /// The fast path can send out of a port again, or no longer.
    Transmit {
        interface: String,
        /// If false, frames that leave by the port go through the kernel.
        can_transmit: bool,
    },
    /// Something happened to the rules.
    Rules {
        what: String,
    },
    /// CPUs went offline or came back.
    Cpus {
        /// CPUs that forward from now on; none: the cores that receive.
        cpus: CpuSet,
    },
    /// The trial in shadow ended.
    Compared(ShadowResult),
}

impl RouteEvent {
    /// Name of the event, as in JSON.
    pub fn word(&self) -> &'static str {
        match self {
            Self::Mode { .. } => "mode",
            Self::Obstacle(_) => "obstacle",
            Self::Cleared(_) => "cleared",
            Self::PortEnded { .. } => "port-ended",
            Self::Reattached { .. } => "reattached",
            Self::Renamed { .. } => "renamed",
            Self::Transmit { .. } => "transmit",
            Self::Rules { .. } => "rules",
            Self::Cpus { .. } => "cpus",
            Self::Compared(_) => "compared",
        }
    }
}

/// The event in a line; `{:#}` has what to do about it too.
impl fmt::Display for RouteEvent {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Mode { mode, reason } => write!(f, "mode {}: {reason}", mode.name()),
            Self::Obstacle(it) if f.alternate() => write!(f, "obstacle: {} ({}): {}", it.what, it.code, it.remedy),
            Self::Obstacle(it) => write!(f, "obstacle: {} ({})", it.what, it.code),
            Self::Cleared(it) if it.code == "consent" => {
                write!(f, "cleared ({}): a rule of nftables marks connections", it.code)
            }
            Self::Cleared(it) => write!(f, "cleared ({}), which was: {}", it.code, it.what),
            Self::PortEnded { reason } => write!(f, "a port ended: {reason}"),
            Self::Renamed { from, to } => write!(f, "{from} was renamed to {to}"),
            Self::Transmit { interface, can_transmit: true } => write!(f, "the fast path sends by {interface} again"),
            Self::Transmit { interface, can_transmit: false } => {
                write!(
                    f,
                    "packets leaving by {interface} go through the kernel: it takes no redirected frames any more"
                )
            }
            Self::Rules { what } | Self::Reattached { what } => f.write_str(what),
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
    /// Time of the event (RFC 3339, UTC).
    pub timestamp: String,
    #[serde(flatten)]
    pub what: RouteEvent,
}
