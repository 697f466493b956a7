//! The speed-up of N nodes that pay for their communication: the law, its fit to measured times, and what `evenkeel link speedup` measured.
//!
//! A step of work takes T(N) = p/N + s + q N² seconds on N nodes: p seconds can be divided, s cannot, and q N² is communication that
//! each node has with each. With k = p + s, a = s/k and n = q/k the speed-up k/T(N) is S(N) = N / ((1 - a) + a N + n N³). It is Amdahl's
//! law where n is 0.

mod fit;
mod run;

pub use fit::{FitError, Misfit, Times, between, fitted};
pub use run::{Estimate, Exchange, Fitting, Interval, LinkSpeedup, Point, SCHEMA, Series};

use serde::{Deserialize, Serialize};

/// The law of a speed-up.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct Law {
    /// The share of a step that cannot be divided, from 0 to 1.
    pub a: f64,
    /// The cost of communication: that of one node with one other, in steps of one node.
    pub n: f64,
}

impl Law {
    /// S(N): the steps of one node without communication that so many nodes do in the time of one.
    pub fn speedup(&self, nodes: f64) -> f64 {
        nodes / ((1.0 - self.a) + self.a * nodes + self.n * nodes.powi(3))
    }

    /// N_opt: the number of nodes beyond which a further one makes a step slower; none where communication costs nothing, and each node helps.
    pub fn best_nodes(&self) -> Option<f64> {
        (self.n > 0.0).then(|| ((1.0 - self.a) / (2.0 * self.n)).cbrt())
    }

    /// S_max: the speed-up of that many nodes, or what it goes towards if there is no such number; none where it has no bound.
    pub fn greatest(&self) -> Option<f64> {
        match self.best_nodes() {
            Some(best) if best > 0.0 => Some(1.0 / (self.a + 3.0 * (1.0 - self.a) / (2.0 * best))),
            // Nothing can be divided.
            Some(_) => Some(1.0),
            None => (self.a > 0.0).then(|| 1.0 / self.a),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn without_communication_it_is_the_law_of_amdahl() {
        let law = Law { a: 0.25, n: 0.0 };
        assert_eq!((law.speedup(1.0), law.best_nodes(), law.greatest()), (1.0, None, Some(4.0)));
        assert_eq!(Law { a: 0.0, n: 0.0 }.greatest(), None);
        assert_eq!(Law { a: 0.0, n: 0.0 }.speedup(7.0), 7.0);
    }

    #[test]
    fn the_greatest_speedup_is_that_of_the_best_number_of_nodes() {
        let law = Law { a: 0.1, n: 0.002 };
        let best = law.best_nodes().unwrap();
        assert!((law.speedup(best) - law.greatest().unwrap()).abs() < 1e-12);
        assert!(law.speedup(best) > law.speedup(best * 0.99) && law.speedup(best) > law.speedup(best * 1.01));
        assert!((law.speedup(1.0) - 1.0 / 1.002).abs() < 1e-12);
    }
}
