//! Probes of a node by hand: what was asked, and what came back.

use std::collections::VecDeque;

use crate::{Nanos, Serial};

/// Probes that wait, and answers that nobody has taken, at the most.
const KEPT: usize = 1024;

/// An answer to [`Node::probe`](crate::Node::probe).
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Echo<P> {
    /// Who answered.
    pub peer: P,
    /// The number that was asked with.
    pub sequence: u32,
    /// What came back.
    pub payload: Vec<u8>,
    /// When it arrived.
    pub heard: Nanos,
}

#[derive(Debug)]
pub(crate) struct Echoes<P> {
    asked: VecDeque<(P, u32)>,
    came: VecDeque<Echo<P>>,
}

impl<P: Copy + Eq> Echoes<P> {
    pub(crate) fn new() -> Self {
        Self { asked: VecDeque::new(), came: VecDeque::new() }
    }

    /// The oldest is waited for no longer if there are too many.
    pub(crate) fn asked(&mut self, peer: P, sequence: u32) {
        if self.asked.len() >= KEPT {
            self.asked.pop_front();
        }
        self.asked.push_back((peer, sequence));
    }

    /// False: nobody asked that, or it was answered before.
    pub(crate) fn came(&mut self, now: Nanos, peer: P, Serial(sequence): Serial, payload: &[u8]) -> bool {
        let Some(at) = self.asked.iter().position(|&asked| asked == (peer, sequence)) else { return false };
        self.asked.remove(at);
        if self.came.len() >= KEPT {
            self.came.pop_front();
        }
        self.came.push_back(Echo { peer, sequence, payload: payload.to_vec(), heard: now });
        true
    }

    pub(crate) fn take(&mut self) -> impl Iterator<Item = Echo<P>> {
        self.came.drain(..)
    }
}
