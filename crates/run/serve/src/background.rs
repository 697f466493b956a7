//! Work on a thread of its own: whoever has it done never waits for a disk, a pipe or somebody else's program.

use std::{
    io,
    sync::{
        Mutex, PoisonError,
        mpsc::{Receiver, RecvTimeoutError, SyncSender, TrySendError, channel, sync_channel},
    },
    thread,
    time::Duration,
};

/// A thread that does one job for each item. When this is dropped, the thread does what still waits and ends; nobody waits for it.
#[derive(Debug)]
pub struct Background<T> {
    items: Option<SyncSender<T>>,
    // Only to be shared between threads.
    ended: Mutex<Receiver<()>>,
}

impl<T: Send + 'static> Background<T> {
    /// Starts the thread. Up to `capacity` items wait for `job`, which is dropped on the thread after the last one.
    pub fn start(name: &str, capacity: usize, job: impl FnMut(T) + Send + 'static) -> io::Result<Self> {
        let (items, waiting) = sync_channel(capacity);
        let (end, ended) = channel::<()>();
        let work = move || {
            // Dropped after the job, which ends the wait for it.
            let _end = end;
            waiting.into_iter().for_each(job);
        };
        thread::Builder::new().name(name.to_owned()).spawn(work)?;
        Ok(Self { items: Some(items), ended: Mutex::new(ended) })
    }

    /// Has the job done for `item` after those that wait.
    ///
    /// # Errors
    /// As many as can are waiting, or the thread has ended: the item comes back.
    pub fn put(&self, item: T) -> Result<(), TrySendError<T>> {
        match &self.items {
            Some(items) => items.try_send(item),
            None => Err(TrySendError::Disconnected(item)),
        }
    }

    /// Takes no more items, and waits at most `timeout` until the thread has done those that wait. Returns whether it has.
    pub fn end(&mut self, timeout: Duration) -> bool {
        self.items = None;
        let ended = self.ended.get_mut().unwrap_or_else(PoisonError::into_inner);
        ended.recv_timeout(timeout) == Err(RecvTimeoutError::Disconnected)
    }
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc;

    use super::*;

    #[test]
    fn what_waits_is_done_before_the_end_and_what_has_no_room_comes_back() {
        let (gate, open) = mpsc::channel::<()>();
        let (done, all) = mpsc::channel();
        let mut background = Background::start("ek-test", 1, move |item: u32| {
            let _ = open.recv();
            done.send(item).unwrap();
        })
        .unwrap();
        let refused = testbed::wait_for("no room", || background.put(7).err());
        assert!(matches!(refused, TrySendError::Full(7)));
        assert!(!background.end(Duration::from_millis(1)), "the first one is not done");
        drop(gate);
        assert!(background.end(testbed::WAIT_TIMEOUT));
        assert!(!all.iter().collect::<Vec<_>>().is_empty());
        assert!(matches!(background.put(8), Err(TrySendError::Disconnected(8))));
    }
}
