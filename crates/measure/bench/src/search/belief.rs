//! The probable place of the throughput, given all trials: a noisy binary search needs to know how far to trust each of them.
//!
//! The loads form a grid whose steps are the goal's width, and the throughput lies in one of its gaps. A trial is worse than the goal with a
//! probability that rises from [`ACCIDENT_SHARE`] to 1 - [`LUCK_SHARE`] around the throughput, steeply on a box with a hard limit and slowly on a noisy
//! one; how slowly is found out with the rest (Bayes' rule over gaps and steepnesses). Before the first trials the gap is guessed from what came through at
//! the highest load, with the tails of a Cauchy distribution: where the guess is wrong, the distance doubles with each step.

use super::bounds::Seen;

/// The share of trials far below the throughput that lose too much all the same.
const ACCIDENT_SHARE: f64 = 0.1;
/// The share of trials far above it that do not.
const LUCK_SHARE: f64 = 0.02;
/// The scale of the guess, as a difference of logarithms.
const GUESS_SCALE: f64 = 0.03;
/// The share of the probability that lies below the gaps that are likely enough, and above them.
const TAIL_SHARE: f64 = 0.3;
/// The width of the rise, as a difference of logarithms, besides a quarter of the width.
const SPREADS: [f64; 3] = [0.02, 0.08, 0.25];

/// The loads that a search tries, rising.
#[derive(Debug, Clone)]
pub(super) struct Grid {
    points: Vec<u64>,
    width: f64,
}

impl Grid {
    /// From `min` to `max` in steps of the share `width`; `around` lies in the middle of a gap.
    pub(super) fn new(min: u64, max: u64, around: f64, width: f64) -> Self {
        let step = -(1.0 - width).ln();
        let (low, high) = ((min as f64).ln(), (max as f64).ln());
        let first = around.max(1.0).ln() + step / 2.0;
        let lowest = ((low - first) / step).ceil() as i64;
        let highest = ((high - first) / step).floor() as i64;
        let inner = (lowest..=highest).map(|k| (first + k as f64 * step).exp().round() as u64);
        let mut points: Vec<u64> =
            [min].into_iter().chain(inner).chain([max]).filter(|p| (min..=max).contains(p)).collect();
        points.sort_unstable();
        points.dedup();
        Self { points, width: step }
    }

    pub(super) fn points(&self) -> &[u64] {
        &self.points
    }

    /// The logarithm of the middle of each gap; the first one lies below all loads, the last one above.
    fn middles(&self) -> Vec<f64> {
        let ln = |p: &u64| (*p as f64).ln();
        let first = self.points.first().map_or(0.0, ln) - self.width / 2.0;
        let last = self.points.last().map_or(0.0, ln) + self.width / 2.0;
        let inner = self.points.windows(2).map(|w| (ln(&w[0]) + ln(&w[1])) / 2.0);
        [first].into_iter().chain(inner).chain([last]).collect()
    }

    /// Out of the gaps `from..=to` the one that the throughput lies as likely below as above, between the least and the highest
    /// likely one. `guess` is what came through at the highest load.
    pub(super) fn likely_gaps(&self, seen: &[Seen<'_>], guess: f64, (from, to): (usize, usize)) -> [usize; 3] {
        let middles = self.middles();
        let guess = guess.max(1.0).ln();
        let spreads = [self.width / 4.0, SPREADS[0], SPREADS[1], SPREADS[2]];
        let counts: Vec<(f64, f64, f64)> =
            seen.iter().map(|s| ((s.pps as f64).ln(), f64::from(s.evidence.high), f64::from(s.evidence.low))).collect();
        let log = |gap: usize, spread: f64| {
            let off = (middles[gap] - guess) / GUESS_SCALE;
            let prior = -(1.0 + off * off).ln();
            counts.iter().fold(prior, |sum, (load, high, low)| {
                let rise = 1.0 / (1.0 + ((middles[gap] - load) / spread).exp());
                let worse = ACCIDENT_SHARE + (1.0 - ACCIDENT_SHARE - LUCK_SHARE) * rise;
                sum + high * worse.ln() + low * (1.0 - worse).ln()
            })
        };
        let logs: Vec<Vec<f64>> = (from..=to).map(|gap| spreads.iter().map(|&s| log(gap, s)).collect()).collect();
        let most = logs.iter().flatten().copied().fold(f64::NEG_INFINITY, f64::max);
        let weights: Vec<f64> = logs.iter().map(|of_gap| of_gap.iter().map(|l| (l - most).exp()).sum()).collect();
        let whole: f64 = weights.iter().sum();
        [TAIL_SHARE, 0.5, 1.0 - TAIL_SHARE].map(|share| {
            let mut sum = 0.0;
            let reached = |w: &f64| {
                sum += w;
                sum >= share * whole
            };
            from + weights.iter().position(reached).unwrap_or(to - from)
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_guess_lies_in_the_middle_of_a_gap() {
        let grid = Grid::new(1000, 1_000_000, 500_000.0, 0.03);
        let above = grid.points().iter().position(|&p| p > 500_000).unwrap();
        let (low, up) = (grid.points()[above - 1] as f64, grid.points()[above] as f64);
        assert!(((low * up).sqrt() / 500_000.0 - 1.0).abs() < 1e-4 && (1.0 - low / up - 0.03).abs() < 1e-4);
        assert_eq!((grid.points()[0], *grid.points().last().unwrap()), (1000, 1_000_000));
        assert!(grid.points().windows(2).all(|w| w[0] < w[1]));
        let likely = grid.likely_gaps(&[], 500_000.0, (0, grid.points().len()));
        assert_eq!(likely[1], above);
    }

    #[test]
    fn a_grid_may_be_a_single_load() {
        assert_eq!(Grid::new(7, 7, 0.0, 0.01).points(), [7]);
    }
}
