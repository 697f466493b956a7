//! Readers: each counts the frames of one source on a core of its own.

use std::{
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicU64, Ordering},
    },
    thread::{self, JoinHandle},
    time::Duration,
};

use port::{PortError, Source};
use sys::affinity::pin_current_thread;

use crate::MeasureError;

/// The time between two looks at the stop flag.
const POLL_PERIOD: Duration = Duration::from_millis(50);

/// The frames that one reader has counted, on a cache line of its own.
#[derive(Debug, Default)]
#[repr(align(128))]
struct Count(AtomicU64);

/// Readers at work. They end when this is dropped.
#[derive(Debug)]
pub struct Readers {
    stop: Arc<AtomicBool>,
    counts: Arc<Vec<Count>>,
    threads: Vec<JoinHandle<Result<u64, MeasureError>>>,
}

impl Readers {
    pub fn start<S: Source + 'static>(sources: Vec<S>, cpus: &[u32]) -> Self {
        let stop = Arc::new(AtomicBool::new(false));
        let counts: Arc<Vec<Count>> = Arc::new(sources.iter().map(|_| Count::default()).collect());
        let threads = sources
            .into_iter()
            .enumerate()
            .zip(cpus.iter().copied().cycle())
            .map(|((i, source), cpu)| {
                let (stop, counts) = (Arc::clone(&stop), Arc::clone(&counts));
                thread::spawn(move || {
                    pin_current_thread(cpu).map_err(|source| MeasureError::Pin { who: "reader", cpu, source })?;
                    Ok(read(source, &stop, &counts[i].0)?)
                })
            })
            .collect();
        Self { stop, counts, threads }
    }

    /// The frames that all have counted so far.
    pub fn counted(&self) -> u64 {
        self.counts.iter().map(|c| c.0.load(Ordering::Relaxed)).sum()
    }

    /// Waits until nothing more arrives.
    pub fn settle(&self) {
        let mut seen = self.counted();
        loop {
            thread::sleep(4 * POLL_PERIOD);
            let now = self.counted();
            if now == seen {
                return;
            }
            seen = now;
        }
    }

    /// Ends them. The frames that they counted, and those that were lost for want of room.
    pub fn finish(mut self) -> Result<(u64, u64), MeasureError> {
        self.stop.store(true, Ordering::Relaxed);
        let mut lost = 0;
        for thread in self.threads.drain(..) {
            lost += thread.join().map_err(|_| MeasureError::Panicked("reader"))??;
        }
        Ok((self.counted(), lost))
    }
}

impl Drop for Readers {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Relaxed);
        for thread in self.threads.drain(..) {
            // Nobody asks for its result any more.
            let _ = thread.join();
        }
    }
}

/// Counts frames until told to stop; gives how many were lost for want of room.
fn read<S: Source>(mut source: S, stop: &AtomicBool, count: &AtomicU64) -> Result<u64, PortError> {
    let mut total = 0;
    while !stop.load(Ordering::Relaxed) {
        total += source.count(POLL_PERIOD)?.packets;
        count.store(total, Ordering::Relaxed);
    }
    Ok(source.stats()?.dropped)
}
