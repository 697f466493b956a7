//! The headline figures of the systems that this program takes as its sources: theirs, on their hardware.

use crate::{
    run::{SourceFigure, keys},
    sweep::Published,
};

/// Who published the LOAD figures, and on what they were measured.
pub const LOAD: &str =
    "Palchevsky, Khalikov 2016, DOI 10.15514/ISPRAS-2016-28(1)-6; 2 x Xeon 5660 (24 logical cores), Linux 4.5.2";

/// Who published the CAPTURE figures, and on what they were measured.
pub const CAPTURE: &str = "Odintsov 2015; i7-3820 (8 logical cores), 14.6 Mpps offered";

/// Stage, what they measured, lowest and highest value in million packets per second, citation.
const TABLE: [(&str, &str, f64, f64, &str); 7] = [
    (keys::PLAIN, "received with promiscuity alone", 4.0, 4.0, LOAD),
    (keys::PLAIN, "captured by a plain socket", 0.19, 0.22, CAPTURE),
    (keys::SPREAD, "received after IRQ spreading", 6.0, 6.0, LOAD),
    (keys::FANOUT, "captured with fanout", 2.25, 2.25, CAPTURE),
    (keys::RING, "captured by a ring", 3.6, 3.9, CAPTURE),
    (keys::RING_FANOUT, "received with ring + fanout", 10.0, 10.0, LOAD),
    (keys::RING_FANOUT, "captured with ring + fanout", 8.8, 9.6, CAPTURE),
];

/// The published figures to lay beside the stages of the demo.
pub fn figures() -> Vec<SourceFigure> {
    TABLE
        .iter()
        .map(|&(stage, label, low_mpps, high_mpps, citation)| SourceFigure {
            stage: stage.to_owned(),
            label: label.to_owned(),
            low_mpps,
            high_mpps,
            citation: citation.to_owned(),
        })
        .collect()
}

/// Who published the ROUTER figures, and on what they were measured.
pub const ROUTER: &str = "Orlova, Kovshun; Linux 2.6.21, e1000";

/// The published figures to lay beside a sweep of a router.
pub fn router_figures() -> Vec<Published> {
    let row = |what: &str, standard: &str, optimised: &str| Published {
        what: what.into(),
        standard: standard.into(),
        optimised: optimised.into(),
        citation: ROUTER.into(),
    };
    vec![
        row("packets forwarded per second at the smallest packet", "450 kpps", "660 kpps (+47 %)"),
        row("memory management, share of CPU time", "25 %", "below 1 %"),
    ]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_figure_is_a_range_with_its_citation() {
        for f in figures() {
            assert!(f.low_mpps > 0.0 && f.low_mpps <= f.high_mpps, "{f:?}");
            assert!(f.citation.contains("20"), "no year: {f:?}");
        }
    }
}
