//! Capabilities: looked at before the first system call that needs one, dropped before the first packet is read.

use caps::{CapSet, Capability, CapsHashSet};
use model::{Classified, ErrorClass};

/// A capability that is missing or that cannot be dropped.
#[derive(Debug, thiserror::Error)]
pub enum PrivilegeError {
    /// It is missing.
    #[error(
        "capture with {backend} needs {missing}: run as root, or give it to the program with \
         `setcap {lower}+ep $(which evenkeel)`",
        missing = names(missing), lower = names(missing).to_lowercase()
    )]
    Missing {
        /// What for.
        backend: &'static str,
        /// Which.
        missing: Vec<Capability>,
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
            Self::Missing { .. } => ErrorClass::Lacking,
            Self::Kernel { .. } => ErrorClass::Internal,
        }
    }
}

fn names(capabilities: &[Capability]) -> String {
    capabilities.iter().map(ToString::to_string).collect::<Vec<_>>().join(",")
}

/// Fails, naming them, if this thread lacks some of `needed`.
pub fn require(backend: &'static str, needed: &[Capability]) -> Result<(), PrivilegeError> {
    let have =
        caps::read(None, CapSet::Effective).map_err(|source| PrivilegeError::Kernel { operation: "read", source })?;
    let missing: Vec<Capability> = needed.iter().copied().filter(|c| !have.contains(c)).collect();
    if missing.is_empty() { Ok(()) } else { Err(PrivilegeError::Missing { backend, missing }) }
}

/// Drops every capability of this thread but `keep`. Threads that it starts later have none of them either, so this is
/// called before the readers start.
pub fn drop_all_but(keep: &[Capability]) -> Result<(), PrivilegeError> {
    let failed = |source| PrivilegeError::Kernel { operation: "drop", source };
    let have = caps::read(None, CapSet::Permitted).map_err(failed)?;
    let keep: CapsHashSet = keep.iter().copied().filter(|c| have.contains(c)).collect();
    caps::clear(None, CapSet::Inheritable).map_err(failed)?;
    caps::set(None, CapSet::Effective, &keep).map_err(failed)?;
    caps::set(None, CapSet::Permitted, &keep).map_err(failed)
}
