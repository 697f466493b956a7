//! Registrations with epoll that a descriptor had before it was replaced.
//!
//! Registrations belong to the open file, and would be lost with it. nginx and programs on Netty register before they connect.

use std::{
    collections::HashMap,
    fs, io,
    os::fd::{AsFd, BorrowedFd, OwnedFd, RawFd},
    sync::{
        Mutex, PoisonError,
        atomic::{AtomicBool, Ordering},
    },
    time::{Duration, Instant},
};

use nix::{
    poll::{PollFd, PollFlags, PollTimeout, poll},
    sys::stat::fstat,
    unistd::Pid,
};
use sys::{
    epoll_move::{Registration, move_registration},
    pidfd,
};

use super::caller::Caller;

/// Instances that a process made less long ago may not be among its descriptors yet: we hear of them before the kernel makes them.
const CREATION_TIME_MAX: Duration = Duration::from_millis(100);

/// The epoll instances of the program's processes. Reading a process's descriptors takes long where there are many, and so it is done once for each process
/// and after each instance that it makes.
#[derive(Debug, Default)]
pub(super) struct Epolls {
    any: AtomicBool,
    of: Mutex<HashMap<Pid, Known>>,
}

#[derive(Debug)]
struct Known {
    process: OwnedFd,
    numbers: Option<Vec<RawFd>>,
    made: Instant,
}

impl Known {
    fn has_ended(&self) -> bool {
        let mut fds = [PollFd::new(self.process.as_fd(), PollFlags::POLLIN)];
        poll(&mut fds, PollTimeout::ZERO) != Ok(0)
    }
}

/// An epoll instance of the program, and how it watches a descriptor.
#[derive(Debug)]
pub(super) struct Watcher {
    epoll: OwnedFd,
    registration: Registration,
}

impl Watcher {
    pub(super) fn watch(&self, socket: &OwnedFd, end: &OwnedFd) -> io::Result<()> {
        move_registration(self.epoll.as_fd(), self.registration, socket.as_fd(), end.as_fd())
    }
}

impl Epolls {
    /// A process is about to make an instance.
    pub(super) fn made(&self, caller: &Caller<'_>) {
        self.any.store(true, Ordering::Relaxed);
        let Ok(process) = pidfd::process_of(caller.thread()) else { return };
        let Ok(handle) = caller.process().as_fd().try_clone_to_owned() else { return };
        let mut of = self.of.lock().unwrap_or_else(PoisonError::into_inner);
        of.retain(|_, known| !known.has_ended());
        of.insert(process, Known { process: handle, numbers: None, made: Instant::now() });
    }

    /// The epoll instances that watch the descriptor of a call, of which `socket` is a copy.
    pub(super) fn watching(&self, caller: &Caller<'_>, socket: &OwnedFd) -> Vec<Watcher> {
        if !self.any.load(Ordering::Relaxed) {
            return Vec::new();
        }
        let (Ok(process), Ok(stat)) = (pidfd::process_of(caller.thread()), fstat(socket.as_fd())) else {
            return Vec::new();
        };
        let watcher = |epoll: RawFd| {
            let fdinfo = fs::read_to_string(format!("/proc/{process}/fdinfo/{epoll}")).ok()?;
            let registration = fdinfo.lines().find_map(|line| parse(line, caller.number(0), stat.st_ino))?;
            Some(Watcher { epoll: caller.process().descriptor(epoll).ok()?, registration })
        };
        self.instances(process, caller.process().as_fd()).into_iter().filter_map(watcher).collect()
    }

    /// The numbers of a process's epoll instances.
    fn instances(&self, process: Pid, handle: BorrowedFd<'_>) -> Vec<RawFd> {
        let mut of = self.of.lock().unwrap_or_else(PoisonError::into_inner);
        of.retain(|_, known| !known.has_ended());
        if let Some(Known { numbers: Some(numbers), .. }) = of.get(&process)
            && numbers.iter().all(|number| is_epoll(process, *number))
        {
            return numbers.clone();
        }
        let numbers = read(process);
        match of.get_mut(&process) {
            Some(known) => known.numbers = (known.made.elapsed() > CREATION_TIME_MAX).then(|| numbers.clone()),
            // It has them from its parent.
            None => {
                if let Ok(handle) = handle.try_clone_to_owned() {
                    of.insert(process, Known { process: handle, numbers: Some(numbers.clone()), made: Instant::now() });
                }
            }
        }
        numbers
    }
}

fn is_epoll(process: Pid, number: RawFd) -> bool {
    fs::read_link(format!("/proc/{process}/fd/{number}")).is_ok_and(|to| to.as_os_str() == "anon_inode:[eventpoll]")
}

/// Reads which descriptors of a process are epoll instances.
fn read(process: Pid) -> Vec<RawFd> {
    let Ok(folder) = fs::read_dir(format!("/proc/{process}/fd")) else { return Vec::new() };
    let number = |entry: io::Result<fs::DirEntry>| entry.ok()?.file_name().to_str()?.parse().ok();
    folder.filter_map(number).filter(|number| is_epoll(process, *number)).collect()
}

/// A line of fdinfo, if it is of this number and this socket.
fn parse(line: &str, number: RawFd, inode: u64) -> Option<Registration> {
    // tfd:       12 events:       19 data:                c  pos:0 ino:61 sdev:8
    let spaced = line.replace(':', " ");
    let mut words = spaced.split_whitespace();
    let mut field = |name: &str| words.find(|word| *word == name).and_then(|_| words.next());
    if field("tfd")?.parse() != Ok(number) {
        return None;
    }
    let hex = |text: &str| u64::from_str_radix(text, 16).ok();
    let (events, data) = (hex(field("events")?)?, hex(field("data")?)?);
    (hex(field("ino")?)? == inode).then_some(Registration { number, events: events as u32, data })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_registration_is_of_a_number_and_a_socket() {
        let line = "tfd:       12 events: 80002019 data:     ffff0000000c  pos:0 ino:1f61 sdev:8";
        let registration = Registration { number: 12, events: 0x8000_2019, data: 0xffff_0000_000c };
        assert_eq!(parse(line, 12, 0x1f61), Some(registration));
        assert_eq!(parse(line, 13, 0x1f61), None);
        assert_eq!(parse(line, 12, 0x1f62), None);
        assert_eq!(parse("flags:\t02", 12, 0), None);
    }
}
