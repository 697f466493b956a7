//! The verdict on the ceilings of all repeats: pure.

use model::sweep::{Gain, Setup};
use rig::repeat;

use super::search::RESOLUTION_FACTOR;

/// Optimised beside standard, repeat by repeat; none without both.
pub(super) fn gain(setups: &[Setup]) -> Option<Gain> {
    let [standard, optimised] = setups else { return None };
    let pairs = standard.ceilings_pps.iter().copied().zip(optimised.ceilings_pps.iter().copied());
    repeat::gain(pairs, RESOLUTION_FACTOR, setups.iter().all(holds))
}

/// True if the ceiling came out again when it was offered again.
pub(super) fn holds(setup: &Setup) -> bool {
    repeat::holds(setup, RESOLUTION_FACTOR)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::conclusion::tests::setup;

    #[test]
    fn a_verdict_takes_repeats_that_agree_and_ceilings_that_hold() {
        let both = |a: &[f64], b: &[f64]| gain(&[setup("a", a, 0.0), setup("b", b, 0.0)]).unwrap();
        let clear = both(&[7e5, 7.2e5, 6.9e5], &[9.1e5, 9e5, 9.3e5]);
        assert!(clear.significant && clear.lowest > 1.2 && clear.highest < 1.4, "{clear:?}");
        // One run says more, the next one less.
        let unclear = both(&[7.2e5, 6.8e5, 7e5], &[9.6e5, 6.4e5, 7e5]);
        assert!(!unclear.significant && unclear.lowest < 1.0 && unclear.highest > 1.0, "{unclear:?}");
        // Within what the search can tell.
        assert!(!both(&[7e5; 5], &[7.1e5; 5]).significant);
        assert!(!both(&[7e5; 2], &[9e5; 2]).significant, "two are no interval");
        assert!(both(&[9e5; 3], &[7e5; 3]).significant, "less is a verdict, too");
        let mut lost = setup("b", &[9e5; 3], 0.0);
        lost.at_ceiling.iter_mut().for_each(|s| s.forwarded_pps *= 0.8);
        assert!(!gain(&[setup("a", &[7e5; 3], 0.0), lost]).unwrap().significant, "the table does not bear it");
        assert_eq!(gain(&[]), None);
    }
}
