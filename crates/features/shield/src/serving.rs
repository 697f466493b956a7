//! Answering whoever connects: each on a thread of its own and within a time, so that one who says nothing, or says it byte by byte, or never
//! reads the answer, holds up nobody else and never the end of the process.

use std::{
    io::{self, Read, Write},
    net::TcpStream,
    os::unix::net::UnixStream,
    thread::{self, JoinHandle},
    time::{Duration, Instant},
};

/// Connections that are served at once; more wait in the kernel's queue.
const AT_ONCE: usize = 16;
/// How often the end of one of them is looked for while all are taken.
const LOOK: Duration = Duration::from_millis(5);

/// The connections that are being served.
#[derive(Debug, Default)]
pub(crate) struct Desk {
    threads: Vec<JoinHandle<()>>,
}

impl Desk {
    /// Whether there is room for another connection, waiting a moment for it.
    pub(crate) fn has_room(&mut self) -> bool {
        self.threads.retain(|thread| !thread.is_finished());
        if self.threads.len() < AT_ONCE {
            return true;
        }
        thread::sleep(LOOK);
        false
    }

    /// Serves a connection by `job`, which must come to an end by itself.
    pub(crate) fn serve(&mut self, name: &str, job: impl FnOnce() + Send + 'static) {
        // Without a thread the connection is closed unanswered, and may be tried again.
        self.threads.extend(thread::Builder::new().name(name.to_owned()).spawn(job));
    }
}

impl Drop for Desk {
    /// Whoever is being answered gets the answer.
    fn drop(&mut self) {
        for thread in self.threads.drain(..) {
            // It only answers.
            let _ = thread.join();
        }
    }
}

/// A stream whose single calls can be limited in time.
pub(crate) trait Timed {
    fn read_for(&self, time: Duration) -> io::Result<()>;
    fn write_for(&self, time: Duration) -> io::Result<()>;
}

impl Timed for UnixStream {
    fn read_for(&self, time: Duration) -> io::Result<()> {
        self.set_read_timeout(Some(time))
    }

    fn write_for(&self, time: Duration) -> io::Result<()> {
        self.set_write_timeout(Some(time))
    }
}

impl Timed for TcpStream {
    fn read_for(&self, time: Duration) -> io::Result<()> {
        self.set_read_timeout(Some(time))
    }

    fn write_for(&self, time: Duration) -> io::Result<()> {
        self.set_write_timeout(Some(time))
    }
}

/// A stream that has so much time for all its calls together.
#[derive(Debug)]
pub(crate) struct Within<'a, S> {
    stream: &'a S,
    until: Instant,
}

impl<'a, S> Within<'a, S> {
    pub(crate) fn new(stream: &'a S, time: Duration) -> Self {
        Self { stream, until: Instant::now() + time }
    }

    fn left(&self) -> io::Result<Duration> {
        let left = self.until.saturating_duration_since(Instant::now());
        if left.is_zero() { Err(io::ErrorKind::TimedOut.into()) } else { Ok(left) }
    }
}

impl<'a, S: Timed> Read for Within<'a, S>
where
    &'a S: Read,
{
    fn read(&mut self, bytes: &mut [u8]) -> io::Result<usize> {
        self.stream.read_for(self.left()?)?;
        let mut stream = self.stream;
        stream.read(bytes)
    }
}

impl<'a, S: Timed> Write for Within<'a, S>
where
    &'a S: Write,
{
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.stream.write_for(self.left()?)?;
        let mut stream = self.stream;
        stream.write(bytes)
    }

    fn flush(&mut self) -> io::Result<()> {
        let mut stream = self.stream;
        stream.flush()
    }
}

#[cfg(test)]
mod tests {
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
        let ended = Within::new(&ours, Duration::from_millis(200)).read_to_end(&mut Vec::new());
        assert!(ended.is_err(), "{ended:?}");
        drop(ours);
        drip.join().unwrap();
    }

    #[test]
    fn who_never_reads_is_left() {
        let (ours, _theirs) = UnixStream::pair().unwrap();
        let ended = Within::new(&ours, Duration::from_millis(200)).write_all(&vec![0; 8 << 20]);
        assert!(ended.is_err(), "{ended:?}");
    }

    #[test]
    fn one_more_than_fit_waits() {
        let mut desk = Desk::default();
        for _ in 0..AT_ONCE {
            assert!(desk.has_room());
            desk.serve("ek-test", || thread::sleep(Duration::from_millis(100)));
        }
        assert!(!desk.has_room());
        testbed::wait("room for one more", || desk.has_room());
    }
}
