//! The verdict on the ceilings of all repeats: pure.

use model::sweep::{Gain, Setup};
use rig::repeat::{median, sorted};

use super::search::RESOLUTION;

/// Fewer repeats bear no verdict.
const FEWEST: usize = 3;

/// Optimised beside standard, repeat by repeat; none without both.
pub(super) fn gain(setups: &[Setup]) -> Option<Gain> {
    let [standard, optimised] = setups else { return None };
    let pairs = standard.ceilings_pps.iter().zip(&optimised.ceilings_pps).filter(|(a, _)| **a > 0.0);
    let ratios = sorted(pairs.map(|(a, b)| b / a));
    let (first, last) = (*ratios.first()?, *ratios.last()?);
    let (lowest, highest) = (first / RESOLUTION, last * RESOLUTION);
    let one_sided = lowest > 1.0 || highest < 1.0;
    let told = one_sided && ratios.len() >= FEWEST && setups.iter().all(holds);
    Some(Gain { ratio: median(&ratios)?, lowest, highest, told })
}

/// True if the ceiling came out again when it was offered again: to within what the search can tell, once for the load and once for the box.
pub(super) fn holds(setup: &Setup) -> bool {
    let rates = sorted(setup.at_ceiling.iter().map(|s| s.forwarded_pps));
    median(&rates).is_some_and(|pps| pps >= setup.ceiling_pps / RESOLUTION.powi(2))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sweep::conclusion::tests::setup;

    #[test]
    fn a_verdict_takes_repeats_that_agree_and_ceilings_that_hold() {
        let both = |a: &[f64], b: &[f64]| gain(&[setup("a", a, 0.0), setup("b", b, 0.0)]).unwrap();
        let clear = both(&[7e5, 7.2e5, 6.9e5], &[9.1e5, 9e5, 9.3e5]);
        assert!(clear.told && clear.lowest > 1.2 && clear.highest < 1.4, "{clear:?}");
        // One run says more, the next one less.
        let unclear = both(&[7.2e5, 6.8e5, 7e5], &[9.6e5, 6.4e5, 7e5]);
        assert!(!unclear.told && unclear.lowest < 1.0 && unclear.highest > 1.0, "{unclear:?}");
        // Within what the search can tell.
        assert!(!both(&[7e5; 5], &[7.1e5; 5]).told);
        assert!(!both(&[7e5; 2], &[9e5; 2]).told, "two are no interval");
        assert!(both(&[9e5; 3], &[7e5; 3]).told, "less is a verdict, too");
        let mut lost = setup("b", &[9e5; 3], 0.0);
        lost.at_ceiling.iter_mut().for_each(|s| s.forwarded_pps *= 0.8);
        assert!(!gain(&[setup("a", &[7e5; 3], 0.0), lost]).unwrap().told, "the table does not bear it");
        assert_eq!(gain(&[]), None);
    }
}
