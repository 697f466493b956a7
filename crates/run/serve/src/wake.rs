//! The wait of a server: for descriptors, for a time, and for other threads and signals.

use std::{
    io::{self, Read, Write},
    os::{
        fd::{AsFd, BorrowedFd, OwnedFd},
        unix::net::UnixStream,
    },
    sync::Arc,
    time::Instant,
};

use nix::poll::{PollFd, PollFlags, PollTimeout, poll};

/// The time and the descriptors that end the wait of a [`Service`](crate::Service).
#[derive(Debug)]
pub struct Wait<'a> {
    pub until: Instant,
    /// Descriptors that become readable when there is work.
    pub readable: Vec<BorrowedFd<'a>>,
}

/// Waits until the first of `waits` is over, or `wakes` is woken.
pub(crate) fn wait(wakes: &Wakes, waits: &[Wait<'_>]) {
    let descriptors = waits.iter().flat_map(|wait| &wait.readable).copied().chain([wakes.read.as_fd()]);
    let mut polled: Vec<_> = descriptors.map(|fd| PollFd::new(fd, PollFlags::POLLIN)).collect();
    let rest = waits.iter().map(|wait| wait.until).min().map(|at| at.saturating_duration_since(Instant::now()));
    // Rounded up: a wait that ends early would be repeated until it is over.
    let rest = rest.map_or(PollTimeout::NONE, |rest| {
        PollTimeout::try_from(rest.as_nanos().div_ceil(1_000_000)).unwrap_or(PollTimeout::MAX)
    });
    // A signal ends it, too.
    let _ = poll(&mut polled, rest);
    wakes.drain();
}

/// The reading end of a [`Waker`].
#[derive(Debug)]
pub(crate) struct Wakes {
    read: UnixStream,
    waker: Waker,
}

impl Wakes {
    pub(crate) fn new() -> io::Result<Self> {
        let (read, write) = UnixStream::pair()?;
        read.set_nonblocking(true)?;
        write.set_nonblocking(true)?;
        Ok(Self { read, waker: Waker(Arc::new(write)) })
    }

    pub(crate) fn waker(&self) -> Waker {
        self.waker.clone()
    }

    fn drain(&self) {
        let mut bytes = [0; 64];
        while (&self.read).read(&mut bytes).is_ok_and(|read| read == bytes.len()) {}
    }
}

/// Ends the wait of a server from another thread. A wake during its work ends its next wait.
#[derive(Debug, Clone)]
pub(crate) struct Waker(Arc<UnixStream>);

impl Waker {
    pub(crate) fn wake(&self) {
        // A full buffer wakes, too; nobody reads after the end.
        let _ = (&*self.0).write(&[0]);
    }

    /// A descriptor for signal handlers, which write to it.
    pub(crate) fn descriptor(&self) -> io::Result<OwnedFd> {
        self.0.as_fd().try_clone_to_owned()
    }
}

#[cfg(test)]
mod tests {
    use std::{thread, time::Duration};

    use super::*;

    const LONG_TIMEOUT: Duration = Duration::from_secs(60);

    fn waits(wakes: &Wakes, time: Duration) -> Duration {
        let begun = Instant::now();
        wait(wakes, &[Wait { until: begun + time, readable: Vec::new() }]);
        begun.elapsed()
    }

    #[test]
    fn a_wake_ends_one_wait_before_it_or_during_it() {
        let wakes = Wakes::new().unwrap();
        let waker = wakes.waker();
        (0..100_000).for_each(|_| waker.wake());
        assert!(waits(&wakes, LONG_TIMEOUT) < LONG_TIMEOUT / 2, "many wakes before it");
        let short = Duration::from_millis(30);
        assert!(waits(&wakes, short) >= short, "they are used up");
        let wakes_later = thread::spawn(move || {
            thread::sleep(short);
            waker.wake();
        });
        assert!(waits(&wakes, LONG_TIMEOUT) < LONG_TIMEOUT / 2);
        wakes_later.join().unwrap();
    }

    #[test]
    fn a_readable_descriptor_ends_the_wait() {
        let wakes = Wakes::new().unwrap();
        let (read, mut write) = UnixStream::pair().unwrap();
        write.write_all(b"x").unwrap();
        let begun = Instant::now();
        let readable = Wait { until: begun + LONG_TIMEOUT, readable: vec![read.as_fd()] };
        let other = Wait { until: begun + LONG_TIMEOUT, readable: Vec::new() };
        wait(&wakes, &[other, readable]);
        assert!(begun.elapsed() < LONG_TIMEOUT / 2);
    }
}
