//! Capabilities: looked at before the first system call that needs one, dropped before the first packet is read or sent.

use std::{io, os::fd::BorrowedFd, path::Path};

use caps::{CapSet, CapsHashSet};
use landlock::{
    ABI, Access, AccessFs, PathBeneath, PathFd, Ruleset, RulesetAttr, RulesetCreatedAttr, RulesetError, RulesetStatus,
};
use nix::{
    errno::Errno,
    sys::{prctl, stat::fstat},
    unistd::{Gid, Uid, geteuid, setgroups, setresgid, setresuid},
};

pub use caps::Capability;

/// A capability that is missing or that cannot be dropped.
#[derive(Debug, thiserror::Error)]
pub enum PrivilegeError {
    #[error(
        "{what} needs {missing}: run as root; or give it to the program for the members of a group only: \
         `chgrp GROUP $(which evenkeel)`, `chmod 0750 $(which evenkeel)`, `setcap {lower}+ep $(which evenkeel)`",
        missing = names(missing), lower = names(missing).to_lowercase()
    )]
    Missing {
        /// The purpose, such as `capture with ring`.
        what: String,
        missing: Vec<Capability>,
    },
    /// Missing, or the user's right to write the kernel's settings is, for which capabilities given by `setcap` are not enough.
    #[error(
        "{what} needs {} and writes root's files in /proc and /sys: run as root{}",
        names(needed), if *is_root { ", with these capabilities: this container or service took some from root" } else { "" }
    )]
    NotRoot {
        what: String,
        needed: Vec<Capability>,
        /// The user is root, but without them.
        is_root: bool,
    },
    #[error("cannot {operation} this process: {source}")]
    Refused { operation: &'static str, source: io::Error },
    #[error("cannot {operation} the capabilities of this process: {source}")]
    Kernel { operation: &'static str, source: caps::errors::CapsError },
}

model::classified!(PrivilegeError: Lacking, Internal: Kernel Refused);

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
    let (have, is_root) = (effective()?, geteuid().is_root());
    let may_write = is_root || have.contains(&Capability::CAP_DAC_OVERRIDE);
    if may_write && needed.iter().all(|c| have.contains(c)) {
        return Ok(());
    }
    Err(PrivilegeError::NotRoot { what: what.into(), needed: needed.to_vec(), is_root })
}

fn effective() -> Result<CapsHashSet, PrivilegeError> {
    caps::read(None, CapSet::Effective).map_err(|source| PrivilegeError::Kernel { operation: "read", source })
}

/// Files that this process has yet to open or make.
#[derive(Debug, Clone, Copy)]
pub enum Remaining<'a> {
    /// Reads what everybody may read; opens nothing to write.
    Reading,
    /// Makes and removes files in this folder.
    FilesIn(BorrowedFd<'a>),
}

/// Parts of [`give_up`] that the machine did not allow.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct GivenUp {
    /// Why the process still has root's user id, which owns root's files. None: it has another one, or its files are guarded.
    pub still_root: Option<String>,
}

/// Gives up for good what this thread may do, and with it the threads that it starts later: every capability, also those that a program
/// started later would get (bounding set, `no_new_privs`); root's user id becomes `nobody`; and where the kernel has Landlock, nothing can be
/// run, and nothing be written but what `remaining` names. Called before the first byte of a stranger is read.
///
/// A folder of another user cannot be written to by root without CAP_DAC_OVERRIDE. For such a one it is kept, if Landlock bounds it to that
/// folder.
pub fn give_up(remaining: Remaining<'_>) -> Result<GivenUp, PrivilegeError> {
    let refused = |operation| move |source: Errno| PrivilegeError::Refused { operation, source: source.into() };
    let is_root = geteuid().is_root();
    set_no_new_privs()?;
    let guarded = guard(remaining)?;
    let folder = match remaining {
        Remaining::FilesIn(folder) => Some(fstat(folder).map_err(refused("look at the folder of"))?),
        Remaining::Reading => None,
    };
    let keep = match &folder {
        Some(folder) if is_root && folder.st_uid != 0 => &[Capability::CAP_DAC_OVERRIDE][..],
        _ => &[],
    };
    bound(keep)?;
    let becomes_nobody = is_root && folder.is_none();
    let mut given_up = GivenUp::default();
    if becomes_nobody && let Err(why) = become_nobody() {
        given_up.still_root = (!guarded).then(|| format!("it cannot become `nobody`: {why}"));
    }
    if is_root && folder.is_some() && !guarded {
        let why = "the next file of the rotation needs root, and this kernel has no Landlock to guard other files";
        given_up.still_root = Some(why.to_owned());
    }
    drop_all_but(keep)?;
    Ok(given_up)
}

/// Bounds for good this thread, those that it starts later, and the programs that they start, to `keep` (bounding set, `no_new_privs`). The user stays.
pub fn bound_to(keep: &[Capability]) -> Result<(), PrivilegeError> {
    set_no_new_privs()?;
    bound(keep)?;
    drop_all_but(keep)
}

/// No program that this thread starts from now on, or a thread that it starts later, gets more rights than it has itself.
pub fn set_no_new_privs() -> Result<(), PrivilegeError> {
    let refused = |source: Errno| PrivilegeError::Refused { operation: "set no_new_privs for", source: source.into() };
    prctl::set_no_new_privs().map_err(refused)
}

/// Without CAP_SETPCAP nothing can be dropped from the bounding set; no_new_privs alone keeps programs from what is in it.
fn bound(keep: &[Capability]) -> Result<(), PrivilegeError> {
    if effective()?.contains(&Capability::CAP_SETPCAP) {
        for capability in caps::all() {
            if !keep.contains(&capability) && caps::has_cap(None, CapSet::Bounding, capability).unwrap_or(false) {
                let failed = |source| PrivilegeError::Kernel { operation: "drop", source };
                caps::drop(None, CapSet::Bounding, capability).map_err(failed)?;
            }
        }
    }
    Ok(())
}

/// The user and group without files: 65534 is `nobody` to the kernel itself (Documentation/admin-guide/sysctl/fs.rst, overflowuid).
fn become_nobody() -> Result<(), Errno> {
    const NOBODY: u32 = 65534;
    let (user, group) = (Uid::from_raw(NOBODY), Gid::from_raw(NOBODY));
    setgroups(&[])?;
    setresgid(group, group, group)?;
    setresuid(user, user, user)
}

/// A user and group that no process has: systemd gives none from 1879048192 on (UIDS-GIDS.md), and the number is positive where a program takes it
/// for a signed one.
///
/// Nobody else may have it: processes of a thread's effective user may change how that thread is scheduled, down to not at all.
pub const NO_USER: u32 = 0x7eee_eeee;

/// Makes the calling thread alone one of [`NO_USER`] without groups, in effect: the kernel notes that user with each socket that the thread makes
/// (SO_PEERCRED). Its real user stays.
pub fn seem_no_user() -> io::Result<()> {
    const USER: libc::c_long = NO_USER as libc::c_long;
    const AS_IT_IS: libc::c_long = -1;
    // SAFETY: the calls take numbers, and an empty list; those of the C library would change all threads.
    let results = unsafe {
        [
            libc::syscall(libc::SYS_setgroups, 0, std::ptr::null::<libc::gid_t>()),
            libc::syscall(libc::SYS_setresgid, AS_IT_IS, USER, AS_IT_IS),
            libc::syscall(libc::SYS_setresuid, AS_IT_IS, USER, AS_IT_IS),
        ]
    };
    if results.contains(&-1) { Err(io::Error::last_os_error()) } else { Ok(()) }
}

/// Does `work` while the calling thread alone has an effective user: the kernel notes that user with each socket that connects (SO_PEERCRED).
///
/// # Errors
/// EPERM: the thread may not have it.
pub fn as_user<T>(user: Uid, work: impl FnOnce() -> T) -> io::Result<T> {
    struct Before(Uid);
    impl Drop for Before {
        fn drop(&mut self) {
            // It succeeds where the user before is the real or the saved one. Elsewhere the thread has fewer rights from now on.
            let _ = set_effective_user(self.0);
        }
    }
    let _before = Before(geteuid());
    set_effective_user(user)?;
    Ok(work())
}

/// Sets the effective user of the calling thread alone.
fn set_effective_user(user: Uid) -> io::Result<()> {
    const AS_IT_IS: libc::c_long = -1;
    // SAFETY: the call takes numbers; that of the C library would change all threads.
    let result = unsafe { libc::syscall(libc::SYS_setresuid, AS_IT_IS, libc::c_long::from(user.as_raw()), AS_IT_IS) };
    if result < 0 { Err(io::Error::last_os_error()) } else { Ok(()) }
}

/// Folders whose files are read while packets run: counters, settings, time zones, libraries.
const READ: [&str; 6] = ["/proc", "/sys", "/usr", "/lib", "/lib64", "/etc/localtime"];

/// Landlock (Documentation/userspace-api/landlock.rst); false where the kernel has none.
fn guard(remaining: Remaining<'_>) -> Result<bool, PrivilegeError> {
    let failed = |source: RulesetError| PrivilegeError::Refused {
        operation: "guard the files of",
        source: io::Error::other(source.to_string()),
    };
    // What the kernel is too old for is left out.
    let abi = ABI::V5;
    let mut rules =
        Ruleset::default().handle_access(AccessFs::from_all(abi)).map_err(failed)?.create().map_err(failed)?;
    let read = AccessFs::ReadFile | AccessFs::ReadDir;
    for path in READ {
        if let Ok(beneath) = PathFd::new(path) {
            let access = if Path::new(path).is_dir() { read } else { AccessFs::ReadFile.into() };
            rules = rules.add_rule(PathBeneath::new(beneath, access)).map_err(failed)?;
        }
    }
    if let Remaining::FilesIn(folder) = remaining {
        let files = read | AccessFs::WriteFile | AccessFs::MakeReg | AccessFs::RemoveFile | AccessFs::Truncate;
        rules = rules.add_rule(PathBeneath::new(folder, files)).map_err(failed)?;
    }
    let status = rules.restrict_self().map_err(failed)?;
    Ok(status.ruleset != RulesetStatus::NotEnforced)
}

/// Drops every capability of this thread but `keep`. What user it is, and what programs that it starts get, stays: verbs call [`give_up`].
pub fn drop_all_but(keep: &[Capability]) -> Result<(), PrivilegeError> {
    let failed = |source| PrivilegeError::Kernel { operation: "drop", source };
    let have = caps::read(None, CapSet::Permitted).map_err(failed)?;
    let keep: CapsHashSet = keep.iter().copied().filter(|c| have.contains(c)).collect();
    caps::clear(None, CapSet::Ambient).map_err(failed)?;
    caps::clear(None, CapSet::Inheritable).map_err(failed)?;
    caps::set(None, CapSet::Effective, &keep).map_err(failed)?;
    caps::set(None, CapSet::Permitted, &keep).map_err(failed)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn dropped_capabilities_are_missed_by_name_in_this_thread_and_those_it_starts() {
        let lacks = || require("this test", &[Capability::CAP_NET_RAW]).unwrap_err();
        std::thread::spawn(move || {
            drop_all_but(&[]).unwrap();
            for error in [lacks(), std::thread::spawn(lacks).join().unwrap()] {
                assert!(
                    matches!(&error, PrivilegeError::Missing { missing, .. } if *missing == [Capability::CAP_NET_RAW]),
                    "{error}"
                );
                let message = error.to_string();
                assert!(message.contains("chmod 0750") && message.contains("setcap cap_net_raw+ep"), "{message}");
            }
        })
        .join()
        .unwrap();
    }

    #[test]
    fn a_thread_of_root_connects_as_another_user_and_is_root_again() {
        use std::os::{
            linux::net::SocketAddrExt,
            unix::net::{SocketAddr, UnixListener, UnixStream},
        };

        use nix::sys::socket::{getsockopt, sockopt::PeerCredentials};
        if !geteuid().is_root() {
            eprintln!("skipped: for root only");
            return;
        }
        let name = format!("ek-privilege-{}", std::process::id());
        let address = SocketAddr::from_abstract_name(name.as_bytes()).unwrap();
        let listener = UnixListener::bind_addr(&address).unwrap();
        for user in [Uid::from_raw(65534), geteuid()] {
            let stream = as_user(user, || UnixStream::connect_addr(&address).map(|stream| (stream, geteuid())));
            let (_stream, seen) = stream.unwrap().unwrap();
            let peer = getsockopt(&listener.accept().unwrap().0, PeerCredentials).unwrap();
            assert_eq!((seen, peer.uid()), (user, user.as_raw()));
        }
        assert!(geteuid().is_root());
        require("this test", &[Capability::CAP_SETUID]).unwrap();
    }

    #[test]
    fn who_must_be_root_is_not_sent_to_setcap() {
        std::thread::spawn(|| {
            drop_all_but(&[]).unwrap();
            let error = require_root("this test", &[Capability::CAP_NET_ADMIN]).unwrap_err();
            assert!(matches!(error, PrivilegeError::NotRoot { .. }), "{error}");
            assert!(!error.to_string().contains("setcap"), "{error}");
        })
        .join()
        .unwrap();
    }
}
