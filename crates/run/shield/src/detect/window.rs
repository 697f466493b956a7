//! Counters of each protected prefix over one window of time.

use std::time::Duration;

pub use model::PrefixCounts as Counts;
use model::shield_event::Measure;
use rules::packet::Packet;

/// Counters of a window.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct Window {
    /// Since the last look.
    pub time: Duration,
    /// Counts by the number of the protected prefix.
    pub prefixes: Vec<Counts>,
    /// Packets that were picked at random, with the number of their prefix.
    pub samples: Vec<(usize, Packet)>,
    /// Packets that the rules of mitigations applied to since the last look, by name; of a limit what exceeded it. In shadow, what
    /// would have been so.
    pub applied: Vec<(String, u64)>,
    /// Rules of mitigations that were given before do not hold yet.
    pub pending: bool,
    /// Packets of the interface, to protected prefixes or not.
    pub packets: u64,
    /// The packets per second that the machine takes in with the CPU time that it may spend; none: it is far from that.
    pub ceiling: Option<f64>,
}

/// Rates per second in the order of [`Measure::ALL`].
#[derive(Debug, Clone, Copy, PartialEq, Default)]
pub struct Rates(pub [f64; Measure::ALL.len()]);

impl Rates {
    /// Rates of what arrived within `time`.
    pub fn of(counts: &Counts, time: Duration) -> Self {
        let seconds = time.as_secs_f64().max(1e-3);
        Self(Measure::ALL.map(|m| counts.measure(m) as f64 / seconds))
    }

    pub fn get(&self, measure: Measure) -> f64 {
        self.0[measure as usize]
    }
}
