//! Summary of repeated measurements.

use model::sweep::{Gain, Setup};

/// Fewer repeats bear no verdict.
pub const REPEATS_MIN: usize = 3;

/// The gain of the second of two things over the first, repeat by repeat; none without a repeat in which the first one is above 0. The result is true
/// to within the factor `resolution`; `holds` says that both came out again, without which there is no verdict.
pub fn gain(pairs: impl IntoIterator<Item = (f64, f64)>, resolution: f64, holds: bool) -> Option<Gain> {
    let ratios = sorted(pairs.into_iter().filter(|(a, _)| *a > 0.0).map(|(a, b)| b / a));
    let (first, last) = (*ratios.first()?, *ratios.last()?);
    let (lowest, highest) = (first / resolution, last * resolution);
    let one_sided = lowest > 1.0 || highest < 1.0;
    let significant = one_sided && ratios.len() >= REPEATS_MIN && holds;
    Some(Gain { ratio: median(ratios)?, lowest, highest, significant })
}

/// True if the ceiling came out again when it was offered again: to within what the search can tell, once for the load and once for the box.
pub fn holds(setup: &Setup, resolution: f64) -> bool {
    median(setup.at_ceiling.iter().map(|s| s.forwarded_pps))
        .is_some_and(|pps| pps >= setup.ceiling_pps / resolution.powi(2))
}

/// The middle one of the values, or the mean of both in the middle; none of none.
pub fn median(values: impl IntoIterator<Item = f64>) -> Option<f64> {
    let sorted = sorted(values);
    let half = sorted.len() / 2;
    match sorted.len() {
        0 => None,
        n if n % 2 == 1 => Some(sorted[half]),
        _ => Some((sorted[half - 1] + sorted[half]) / 2.0),
    }
}

/// The median, or 0 of no values.
pub fn middle(values: impl IntoIterator<Item = f64>) -> f64 {
    median(values).unwrap_or(0.0)
}

/// The values in ascending order.
pub fn sorted(values: impl IntoIterator<Item = f64>) -> Vec<f64> {
    let mut values: Vec<f64> = values.into_iter().collect();
    values.sort_by(f64::total_cmp);
    values
}

/// The measurement with the median `value`; of two in the middle the lower one.
pub fn median_by<T>(mut measured: Vec<T>, value: impl Fn(&T) -> f64) -> Option<T> {
    measured.sort_by(|a, b| value(a).total_cmp(&value(b)));
    let middle = measured.len().saturating_sub(1) / 2;
    measured.into_iter().nth(middle)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn medians_are_in_the_middle() {
        assert_eq!((median([]), median([2.0, 1.0, 9.0]), median([1.0, 3.0])), (None, Some(2.0), Some(2.0)));
        assert_eq!(median_by(vec![4.0, 1.0, 3.0, 2.0], |v| *v), Some(2.0));
        assert_eq!(median_by(Vec::<f64>::new(), |v| *v), None);
    }
}
