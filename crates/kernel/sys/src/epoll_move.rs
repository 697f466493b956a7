//! Moving a registration of an epoll instance from one open file to another, in the name of another process.
//!
//! epoll knows what it watches by the open file and the number that the caller of epoll_ctl(2) has for it. When another process's descriptor is
//! replaced, the new file has to be registered under the number that the process knows, which is something else here: a thread with a
//! descriptor table of its own gives it that number.

use std::{
    io,
    os::fd::{AsRawFd, BorrowedFd, RawFd},
};

use nix::sched::{CloneFlags, unshare};

/// A registration, as /proc/PID/fdinfo tells it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Registration {
    /// The number of the descriptor that is watched, in the process that watches.
    pub number: RawFd,
    /// EPOLLIN and the like.
    pub events: u32,
    /// Returned by epoll_wait(2).
    pub data: u64,
}

/// Has `epoll` watch `to` as it watches `from`, which it watches no longer.
///
/// # Errors
/// The error of unshare(2), dup2(2) or epoll_ctl(2); EBADF when this process may not have a descriptor of that number (RLIMIT_NOFILE).
pub fn move_registration(
    epoll: BorrowedFd<'_>,
    registration: Registration,
    from: BorrowedFd<'_>,
    to: BorrowedFd<'_>,
) -> io::Result<()> {
    let [epoll, from, to] = [epoll, from, to].map(|fd| fd.as_raw_fd());
    std::thread::scope(|scope| {
        let moves = || {
            unshare(CloneFlags::CLONE_FILES)?;
            let result = with_own_table(epoll, registration, from, to);
            // What joins this thread may go on before the kernel has closed its table: nothing of others is to be held until then.
            // SAFETY: the table is this thread's own, and nothing of it is used below.
            unsafe { libc::syscall(libc::SYS_close_range, 0, libc::c_uint::MAX, 0) };
            result
        };
        let thread = std::thread::Builder::new().spawn_scoped(scope, moves)?;
        thread.join().unwrap_or_else(|_| Err(io::Error::other("the thread that moves a registration panicked")))
    })
}

/// The work, on numbers of a table that no other thread sees.
fn with_own_table(epoll: RawFd, at: Registration, from: RawFd, to: RawFd) -> io::Result<()> {
    let checked = |result: libc::c_int| if result < 0 { Err(io::Error::last_os_error()) } else { Ok(result) };
    // Out of the way of the number.
    // SAFETY: fcntl(2) with this command takes numbers.
    let aside = |fd| checked(unsafe { libc::fcntl(fd, libc::F_DUPFD_CLOEXEC, at.number + 1) });
    let (epoll, from, to) = (aside(epoll)?, aside(from)?, aside(to)?);
    let mut event = libc::epoll_event { events: at.events, u64: at.data };
    // SAFETY: dup2(2) takes numbers of a table of this thread's own, whose owners are not in this thread; epoll_ctl(2) reads the event.
    unsafe {
        checked(libc::dup2(from, at.number))?;
        // Already gone when it was registered by another number.
        libc::epoll_ctl(epoll, libc::EPOLL_CTL_DEL, at.number, &raw mut event);
        checked(libc::dup2(to, at.number))?;
        checked(libc::epoll_ctl(epoll, libc::EPOLL_CTL_ADD, at.number, &raw mut event))?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use nix::sys::epoll::{Epoll, EpollCreateFlags, EpollEvent, EpollFlags, EpollTimeout};
    use std::{io::Write, os::fd::AsFd, os::unix::net::UnixStream};

    #[test]
    fn events_of_the_new_file_come_with_the_data_of_the_old() {
        let epoll = Epoll::new(EpollCreateFlags::EPOLL_CLOEXEC).unwrap();
        let ((old, _old_peer), (new, mut peer)) = (UnixStream::pair().unwrap(), UnixStream::pair().unwrap());
        epoll.add(&old, EpollEvent::new(EpollFlags::EPOLLIN, 77)).unwrap();
        let number = old.as_raw_fd();
        let registration = Registration { number, events: EpollFlags::EPOLLIN.bits() as u32, data: 77 };
        move_registration(epoll.0.as_fd(), registration, old.as_fd(), new.as_fd()).unwrap();
        let info = std::fs::read_to_string(format!("/proc/self/fdinfo/{}", epoll.0.as_raw_fd())).unwrap();
        let watched: Vec<&str> = info.lines().filter(|line| line.starts_with("tfd:")).collect();
        assert_eq!(watched.len(), 1, "{info}");
        assert_eq!(watched[0].split_whitespace().nth(1), Some(number.to_string().as_str()));
        let mut events = [EpollEvent::empty()];
        assert_eq!(epoll.wait(&mut events, EpollTimeout::ZERO), Ok(0));
        peer.write_all(b"x").unwrap();
        assert_eq!(epoll.wait(&mut events, EpollTimeout::from(1000u16)), Ok(1));
        assert_eq!(events[0].data(), 77);
        // The old file is gone for good.
        drop(old);
        assert_eq!(epoll.wait(&mut events, EpollTimeout::from(1000u16)), Ok(1));
    }
}
