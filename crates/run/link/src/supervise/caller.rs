//! A thread that waits for the answer to a call: its descriptors and its memory.

use std::{
    fs::{self, File},
    io,
    os::{
        fd::{BorrowedFd, OwnedFd},
        unix::fs::FileExt,
    },
};

use nix::{
    errno::Errno,
    fcntl::{FcntlArg, OFlag, fcntl},
    sys::socket::{getsockopt, setsockopt, sockopt},
    unistd::{Pid, Uid, geteuid},
};
use sys::{
    pidfd::PidFd,
    privilege::as_user,
    seccomp_notify::{Listener, Notification},
};

/// A call that we have done.
#[derive(Debug)]
pub(super) enum Done {
    Value(i64),
    /// The call returns the number of this descriptor in the program.
    Descriptor {
        fd: OwnedFd,
        close_on_exec: bool,
    },
}

/// A call that we have not done.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Stop {
    /// The kernel does it.
    Leave,
    /// The call fails with this error number.
    Fails(i32),
}

impl From<Errno> for Stop {
    fn from(errno: Errno) -> Self {
        Self::Fails(errno as i32)
    }
}

impl From<io::Error> for Stop {
    fn from(error: io::Error) -> Self {
        Self::Fails(error.raw_os_error().unwrap_or(Errno::EIO as i32))
    }
}

/// The thread, and what it called.
#[derive(Debug)]
pub(super) struct Caller<'a> {
    listener: &'a Listener,
    notification: Notification,
    process: PidFd,
}

impl<'a> Caller<'a> {
    /// A process that has died, or that may not be traced, is left to the kernel.
    pub(super) fn of(listener: &'a Listener, notification: Notification) -> Result<Self, Stop> {
        let process = PidFd::of_thread(notification.thread).map_err(|_| Stop::Leave)?;
        let caller = Self { listener, notification, process };
        // While it waits its number is its own, and so the handle is that of its process.
        if caller.waits() { Ok(caller) } else { Err(Stop::Leave) }
    }

    pub(super) fn thread(&self) -> Pid {
        self.notification.thread
    }

    pub(super) fn process(&self) -> &PidFd {
        &self.process
    }

    /// True if it still waits, and has not died.
    pub(super) fn waits(&self) -> bool {
        self.listener.is_valid(self.notification.id)
    }

    /// Does `work` as the effective user of the thread: a program of root's may have given up root.
    pub(super) fn as_its_user<T>(&self, work: impl FnOnce() -> T) -> Result<T, Stop> {
        let status = fs::read_to_string(format!("/proc/{}/status", self.thread())).map_err(|_| Stop::Leave)?;
        let user = effective_user(&status).ok_or(Stop::Leave)?;
        // While it waits, its number was its own.
        match self.waits() {
            true if user == geteuid() => Ok(work()),
            true => as_user(user, work).map_err(|_| Stop::Leave),
            false => Err(Stop::Leave),
        }
    }

    /// An argument that is a number.
    pub(super) fn number(&self, at: usize) -> i32 {
        self.notification.args[at] as i32
    }

    /// An argument that is a pointer; none: it is null.
    pub(super) fn pointer(&self, at: usize) -> Option<usize> {
        Some(self.notification.args[at] as usize).filter(|at| *at != 0)
    }

    /// A copy of the descriptor that is the first argument.
    pub(super) fn descriptor(&self) -> Result<OwnedFd, Stop> {
        self.process.descriptor(self.number(0)).map_err(|_| Stop::Leave)
    }

    /// True if the descriptor that is the first argument is closed by exec: that belongs to the number, and so is not in our copy.
    pub(super) fn closes_on_exec(&self) -> bool {
        let fdinfo =
            fs::read_to_string(format!("/proc/{}/fdinfo/{}", self.thread(), self.number(0))).unwrap_or_default();
        let flags = fdinfo.lines().find_map(|line| i32::from_str_radix(line.strip_prefix("flags:")?.trim(), 8).ok());
        flags.is_some_and(|flags| OFlag::from_bits_retain(flags).contains(OFlag::O_CLOEXEC))
    }

    /// Puts a descriptor in the place of the first argument.
    pub(super) fn replace(&self, by: BorrowedFd<'_>, close_on_exec: bool) -> io::Result<()> {
        self.listener.replace(self.notification.id, self.number(0), by, close_on_exec)
    }

    /// Its memory, by a descriptor that stays that memory's: while the thread waits, its number was its own when this was opened.
    fn memory(&self) -> Result<File, Errno> {
        let path = format!("/proc/{}/mem", self.thread());
        let memory = File::options().read(true).write(true).open(path);
        let memory = memory.map_err(|error| error.raw_os_error().map_or(Errno::EPERM, Errno::from_raw))?;
        if self.waits() { Ok(memory) } else { Err(Errno::ESRCH) }
    }

    pub(super) fn read(&self, at: usize, into: &mut [u8]) -> Result<(), Errno> {
        self.memory()?.read_exact_at(into, at as u64).map_err(|_| Errno::EFAULT)
    }

    /// Writes to its memory: only while it waits, as then nobody else uses what its call points to.
    pub(super) fn write(&self, at: usize, bytes: &[u8]) -> Result<(), Errno> {
        self.memory()?.write_all_at(bytes, at as u64).map_err(|_| Errno::EFAULT)
    }

    /// The place for a result of any length, and where its length is read and written: two pointers.
    pub(super) fn place(&self, at: usize, length_at: usize) -> Result<Place, Errno> {
        let (Some(at), Some(length_at)) = (self.pointer(at), self.pointer(length_at)) else {
            return Err(Errno::EFAULT);
        };
        let mut length = [0; 4];
        self.read(length_at, &mut length)?;
        let room = usize::try_from(i32::from_ne_bytes(length)).map_err(|_| Errno::EINVAL)?;
        Ok(Place { at, length_at, room })
    }

    /// Writes as much of an address as there is room for, and its whole length, as the kernel does.
    pub(super) fn fill(&self, place: Place, bytes: &[u8]) -> Result<(), Errno> {
        self.write(place.at, &bytes[..bytes.len().min(place.room)])?;
        self.write(place.length_at, &(bytes.len() as u32).to_ne_bytes())
    }

    /// Writes as much of an option as there is room for, and how much that is, as the kernel does.
    pub(super) fn fill_option(&self, place: Place, bytes: &[u8]) -> Result<(), Errno> {
        let bytes = &bytes[..bytes.len().min(place.room)];
        self.write(place.at, bytes)?;
        self.write(place.length_at, &(bytes.len() as u32).to_ne_bytes())
    }
}

/// The effective user in a text of /proc/TID/status.
fn effective_user(status: &str) -> Option<Uid> {
    let users = status.lines().find_map(|line| line.strip_prefix("Uid:"))?;
    Some(Uid::from_raw(users.split_whitespace().nth(1)?.parse().ok()?))
}

/// A place in the caller's memory to which a result is written.
#[derive(Debug, Clone, Copy)]
pub(super) struct Place {
    at: usize,
    length_at: usize,
    room: usize,
}

/// Sets or clears O_NONBLOCK.
pub(super) fn set_nonblocking(fd: BorrowedFd<'_>, on: bool) -> Result<(), Errno> {
    let flags = flags_of(fd)?;
    let wanted = if on { flags | OFlag::O_NONBLOCK } else { flags - OFlag::O_NONBLOCK };
    if wanted != flags {
        fcntl(fd, FcntlArg::F_SETFL(wanted))?;
    }
    Ok(())
}

/// True if O_NONBLOCK is set.
pub(super) fn is_nonblocking(fd: BorrowedFd<'_>) -> Result<bool, Errno> {
    Ok(flags_of(fd)?.contains(OFlag::O_NONBLOCK))
}

fn flags_of(fd: BorrowedFd<'_>) -> Result<OFlag, Errno> {
    Ok(OFlag::from_bits_retain(fcntl(fd, FcntlArg::F_GETFL)?))
}

/// Gives an end the time-outs of the socket that it replaces (SO_RCVTIMEO, SO_SNDTIMEO).
pub(super) fn copy_timeouts(from: &OwnedFd, to: &OwnedFd) -> Result<(), Errno> {
    setsockopt(to, sockopt::ReceiveTimeout, &getsockopt(from, sockopt::ReceiveTimeout)?)?;
    setsockopt(to, sockopt::SendTimeout, &getsockopt(from, sockopt::SendTimeout)?)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_effective_user_is_the_second_of_four() {
        let status = "Name:\tUid: 7\nUid:\t0\t33\t0\t34\nGid:\t0\t0\t0\t0\n";
        assert_eq!(effective_user(status), Some(Uid::from_raw(33)));
        assert_eq!(effective_user("Uid:\t0\n"), None);
        assert_eq!(effective_user(&fs::read_to_string("/proc/self/status").unwrap()), Some(geteuid()));
    }
}
