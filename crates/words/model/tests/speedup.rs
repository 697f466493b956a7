//! The law of a speed-up against given figures, and its fit against times that follow from a law.

use model::speedup::{FitError, Law, Misfit, Times, between, fitted};
use proptest::prelude::*;

#[test]
fn the_law_gives_the_given_figures() {
    let rows = include_str!("data/speedup.csv").lines().filter(|l| !l.starts_with('#')).skip(1);
    let mut seen = 0;
    for row in rows {
        let cells: Vec<Option<f64>> = row.split(',').map(|cell| cell.parse().ok()).collect();
        let &[Some(a), Some(nodes), Some(n), Some(speedup), best, greatest] = cells.as_slice() else { panic!("{row}") };
        let law = Law { a, n };
        assert!((law.speedup(nodes) - speedup).abs() < 5e-4, "{row}: {}", law.speedup(nodes));
        assert_eq!(law.best_nodes().is_some(), best.is_some(), "{row}");
        if let (Some(best), Some(greatest)) = (best, greatest) {
            assert!((law.best_nodes().unwrap() - best).abs() < 5e-3, "{row}: {:?}", law.best_nodes());
            assert!((law.greatest().unwrap() - greatest).abs() < 5e-4, "{row}: {:?}", law.greatest());
        }
        seen += 1;
    }
    assert_eq!(seen, 3);
}

#[test]
fn two_numbers_of_nodes_are_too_few_and_no_time_is_zero() {
    assert_eq!(Times::least_squares(&[(1, 3.0), (2, 2.0), (2, 2.1)]), Err(FitError::Few(2)));
    for wrong in [(0, 1.0), (3, 0.0), (3, f64::NAN), (3, -1.0)] {
        assert_eq!(Times::least_squares(&[(1, 3.0), (2, 2.0), wrong]), Err(FitError::Value), "{wrong:?}");
    }
}

#[test]
fn times_that_no_law_has_are_refused_by_name() {
    let law = |[divided_s, serial_s, square_s]: [f64; 3]| {
        let times = Times { divided_s, serial_s, square_s };
        let points = [1, 2, 4, 8].map(|nodes| (nodes, 10.0 + times.seconds(nodes)));
        let fit = Times::least_squares(&points).unwrap();
        Times { serial_s: fit.serial_s - 10.0, ..fit }.law()
    };
    assert!(matches!(law([-1.0, 2.0, 0.1]), Err(Misfit::Divided(p)) if (p + 1.0).abs() < 1e-9));
    assert!(matches!(law([1.0, -0.5, 0.1]), Err(Misfit::Serial(s)) if (s + 0.5).abs() < 1e-9));
    assert!(matches!(law([1.0, 0.5, -0.01]), Err(Misfit::Square(q)) if (q + 0.01).abs() < 1e-9));
    let flat = law([1.0, 0.25, 0.0]).unwrap();
    assert!((flat.a - 0.2).abs() < 1e-9 && flat.n.abs() < 1e-9, "{flat:?}");
    assert!(law([-1.0, 2.0, 0.1]).unwrap_err().to_string().contains("-1000.000 ms of a step would be divided"));
}

/// Rounds around the times of a law: each is off by a part of `noise`, another one for each number of nodes.
fn rounds(times: Times, nodes: &[u32], noise: f64) -> Vec<Vec<f64>> {
    let off = |round: usize, at: usize| noise * (((round * 7 + at * 5) % 11) as f64 / 5.0 - 1.0);
    let time = |round: usize, (at, &nodes): (usize, &u32)| times.seconds(nodes) * (1.0 + off(round, at));
    (0..15).map(|round| nodes.iter().enumerate().map(|which| time(round, which)).collect()).collect()
}

proptest! {
    #[test]
    fn the_fit_finds_the_law_of_exact_times(
        a in 0.0f64..0.9,
        n in 0.0f64..0.05,
        step in 1e-4f64..10.0,
        nodes in prop::collection::btree_set(1u32..=8, 3..=8),
    ) {
        let times = Times { divided_s: step * (1.0 - a), serial_s: step * a, square_s: step * n };
        let nodes: Vec<u32> = nodes.into_iter().collect();
        let points: Vec<(u32, f64)> = nodes.iter().map(|&nodes| (nodes, times.seconds(nodes))).collect();
        let found = Times::least_squares(&points).unwrap();
        let shares = found.shares();
        prop_assert!((shares.a - a).abs() < 1e-6 && (shares.n - n).abs() < 1e-6, "{shares:?}");
        prop_assert!((found.alone_s() / step - 1.0).abs() < 1e-6);
        for &(nodes, seconds) in &points {
            prop_assert!((found.seconds(nodes) / seconds - 1.0).abs() < 1e-7);
        }
    }

}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(24))]
    #[test]
    fn noise_widens_the_interval(a in 0.02f64..0.5, n in 1e-4f64..0.01, noise in 0.002f64..0.02) {
        let times = Times { divided_s: 1.0 - a, serial_s: a, square_s: n };
        let nodes = [1, 2, 3, 4, 6, 8];
        let width = |noise| {
            let found = between(&nodes, &rounds(times, &nodes, noise)).unwrap();
            (found.a.high - found.a.low, found.n.high - found.n.low)
        };
        let [none, some, more] = [0.0, noise, 4.0 * noise].map(width);
        prop_assert!(none.0 < 1e-9 && none.1 < 1e-9, "{none:?}");
        prop_assert!(none.0 < some.0 && some.0 < more.0, "{some:?} {more:?}");
        prop_assert!(none.1 < some.1 && some.1 < more.1, "{some:?} {more:?}");
    }
}

#[test]
fn an_interval_holds_the_law_and_says_where_it_has_no_bound() {
    let nodes = [1, 2, 3, 4, 5, 6, 7, 8];
    let times = Times { divided_s: 0.9, serial_s: 0.1, square_s: 0.001 };
    let noisy = rounds(times, &nodes, 0.01);
    let law = fitted(&nodes, &noisy).unwrap().law().unwrap();
    let found = between(&nodes, &noisy).unwrap();
    assert!(found.a.low < law.a && law.a < found.a.high, "{found:?} {law:?}");
    assert!(found.n.low < law.n && law.n < found.n.high, "{found:?} {law:?}");
    assert!(found.best_nodes.low.unwrap() < law.best_nodes().unwrap());
    assert_eq!((found.draws, found.fit), (1000, 1000));
    assert_eq!(found, between(&nodes, &noisy).unwrap(), "the same rounds, the same interval");

    let free = Times { square_s: 0.0, ..times };
    let found = between(&nodes, &rounds(free, &nodes, 0.01)).unwrap();
    assert!(found.n.low < 0.0 && 0.0 < found.n.high, "{found:?}");
    assert!(found.best_nodes.low.is_some() && found.best_nodes.high.is_none(), "{found:?}");
    assert!(0 < found.fit && found.fit < 1000, "{found:?}");
}
