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

/// The thread beats this often.
pub(super) const BEAT_PERIOD: Duration = Duration::from_millis(100);

/// A thread that beats.
#[derive(Debug)]
pub(super) struct HeartbeatThread {
    stop: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
}

impl HeartbeatThread {
    pub(super) fn start(shared: Arc<ShieldShared>) -> Result<Self, ShieldError> {
        let stop = Arc::new(AtomicBool::new(false));
        let stopped = Arc::clone(&stop);
        let beat = move || {
            while !stopped.load(Ordering::Relaxed) {
                shared.beat();
                std::thread::park_timeout(BEAT_PERIOD);
            }
        };
        let thread = std::thread::Builder::new().name("ek-heart".into()).spawn(beat);
        let thread = thread.map_err(ShieldError::Thread)?;
        Ok(Self { stop, thread: Some(thread) })
    }
}

impl Drop for HeartbeatThread {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Relaxed);
        if let Some(thread) = self.thread.take() {
            thread.thread().unpark();
            // It only beats.
            let _ = thread.join();
        }
    }
}
