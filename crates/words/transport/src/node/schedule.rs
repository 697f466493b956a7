//! Timers, and the order in which connections send.

use std::hash::Hash;

use super::Node;
use crate::{HEADER_BYTES, Nanos};

impl<P: Copy + Eq + Hash> Node<P> {
    /// It may have something to send now; once it has nothing more, [`Node::poll`] arms its timer.
    pub(super) fn touched(&mut self, now: Nanos, at: u32) {
        let Some(entry) = &mut self.entries[at as usize] else { return };
        if entry.connection.is_over(now) {
            return self.remove(at);
        }
        if !entry.is_ready {
            entry.is_ready = true;
            self.ready.push_back(at);
        }
    }

    /// It has nothing to send before it is due: among the timers it stands no later than that. A timer that is too early stays, as most of them move later
    /// with each frame.
    fn arm(&mut self, now: Nanos, at: u32) {
        let Some(entry) = &mut self.entries[at as usize] else { return };
        if entry.connection.is_over(now) {
            return self.remove(at);
        }
        // What is due and sends nothing is due again no sooner than a moment later.
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

    /// When [`Node::on_time`] is to be called, or some time before; none: nothing is waited for. It is right once [`Node::poll`] has given all.
    pub fn due(&self) -> Option<Nanos> {
        self.timers.first().map(|&(at, _)| at)
    }

    /// Says whether this node's carrier is down. The time until it is up again does not count for [`crate::PEER_TIMEOUT`].
    pub fn set_down(&mut self, is_down: bool) {
        self.is_down = is_down;
    }

    /// Time has gone by.
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
            let given_up = self.work(at, |connection| {
                if is_down {
                    connection.wait_anew(now);
                }
                let was_half_open = connection.is_half_open();
                connection.on_time(now);
                was_half_open && !connection.is_half_open()
            });
            self.counts.half_open += u64::from(given_up == Some(true));
            self.tell(at);
            self.touched(now, at);
        }
    }

    /// The next frame that is to be sent now, and where to; none: nothing.
    pub fn poll(&mut self, now: Nanos) -> Option<(P, [u8; HEADER_BYTES], &[u8])> {
        if let Some((peer, head, payload)) = self.answers.pop_front() {
            self.answer = payload;
            return Some((peer, head, &self.answer));
        }
        // One frame of each in turn.
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
