//! What happens, told on threads of their own: who tends the shield never waits for somebody to read it, and its end waits a moment at most.

use std::{
    fs::File,
    io::{self, ErrorKind, Write},
    os::fd::{AsFd, BorrowedFd},
    process,
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering},
        mpsc::{SyncSender, sync_channel},
    },
    thread::{self, JoinHandle},
    time::{Duration, Instant},
};

use model::visible::visible;
use shield::run::Told;

use crate::failure::note;

/// What waits to be read; more is left out, and that is said.
const WAITING_MAX: usize = 1024;
/// Likewise in bytes: the document of an interval may be a megabyte.
const WAITING_BYTES: usize = 8 << 20;
/// How long the end of the program waits for what is still to be told, on stdout and on stderr.
const PATIENCE: Duration = Duration::from_secs(1);
/// How often the end of what is told is looked for.
const LOOK: Duration = Duration::from_millis(5);
/// After so long it ends though somebody does not even take its last word.
const END: Duration = Duration::from_secs(3);

/// Tells on stderr; documents on stdout, of events too if they are JSON.
pub(super) struct Teller {
    out: Outlet,
    err: Outlet,
    json: bool,
}

impl Teller {
    pub(super) fn start(json: bool) -> Self {
        let (out, err) = (io::stdout(), io::stderr());
        Self {
            out: Outlet::start(out.as_fd(), "standard output"),
            err: Outlet::start(err.as_fd(), "standard error"),
            json,
        }
    }

    pub(super) fn tell(&self, told: Told) {
        match told {
            Told::Said(said) => self.say(&said),
            Told::Event(event) if self.json => self.show(shield::events::line(&event)),
            Told::Event(event) => self.say(shield::events::line(&event).trim_end()),
        }
    }

    /// A line on stderr.
    pub(super) fn say(&self, line: &str) {
        self.err.put(format!("{line}\n"));
    }

    /// Lines on stdout.
    pub(super) fn show(&self, text: String) {
        self.out.put(text);
    }

    /// Whether what is shown reaches nobody any more.
    pub(super) fn is_unheard(&self) -> bool {
        self.out.gone.load(Ordering::Relaxed)
    }
}

/// A thread that writes to one of them.
struct Outlet {
    lines: Option<SyncSender<String>>,
    waiting: Arc<AtomicUsize>,
    left_out: Arc<AtomicU64>,
    gone: Arc<AtomicBool>,
    thread: JoinHandle<()>,
}

impl Outlet {
    fn start(to: BorrowedFd<'_>, name: &'static str) -> Self {
        let (lines, coming) = sync_channel::<String>(WAITING_MAX);
        let (waiting, left_out, gone) =
            (Arc::<AtomicUsize>::default(), Arc::<AtomicU64>::default(), Arc::<AtomicBool>::default());
        let shared = (Arc::clone(&waiting), Arc::clone(&left_out), Arc::clone(&gone));
        // Its own descriptor: nothing that a buffer still holds is in the way of the end.
        let mut file = to.try_clone_to_owned().map(File::from);
        let mut write = move |text: &str| file.as_mut().map_or(Ok(()), |file| file.write_all(visible(text).as_bytes()));
        let thread = thread::spawn(move || {
            for text in coming {
                waiting.fetch_sub(text.len(), Ordering::Relaxed);
                if gone.load(Ordering::Relaxed) {
                    continue;
                }
                if let Err(error) = write(&text) {
                    gone.store(true, Ordering::Relaxed);
                    note(lost(name, &error));
                    continue;
                }
                match left_out.swap(0, Ordering::Relaxed) {
                    0 => {}
                    count => note(format_args!("{count} messages were left out: nobody read them")),
                }
            }
        });
        let (waiting, left_out, gone) = shared;
        Self { lines: Some(lines), waiting, left_out, gone, thread }
    }

    fn put(&self, text: String) {
        if self.gone.load(Ordering::Relaxed) {
            return;
        }
        let len = text.len();
        // One is taken whatever its size.
        let before = self.waiting.fetch_add(len, Ordering::Relaxed);
        let full = before > 0 && before + len > WAITING_BYTES;
        if full || self.lines.as_ref().is_some_and(|lines| lines.try_send(text).is_err()) {
            self.waiting.fetch_sub(len, Ordering::Relaxed);
            self.left_out.fetch_add(1, Ordering::Relaxed);
        }
    }
}

/// Why nothing more is written there, once.
fn lost(name: &str, error: &io::Error) -> String {
    match error.kind() {
        ErrorKind::BrokenPipe => format!(
            "nobody reads the {name} any more; the shield goes on without it (end it with `evenkeel shield stop` or kill {})",
            process::id()
        ),
        _ => format!("cannot write to the {name}: {error}; the shield goes on without it"),
    }
}

impl Drop for Outlet {
    fn drop(&mut self) {
        self.lines = None;
        let begun = Instant::now();
        while !self.thread.is_finished() && begun.elapsed() < PATIENCE {
            thread::sleep(LOOK);
        }
    }
}

/// From now on the program has a moment to end by itself with `code`; then it does, whoever does not read what it still has to say.
pub(super) fn end_soon(code: u8) {
    thread::spawn(move || {
        thread::sleep(END);
        process::exit(code.into());
    });
}
