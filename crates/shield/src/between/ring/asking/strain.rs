//! What is done when more SYNs of unknown sources come than can be answered: only those are answered that come a second time.
//!
//! To remember a SYN costs a fraction of an answer. A client sends its SYN again after a second and is answered then; a flood of sources
//! drawn at random sends none twice. Otherwise the ring would lose whatever finds it full, of clients as of the flood, and not only SYNs.

use std::time::Duration;

/// SYNs are remembered for one to two turns: longer than a client waits before it tries again.
const TURN_NS: u64 = 2_000_000_000;
/// Bits of a turn, a power of two (2 MB): of a million SYNs a second one in 9 is taken for one that has come before.
const BITS: usize = 1 << 24;
/// The part of frames that SYNs of unknown sources must be, for their answers to be what costs so much.
const PART: u64 = 4;

/// Of one thread, which sees all SYNs of the connections that it sees any of.
#[derive(Debug, Default)]
pub struct Strain {
    /// How many a second were answered when it began; none: there is none.
    answered_pps: Option<f64>,
    /// Bits of the SYNs of even turns and of odd ones, side by side; empty until they are needed.
    seen: Vec<[u64; 2]>,
    /// Which of both this one is.
    turn: usize,
    turned_ns: u64,
    /// SYNs of unknown sources since the last look.
    asked: u64,
    /// Those of them that were not answered.
    unanswered: u64,
}

impl Strain {
    /// Whether a SYN of an unknown source is answered; `hash` is of its addresses and ports.
    pub(super) fn answers(&mut self, hash: impl FnOnce() -> u64, now_ns: u64) -> bool {
        self.asked += 1;
        if self.answered_pps.is_none() {
            return true;
        }
        if now_ns.saturating_sub(self.turned_ns) > TURN_NS {
            self.turned_ns = now_ns;
            self.turn ^= 1;
            self.seen.iter_mut().for_each(|words| words[self.turn] = 0);
        }
        let bit = hash() as usize % BITS;
        let (words, bit) = (&mut self.seen[bit / 64], 1 << (bit % 64));
        let has_come = (words[0] | words[1]) & bit != 0;
        words[self.turn] |= bit;
        self.unanswered += u64::from(!has_come);
        has_come
    }

    /// To be called some times a second: decides whether there is strain, from how many frames were handled and how many `lost` because the
    /// ring was full in this time. Returns how many SYNs were not answered.
    pub(in super::super) fn look(&mut self, frames: u64, lost: u64, time: Duration) -> u64 {
        let asked = std::mem::take(&mut self.asked);
        let pps = asked as f64 / time.as_secs_f64();
        match self.answered_pps {
            None if lost > 0 && asked > frames / PART => {
                self.answered_pps = Some(pps);
                self.seen.resize(BITS / 64, [0; 2]);
            }
            // As many could well be answered.
            Some(answered_pps) if pps < answered_pps / 2.0 => {
                self.answered_pps = None;
                self.seen.fill([0; 2]);
            }
            _ => {}
        }
        std::mem::take(&mut self.unanswered)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECOND: Duration = Duration::from_secs(1);

    /// A hash as a keyed one spreads them.
    fn hash(n: u64) -> u64 {
        n.wrapping_mul(0x9e37_79b9_7f4a_7c15).rotate_left(29)
    }

    fn answered(strain: &mut Strain, range: std::ops::Range<u64>, now_ns: u64) -> u64 {
        range.map(|n| u64::from(strain.answers(|| hash(n), now_ns))).sum()
    }

    #[test]
    fn under_strain_who_comes_again_is_answered() {
        let mut strain = Strain::default();
        assert_eq!(answered(&mut strain, 0..1000, 5), 1000);
        assert_eq!(strain.look(1000, 1, SECOND), 0);
        let first = answered(&mut strain, 1000..2000, 10_000_000_000);
        assert!(first < 5, "{first}");
        assert_eq!(answered(&mut strain, 1000..2000, 11_000_000_000), 1000, "after a second");
        assert_eq!(answered(&mut strain, 1000..2000, 13_000_000_000), 1000, "in the turn that follows");
        assert_eq!(strain.look(3000, 0, SECOND), 1000 - first);
        let forgotten = answered(&mut strain, 1000..2000, 18_000_000_000) + answered(&mut strain, 0..1, 21_000_000_000);
        assert_eq!(forgotten, 1000, "of the turn before");
        assert_eq!(answered(&mut strain, 1000..2000, 24_000_000_000), 0, "two turns later");
    }

    #[test]
    fn it_begins_with_losses_by_syns_and_ends_when_they_could_be_answered() {
        let mut strain = Strain::default();
        let is = |strain: &Strain| strain.answered_pps.is_some();
        let second = |strain: &mut Strain, syns: u64, frames, lost| {
            answered(strain, 0..syns, 1);
            strain.look(frames, lost, SECOND);
            is(strain)
        };
        assert!(!second(&mut strain, 1000, 1000, 0), "nothing is lost");
        assert!(!second(&mut strain, 1000, 9000, 5), "others than SYNs");
        assert!(second(&mut strain, 1000, 1000, 5));
        assert!(second(&mut strain, 600, 600, 0), "it would begin anew");
        assert!(!second(&mut strain, 400, 400, 0));
        assert_eq!(answered(&mut strain, 5000..6000, 1), 1000);
    }
}
