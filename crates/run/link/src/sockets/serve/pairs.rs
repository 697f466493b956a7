//! Pairs of Unix sockets whose peer credentials name no user of this machine, as for a TCP socket.

use std::{
    io,
    os::fd::OwnedFd,
    sync::mpsc::{Receiver, SyncSender, sync_channel},
    thread,
};

use nix::{
    errno::Errno,
    sys::socket::{AddressFamily, SockFlag, SockType, socketpair},
};
use sys::{
    fds::pass_no_rights,
    privilege::{drop_all_but, seem_no_user},
};

const PAIRS_AHEAD: usize = 8;

type Pair = Result<(OwnedFd, OwnedFd), Errno>;

/// Makes pairs on a thread with the user id of no process: the kernel stores the maker's user in each pair (SO_PEERCRED), where a system call
/// that is not intercepted reads it.
#[derive(Debug)]
pub(super) struct Pairs(Receiver<Pair>);

impl Pairs {
    pub(super) fn start() -> io::Result<Self> {
        let (to, pairs) = sync_channel(PAIRS_AHEAD);
        thread::Builder::new().name("ek-pairs".into()).spawn(move || make(&to))?;
        // Fails if the thread may not change its user.
        let made = Self(pairs);
        made.next()?;
        Ok(made)
    }

    /// The broker's descriptor, and the program's.
    pub(super) fn next(&self) -> Pair {
        self.0.recv().unwrap_or(Err(Errno::EPERM))
    }
}

fn make(to: &SyncSender<Pair>) {
    // Changing the user clears the effective capabilities alone; the thread could raise them again.
    if seem_no_user().is_err() || drop_all_but(&[]).is_err() {
        return;
    }
    let one = || {
        let (ours, theirs) = socketpair(AddressFamily::Unix, SockType::Stream, None, SockFlag::SOCK_CLOEXEC)?;
        // Before Linux 6.16 programs can still pass descriptors, which the read that meets them closes.
        let _ = pass_no_rights(&ours);
        Ok((ours, theirs))
    };
    while to.send(one()).is_ok() {}
}

#[cfg(test)]
mod tests {
    use nix::sys::socket::{getsockopt, sockopt::PeerCredentials};
    use sys::privilege::NO_USER;

    use super::*;

    #[test]
    fn a_pair_shows_no_user_of_this_machine() {
        let Some(()) = testbed::privileged() else { return };
        let pairs = Pairs::start().unwrap();
        let (ours, theirs) = pairs.next().unwrap();
        for end in [ours, theirs] {
            let who = getsockopt(&end, PeerCredentials).unwrap();
            assert_eq!((who.uid(), who.gid()), (NO_USER, NO_USER));
        }
    }
}
