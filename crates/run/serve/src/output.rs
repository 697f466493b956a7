//! Lines on stdout and stderr, written by threads of their own: a long-running process never waits for somebody to read them, and its end
//! waits a moment at most.

use std::{
    fs::File,
    io::{self, Write},
    os::fd::BorrowedFd,
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering},
    },
    thread,
    time::Duration,
};

use model::visible::visible;
use sys::privilege::drop_all_but;

use crate::background::Background;

/// Texts that wait to be read. More are left out, and that is reported.
const PENDING_MAX: usize = 1024;
/// Bytes that wait to be read: the document of an interval may be a megabyte.
const PENDING_BYTES_MAX: usize = 8 << 20;
/// The end of the program waits so long for what is still to be written.
const END_TIMEOUT: Duration = Duration::from_secs(1);

/// Output that reached nobody.
#[derive(Debug)]
pub enum Lost {
    /// The stream cannot be written any more; reported once.
    Ended(io::Error),
    /// A number of texts was left out because nobody read those before.
    LeftOut(u64),
}

/// A thread that writes to one of the standard streams.
#[derive(Debug)]
pub struct OutputThread {
    texts: Background<String>,
    state: Arc<State>,
}

#[derive(Debug, Default)]
struct State {
    waiting_bytes: AtomicUsize,
    left_out: AtomicU64,
    has_ended: AtomicBool,
}

impl OutputThread {
    /// Starts to write to `to`. `lost` hears, on the thread, of what reached nobody.
    pub fn start(to: BorrowedFd<'_>, lost: impl Fn(Lost) + Send + 'static) -> io::Result<Self> {
        // Its own descriptor: nothing that a buffer still holds is in the way of the end.
        let mut file = File::from(to.try_clone_to_owned()?);
        let state = Arc::<State>::default();
        let theirs = Arc::clone(&state);
        let write = move |text: String| {
            theirs.waiting_bytes.fetch_sub(text.len(), Ordering::Relaxed);
            if theirs.has_ended.load(Ordering::Relaxed) {
                return;
            }
            if let Err(error) = file.write_all(visible(&text).as_bytes()) {
                theirs.has_ended.store(true, Ordering::Relaxed);
                return lost(Lost::Ended(error));
            }
            match theirs.left_out.swap(0, Ordering::Relaxed) {
                0 => {}
                count => lost(Lost::LeftOut(count)),
            }
        };
        // A thread has the capabilities of the one that starts it: this one needs none.
        let start = || {
            drop_all_but(&[]).map_err(io::Error::other)?;
            Background::start("ek-output", PENDING_MAX, write)
        };
        let started = thread::scope(|scope| scope.spawn(start).join());
        let texts = started.unwrap_or_else(|_| Err(io::Error::other("the thread that starts it panicked")))?;
        Ok(Self { texts, state })
    }

    /// Has `text` written after what waits, or left out.
    pub fn put(&self, text: String) {
        let state = &self.state;
        if self.has_ended() {
            return;
        }
        let len = text.len();
        // One is taken whatever its size.
        let before = state.waiting_bytes.fetch_add(len, Ordering::Relaxed);
        let full = before > 0 && before + len > PENDING_BYTES_MAX;
        if full || self.texts.put(text).is_err() {
            state.waiting_bytes.fetch_sub(len, Ordering::Relaxed);
            state.left_out.fetch_add(1, Ordering::Relaxed);
        }
    }

    /// Returns whether nothing that is put reaches anybody any more.
    pub fn has_ended(&self) -> bool {
        self.state.has_ended.load(Ordering::Relaxed)
    }
}

impl Drop for OutputThread {
    fn drop(&mut self) {
        self.texts.end(END_TIMEOUT);
    }
}

#[cfg(test)]
mod tests {
    use std::{
        os::{fd::AsFd, unix::net::UnixStream},
        sync::mpsc::channel,
    };

    use super::*;

    #[test]
    fn what_nobody_reads_is_left_out_and_counted() {
        let (ours, mut theirs) = UnixStream::pair().unwrap();
        let (sender, lost) = channel();
        let output = OutputThread::start(ours.as_fd(), move |what| sender.send(what).unwrap()).unwrap();
        (0..10).for_each(|_| output.put("x".repeat(4 << 20)));
        drop(ours);
        let reader = std::thread::spawn(move || io::copy(&mut theirs, &mut io::sink()));
        let lost = lost.recv().unwrap();
        assert!(matches!(lost, Lost::LeftOut(7 | 8)), "{lost:?}");
        drop(output);
        reader.join().unwrap().unwrap();
    }

    #[test]
    fn a_stream_that_is_closed_is_reported_once() {
        let (ours, theirs) = UnixStream::pair().unwrap();
        drop(theirs);
        let (sender, lost) = channel();
        let output = OutputThread::start(ours.as_fd(), move |what| sender.send(what).unwrap()).unwrap();
        output.put("a".into());
        assert!(matches!(lost.recv().unwrap(), Lost::Ended(error) if error.kind() == io::ErrorKind::BrokenPipe));
        testbed::wait("it has ended", || output.has_ended());
        output.put("b".into());
        drop(output);
        assert!(lost.recv().is_err());
    }
}
