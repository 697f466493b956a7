//! Pending probes of a node, and their answers.

use std::collections::VecDeque;

use crate::{Nanos, Serial};

/// Pending probes, and answers that are not read yet.
const PROBES_MAX: usize = 1024;

/// An answer to [`Node::probe`](crate::Node::probe).
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Echo<P> {
    pub peer: P,
    /// Sequence number of the probe.
    pub sequence: u32,
    /// Payload of the answer.
    pub payload: Vec<u8>,
    pub heard: Nanos,
}

#[derive(Debug)]
pub(crate) struct Echoes<P> {
    pending: VecDeque<(P, u32)>,
    replies: VecDeque<Echo<P>>,
}

impl<P: Copy + Eq> Echoes<P> {
    pub(crate) fn new() -> Self {
        Self { pending: VecDeque::new(), replies: VecDeque::new() }
    }

    /// Adds a probe. Beyond the limit the oldest one is dropped.
    pub(crate) fn add(&mut self, peer: P, sequence: u32) {
        if self.pending.len() >= PROBES_MAX {
            self.pending.pop_front();
        }
        self.pending.push_back((peer, sequence));
    }

    /// Records an answer; false: no such probe is pending.
    pub(crate) fn on_reply(&mut self, now: Nanos, peer: P, Serial(sequence): Serial, payload: &[u8]) -> bool {
        let Some(at) = self.pending.iter().position(|&pending| pending == (peer, sequence)) else { return false };
        self.pending.remove(at);
        if self.replies.len() >= PROBES_MAX {
            self.replies.pop_front();
        }
        self.replies.push_back(Echo { peer, sequence, payload: payload.to_vec(), heard: now });
        true
    }

    pub(crate) fn take(&mut self) -> impl Iterator<Item = Echo<P>> {
        self.replies.drain(..)
    }
}
