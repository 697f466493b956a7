//! Timers, and the order in which connections send.

use std::hash::Hash;

use super::Node;
use crate::{HEADER_BYTES, Nanos};

impl<P: Copy + Eq + Hash> Node<P> {
    /// Queues a connection for sending. [`Node::poll`] arms its timer once it has nothing to send.
    pub(super) fn schedule(&mut self, now: Nanos, at: u32) {
        let Some(entry) = &mut self.entries[at as usize] else { return };
        if entry.connection.is_finished(now) {
            return self.remove(at);
        }
        if !entry.is_ready {
            entry.is_ready = true;
            self.ready.push_back(at);
        }
    }

    /// Arms the timer of a connection. A timer that is too early stays, as most deadlines move with each frame.
    fn arm(&mut self, now: Nanos, at: u32) {
        let Some(entry) = &mut self.entries[at as usize] else { return };
        if entry.connection.is_finished(now) {
            return self.remove(at);
        }
        // A connection that is due and sends nothing is not due again at the same time.
        let Some(due) = entry.connection.due().map(|due| due.max(now + 1)) else { return };
        if let Some(armed) = entry.armed {
            if armed <= due {
                return;
            }
            self.timers.remove(&(armed, at));
        }
        entry.armed = Some(due);
        self.timers.insert((due, at));
    }

    /// Time of the next [`Node::on_time`], or earlier; none: no timer runs. Valid once [`Node::poll`] returned none.
    pub fn due(&self) -> Option<Nanos> {
        self.timers.first().map(|&(at, _)| at)
    }

    /// Sets whether the carrier is down. That time does not count for [`crate::PEER_TIMEOUT`].
    pub fn set_down(&mut self, is_down: bool) {
        self.is_down = is_down;
    }

    /// Processes expired timers.
    pub fn on_time(&mut self, now: Nanos) {
        while let Some(&(_, at)) = self.timers.first().filter(|&&(armed, _)| armed <= now) {
            self.timers.pop_first();
            let Some(entry) = &mut self.entries[at as usize] else { continue };
            entry.armed = None;
            if entry.connection.due().is_none_or(|due| due > now) {
                self.arm(now, at);
                continue;
            }
            let is_down = self.is_down;
            let given_up = self.with_pool(at, |connection| {
                if is_down {
                    connection.restart_timeout(now);
                }
                let was_half_open = connection.is_half_open();
                connection.on_time(now);
                was_half_open && !connection.is_half_open()
            });
            self.counts.half_open += u64::from(given_up == Some(true));
            self.mark_changed(at);
            self.schedule(now, at);
        }
    }

    /// The next frame to send, with its destination.
    pub fn poll(&mut self, now: Nanos) -> Option<(P, [u8; HEADER_BYTES], &[u8])> {
        if let Some((peer, head, payload)) = self.answers.pop_front() {
            self.answer = payload;
            return Some((peer, head, &self.answer));
        }
        // One frame of each connection in turn.
        loop {
            let at = self.ready.pop_front()?;
            let Some(entry) = &mut self.entries[at as usize] else { continue };
            entry.is_ready = false;
            let Some(head) = entry.connection.poll_head(now) else {
                self.arm(now, at);
                continue;
            };
            entry.is_ready = true;
            self.ready.push_back(at);
            let entry = self.entries[at as usize].as_ref()?;
            return Some((entry.peer, head, entry.connection.polled()));
        }
    }
}
