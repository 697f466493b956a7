//! The file systems in which the kernel tells of the machine. In a chroot or a bare container they may be absent, and what is not read would be taken for
//! what is not there: no shield, no router, no process.

use std::path::Path;

/// A file system of the kernel's.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Mount {
    Proc,
    Sys,
}

impl Mount {
    fn path(self) -> &'static str {
        match self {
            Self::Proc => "/proc",
            Self::Sys => "/sys",
        }
    }

    /// A file that is there whatever the machine has.
    fn mark(self) -> &'static str {
        match self {
            Self::Proc => "proc/self",
            Self::Sys => "sys/class/net",
        }
    }

    fn command(self) -> &'static str {
        match self {
            Self::Proc => "mount -t proc proc /proc",
            Self::Sys => "mount -t sysfs sysfs /sys",
        }
    }
}

/// Some of them are not mounted.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error(
    "{} not mounted here, where evenkeel reads the machine; run `{}` as root, or start the container with {}",
    named(.0), commands(.0), if .0.len() == 1 { "it" } else { "them" }
)]
pub struct NotMounted(pub Vec<Mount>);

fn named(missing: &[Mount]) -> String {
    let names: Vec<&str> = missing.iter().map(|mount| mount.path()).collect();
    format!("{} {}", names.join(" and "), if names.len() == 1 { "is" } else { "are" })
}

fn commands(missing: &[Mount]) -> String {
    missing.iter().map(|mount| mount.command()).collect::<Vec<_>>().join(" && ")
}

model::classified!(NotMounted: Lacking);

/// Looks for these file systems of the live machine.
///
/// # Errors
/// [`NotMounted`] with those that are missing.
pub fn check(wanted: &[Mount]) -> Result<(), NotMounted> {
    check_in(Path::new("/"), wanted)
}

fn check_in(root: &Path, wanted: &[Mount]) -> Result<(), NotMounted> {
    let missing: Vec<Mount> = wanted.iter().copied().filter(|mount| !root.join(mount.mark()).exists()).collect();
    if missing.is_empty() { Ok(()) } else { Err(NotMounted(missing)) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_missing_is_named_with_what_to_do() {
        let root = tempfile::tempdir().unwrap();
        let message = |wanted: &[Mount]| check_in(root.path(), wanted).unwrap_err().to_string();
        let both = [Mount::Proc, Mount::Sys];
        assert_eq!(
            message(&both),
            "/proc and /sys are not mounted here, where evenkeel reads the machine; run `mount -t proc proc /proc && mount -t sysfs sysfs /sys` as root, or start the container with them"
        );
        std::fs::create_dir_all(root.path().join("proc/self")).unwrap();
        assert_eq!(
            message(&both),
            "/sys is not mounted here, where evenkeel reads the machine; run `mount -t sysfs sysfs /sys` as root, or start the container with it"
        );
        assert_eq!(check_in(root.path(), &[Mount::Proc]), Ok(()));
        assert_eq!(check(&both), Ok(()), "here");
    }
}
