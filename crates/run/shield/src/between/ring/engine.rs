//! A set of rules as the threads ask it.

use std::sync::Arc;

use bpf::filter::WatchWriter;
use rules::{
    compile::lookup,
    packet::{Packet, Parsed},
    reference::Outcome,
    tables::RuleTables,
};

use super::{
    buckets::{Buckets, Taken},
    counts::Counts,
    proof::{Challenged, Overload, ReplyFrame, SynProof},
};
use crate::{detect, error::ShieldError};

/// Rules that hold.
#[derive(Debug)]
pub(super) struct Engine {
    tables: RuleTables,
    /// Count what comes to protected prefixes, one for each thread; none: nothing is protected.
    watch: Vec<WatchWriter>,
    state: Arc<State>,
}

/// State of all threads that goes on when rules take the place of others.
#[derive(Debug)]
pub(super) struct State {
    proof: SynProof,
    buckets: Buckets,
}

impl State {
    /// All buckets are full; `proof` knows sources already, none: nobody is known.
    pub(super) fn new(proof: Option<SynProof>) -> Result<Self, ShieldError> {
        let lacking = |e| ShieldError::Lacking(format!("cannot get random numbers: {e}"));
        let mut key = [0; 16];
        getrandom::fill(&mut key).map_err(|e| lacking(e.into()))?;
        Ok(Self { proof: proof.map_or_else(SynProof::new, Ok).map_err(lacking)?, buckets: Buckets::new(&key) })
    }

    pub(super) fn proof(&self) -> &SynProof {
        &self.proof
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Judged {
    Pass,
    Drop,
    SynAck(ReplyFrame),
    /// A frame that crosses in its place.
    Resumed(ReplyFrame),
}

impl Engine {
    /// Of rules' tables; `state` is that of the rules before. `watch` counts what comes to protected prefixes, for each thread by its number.
    pub(super) fn new(tables: RuleTables, watch: Vec<WatchWriter>, state: Arc<State>) -> Self {
        Self { tables, watch, state }
    }

    /// Judges and counts the frame, which the thread of this number has read, at CLOCK_MONOTONIC `now_ns`.
    pub(super) fn judge(
        &self,
        frame: &[u8],
        thread: usize,
        now_ns: u64,
        counts: &Counts,
        overload: &mut Overload,
    ) -> Judged {
        let judged = match Packet::parse(frame) {
            Parsed::NotIp => {
                counts.totals.not_ip.add(1);
                Judged::Pass
            }
            Parsed::Malformed(_) => {
                counts.totals.malformed.add(1);
                if self.tables.malformed_drop { Judged::Drop } else { Judged::Pass }
            }
            Parsed::Ip(packet) => {
                // Before any rule decides, so that an attack does not seem to end when it is dropped.
                if let Some(writer) = self.watch.get(thread)
                    && let Some(prefix) = lookup::protected(&self.tables, &packet)
                {
                    writer.count(&detect::sample_of(&packet, prefix), frame.len());
                }
                self.judge_packet(&packet, frame, now_ns, counts, overload)
            }
        };
        let (frames, bytes) = match judged {
            Judged::Pass | Judged::Resumed(_) => (&counts.totals.passed, &counts.totals.passed_bytes),
            Judged::Drop => (&counts.totals.dropped, &counts.totals.dropped_bytes),
            Judged::SynAck(_) => return judged,
        };
        frames.add(1);
        bytes.add(frame.len() as u64);
        judged
    }

    fn judge_packet(
        &self,
        packet: &Packet,
        frame: &[u8],
        now: u64,
        counts: &Counts,
        overload: &mut Overload,
    ) -> Judged {
        let exceeds = |rule: usize, packet: &Packet| {
            let limit = &self.tables.rules[rule];
            match self.state.buckets.take(limit, packet.source, now) {
                Taken::Within => false,
                Taken::Evicting => {
                    counts.totals.evicted_sources.add(1);
                    false
                }
                Taken::Not => {
                    counts.limited(limit.counter);
                    counts.totals.limited.add(1);
                    true
                }
            }
        };
        let counted = |rule: usize| counts.rule(self.tables.rules[rule].counter, frame.len() as u64);
        let (rule, outcome) = lookup::search(&self.tables, packet, now, exceeds, counted);
        if rule.is_none() {
            counts.totals.by_default.add(1);
        }
        match outcome {
            Outcome::Pass => Judged::Pass,
            Outcome::Drop => Judged::Drop,
            Outcome::Challenge => {
                let answer = self.state.proof.judge(packet, frame, now, overload);
                // As the kernel program counts: what only passes was not challenged.
                let is_challenged = !matches!(answer, Challenged::Pass | Challenged::Resumed(_));
                counts.totals.challenged.add(u64::from(is_challenged));
                match answer {
                    Challenged::Pass => Judged::Pass,
                    Challenged::Drop => Judged::Drop,
                    Challenged::SynAck(syn_ack) => Judged::SynAck(syn_ack),
                    Challenged::Resumed(syn) => Judged::Resumed(syn),
                }
            }
        }
    }
}
