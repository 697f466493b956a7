//! Confidence intervals and tests of a share: exact binomial statistics.

use statrs::{
    distribution::{Beta, ContinuousCDF},
    function::beta::beta_reg,
};

/// The least and the greatest share that chance leaves possible after `some` of `all` were counted, 0 to 1: the interval of Clopper and Pearson,
/// wrong in `wrong` of 1 cases.
pub fn interval(some: u64, all: u64, wrong: f64) -> (f64, f64) {
    let (n, k) = (all as f64, some.min(all) as f64);
    // The bounds are quantiles of beta distributions; at the ends there is nothing beyond, and all of the error lies on the other side.
    let quantile = |a: f64, b: f64, p: f64| Beta::new(a, b).map_or(f64::NAN, |beta| beta.inverse_cdf(p));
    let side = if some == 0 || some >= all { wrong } else { wrong / 2.0 };
    let low = if k > 0.0 { quantile(k, n - k + 1.0, side) } else { 0.0 };
    let high = if k < n { quantile(k + 1.0, n - k, 1.0 - side) } else { 1.0 };
    (low, high)
}

/// The probability of `some` of `all` or fewer if each is one with the probability `share`.
pub fn at_most(some: u64, all: u64, share: f64) -> f64 {
    if some >= all || share <= 0.0 {
        return 1.0;
    }
    if share >= 1.0 {
        return 0.0;
    }
    beta_reg((all - some) as f64, some as f64 + 1.0, 1.0 - share)
}

/// The probability of `some` of `all` or more if each is one with the probability `share`.
pub fn at_least(some: u64, all: u64, share: f64) -> f64 {
    if some == 0 { 1.0 } else { 1.0 - at_most(some - 1, all, share) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn probabilities_are_those_of_the_binomial_distribution() {
        // R: pbinom(0, 486, 1/700), pbinom(50, 50000, 0.001), pbinom(3, 10, 0.5), 1 - pbinom(2, 486, 0.001).
        for (some, all, share, expected) in [
            (0, 486, 1.0 / 700.0, (1.0 - 1.0 / 700.0f64).powi(486)),
            (3, 10, 0.5, 176.0 / 1024.0),
            (0, 10, 0.0, 1.0),
            (10, 10, 0.3, 1.0),
            (9, 10, 1.0, 0.0),
        ] {
            assert!((at_most(some, all, share) - expected).abs() < 1e-9, "{some} of {all}");
        }
        assert!((at_least(4, 10, 0.5) - 848.0 / 1024.0).abs() < 1e-9);
        assert_eq!(at_least(0, 10, 0.5), 1.0);
        assert!((0.5..0.6).contains(&at_most(50, 50_000, 0.001)));
    }

    #[test]
    fn the_interval_and_the_probabilities_agree() {
        let (low, high) = interval(7, 1000, 0.05);
        assert!((at_least(7, 1000, low) - 0.025).abs() < 1e-6 && (at_most(7, 1000, high) - 0.025).abs() < 1e-6);
    }
}
