//! Differences of pairs: what was measured twice in the same round, once with and once without something.

use serde::{Deserialize, Serialize};
use statrs::distribution::{ContinuousCDF, StudentsT};

/// A cost counts as one if chance alone makes such a difference in fewer cases than this.
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
        let count = differences.len() as f64;
        if differences.is_empty() {
            return None;
        }
        let mean = differences.iter().sum::<f64>() / count;
        let found = Self { pairs: differences.len() as u32, mean, low: None, high: None, probability: None };
        if differences.len() < 2 {
            return Some(found);
        }
        let variance = differences.iter().map(|d| (d - mean).powi(2)).sum::<f64>() / (count - 1.0);
        let error = (variance / count).sqrt();
        let Ok(student) = StudentsT::new(0.0, 1.0, count - 1.0) else { return Some(found) };
        let reach = error * student.inverse_cdf(1.0 - SIGNIFICANCE / 2.0);
        let probability = match (error > 0.0, mean == 0.0) {
            (true, _) => 2.0 * student.sf((mean / error).abs()),
            // All pairs differ alike.
            (false, same) => f64::from(u8::from(same)),
        };
        Some(Self { low: Some(mean - reach), high: Some(mean + reach), probability: Some(probability), ..found })
    }

    /// The difference of two means whose readings are no pairs, by Welch's t; none where a side has none. Its number of pairs is that of the shorter side.
    pub fn apart(before: &[f64], after: &[f64]) -> Option<Self> {
        let mean = |of: &[f64]| of.iter().sum::<f64>() / of.len() as f64;
        // The variance of the mean.
        let error = |of: &[f64]| {
            let middle = mean(of);
            of.iter().map(|d| (d - middle).powi(2)).sum::<f64>() / (of.len() as f64 - 1.0) / of.len() as f64
        };
        let pairs = before.len().min(after.len());
        if pairs == 0 {
            return None;
        }
        let mean = mean(after) - mean(before);
        let found = Self { pairs: pairs as u32, mean, low: None, high: None, probability: None };
        if pairs < 2 {
            return Some(found);
        }
        let (first, second) = (error(before), error(after));
        let all = first + second;
        if all <= 0.0 {
            let probability = Some(f64::from(u8::from(mean == 0.0)));
            return Some(Self { low: Some(mean), high: Some(mean), probability, ..found });
        }
        let freedom =
            all.powi(2) / (first.powi(2) / (before.len() as f64 - 1.0) + second.powi(2) / (after.len() as f64 - 1.0));
        let Ok(student) = StudentsT::new(0.0, 1.0, freedom) else { return Some(found) };
        let reach = all.sqrt() * student.inverse_cdf(1.0 - SIGNIFICANCE / 2.0);
        let probability = 2.0 * student.sf((mean / all.sqrt()).abs());
        Some(Self { low: Some(mean - reach), high: Some(mean + reach), probability: Some(probability), ..found })
    }
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
