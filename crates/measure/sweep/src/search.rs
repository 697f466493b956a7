//! The highest load that a box keeps up with, searched from below: pure but for the trials.
//!
//! Never from a flood: a veth whose ring is full makes its reader slower, so that a flooded box lets less through than the same box just
//! below its ceiling.

/// The share of the offered packets that may be lost at a ceiling.
pub(super) const LOSS_GOAL: f64 = 0.01;
/// A ceiling is found to within this factor.
pub(super) const RESOLUTION_FACTOR: f64 = 1.03;
/// The factor from one load to the next while the ceiling is unknown.
const STRIDE_FACTOR: f64 = 1.25;
/// Less than this share of the wanted load: the generator is the limit.
const REACHED_SHARE_MIN: f64 = 0.97;
/// A box that loses packets at this load has no ceiling.
const LOWEST_PPS: f64 = 1000.0;
/// The last trials of a load that is refused must agree: one burst of somebody else's work is no ceiling.
const REFUSALS_MIN: u32 = 2;

/// A refused load that is kept when it is offered again at the end is given up to this number of times before the search believes it.
const REVIVALS_MAX: u32 = 3;

#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) struct Trial {
    pub(super) offered_pps: f64,
    pub(super) forwarded_pps: f64,
}

impl Trial {
    /// The share of the offered packets that did not come out, 0 to 1.
    pub(super) fn loss_ratio(&self) -> f64 {
        if self.offered_pps > 0.0 { (1.0 - self.forwarded_pps / self.offered_pps).clamp(0.0, 1.0) } else { 0.0 }
    }
}

enum LoadResult {
    /// The box kept up with what the generator offered: as good as what was asked for.
    Kept(f64),
    /// The box kept up with all that the generator could offer.
    Limited(f64),
    Lost,
}

/// The highest load with which the box keeps up. `trial` offers a load and says what it saw, or none to give up. Begins at `start_pps`.
pub(super) fn search<E>(
    start_pps: f64,
    mut trial: impl FnMut(f64) -> Result<Option<Trial>, E>,
) -> Result<Option<f64>, E> {
    let mut verdict = |pps: f64| -> Result<Option<LoadResult>, E> {
        for _ in 0..REFUSALS_MIN {
            let Some(seen) = trial(pps)? else { return Ok(None) };
            if seen.offered_pps > 0.0 && seen.loss_ratio() <= LOSS_GOAL {
                let reached = seen.offered_pps >= REACHED_SHARE_MIN * pps;
                let offered = seen.offered_pps.min(pps);
                return Ok(Some(if reached { LoadResult::Kept(offered) } else { LoadResult::Limited(offered) }));
            }
        }
        Ok(Some(LoadResult::Lost))
    };
    // What the box kept up with, as asked for and as offered.
    let (mut kept, mut lost, mut revivals) = (None::<(f64, f64)>, None, 0);
    let mut pps = start_pps.max(LOWEST_PPS);
    loop {
        match verdict(pps)? {
            None => return Ok(None),
            Some(LoadResult::Limited(offered)) => return Ok(Some(kept.map_or(offered, |(_, best)| best.max(offered)))),
            Some(LoadResult::Kept(offered)) => kept = Some((pps, offered)),
            Some(LoadResult::Lost) => lost = Some(pps),
        }
        pps = match (kept, lost) {
            // Somebody else's work may have lasted longer than the trials that refused this load.
            (Some((low, offered)), Some(high)) if high / low <= RESOLUTION_FACTOR => match verdict(high)? {
                Some(LoadResult::Kept(again)) if revivals < REVIVALS_MAX => {
                    revivals += 1;
                    (kept, lost) = (Some((high, again)), None);
                    high * STRIDE_FACTOR
                }
                Some(_) => return Ok(Some(offered)),
                None => return Ok(None),
            },
            (Some((low, _)), Some(high)) => (low * high).sqrt(),
            (Some((low, _)), None) => low * STRIDE_FACTOR,
            (None, _) if pps <= LOWEST_PPS => return Ok(Some(0.0)),
            (None, _) => (pps / STRIDE_FACTOR).max(LOWEST_PPS),
        };
    }
}

#[cfg(test)]
mod tests {
    use std::convert::Infallible;

    use super::*;

    /// A box that lets `ceiling` through and falls to a `collapsed` rate beyond it, behind a generator of `most`.
    fn found(start: f64, ceiling: f64, collapsed: f64, most: f64) -> (f64, u32) {
        let mut trials = 0;
        let found = search(start, |pps| {
            trials += 1;
            let offered_pps = pps.min(most);
            let forwarded_pps = if offered_pps <= ceiling { offered_pps } else { collapsed };
            Ok::<_, Infallible>(Some(Trial { offered_pps, forwarded_pps }))
        });
        (found.unwrap().unwrap(), trials)
    }

    #[test]
    fn a_ceiling_is_found_from_wherever_the_search_begins() {
        for start in [1.0, 1e5, 5.5e5, 7.7e5, 5e6] {
            let (pps, trials) = found(start, 7.8e5, 5.5e5, 1e7);
            assert!((7.8e5 / RESOLUTION_FACTOR..=7.8e5).contains(&pps), "{start}: {pps}");
            assert!(start != 5.5e5 || trials <= 12, "{trials} trials");
        }
    }

    #[test]
    fn a_generator_that_is_slower_than_the_box_gives_its_own_rate() {
        assert_eq!(found(1e5, 1e9, 0.0, 3e5).0, 3e5);
    }

    #[test]
    fn a_box_that_lets_nothing_through_has_no_ceiling() {
        assert_eq!(found(1e5, 0.0, 0.0, 1e7).0, 0.0);
    }

    #[test]
    fn a_disturbance_of_some_trials_is_no_ceiling() {
        let mut trials = 0;
        let found = search(5e5, |pps| {
            trials += 1;
            let disturbed = (2..6).contains(&trials);
            let forwarded_pps = if disturbed || pps > 8e5 { 0.0 } else { pps };
            Ok::<_, Infallible>(Some(Trial { offered_pps: pps, forwarded_pps }))
        });
        assert!(found.unwrap().unwrap() >= 8e5 / RESOLUTION_FACTOR);
    }

    #[test]
    fn one_disturbed_trial_is_no_ceiling() {
        let mut trials = 0;
        let found = search(1e5, |pps| {
            trials += 1;
            let forwarded_pps = if trials == 2 || pps > 8e5 { 0.0 } else { pps };
            Ok::<_, Infallible>(Some(Trial { offered_pps: pps, forwarded_pps }))
        });
        assert!(found.unwrap().unwrap() >= 8e5 / RESOLUTION_FACTOR);
        assert_eq!(search(1e5, |_| Ok::<_, Infallible>(None)), Ok(None));
    }
}
