//! Answering whoever connects: each on a thread of its own and within a time, so that one who says nothing, or says it byte by byte, or never
//! reads the answer, holds up nobody else and never the end of the process.

use std::{
    io::{self, Read, Write},
    os::unix::net::UnixStream,
    thread::{self, JoinHandle},
    time::{Duration, Instant},
};

/// Connections that are served at once; more wait in the kernel's queue.
const CONNECTIONS_MAX: usize = 64;
/// The end of one of them is looked for this often while all are taken.
const POLL_PERIOD: Duration = Duration::from_millis(5);

/// The connections that are being served, up to a limit.
#[derive(Debug, Default)]
pub(crate) struct ConnectionLimit {
    threads: Vec<JoinHandle<()>>,
}

impl ConnectionLimit {
    /// Returns whether there is room for another connection, and waits a moment for it.
    pub(crate) fn has_room(&mut self) -> bool {
        self.threads.retain(|thread| !thread.is_finished());
        if self.threads.len() < CONNECTIONS_MAX {
            return true;
        }
        thread::sleep(POLL_PERIOD);
        false
    }

    /// Serves a connection by `job`, which must come to an end by itself.
    pub(crate) fn serve(&mut self, name: &str, job: impl FnOnce() + Send + 'static) {
        // Without a thread the connection is closed unanswered, and may be tried again.
        self.threads.extend(thread::Builder::new().name(name.to_owned()).spawn(job));
    }
}

impl Drop for ConnectionLimit {
    /// Waits for the threads that still answer.
    fn drop(&mut self) {
        for thread in self.threads.drain(..) {
            // It only answers.
            let _ = thread.join();
        }
    }
}

/// A stream that has so much time for all its calls together.
#[derive(Debug)]
pub(crate) struct Deadline<'a> {
    stream: &'a UnixStream,
    until: Instant,
}

impl<'a> Deadline<'a> {
    pub(crate) fn new(stream: &'a UnixStream, time: Duration) -> Self {
        Self { stream, until: Instant::now() + time }
    }

    fn left(&self) -> io::Result<Duration> {
        let left = self.until.saturating_duration_since(Instant::now());
        if left.is_zero() { Err(io::ErrorKind::TimedOut.into()) } else { Ok(left) }
    }
}

impl Read for Deadline<'_> {
    fn read(&mut self, bytes: &mut [u8]) -> io::Result<usize> {
        self.stream.set_read_timeout(Some(self.left()?))?;
        self.stream.read(bytes)
    }
}

impl Write for Deadline<'_> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.stream.set_write_timeout(Some(self.left()?))?;
        self.stream.write(bytes)
    }

    fn flush(&mut self) -> io::Result<()> {
        self.stream.flush()
    }
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc;

    use super::*;

    #[test]
    fn a_byte_now_and_then_does_not_buy_time() {
        let (ours, mut theirs) = UnixStream::pair().unwrap();
        let drip = thread::spawn(move || {
            // Were time bought, all of them would be read, and then the end.
            for _ in 0..500 {
                if theirs.write_all(b"x").is_err() {
                    return;
                }
                thread::sleep(Duration::from_millis(20));
            }
        });
        let ended = Deadline::new(&ours, Duration::from_millis(200)).read_to_end(&mut Vec::new());
        assert!(ended.is_err(), "{ended:?}");
        drop(ours);
        drip.join().unwrap();
    }

    #[test]
    fn who_never_reads_is_left() {
        let (ours, _theirs) = UnixStream::pair().unwrap();
        let ended = Deadline::new(&ours, Duration::from_millis(200)).write_all(&vec![0; 8 << 20]);
        assert!(ended.is_err(), "{ended:?}");
    }

    #[test]
    fn one_more_than_fit_waits() {
        let mut limit = ConnectionLimit::default();
        let gates: Vec<_> = (0..CONNECTIONS_MAX)
            .map(|_| {
                assert!(limit.has_room());
                let (gate, open) = mpsc::channel::<()>();
                limit.serve("ek-test", move || assert!(open.recv().is_err()));
                gate
            })
            .collect();
        assert!(!limit.has_room());
        drop(gates);
        testbed::wait("room for one more", || limit.has_room());
    }
}
