//! The heartbeat: when it stops, the program in the kernel fails open or closed by itself.

use std::{
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    thread::JoinHandle,
    time::Duration,
};

use bpf::filter::ShieldShared;

use crate::error::ShieldError;

/// The heart beats this often.
const BEAT: Duration = Duration::from_millis(100);

/// A thread that beats.
#[derive(Debug)]
pub(super) struct Heart {
    stop: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
}

impl Heart {
    pub(super) fn start(shared: Arc<ShieldShared>) -> Result<Self, ShieldError> {
        let stop = Arc::new(AtomicBool::new(false));
        let told = Arc::clone(&stop);
        let beat = move || {
            while !told.load(Ordering::Relaxed) {
                shared.beat();
                std::thread::park_timeout(BEAT);
            }
        };
        let thread = std::thread::Builder::new().name("ek-heart".into()).spawn(beat);
        let thread = thread.map_err(|error| ShieldError::Lacking(format!("cannot start a thread: {error}")))?;
        Ok(Self { stop, thread: Some(thread) })
    }
}

impl Drop for Heart {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Relaxed);
        if let Some(thread) = self.thread.take() {
            thread.thread().unpark();
            // It only beats.
            let _ = thread.join();
        }
    }
}
