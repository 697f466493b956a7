//! From values to places on an axis, and the values that an axis names.

/// A scale from `low` to `high`, at 0 and at 1.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) struct Scale {
    low: f64,
    high: f64,
    log: bool,
}

/// Steps of a linear axis within a decade.
const STEPS: [f64; 4] = [1.0, 2.0, 5.0, 10.0];
/// Decades beyond which a logarithmic axis names each decade only.
const DECADES: i32 = 3;

impl Scale {
    /// A linear scale between these two.
    pub(crate) fn linear(low: f64, high: f64) -> Self {
        let high = if high > low { high } else { low + 1.0 };
        Self { low, high, log: false }
    }

    /// A linear scale from zero that ends on a name of its axis, at or beyond the largest value.
    pub(crate) fn from_zero(values: impl IntoIterator<Item = f64>, names: usize) -> Self {
        let top = values.into_iter().filter(|v| v.is_finite()).fold(0.0, f64::max);
        if top <= 0.0 {
            return Self::linear(0.0, 1.0);
        }
        let step = step(top, names);
        Self::linear(0.0, (top / step - 1e-9).ceil() * step)
    }

    /// A logarithmic scale around these values that begins and ends on a name of its axis, so that there are two at least. Values of
    /// zero and below have no place on it.
    pub(crate) fn log(values: impl IntoIterator<Item = f64>) -> Self {
        let (mut low, mut high) = (f64::INFINITY, 0.0f64);
        for value in values.into_iter().filter(|v| v.is_finite() && *v > 0.0) {
            (low, high) = (low.min(value), high.max(value));
        }
        if high <= 0.0 {
            (low, high) = (1.0, 10.0);
        }
        let names = || decades(low, high).flat_map(|n| [1.0, 2.0, 5.0].map(|m| m * 10f64.powi(n)));
        let below = names().filter(|n| *n <= low * 1.001).fold(f64::MIN_POSITIVE, f64::max);
        let above = names().filter(|n| *n >= high * 0.999 && *n > below).fold(f64::INFINITY, f64::min);
        Self { low: below, high: above, log: true }
    }

    /// The place of a value, from 0 to 1; values beyond an end lie at it.
    pub(crate) fn at(&self, value: f64) -> f64 {
        let share = match self.log {
            true => (value.max(self.low) / self.low).ln() / (self.high / self.low).ln(),
            false => (value - self.low) / (self.high - self.low),
        };
        share.clamp(0.0, 1.0)
    }

    /// The values to name, about so many.
    pub(crate) fn names(&self, wanted: usize) -> Vec<f64> {
        let inside = |v: &f64| *v >= self.low * 0.999 - 1e-12 && *v <= self.high * 1.001 + 1e-12;
        if self.log {
            let all = |within: &[f64]| -> Vec<f64> {
                let names = decades(self.low, self.high).flat_map(|n| within.iter().map(move |m| m * 10f64.powi(n)));
                names.filter(inside).collect()
            };
            let spread = (self.high / self.low).log10();
            let fine = spread <= f64::from(DECADES);
            let names = if fine { all(&[1.0, 2.0, 5.0]) } else { all(&[1.0]) };
            return names;
        }
        let step = step(self.high - self.low, wanted);
        let first = (self.low / step - 1e-9).ceil() as i64;
        let last = (self.high / step + 1e-9).floor() as i64;
        (first..=last).map(|n| n as f64 * step).collect()
    }
}

/// The decades that hold these two values and one to each side.
fn decades(low: f64, high: f64) -> std::ops::RangeInclusive<i32> {
    (low.log10().floor() as i32 - 1)..=(high.log10().ceil() as i32 + 1)
}

/// A round step that divides a length into at most so many.
fn step(length: f64, wanted: usize) -> f64 {
    let rough = length / wanted.max(1) as f64;
    let decade = 10f64.powf(rough.log10().floor());
    STEPS.iter().map(|s| s * decade).find(|s| *s >= rough * 0.999).unwrap_or(10.0 * decade)
}

/// A number of a linear axis: its digits in groups, no more decimals than it has.
pub(crate) fn number(value: f64) -> String {
    let text = if value.abs() < 0.01 { format!("{value:.6}") } else { format!("{value:.3}") };
    let short = text.trim_end_matches('0').trim_end_matches('.');
    match short.trim_start_matches('-').parse::<u64>() {
        Ok(0) => "0".to_owned(),
        Ok(whole) => format!("{}{}", if value < 0.0 { "-" } else { "" }, model::units::grouped(whole)),
        Err(_) => short.to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn names_are_round() {
        assert_eq!(Scale::from_zero([7.3], 5).names(5), [0.0, 2.0, 4.0, 6.0, 8.0]);
        assert_eq!(Scale::linear(-2.0, 102.0).names(5), [0.0, 50.0, 100.0]);
        assert_eq!(Scale::log([0.13, 0.4]).names(5), [0.1, 0.2, 0.5]);
        assert_eq!(Scale::log([3.0, 40_000.0]).names(5), [10.0, 100.0, 1e3, 1e4]);
        assert_eq!((number(12_345.0), number(10.5), number(-3.0)), ("12 345".into(), "10.5".into(), "-3".into()));
    }

    proptest! {
        #[test]
        fn a_logarithmic_axis_names_two_values_at_least(a in 1e-6f64..1e12, factor in 1.0f64..1e9) {
            let scale = Scale::log([a, a * factor]);
            prop_assert!(scale.names(5).len() >= 2, "{scale:?} {:?}", scale.names(5));
            for value in [a, a * factor] {
                prop_assert!(value >= scale.low * 0.998 && value <= scale.high * 1.002);
            }
        }

        #[test]
        fn an_axis_from_zero_holds_its_values(top in 1e-6f64..1e15, wanted in 2usize..9) {
            let scale = Scale::from_zero([top], wanted);
            let names = scale.names(wanted);
            prop_assert!(scale.high >= top * 0.999 && (2..=wanted + 2).contains(&names.len()), "{scale:?} {names:?}");
        }
    }
}
