//! Capabilities: looked at before the first system call that needs one, dropped before the first packet is read or sent.

use caps::{CapSet, CapsHashSet};
use model::{Classified, ErrorClass};

pub use caps::Capability;

/// A capability that is missing or that cannot be dropped.
#[derive(Debug, thiserror::Error)]
pub enum PrivilegeError {
    /// It is missing.
    #[error(
        "{what} needs {missing}: run as root, or give it to the program with `setcap {lower}+ep $(which evenkeel)`",
        missing = names(missing), lower = names(missing).to_lowercase()
    )]
    Missing {
        /// What for, such as `capture with ring`.
        what: String,
        /// Which.
        missing: Vec<Capability>,
    },
    /// It is missing, or the user's right to write the kernel's settings, for which capabilities given by `setcap` are not
    /// enough.
    #[error(
        "{what} needs {} and writes root's files in /proc and /sys: run as root{}",
        names(needed), if *is_root { ", with these capabilities: this container or service took some from root" } else { "" }
    )]
    NotRoot {
        /// What for, such as `spread apply`.
        what: String,
        /// The capabilities that it takes.
        needed: Vec<Capability>,
        /// The user is root, but without them.
        is_root: bool,
    },
    /// The kernel refused to say or to drop.
    #[error("cannot {operation} the capabilities of this process: {source}")]
    Kernel {
        /// `read` or `drop`.
        operation: &'static str,
        /// What went wrong.
        source: caps::errors::CapsError,
    },
}

impl Classified for PrivilegeError {
    fn class(&self) -> ErrorClass {
        match self {
            Self::Missing { .. } | Self::NotRoot { .. } => ErrorClass::Lacking,
            Self::Kernel { .. } => ErrorClass::Internal,
        }
    }
}

fn names(capabilities: &[Capability]) -> String {
    capabilities.iter().map(ToString::to_string).collect::<Vec<_>>().join(",")
}

/// Fails, naming them, if this thread lacks some of `needed`; `what` (such as `capture with ring`) begins the message.
///
/// # Errors
/// [`PrivilegeError::Missing`], or [`PrivilegeError::Kernel`] where the kernel does not tell.
pub fn require(what: impl Into<String>, needed: &[Capability]) -> Result<(), PrivilegeError> {
    let have = effective()?;
    let missing: Vec<Capability> = needed.iter().copied().filter(|c| !have.contains(c)).collect();
    if missing.is_empty() { Ok(()) } else { Err(PrivilegeError::Missing { what: what.into(), missing }) }
}

/// As [`require`], for work that also writes settings in /proc and /sys: their files belong to root, so that it takes
/// root's user id or CAP_DAC_OVERRIDE besides.
///
/// # Errors
/// [`PrivilegeError::NotRoot`], or [`PrivilegeError::Kernel`] where the kernel does not tell.
pub fn require_root(what: impl Into<String>, needed: &[Capability]) -> Result<(), PrivilegeError> {
    let (have, is_root) = (effective()?, nix::unistd::geteuid().is_root());
    let may_write = is_root || have.contains(&Capability::CAP_DAC_OVERRIDE);
    if may_write && needed.iter().all(|c| have.contains(c)) {
        return Ok(());
    }
    Err(PrivilegeError::NotRoot { what: what.into(), needed: needed.to_vec(), is_root })
}

fn effective() -> Result<CapsHashSet, PrivilegeError> {
    caps::read(None, CapSet::Effective).map_err(|source| PrivilegeError::Kernel { operation: "read", source })
}

/// Drops every capability of this thread but `keep`. Threads that it starts later have none of them either, so this is
/// called before the readers or senders start.
///
/// # Errors
/// [`PrivilegeError::Kernel`] if the kernel refuses.
pub fn drop_all_but(keep: &[Capability]) -> Result<(), PrivilegeError> {
    let failed = |source| PrivilegeError::Kernel { operation: "drop", source };
    let have = caps::read(None, CapSet::Permitted).map_err(failed)?;
    let keep: CapsHashSet = keep.iter().copied().filter(|c| have.contains(c)).collect();
    caps::clear(None, CapSet::Inheritable).map_err(failed)?;
    caps::set(None, CapSet::Effective, &keep).map_err(failed)?;
    caps::set(None, CapSet::Permitted, &keep).map_err(failed)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn dropped_capabilities_are_missed_by_name_in_this_thread_and_those_it_starts() {
        let lacks = || require("this test", &[Capability::CAP_NET_RAW]).map_err(|e| e.to_string());
        let expected = "this test needs CAP_NET_RAW: run as root, or give it to the program with \
             `setcap cap_net_raw+ep $(which evenkeel)`";
        std::thread::spawn(move || {
            drop_all_but(&[]).unwrap();
            assert_eq!(lacks().unwrap_err(), expected);
            assert_eq!(std::thread::spawn(lacks).join().unwrap().unwrap_err(), expected);
        })
        .join()
        .unwrap();
    }

    #[test]
    fn who_must_be_root_is_not_sent_to_setcap() {
        std::thread::spawn(|| {
            drop_all_but(&[]).unwrap();
            let error = require_root("this test", &[Capability::CAP_NET_ADMIN]).unwrap_err().to_string();
            assert!(error.starts_with("this test needs CAP_NET_ADMIN and writes root's files"), "{error}");
            assert!(error.contains("run as root") && !error.contains("setcap"), "{error}");
        })
        .join()
        .unwrap();
    }
}
