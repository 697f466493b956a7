//! The listener: what a call asks, and its answer.

use std::{
    io,
    os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd, RawFd},
};

use libc::{
    SECCOMP_ADDFD_FLAG_SEND, SECCOMP_ADDFD_FLAG_SETFD, SECCOMP_IOCTL_NOTIF_ADDFD, SECCOMP_IOCTL_NOTIF_ID_VALID,
    SECCOMP_IOCTL_NOTIF_RECV, SECCOMP_IOCTL_NOTIF_SEND, SECCOMP_IOCTL_NOTIF_SET_FLAGS,
    SECCOMP_USER_NOTIF_FLAG_CONTINUE, seccomp_notif, seccomp_notif_addfd, seccomp_notif_resp,
};
use nix::{
    errno::Errno,
    poll::{PollFd, PollFlags, PollTimeout, poll},
    unistd::Pid,
};

use super::filter::{Call, Filter};

/// SECCOMP_USER_NOTIF_FD_SYNC_WAKE_UP, since Linux 6.6: who asks and who answers take turns, and so need not wake another CPU.
const SYNC_WAKE_UP: libc::c_ulong = 1;

/// A system call that waits for its answer.
///
/// The thread sleeps, and only a fatal signal ends that sleep: while [`Listener::is_valid`] is true, the thread stands still.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Notification {
    /// The kernel's number of it.
    pub id: u64,
    /// The thread that called; zero: one of another PID namespace.
    pub thread: Pid,
    pub call: Call,
    pub args: [u64; 6],
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Answer {
    /// The call returns this.
    Value(i64),
    /// The call fails with this error number.
    ///
    /// 512 (ERESTARTSYS) is for a thread with a signal to take: it takes it, and then the call begins again or fails with EINTR, as the handler was set.
    Error(i32),
    /// The kernel does the call, with the arguments as they are then.
    Continue,
}

/// Hears the calls of all processes behind one filter, and answers them. When it is dropped, they fail with ENOSYS.
#[derive(Debug)]
pub struct Listener {
    fd: OwnedFd,
    filter: Filter,
}

impl Listener {
    pub(super) fn new(fd: OwnedFd, filter: Filter) -> Self {
        // SAFETY: the descriptor is alive, and the argument is a number. An older kernel answers EINVAL, and wakes as it always did.
        unsafe { libc::ioctl(fd.as_raw_fd(), SECCOMP_IOCTL_NOTIF_SET_FLAGS, SYNC_WAKE_UP) };
        Self { fd, filter }
    }

    /// Waits for the next call; none: the last process behind the filter is gone. A single thread at a time may be in here.
    ///
    /// # Errors
    /// The error of poll(2) or SECCOMP_IOCTL_NOTIF_RECV.
    pub fn receive(&self) -> io::Result<Option<Notification>> {
        loop {
            // Before Linux 6.11 a receive that waits would not hear that the last process is gone.
            let mut fds = [PollFd::new(self.fd.as_fd(), PollFlags::POLLIN)];
            match poll(&mut fds, PollTimeout::NONE) {
                Err(Errno::EINTR) => continue,
                other => other?,
            };
            let ready = fds[0].revents().unwrap_or(PollFlags::empty());
            if !ready.contains(PollFlags::POLLIN) {
                return Ok(None);
            }
            // SAFETY: all its fields are numbers.
            let mut notification: seccomp_notif = unsafe { std::mem::zeroed() };
            match self.ioctl(SECCOMP_IOCTL_NOTIF_RECV, &mut notification) {
                // The caller was interrupted before it was heard.
                Err(error) if matches!(error.raw_os_error(), Some(libc::EINTR | libc::ENOENT)) => continue,
                other => other?,
            };
            let seccomp_notif { id, pid, data, .. } = notification;
            let Some(call) = self.filter.call(data.nr) else {
                self.answer(id, Answer::Continue)?;
                continue;
            };
            return Ok(Some(Notification { id, thread: Pid::from_raw(pid as i32), call, args: data.args }));
        }
    }

    /// True if the call still waits: data read of its process before belong to that process.
    pub fn is_valid(&self, id: u64) -> bool {
        let mut id = id;
        self.ioctl(SECCOMP_IOCTL_NOTIF_ID_VALID, &mut id).is_ok()
    }

    /// Answers a call. A call whose thread has died needs no answer.
    ///
    /// # Errors
    /// The error of SECCOMP_IOCTL_NOTIF_SEND, except ENOENT.
    pub fn answer(&self, id: u64, answer: Answer) -> io::Result<()> {
        let (val, error, flags) = match answer {
            Answer::Value(value) => (value, 0, 0),
            Answer::Error(errno) => (0, -errno, 0),
            Answer::Continue => (0, 0, SECCOMP_USER_NOTIF_FLAG_CONTINUE as u32),
        };
        match self.ioctl(SECCOMP_IOCTL_NOTIF_SEND, &mut seccomp_notif_resp { id, val, error, flags }) {
            Err(error) if error.raw_os_error() == Some(libc::ENOENT) => Ok(()),
            other => other.map(drop),
        }
    }

    /// Puts a descriptor in the place of the caller's descriptor `at`, which is closed. The call goes on to wait.
    ///
    /// # Errors
    /// The error of SECCOMP_IOCTL_NOTIF_ADDFD: ENOENT or ESRCH when the thread has died.
    pub fn replace(&self, id: u64, at: RawFd, by: BorrowedFd<'_>, close_on_exec: bool) -> io::Result<()> {
        self.add(id, Some(at), by, close_on_exec, SECCOMP_ADDFD_FLAG_SETFD).map(drop)
    }

    /// Gives the caller a descriptor, and its number as the answer: both, or neither.
    ///
    /// # Errors
    /// EMFILE when the caller has no number left, and then the call goes on to wait; ENOENT or ESRCH when the thread has died.
    pub fn answer_descriptor(&self, id: u64, fd: BorrowedFd<'_>, close_on_exec: bool) -> io::Result<RawFd> {
        self.add(id, None, fd, close_on_exec, SECCOMP_ADDFD_FLAG_SEND)
    }

    fn add(
        &self,
        id: u64,
        at: Option<RawFd>,
        fd: BorrowedFd<'_>,
        close_on_exec: bool,
        flags: u64,
    ) -> io::Result<RawFd> {
        let mut add = seccomp_notif_addfd {
            id,
            flags: flags as u32,
            srcfd: fd.as_raw_fd() as u32,
            newfd: at.unwrap_or(0) as u32,
            newfd_flags: if close_on_exec { libc::O_CLOEXEC as u32 } else { 0 },
        };
        self.ioctl(SECCOMP_IOCTL_NOTIF_ADDFD, &mut add)
    }

    fn ioctl<T>(&self, request: libc::Ioctl, argument: &mut T) -> io::Result<libc::c_int> {
        // SAFETY: the descriptor is a listener, and each request above comes with the struct (or the number) of which it reads and writes the size that is
        // a part of the request.
        let result = unsafe { libc::ioctl(self.fd.as_raw_fd(), request, std::ptr::from_mut(argument)) };
        if result < 0 { Err(io::Error::last_os_error()) } else { Ok(result) }
    }
}

impl AsFd for Listener {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.fd.as_fd()
    }
}
