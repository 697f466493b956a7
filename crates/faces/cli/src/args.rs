//! Arguments that several verbs share.

use std::path::{Path, PathBuf};

use bpf::XdpMode;
use clap::Args;
use host::{Root, RootError, journal::Journal};

/// The program's name, where arguments are read apart from the command line.
pub(crate) const PROGRAM: &str = "evenkeel";

/// Modes of an XDP program.
pub(crate) const XDP_MODES: [(&str, &str, XdpMode); 2] = [
    ("native", "In the driver", XdpMode::Native),
    ("generic", "In the network stack: needs no driver, and saves little", XdpMode::Generic),
];

/// The name of an interface of this machine as the kernel has it: an alternative name is one of its names too.
pub(crate) fn interface(text: &str) -> Result<String, std::convert::Infallible> {
    Ok(host::interface::real_name(text))
}

/// The same of several, where they may be a saved machine's, whose names stay.
pub(crate) fn interfaces(named: &[String], saved: bool) -> Vec<String> {
    let real = |name: &String| if saved { name.clone() } else { host::interface::real_name(name) };
    named.iter().map(real).collect()
}

/// The place of the journal.
#[derive(Debug, Args)]
pub(crate) struct StateArg {
    /// Folder of the journal [default: /var/lib/evenkeel, or EVENKEEL_STATE].
    #[arg(long, value_name = "DIR", hide_short_help = true, help_heading = "Journal")]
    state: Option<PathBuf>,
}

impl StateArg {
    /// The folder, if one was named.
    pub(crate) fn path(&self) -> Option<&Path> {
        self.state.as_deref()
    }

    pub(crate) fn journal(&self) -> Journal {
        Journal::at(self.path())
    }

    /// The flag as it was given, for commands in messages.
    pub(crate) fn flag(&self) -> String {
        state_flag(self.path())
    }
}

/// ` --state DIR`, for commands in messages; empty where no folder was named.
pub(crate) fn state_flag(named: Option<&Path>) -> String {
    named.map_or_else(String::new, |folder| format!(" --state {}", folder.display()))
}

/// A saved machine in place of this one.
#[derive(Debug, Args)]
pub(crate) struct RootArg {
    /// Use a saved machine: a tar of `evenkeel snapshot`, or a folder.
    #[arg(long, value_name = "PATH", help_heading = "Machine")]
    root: Option<PathBuf>,
}

impl RootArg {
    pub(crate) fn is_given(&self) -> bool {
        self.root.is_some()
    }

    /// The saved machine, or this one.
    pub(crate) fn open(&self) -> Result<Root, RootError> {
        self.root.as_deref().map_or_else(|| Ok(Root::live()), Root::open)
    }
}
