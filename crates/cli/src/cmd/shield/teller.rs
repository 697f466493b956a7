//! What happens, told on a thread of its own: who tends the shield never waits for somebody to read it.

use std::{
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
        mpsc::{Receiver, SyncSender, sync_channel},
    },
    thread,
    time::Duration,
};

use shield::run::Told;

use crate::failure::{note, print};

/// What waits to be read; more is left out, and that is said.
const WAITING_MAX: usize = 1024;
/// How long the end of the program waits for what is still to be told.
const PATIENCE: Duration = Duration::from_secs(1);

/// Tells on stderr, or events on stdout as lines of JSON.
pub(super) struct Teller {
    lines: Option<SyncSender<Told>>,
    left_out: Arc<AtomicU64>,
    ended: Receiver<()>,
}

impl Teller {
    pub(super) fn start(json: bool) -> Self {
        let (lines, waiting) = sync_channel(WAITING_MAX);
        let (end, ended) = sync_channel(1);
        let left_out = Arc::new(AtomicU64::new(0));
        let missed = Arc::clone(&left_out);
        thread::spawn(move || {
            for told in waiting {
                one(told, json);
                match missed.swap(0, Ordering::Relaxed) {
                    0 => {}
                    count => note(format_args!("{count} messages were left out: nobody read them")),
                }
            }
            drop(end);
        });
        Self { lines: Some(lines), left_out, ended }
    }

    pub(super) fn tell(&self, told: Told) {
        if self.lines.as_ref().is_some_and(|lines| lines.try_send(told).is_err()) {
            self.left_out.fetch_add(1, Ordering::Relaxed);
        }
    }
}

fn one(told: Told, json: bool) {
    match told {
        Told::Said(said) => note(said),
        // A pipe that was closed ends the lines of the intervals too.
        Told::Event(event) if json => drop(print(&format!("{}\n", shield::events::line(&event).trim_end()))),
        Told::Event(event) => note(shield::events::line(&event).trim_end()),
    }
}

impl Drop for Teller {
    fn drop(&mut self) {
        self.lines = None;
        // Nothing is ever sent: the end of the thread ends the wait, or nobody reads.
        let _ = self.ended.recv_timeout(PATIENCE);
    }
}
