//! Differences of pairs: what was measured twice in the same round, once with and once without something.

use serde::{Deserialize, Serialize};
use statrs::distribution::{ContinuousCDF, StudentsT};

/// A difference counts as one if chance alone makes such a difference in fewer cases than this.
pub const SIGNIFICANCE: f64 = 0.05;

/// The mean of the differences of pairs, with its 95 % confidence interval (Student's t).
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct Paired {
    pub pairs: u32,
    pub mean: f64,
    /// The lower end of its interval; none with fewer than two pairs.
    pub low: Option<f64>,
    pub high: Option<f64>,
    /// The probability that chance alone makes a mean as far from 0; none with fewer than two pairs.
    pub probability: Option<f64>,
}

impl Paired {
    /// Statistics of the pairs' differences; none without any.
    pub fn of(differences: &[f64]) -> Option<Self> {
        let (mean, variance) = mean_of(differences)?;
        Some(Self::from(differences.len(), mean, variance.map(|v| (v, differences.len() as f64 - 1.0))))
    }

    /// The difference of two means whose readings are no pairs, by Welch's t; none where a side has none. Its number of pairs is that of the shorter side.
    pub fn apart(before: &[f64], after: &[f64]) -> Option<Self> {
        let ((first, of_first), (second, of_second)) = (mean_of(before)?, mean_of(after)?);
        let spread = of_first.zip(of_second).map(|(a, b)| welch((a, before.len()), (b, after.len())));
        Some(Self::from(before.len().min(after.len()), second - first, spread))
    }

    /// The statistics of a mean with its variance and the degrees of freedom.
    fn from(pairs: usize, mean: f64, spread: Option<(f64, f64)>) -> Self {
        let found = Self { pairs: pairs as u32, mean, low: None, high: None, probability: None };
        let Some((variance, freedom)) = spread else { return found };
        let Some(student) = student(freedom) else { return found };
        let error = variance.sqrt();
        let reach = error * student.inverse_cdf(1.0 - SIGNIFICANCE / 2.0);
        let probability = match (error > 0.0, mean == 0.0) {
            (true, _) => 2.0 * student.sf((mean / error).abs()),
            // All pairs differ alike.
            (false, same) => f64::from(u8::from(same)),
        };
        Self { low: Some(mean - reach), high: Some(mean + reach), probability: Some(probability), ..found }
    }
}

/// The mean of some values, and its variance, which a single value does not have.
pub(crate) fn mean_of(values: &[f64]) -> Option<(f64, Option<f64>)> {
    let n = values.len() as f64;
    let mean = values.iter().sum::<f64>() / n;
    let squares: f64 = values.iter().map(|v| (v - mean).powi(2)).sum();
    (!values.is_empty()).then(|| (mean, (values.len() > 1).then(|| squares / (n - 1.0) / n)))
}

/// The variance of the difference of two means, each with its variance and its number of readings, and the degrees of freedom (B. L. Welch, 1947).
pub(crate) fn welch((a, of_a): (f64, usize), (b, of_b): (f64, usize)) -> (f64, f64) {
    let part = |variance: f64, n: usize| variance.powi(2) / (n as f64 - 1.0);
    let freedom = (a + b).powi(2) / (part(a, of_a) + part(b, of_b));
    // Without a variance any will do.
    (a + b, if a + b > 0.0 { freedom } else { 1.0 })
}

/// Student's distribution.
pub(crate) fn student(freedom: f64) -> Option<StudentsT> {
    StudentsT::new(0.0, 1.0, freedom).ok()
}

/// The differences that are more than chance, after Holm: together they are wrong in fewer than 5 % of the cases. None has no probability.
pub fn beyond_chance(probabilities: &[Option<f64>]) -> Vec<bool> {
    let mut order: Vec<(usize, f64)> =
        probabilities.iter().enumerate().filter_map(|(at, p)| Some((at, (*p)?))).collect();
    order.sort_by(|a, b| a.1.total_cmp(&b.1));
    let mut beyond = vec![false; probabilities.len()];
    for (rank, &(at, probability)) in order.iter().enumerate() {
        if probability >= SIGNIFICANCE / (order.len() - rank) as f64 {
            break;
        }
        beyond[at] = true;
    }
    beyond
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_interval_is_students() {
        // Mean 3, standard deviation 1.5811, t(0.975, 4) = 2.776: 3 +- 1.963.
        let found = Paired::of(&[1.0, 2.0, 3.0, 4.0, 5.0]).unwrap();
        assert_eq!((found.pairs, found.mean), (5, 3.0));
        assert!((found.low.unwrap() - 1.0368).abs() < 1e-3 && (found.high.unwrap() - 4.9632).abs() < 1e-3, "{found:?}");
        // t = 4.2426 with 4 degrees of freedom.
        assert!((found.probability.unwrap() - 0.013_24).abs() < 1e-4, "{found:?}");
    }

    #[test]
    fn few_pairs_say_little() {
        assert_eq!(Paired::of(&[]), None);
        let one = Paired::of(&[7.0]).unwrap();
        assert_eq!((one.mean, one.low, one.probability), (7.0, None, None));
        assert_eq!(Paired::of(&[2.0, 2.0, 2.0]).unwrap().probability, Some(0.0));
        assert_eq!(Paired::of(&[0.0, 0.0]).unwrap().probability, Some(1.0));
    }

    #[test]
    fn what_is_no_pair_is_compared_by_welch() {
        let found = Paired::apart(&[1.0, 2.0, 3.0, 4.0, 5.0], &[4.0, 5.0, 6.0, 7.0, 8.0, 3.0, 9.0]).unwrap();
        assert_eq!((found.pairs, found.mean), (5, 3.0));
        let error = (2.5_f64 / 5.0 + 28.0 / 6.0 / 7.0).sqrt();
        assert!((error - 1.0801).abs() < 1e-4);
        // t(0.975, 9.96) = 2.2294.
        assert!((found.high.unwrap() - 3.0 - 2.2294 * error).abs() < 2e-3, "{found:?}");
        assert!(found.probability.unwrap() > 0.01 && found.probability.unwrap() < 0.03, "{found:?}");
        assert_eq!(Paired::apart(&[], &[1.0]), None);
        assert_eq!(Paired::apart(&[1.0, 1.0], &[1.0, 1.0]).unwrap().probability, Some(1.0));
    }

    #[test]
    fn among_many_differences_a_small_probability_is_nothing() {
        assert_eq!(beyond_chance(&[Some(0.04)]), [true]);
        assert_eq!(beyond_chance(&[Some(0.04), Some(0.5), None]), [false; 3]);
        assert_eq!(beyond_chance(&[Some(0.02), Some(0.001), Some(0.9)]), [true, true, false]);
    }
}
