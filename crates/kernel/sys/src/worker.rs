//! A thread that works until its value is dropped.

use std::{
    io,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    thread::{Builder, JoinHandle},
};

/// A thread at work. When this is dropped the thread is told to end, woken if it is parked, and waited for.
#[derive(Debug)]
pub struct Worker {
    stop: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
}

impl Worker {
    /// Starts a thread of that name. `work` ends soon after the flag is set.
    pub fn start(name: &str, work: impl FnOnce(&AtomicBool) + Send + 'static) -> io::Result<Self> {
        let stop = Arc::new(AtomicBool::new(false));
        let stopped = Arc::clone(&stop);
        let thread = Builder::new().name(name.to_owned()).spawn(move || work(&stopped))?;
        Ok(Self { stop, thread: Some(thread) })
    }
}

impl Drop for Worker {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Relaxed);
        if let Some(thread) = self.thread.take() {
            thread.thread().unpark();
            // A panic was printed, and nobody asks for a result.
            let _ = thread.join();
        }
    }
}
