//! Delays in the words of a run, from the buckets of the receiver or from single values.

use bpf::BenchDelays;
use model::bench::Delays;

/// The receiver's delays in the words of a run; none without samples.
///
/// Least, mean and most are exact. A percentile is the upper end of the bucket that holds it, at most 1.6 % above the true one.
pub fn delays(counted: &BenchDelays, jitter_ns: Option<f64>) -> Option<Delays> {
    if counted.samples == 0 {
        return None;
    }
    let at = |thousandths| percentile(counted, thousandths);
    Some(Delays {
        samples: counted.samples,
        min_ns: counted.min_ns,
        mean_ns: counted.sum_ns as f64 / counted.samples as f64,
        p50_ns: at(500),
        p90_ns: at(900),
        p99_ns: at(990),
        p999_ns: at(999),
        max_ns: counted.max_ns,
        jitter_ns,
    })
}

/// The least value that `thousandths` of a thousand samples do not exceed; 0 without samples.
pub fn percentile(counted: &BenchDelays, thousandths: u32) -> u64 {
    let rank = rank(counted.samples, thousandths);
    let mut below = 0;
    for (i, n) in counted.buckets.iter().enumerate() {
        below += n;
        // The last bucket has no upper end.
        if below >= rank && i + 1 < counted.buckets.len() {
            return (BenchDelays::bucket_ns(i + 1) - 1).clamp(counted.min_ns, counted.max_ns);
        }
    }
    counted.max_ns
}

/// The same of single values, all exact: round trips. The jitter is that of their order.
pub fn of_values(values: &[u64]) -> Option<Delays> {
    let mut sorted = values.to_vec();
    sorted.sort_unstable();
    let (&min_ns, &max_ns) = (sorted.first()?, sorted.last()?);
    let samples = values.len() as u64;
    let at = |thousandths| sorted[rank(samples, thousandths) as usize - 1];
    let jitter = |jitter: f64, pair: &[u64]| jitter + (pair[0].abs_diff(pair[1]) as f64 - jitter) / 16.0;
    Some(Delays {
        samples,
        min_ns,
        mean_ns: values.iter().map(|&ns| ns as f64).sum::<f64>() / samples as f64,
        p50_ns: at(500),
        p90_ns: at(900),
        p99_ns: at(990),
        p999_ns: at(999),
        max_ns,
        jitter_ns: (samples > 1).then(|| values.windows(2).fold(0.0, jitter)),
    })
}

/// The place, from 1, of the sample that `thousandths` of a thousand do not exceed (nearest rank).
fn rank(samples: u64, thousandths: u32) -> u64 {
    (u128::from(samples) * u128::from(thousandths)).div_ceil(1000).max(1) as u64
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const BUCKETS: usize = 29 * 64;

    fn count(values: &[u64]) -> BenchDelays {
        let mut buckets = vec![0; BUCKETS];
        for &ns in values {
            let i = (0..BUCKETS).rev().find(|&i| BenchDelays::bucket_ns(i) <= ns).unwrap();
            buckets[i] += 1;
        }
        BenchDelays {
            samples: values.len() as u64,
            sum_ns: values.iter().sum(),
            min_ns: values.iter().copied().min().unwrap_or(0),
            max_ns: values.iter().copied().max().unwrap_or(0),
            buckets,
        }
    }

    #[test]
    fn nothing_has_no_delays() {
        assert_eq!((delays(&count(&[]), None), of_values(&[])), (None, None));
        assert_eq!(delays(&BenchDelays::default(), None), None);
    }

    #[test]
    fn percentiles_are_nearest_ranks() {
        let values: Vec<u64> = (1..=1000).collect();
        let exact = of_values(&values).unwrap();
        assert_eq!((exact.p50_ns, exact.p90_ns, exact.p99_ns, exact.p999_ns), (500, 900, 990, 999));
        assert_eq!((exact.min_ns, exact.max_ns, exact.mean_ns), (1, 1000, 500.5));
        let one = of_values(&[7]).unwrap();
        assert_eq!((one.p50_ns, one.p999_ns, one.jitter_ns), (7, 7, None));
        // Small values have a bucket each.
        let small = delays(&count(&[1, 2, 3, 4]), Some(1.5)).unwrap();
        assert_eq!((small.p50_ns, small.p90_ns, small.jitter_ns), (2, 4, Some(1.5)));
    }

    #[test]
    fn jitter_is_that_of_the_order() {
        // RFC 3550: J += (|D| - J) / 16.
        assert_eq!(of_values(&[16, 32, 16]).unwrap().jitter_ns, Some(1.0 + 15.0 / 16.0));
        assert_eq!(of_values(&[16, 16, 32]).unwrap().jitter_ns, Some(1.0));
    }

    #[test]
    fn beyond_the_longest_the_most_is_what_is_known() {
        let seen = delays(&count(&[5, 1 << 40]), None).unwrap();
        assert_eq!((seen.p50_ns, seen.p99_ns, seen.max_ns), (5, 1 << 40, 1 << 40));
    }

    proptest! {
        #[test]
        fn buckets_show_the_same_as_the_values(values in prop::collection::vec((0u32..33).prop_flat_map(|e| 0..2u64 << e), 1..300)) {
            let (exact, seen) = (of_values(&values).unwrap(), delays(&count(&values), None).unwrap());
            prop_assert_eq!((exact.samples, exact.min_ns, exact.max_ns), (seen.samples, seen.min_ns, seen.max_ns));
            for (exact, seen) in [(exact.p50_ns, seen.p50_ns), (exact.p90_ns, seen.p90_ns), (exact.p99_ns, seen.p99_ns), (exact.p999_ns, seen.p999_ns)] {
                prop_assert!(seen >= exact && seen as f64 <= exact as f64 * (1.0 + 1.0 / 64.0), "{} for {}", seen, exact);
            }
        }
    }
}
