//! Overload by SYNs of unknown sources: retransmitted ones are answered, and others only as
//! long as the ring is not filling up.
//!
//! To remember a SYN costs a fraction of an answer. A client sends its SYN again after a second and is answered then; a flood of sources
//! drawn at random sends none twice. Otherwise the ring would lose whatever finds it full, of clients as of the flood, and not only SYNs.

use super::syns::Syns;

/// SYNs are remembered for one to two generations: longer than a client waits before it tries again.
const GENERATION_NS: u64 = 2_000_000_000;
/// Bits of a generation, a power of two (2 MB): of a million SYNs a second one in 9 to one in 5 is taken for one that has come before.
const BIT_COUNT: usize = 1 << 24;
/// SYNs of unknown sources prevail above one frame in so many.
const SYN_SHARE_DIVISOR: u64 = 4;
/// Least number of such SYNs in a block, which is a millisecond of frames: a thread that has waited for its CPU has many blocks before it,
/// too.
const SYNS_MIN: u64 = 64;
/// SYNs go on to be remembered for so long after the ring last filled up.
const OVERLOAD_TIMEOUT_NS: u64 = 10_000_000_000;

/// Overload state of a thread, which sees all SYNs of its connections.
#[derive(Debug, Default)]
pub struct Overload {
    /// The ring is filling up.
    behind: bool,
    /// End of the time in which SYNs are remembered; 0: they are not.
    remembers_until_ns: u64,
    /// Bits of the SYNs of even generations and of odd ones, side by side; empty until they are needed.
    seen: Vec<[u64; 2]>,
    generation: usize,
    generation_began_ns: u64,
    /// SYNs of unknown sources in the present block.
    answered: u64,
    unanswered: u64,
    /// The last challenged SYNs.
    pub(super) syns: Syns,
}

impl Overload {
    /// Returns whether a SYN of an unknown source is answered; `hash` is of its addresses and ports.
    pub(super) fn answers(&mut self, hash: impl FnOnce() -> u64) -> bool {
        self.answered += 1;
        if self.remembers_until_ns == 0 {
            return true;
        }
        let bit = hash() as usize % BIT_COUNT;
        let (words, bit) = (&mut self.seen[bit / 64], 1 << (bit % 64));
        let has_come = (words[0] | words[1]) & bit != 0;
        words[self.generation] |= bit;
        let answers = has_come || !self.behind;
        self.unanswered += u64::from(!answers);
        answers
    }

    /// Another block begins at CLOCK_MONOTONIC `now_ns`, after one of so many `frames`; `behind`: more of them wait than should.
    pub(in super::super) fn block(&mut self, frames: u64, behind: bool, now_ns: u64) {
        let answered = std::mem::take(&mut self.answered);
        let syns_prevail = answered >= SYNS_MIN && answered * SYN_SHARE_DIVISOR > frames;
        self.behind = behind;
        if behind && syns_prevail {
            self.remembers_until_ns = now_ns + OVERLOAD_TIMEOUT_NS;
            self.seen.resize(BIT_COUNT / 64, [0; 2]);
        } else if now_ns > self.remembers_until_ns {
            self.remembers_until_ns = 0;
        }
        if self.remembers_until_ns != 0 && now_ns.saturating_sub(self.generation_began_ns) > GENERATION_NS {
            // Of what was remembered an age ago, both.
            let is_old = now_ns.saturating_sub(self.generation_began_ns) > 2 * GENERATION_NS;
            (self.generation, self.generation_began_ns) = (self.generation ^ 1, now_ns);
            let current = self.generation;
            self.seen.iter_mut().for_each(|words| *words = if is_old { [0; 2] } else { kept(*words, current) });
        }
    }

    /// SYNs not answered since the last call.
    pub(in super::super) fn take_unanswered(&mut self) -> u64 {
        std::mem::take(&mut self.unanswered)
    }
}

/// The words without those of one generation.
fn kept(mut words: [u64; 2], without: usize) -> [u64; 2] {
    words[without] = 0;
    words
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECOND_NS: u64 = 1_000_000_000;

    /// A hash as a keyed one spreads them.
    fn hash(n: u64) -> u64 {
        n.wrapping_mul(0x9e37_79b9_7f4a_7c15).rotate_left(29)
    }

    /// The number of SYNs of a block that are answered.
    fn answered(overload: &mut Overload, range: std::ops::Range<u64>) -> u64 {
        range.map(|n| u64::from(overload.answers(|| hash(n)))).sum()
    }

    #[test]
    fn who_comes_again_is_answered_and_others_while_there_is_time() {
        let mut overload = Overload::default();
        overload.block(0, false, 10 * SECOND_NS);
        assert_eq!(answered(&mut overload, 0..1000), 1000);
        overload.block(1000, true, 10 * SECOND_NS);
        let first = answered(&mut overload, 1000..2000);
        assert!(first < 5, "{first}");
        assert_eq!(answered(&mut overload, 1000..2000), 1000);
        assert_eq!(overload.take_unanswered(), 1000 - first);
        overload.block(2000, false, 11 * SECOND_NS);
        assert_eq!(answered(&mut overload, 5000..6000), 1000, "there is time");
        overload.block(1000, true, 13 * SECOND_NS);
        assert_eq!(
            answered(&mut overload, 1000..2000) + answered(&mut overload, 5000..6000),
            2000,
            "in the turn that follows"
        );
        overload.block(2000, true, 16 * SECOND_NS);
        assert_eq!(answered(&mut overload, 1000..2000), 1000, "remembered anew");
        overload.block(1000, true, 21 * SECOND_NS);
        assert!(answered(&mut overload, 1000..2000) < 5, "an age later");
    }

    #[test]
    fn it_begins_when_syns_fill_the_ring_and_ends_ten_seconds_after() {
        let mut overload = Overload::default();
        // Seconds, SYNs of unknown sources, other frames, whether the ring is filling up; whether unanswered SYNs follow.
        for (second, syns, others, behind, strained) in [
            (10, 1000, 0, false, false),
            (11, 1000, 9000, true, false),
            (11, 50, 0, true, false),
            (12, 1000, 0, true, true),
            (13, 1000, 9000, true, true),
            (21, 1000, 0, false, false),
            (22, 1000, 9000, true, true),
            (32, 1000, 9000, true, false),
        ] {
            answered(&mut overload, 0..syns);
            overload.block(syns + others, behind, second * SECOND_NS + 1);
            let new = second * 10_000;
            assert_eq!(answered(&mut overload, new..new + 1000) < 1000, strained, "{second}");
            overload.answered = 0;
        }
    }
}
