//! A process of another program: a handle that stays its own when its number is another's, and its descriptors.

use std::{
    io,
    os::fd::{AsFd, AsRawFd, BorrowedFd, FromRawFd, OwnedFd, RawFd},
};

use nix::unistd::Pid;

/// A process or, since Linux 6.9, a thread of one. poll(2) says "readable" when it has ended.
#[derive(Debug)]
pub struct PidFd(OwnedFd);

impl PidFd {
    /// A handle of the process that a thread belongs to.
    ///
    /// # Errors
    /// ESRCH when there is no such thread; what pidfd_open(2) and reading /proc answer.
    pub fn of_thread(thread: Pid) -> io::Result<Self> {
        // The first thread's number is its process's; a kernel before 6.9 knows no other.
        for flags in [0, libc::PIDFD_THREAD] {
            match open(thread, flags) {
                Err(error) if matches!(error.raw_os_error(), Some(libc::EINVAL | libc::ENOENT)) => {}
                other => return other,
            }
        }
        open(process_of(thread)?, 0)
    }

    /// A copy of one of its descriptors, as pidfd_getfd(2) gives it: both are the same open file.
    ///
    /// # Errors
    /// EBADF when it has none of that number; EPERM when this process may not trace it.
    pub fn descriptor(&self, number: RawFd) -> io::Result<OwnedFd> {
        // SAFETY: pidfd_getfd(2) takes numbers.
        let fd = unsafe { libc::syscall(libc::SYS_pidfd_getfd, self.0.as_raw_fd(), number, 0) };
        if fd < 0 {
            return Err(io::Error::last_os_error());
        }
        // SAFETY: pidfd_getfd(2) has just made this descriptor, and nobody else owns it.
        Ok(unsafe { OwnedFd::from_raw_fd(fd as RawFd) })
    }
}

impl AsFd for PidFd {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.as_fd()
    }
}

fn open(of: Pid, flags: libc::c_uint) -> io::Result<PidFd> {
    // SAFETY: pidfd_open(2) takes numbers.
    let fd = unsafe { libc::syscall(libc::SYS_pidfd_open, of.as_raw(), flags) };
    if fd < 0 {
        return Err(io::Error::last_os_error());
    }
    // SAFETY: pidfd_open(2) has just made this descriptor, and nobody else owns it.
    Ok(PidFd(unsafe { OwnedFd::from_raw_fd(fd as RawFd) }))
}

/// The number of the process that a thread belongs to.
///
/// # Errors
/// /proc cannot be read; there is no such thread.
pub fn process_of(thread: Pid) -> io::Result<Pid> {
    let status = std::fs::read_to_string(format!("/proc/{thread}/status"))?;
    let process = status.lines().find_map(|line| line.strip_prefix("Tgid:")?.trim().parse().ok());
    process.map(Pid::from_raw).ok_or_else(|| io::Error::from_raw_os_error(libc::ESRCH))
}

/// Descriptors that a process may have (the soft limit RLIMIT_NOFILE).
///
/// # Errors
/// EPERM for a process of another user; ESRCH when it is gone.
pub fn descriptor_limit(process: Pid) -> io::Result<u64> {
    let mut limit = libc::rlimit { rlim_cur: 0, rlim_max: 0 };
    // SAFETY: prlimit(2) writes the limit, and sets none.
    let result = unsafe { libc::prlimit(process.as_raw(), libc::RLIMIT_NOFILE, std::ptr::null(), &raw mut limit) };
    if result < 0 { Err(io::Error::last_os_error()) } else { Ok(limit.rlim_cur) }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::{fs::File, io::Read, io::Write, sync::mpsc};

    #[test]
    fn a_thread_leads_to_the_descriptors_of_its_process() {
        let (mut reader, mut writer) = std::io::pipe().unwrap();
        let (sender, receiver) = mpsc::channel();
        let (end, ended) = mpsc::channel::<()>();
        let thread = std::thread::spawn(move || {
            sender.send(nix::unistd::gettid()).unwrap();
            let _ = ended.recv();
        });
        let tid = receiver.recv().unwrap();
        assert_ne!(tid, nix::unistd::getpid());
        assert_eq!(process_of(tid).unwrap(), nix::unistd::getpid());
        let copy = PidFd::of_thread(tid).unwrap().descriptor(reader.as_raw_fd()).unwrap();
        assert_ne!(copy.as_raw_fd(), reader.as_raw_fd());
        writer.write_all(b"x").unwrap();
        let mut byte = [0];
        File::from(copy).read_exact(&mut byte).unwrap();
        assert_eq!(&byte, b"x");
        let ours = nix::sys::resource::getrlimit(nix::sys::resource::Resource::RLIMIT_NOFILE).unwrap().0;
        assert_eq!(descriptor_limit(tid).unwrap(), ours);
        let none = PidFd::of_thread(tid).unwrap().descriptor(1 << 20).map_err(|e| e.raw_os_error());
        assert_eq!(none.map(drop), Err(Some(libc::EBADF)));
        drop(writer);
        assert_eq!(reader.read(&mut byte).unwrap(), 0);
        drop(end);
        thread.join().unwrap();
    }
}
