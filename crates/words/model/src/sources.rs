//! The headline figures of the systems that this program takes as its sources: theirs, on their hardware.

use crate::{
    bench::PublishedRate,
    run::{SourceFigure, keys},
    sweep::Published,
};

/// Author and hardware of the LOAD figures.
pub const LOAD: &str =
    "Palchevsky, Khalikov 2016, DOI 10.15514/ISPRAS-2016-28(1)-6; 2 x Xeon 5660 (24 logical cores), Linux 4.5.2";

/// Author and hardware of the CAPTURE figures.
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

/// Author and hardware of the ROUTER figures.
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

/// Author and hardware of the CLUSTER figures.
pub const CLUSTER: &str = "Ahmed 2018, on his machines";

/// The published figures to lay beside a transfer.
pub fn cluster_figures() -> Vec<Published> {
    vec![Published {
        what: "900 MB over TCP, receive buffer (tcp_rmem) of at most 10 kB, then of 100 kB".into(),
        standard: "75 s".into(),
        optimised: "16 s".into(),
        citation: CLUSTER.into(),
    }]
}

/// Author and hardware of the FIREWALL figures.
pub const FIREWALL: &str = "pfSense on KVM, 2017, RFC 2544 at 0.1 % loss";

/// Mode, bytes of the frame with FCS, what it ran on, thousand frames per second, whether of one direction only.
const FIREWALL_RATES: [(&str, u32, &str, f64, bool); 8] = [
    ("router", 64, "bare metal", 629.0, false),
    ("router", 64, "passthrough (IOMMU)", 470.0, false),
    ("router", 64, "VirtIO", 85.0, true),
    ("router", 64, "E1000", 32.0, true),
    ("stateless", 256, "bare metal", 214.0, false),
    ("stateless", 256, "passthrough (IOMMU)", 168.0, false),
    ("stateless", 256, "VirtIO", 80.0, false),
    ("stateless", 256, "E1000", 48.0, false),
];

/// The published rates to lay beside a bench of a router or firewall.
pub fn firewall_rates() -> Vec<PublishedRate> {
    let rate = |&(mode, frame_bytes, on, kpps, per_direction): &(&str, u32, &str, f64, bool)| PublishedRate {
        mode: mode.into(),
        frame_bytes,
        platform: on.into(),
        pps: 1e3 * kpps,
        per_direction,
        citation: FIREWALL.into(),
    };
    FIREWALL_RATES.iter().map(rate).collect()
}

/// Cost of a noisy neighbour in the FIREWALL study.
pub fn neighbour_figures() -> Vec<Published> {
    vec![Published {
        what: "latency beside a neighbour: one CPU, one I/O and one 1 GB memory stressor in a guest of 2 vCPUs and 1280 MB".into(),
        standard: "idle box".into(),
        optimised: "+45 % idle, +20 % loaded; with 100 Mbit/s of 512-byte frames both ways +45 % loaded".into(),
        citation: FIREWALL.into(),
    }]
}

/// The share of the rate of small frames that a filter of 25 rules cost in the FIREWALL study: the least and the most.
pub const FIREWALL_FILTER_COST: (f64, f64) = (0.38, 0.40);

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

    #[test]
    fn the_firewalls_rates_fall_from_bare_metal_to_e1000() {
        for (mode, bytes) in [("router", 64), ("stateless", 256)] {
            let rates: Vec<f64> = firewall_rates()
                .iter()
                .filter(|r| r.mode == mode && r.frame_bytes == bytes)
                .map(|r| r.pps * if r.per_direction { 2.0 } else { 1.0 })
                .collect();
            assert!(rates.len() == 4 && rates.is_sorted_by(|a, b| a > b), "{rates:?}");
        }
    }
}
