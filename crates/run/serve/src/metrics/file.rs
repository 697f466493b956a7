//! Metrics in a file, written by a thread of their own: a long-running process waits for no disk.

use std::{
    path::{Path, PathBuf},
    sync::{
        Arc, Mutex, PoisonError,
        atomic::{AtomicBool, Ordering},
        mpsc::{Receiver, Sender, channel},
    },
    time::Duration,
};

use host::file;

use super::{Metrics, Notation};
use crate::{background::Background, error::ServeError};

/// The end of the process waits so long for the file to be removed: a disk that hangs is not waited for.
const REMOVE_TIMEOUT: Duration = Duration::from_secs(1);

/// Writes metrics to a file, the latest of those that were set.
#[derive(Debug)]
pub struct MetricsFile {
    latest: Arc<Mutex<Option<Metrics>>>,
    remove: Arc<AtomicBool>,
    failures: Receiver<ServeError>,
    writer: Background<()>,
}

impl MetricsFile {
    /// Starts the thread. The file is written when there is something to write.
    ///
    /// # Errors
    /// [`ServeError::MetricsFile`] for a pipe or a device, which cannot be replaced; [`ServeError::MetricsThread`].
    pub fn start(path: &Path) -> Result<Self, ServeError> {
        // Whatever else is in the way may have gone when it is written, and is told then.
        file::refuse_special(path).map_err(|source| ServeError::MetricsFile { source })?;
        let (latest, remove) = (Arc::<Mutex<Option<Metrics>>>::default(), Arc::<AtomicBool>::default());
        let (failed, failures) = channel();
        let (path, theirs) = (path.to_owned(), Arc::clone(&latest));
        let mut writer = Writer { path, remove: Arc::clone(&remove), failed, written: false, last: String::new() };
        let job = move |()| {
            let latest = theirs.lock().unwrap_or_else(PoisonError::into_inner).take();
            latest.iter().for_each(|metrics| writer.write(metrics));
        };
        let writer = Background::start("ek-metrics", 1, job).map_err(|source| ServeError::MetricsThread { source })?;
        Ok(Self { latest, remove, failures, writer })
    }

    /// Has the file say this from now on.
    pub fn set(&self, metrics: Metrics) {
        *self.latest.lock().unwrap_or_else(PoisonError::into_inner) = Some(metrics);
        // Where one write waits, it writes the latest.
        let _ = self.writer.put(());
    }

    /// Failures since this was last asked; the same again and again comes once.
    pub fn failures(&self) -> impl Iterator<Item = ServeError> + '_ {
        self.failures.try_iter()
    }

    /// Removes the file: nobody who reads it could tell that it is over.
    pub fn remove(mut self) {
        self.remove.store(true, Ordering::Relaxed);
        self.writer.end(REMOVE_TIMEOUT);
    }
}

struct Writer {
    path: PathBuf,
    remove: Arc<AtomicBool>,
    failed: Sender<ServeError>,
    written: bool,
    /// The last failure, as text.
    last: String,
}

impl Writer {
    fn write(&mut self, metrics: &Metrics) {
        if self.remove.load(Ordering::Relaxed) {
            return;
        }
        match file::replace(&self.path, metrics.text(Notation::Text).as_bytes(), file::PUBLIC) {
            Ok(()) => (self.written, self.last) = (true, String::new()),
            Err(source) => {
                let error = ServeError::MetricsFile { source };
                if error.to_string() != self.last {
                    self.last = error.to_string();
                    // Who asked for it may be gone.
                    let _ = self.failed.send(error);
                }
            }
        }
    }
}

impl Drop for Writer {
    fn drop(&mut self) {
        if self.written && self.remove.load(Ordering::Relaxed) {
            // It may be gone.
            let _ = file::remove(&self.path);
        }
    }
}
