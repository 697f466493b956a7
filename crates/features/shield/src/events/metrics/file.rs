//! Metrics in a file, written by a thread of their own: who tends the shield waits for no disk.

use std::{
    fs,
    path::{Path, PathBuf},
    sync::{
        Arc, Condvar, Mutex, PoisonError,
        mpsc::{Receiver, Sender, channel},
    },
    thread,
    time::Duration,
};

use host::file;

use super::{Metrics, Notation};
use crate::events::EventError;

/// The end of the shield waits so long for the file to be removed.
const PATIENCE: Duration = Duration::from_secs(1);

/// What is to be written, and whether to end.
#[derive(Debug, Default)]
struct Desk {
    metrics: Option<Metrics>,
    end: Option<End>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum End {
    Keep,
    Remove,
}

type Shared = (Mutex<Desk>, Condvar);

/// Writes metrics to a file, the latest of those that were set.
#[derive(Debug)]
pub struct MetricsFile {
    shared: Arc<Shared>,
    failures: Receiver<EventError>,
    ended: Receiver<()>,
}

impl MetricsFile {
    /// Starts the thread. The file is written when there is something to write.
    ///
    /// # Errors
    /// [`EventError::MetricsFile`] for a pipe or a device, which cannot be replaced; [`EventError::MetricsThread`].
    pub fn start(path: &Path) -> Result<Self, EventError> {
        // Whatever else is in the way may have gone when it is written, and is told then.
        file::refuse_special(path).map_err(|source| EventError::MetricsFile { source })?;
        let shared = Arc::new(Shared::default());
        let ((failed, failures), (end, ended)) = (channel(), channel());
        let (theirs, path) = (Arc::clone(&shared), path.to_owned());
        let serve = move || {
            // Dropped at the end, which ends the wait for it.
            let _end: Sender<()> = end;
            serve(&path, &theirs, &failed);
        };
        thread::Builder::new()
            .name("shield-metfile".into())
            .spawn(serve)
            .map_err(|source| EventError::MetricsThread { source })?;
        Ok(Self { shared, failures, ended })
    }

    /// What the file is to say now.
    pub fn set(&self, metrics: Metrics) {
        self.tell(|desk| desk.metrics = Some(metrics));
    }

    /// What went wrong since this was last asked; the same again and again is told once.
    pub fn failures(&self) -> impl Iterator<Item = EventError> + '_ {
        self.failures.try_iter()
    }

    /// Removes the file: nobody who reads it could tell that it is over.
    pub fn remove(self) {
        self.tell(|desk| desk.end = Some(End::Remove));
        // A disk that hangs is not waited for.
        let _ = self.ended.recv_timeout(PATIENCE);
    }

    fn tell(&self, what: impl FnOnce(&mut Desk)) {
        what(&mut self.shared.0.lock().unwrap_or_else(PoisonError::into_inner));
        self.shared.1.notify_one();
    }
}

impl Drop for MetricsFile {
    fn drop(&mut self) {
        self.tell(|desk| {
            desk.end.get_or_insert(End::Keep);
        });
    }
}

fn serve(path: &PathBuf, (desk, told): &Shared, failed: &Sender<EventError>) {
    let (mut written, mut last) = (false, String::new());
    loop {
        let desk = desk.lock().unwrap_or_else(PoisonError::into_inner);
        let waiting = |desk: &mut Desk| desk.metrics.is_none() && desk.end.is_none();
        let mut desk = told.wait_while(desk, waiting).unwrap_or_else(PoisonError::into_inner);
        let (metrics, end) = (desk.metrics.take(), desk.end);
        drop(desk);
        match (metrics, end) {
            (_, Some(End::Remove)) if written => {
                // It may be gone.
                let _ = fs::remove_file(path);
                return;
            }
            (_, Some(_)) => return,
            (Some(metrics), None) => {
                match file::replace(path, metrics.text(Notation::Text).as_bytes(), file::PUBLIC) {
                    Ok(()) => (written, last) = (true, String::new()),
                    Err(source) => {
                        let error = EventError::MetricsFile { source };
                        let said = error.to_string();
                        if said != last {
                            // Who asked for it may be gone.
                            let _ = failed.send(error);
                            last = said;
                        }
                    }
                }
            }
            (None, None) => {}
        }
    }
}
