//! The sender's thread, and what is done meanwhile.

use std::{
    sync::{
        atomic::{AtomicBool, Ordering},
        mpsc::{self, RecvTimeoutError},
    },
    thread,
    time::{Duration, Instant},
};

use bpf::bench_tx::{BenchSender, BenchTxCounts};
use sys::affinity::{pin_current_thread, set_nice_of_current_thread};

use crate::{BenchError, Meanwhile};

/// The time between two looks at the stop flag.
const STOP_POLL_PERIOD: Duration = Duration::from_millis(20);

/// Before all other work of normal scheduling.
const NICE_MIN: i32 = -20;

/// Sends from a thread on `cpu` until all is sent, and says when that was.
pub(super) fn send(
    sender: &BenchSender,
    cpu: u32,
    meanwhile: Option<Meanwhile<'_>>,
    stop: &AtomicBool,
) -> Result<(BenchTxCounts, Instant), BenchError> {
    thread::scope(|scope| {
        let (alive, ended) = mpsc::channel::<()>();
        let sending = scope.spawn(move || -> Result<Instant, BenchError> {
            // Dropped at the end, however it comes.
            let _alive = alive;
            pin_current_thread(cpu).map_err(|e| BenchError::Machine(format!("cannot send from CPU {cpu}: {e}")))?;
            // Without it other work on this core holds the sender up, which its pacing shows.
            let _ = set_nice_of_current_thread(NICE_MIN);
            sender.run()?;
            Ok(Instant::now())
        });
        let beside = meanwhile.map(|m| {
            scope.spawn(move || {
                thread::sleep(m.after);
                (m.work)()
            })
        });
        while ended.recv_timeout(STOP_POLL_PERIOD) == Err(RecvTimeoutError::Timeout) {
            if stop.load(Ordering::Relaxed) {
                sender.stop();
            }
        }
        let ended = sending.join().map_err(|_| BenchError::Panicked("sender"))??;
        if let Some(beside) = beside {
            beside.join().map_err(|_| BenchError::Panicked("thread of a reset"))??;
        }
        if stop.load(Ordering::Relaxed) { Err(BenchError::Interrupted) } else { Ok((sender.counts(), ended)) }
    })
}
