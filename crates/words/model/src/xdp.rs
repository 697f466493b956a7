//! The places where XDP programs run.

use std::fmt;

use serde::{Deserialize, Serialize};

/// A place on the way of a frame where an XDP program runs.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum XdpMode {
    /// In the driver, before a socket buffer exists. (Earlier versions saved one word for several programs on an interface.)
    #[serde(alias = "several")]
    Native,
    /// In the stack, on a finished socket buffer: works everywhere and saves nothing.
    Generic,
    #[serde(alias = "offloaded")]
    Offload,
}

impl fmt::Display for XdpMode {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Native => "native",
            Self::Generic => "generic",
            Self::Offload => "offload",
        })
    }
}
