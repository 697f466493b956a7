//! The law out of measured times, by linear least squares.

use std::collections::BTreeSet;

use super::{Estimate, Interval, Law};

/// Seconds of a step as they follow from p, s and q.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Times {
    /// p: what can be divided, in seconds.
    pub divided_s: f64,
    /// s: what cannot, in seconds.
    pub serial_s: f64,
    /// q: communication over N², in seconds.
    pub square_s: f64,
}

/// No times can be fitted.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum FitError {
    #[error("three unknowns need the times of at least 3 numbers of nodes, and there are {0}")]
    Few(usize),
    #[error("a number of nodes is 0, or a time is no positive number")]
    Value,
}

/// Times that no law describes.
#[derive(Debug, Clone, Copy, PartialEq, thiserror::Error)]
pub enum Misfit {
    #[error("the model does not fit: by it {:.3} ms of a step would be divided among the nodes, and this must be above 0", 1e3 * .0)]
    Divided(f64),
    #[error("the model does not fit: by it {:.3} ms of a step would be serial, and this cannot be below 0", 1e3 * .0)]
    Serial(f64),
    #[error("the model does not fit: by it communication would take {:.4} ms times N\u{b2}, and this cannot be below 0", 1e3 * .0)]
    Square(f64),
}

impl Times {
    /// The times of least squared distance from pairs of nodes and seconds.
    ///
    /// # Errors
    /// The pairs are of fewer than 3 numbers of nodes, or a value is not positive.
    pub fn least_squares(points: &[(u32, f64)]) -> Result<Self, FitError> {
        if points.iter().any(|&(nodes, seconds)| nodes == 0 || !(seconds.is_finite() && seconds > 0.0)) {
            return Err(FitError::Value);
        }
        let different: BTreeSet<u32> = points.iter().map(|point| point.0).collect();
        if different.len() < 3 {
            return Err(FitError::Few(different.len()));
        }
        let most = different.last().map_or(1.0, |&most| f64::from(most));
        // The normal equations. N² is taken of the largest N, so that all three columns are of one size.
        let mut rows = [[0.0; 4]; 3];
        for &(nodes, seconds) in points {
            let nodes = f64::from(nodes);
            let columns = [1.0 / nodes, 1.0, (nodes / most).powi(2)];
            for (row, left) in rows.iter_mut().zip(columns) {
                for (cell, right) in row.iter_mut().zip(columns.into_iter().chain([seconds])) {
                    *cell += left * right;
                }
            }
        }
        let [divided_s, serial_s, square_s] = solved(rows);
        Ok(Self { divided_s, serial_s, square_s: square_s / (most * most) })
    }

    /// T(N) in seconds.
    pub fn seconds(&self, nodes: u32) -> f64 {
        let nodes = f64::from(nodes);
        self.divided_s / nodes + self.serial_s + self.square_s * nodes * nodes
    }

    /// k: the seconds of a step of one node without communication.
    pub fn alone_s(&self) -> f64 {
        self.divided_s + self.serial_s
    }

    /// a and n, whether or not a law has them.
    pub fn shares(&self) -> Law {
        Law { a: self.serial_s / self.alone_s(), n: self.square_s / self.alone_s() }
    }

    /// The law of these times.
    ///
    /// # Errors
    /// Nothing is divided, or serial work or communication takes less than no time. What is below 0 by the error of rounding is 0.
    pub fn law(&self) -> Result<Law, Misfit> {
        let nothing = 1e-9 * self.divided_s.abs();
        if self.divided_s <= 0.0 {
            return Err(Misfit::Divided(self.divided_s));
        }
        if self.serial_s < -nothing {
            return Err(Misfit::Serial(self.serial_s));
        }
        if self.square_s < -nothing {
            return Err(Misfit::Square(self.square_s));
        }
        let cut = Self { serial_s: self.serial_s.max(0.0), square_s: self.square_s.max(0.0), ..*self };
        Ok(cut.shares())
    }
}

/// Three equations solved by elimination, the largest number of a column first.
fn solved(mut rows: [[f64; 4]; 3]) -> [f64; 3] {
    for column in 0..3 {
        let largest = (column..3).max_by(|&a, &b| rows[a][column].abs().total_cmp(&rows[b][column].abs()));
        rows.swap(column, largest.unwrap_or(column));
        let pivot = rows[column];
        for (at, row) in rows.iter_mut().enumerate() {
            if at == column {
                continue;
            }
            let factor = row[column] / pivot[column];
            row.iter_mut().zip(pivot).for_each(|(cell, above)| *cell -= factor * above);
        }
    }
    [0, 1, 2].map(|at| rows[at][3] / rows[at][at])
}

/// Times that the bootstrap draws.
const DRAWS: usize = 1000;
/// The part of the draws that lies below, and above, an interval: what is left is 95 %.
const TAIL: f64 = 0.025;

/// The times of each number of nodes, the median of its rounds, fitted.
pub fn fitted(nodes: &[u32], rounds: &[Vec<f64>]) -> Result<Times, FitError> {
    Times::least_squares(&medians(nodes, rounds, &(0..rounds.len()).collect::<Vec<_>>()))
}

/// 95 % intervals (percentiles of a bootstrap over the rounds): as many rounds are drawn, each as often as chance wants, and fitted, a thousand times.
/// `rounds` has the seconds of each number of nodes, round by round. The same rounds give the same intervals.
pub fn between(nodes: &[u32], rounds: &[Vec<f64>]) -> Result<Estimate, FitError> {
    let mut drawn = Drawn(0x65_76_65_6e);
    let mut laws = Vec::with_capacity(DRAWS);
    for _ in 0..DRAWS {
        let chosen: Vec<usize> = rounds.iter().map(|_| drawn.below(rounds.len())).collect();
        laws.push(Times::least_squares(&medians(nodes, rounds, &chosen))?.shares());
    }
    let fits = laws.iter().filter(|law| law.a >= 0.0 && law.a < 1.0 && law.n >= 0.0).count();
    // Where communication costs nothing or less the best number has no bound.
    let finite = |found: Interval<f64>| Interval {
        low: Some(found.low).filter(|low| low.is_finite()),
        high: Some(found.high).filter(|high| high.is_finite()),
    };
    Ok(Estimate {
        a: percentiles(laws.iter().map(|law| law.a)),
        n: percentiles(laws.iter().map(|law| law.n)),
        best_nodes: finite(percentiles(
            laws.iter().map(|law| law.best_nodes().map_or(f64::INFINITY, |best| best.max(0.0))),
        )),
        greatest: finite(percentiles(
            laws.iter().map(|law| law.greatest().filter(|s| *s > 0.0).unwrap_or(f64::INFINITY)),
        )),
        draws: DRAWS as u32,
        fit: fits as u32,
    })
}

fn percentiles(values: impl Iterator<Item = f64>) -> Interval<f64> {
    let mut values: Vec<f64> = values.collect();
    values.sort_by(f64::total_cmp);
    let at = |share: f64| values[((values.len() - 1) as f64 * share).round() as usize];
    Interval { low: at(TAIL), high: at(1.0 - TAIL) }
}

/// The median of the chosen rounds of each number of nodes.
fn medians(nodes: &[u32], rounds: &[Vec<f64>], chosen: &[usize]) -> Vec<(u32, f64)> {
    let of = |at: usize| {
        let mut values: Vec<f64> = chosen.iter().filter_map(|&round| rounds[round].get(at)).copied().collect();
        values.sort_by(f64::total_cmp);
        match (values.len(), values.len() / 2) {
            (0, _) => f64::NAN,
            (len, middle) if len % 2 == 0 => 0.5 * (values[middle - 1] + values[middle]),
            (_, middle) => values[middle],
        }
    };
    nodes.iter().enumerate().map(|(at, &nodes)| (nodes, of(at))).collect()
}

/// Numbers that look drawn and are the same each time (SplitMix64; Steele, Lea, Flood 2014).
struct Drawn(u64);

impl Drawn {
    /// A number below `end`.
    fn below(&mut self, end: usize) -> usize {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut mixed = self.0;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        ((mixed ^ (mixed >> 31)) % end.max(1) as u64) as usize
    }
}
