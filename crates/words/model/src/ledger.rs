//! The loss ledger: packets offered = delivered + each named loss + unexplained.

use serde::{Deserialize, Serialize};

/// Packets lost at one named place.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Loss {
    /// The station and the counter, such as `socket queue full (tp_drops)`.
    pub place: String,
    pub packets: u64,
}

/// The ways of the packets of one interval.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct Ledger {
    /// Packets that were offered, from the counter named in `offered_by`.
    pub offered: u64,
    /// The counter that `offered` was read from.
    pub offered_by: String,
    /// Packets that reached their reader.
    pub delivered: u64,
    /// Each place that lost packets, in the order in which a packet meets them.
    pub losses: Vec<Loss>,
}

impl Ledger {
    /// Packets lost at all named places together.
    pub fn lost(&self) -> u64 {
        self.losses.iter().map(|l| l.packets).sum()
    }

    /// Offered packets that no counter explains. Negative when the counters explain more packets than were offered.
    pub fn unexplained(&self) -> i64 {
        let explained = i128::from(self.delivered) + self.losses.iter().map(|l| i128::from(l.packets)).sum::<i128>();
        i64::try_from(i128::from(self.offered) - explained).unwrap_or(i64::MIN)
    }

    /// The unexplained part as a share of the offered packets, by its absolute value. 0 when nothing was offered.
    pub fn unexplained_ratio(&self) -> f64 {
        if self.offered == 0 { 0.0 } else { self.unexplained().unsigned_abs() as f64 / self.offered as f64 }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ledger(offered: u64, delivered: u64, lost: &[u64]) -> Ledger {
        let losses = lost.iter().map(|&packets| Loss { place: "here".into(), packets }).collect();
        Ledger { offered, offered_by: "test".into(), delivered, losses }
    }

    #[test]
    fn a_ledger_closes_when_its_parts_add_up() {
        assert_eq!(ledger(100, 60, &[30, 10]).unexplained(), 0);
        assert_eq!(ledger(100, 60, &[30]).unexplained(), 10);
        assert!((ledger(100, 60, &[30]).unexplained_ratio() - 0.1).abs() < 1e-12);
    }

    #[test]
    fn double_counting_shows_as_a_negative_rest() {
        let l = ledger(100, 90, &[20]);
        assert_eq!(l.unexplained(), -10);
        assert!((l.unexplained_ratio() - 0.1).abs() < 1e-12);
        assert_eq!(ledger(0, 0, &[]).unexplained_ratio(), 0.0);
    }
}
