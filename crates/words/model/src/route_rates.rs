//! Rates of a router's fast path in an interval.

use serde::{Deserialize, Serialize};

use crate::{
    counters::{Counter, Row},
    route::{RoutePort, RouteStatus, RouteTotals},
};

/// Counters of an interface: all of its frames, whoever forwarded them.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct PortCounters {
    pub rx_packets: u64,
    pub rx_bytes: u64,
    pub tx_packets: u64,
    pub tx_bytes: u64,
}

#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
pub struct PortRates {
    pub interface: String,
    pub rx_pps: f64,
    pub rx_bps: f64,
    pub tx_pps: f64,
    pub tx_bps: f64,
    /// Frames that came in here and were forwarded by the fast path.
    pub forwarded_pps: f64,
    /// Frames that came in here and went up to the kernel.
    pub slow_path_pps: f64,
    /// Forwarded ones for which the kernel was asked.
    pub fib_lookup_pps: f64,
}

impl PortRates {
    /// The share that the fast path forwarded of what it saw; none: it saw nothing.
    pub fn forwarded_share(&self) -> Option<f64> {
        share(self.forwarded_pps, self.forwarded_pps + self.slow_path_pps)
    }

    /// The share of the forwarded frames for which the kernel was asked; none: none was forwarded.
    pub fn looked_up_share(&self) -> Option<f64> {
        share(self.fib_lookup_pps, self.forwarded_pps)
    }
}

/// Frames that went up to the kernel for one reason, over all ports.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
pub struct ReasonRate {
    /// The counter's name: `no_neighbour`.
    pub reason: String,
    pub what: String,
    /// Frames per second in the interval.
    pub pps: f64,
    pub packets: u64,
}

/// All ports in an interval.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
pub struct RouteRates {
    /// Length of the interval in seconds.
    pub interval_s: f64,
    pub ports: Vec<PortRates>,
    /// The reasons for which any frame went up since the start, the largest rate first.
    pub reasons: Vec<ReasonRate>,
}

impl RouteRates {
    /// Rates of the `seconds` between two moments of a router.
    pub fn between(before: &RouteStatus, now: &RouteStatus, seconds: f64) -> Self {
        let rate = |before: u64, now: u64| now.saturating_sub(before) as f64 / seconds.max(1e-3);
        let port = |port: &RoutePort| {
            let earlier = before.ports.iter().find(|earlier| earlier.interface == port.interface);
            let earlier = earlier.unwrap_or(port);
            let of = |get: fn(&RoutePort) -> u64| rate(get(earlier), get(port));
            PortRates {
                interface: port.interface.clone(),
                rx_pps: of(|p| p.counters.rx_packets),
                rx_bps: of(|p| p.counters.rx_bytes) * 8.0,
                tx_pps: of(|p| p.counters.tx_packets),
                tx_bps: of(|p| p.counters.tx_bytes) * 8.0,
                forwarded_pps: of(|p| p.totals.forwarded),
                slow_path_pps: of(|p| p.totals.up()),
                fib_lookup_pps: of(|p| p.totals.fib_lookups),
            }
        };
        let (all, earlier) = (now.totals(), before.totals());
        let reason = |counter: &Counter<RouteTotals>| {
            counter.label?;
            let (Row::Always(what) | Row::IfAny(what)) = counter.row else { return None };
            let packets = (counter.get)(&all);
            let (reason, what) = (counter.name.to_owned(), what.to_owned());
            (packets > 0).then(|| ReasonRate { reason, what, pps: rate((counter.get)(&earlier), packets), packets })
        };
        let mut reasons: Vec<ReasonRate> = RouteTotals::COUNTERS.iter().filter_map(reason).collect();
        reasons.sort_by(|a, b| b.pps.total_cmp(&a.pps).then(b.packets.cmp(&a.packets)));
        Self { interval_s: seconds, ports: now.ports.iter().map(port).collect(), reasons }
    }

    /// All ports together; the interface's name is empty.
    pub fn sum(&self) -> PortRates {
        let add = |sum: PortRates, port: &PortRates| PortRates {
            interface: String::new(),
            rx_pps: sum.rx_pps + port.rx_pps,
            rx_bps: sum.rx_bps + port.rx_bps,
            tx_pps: sum.tx_pps + port.tx_pps,
            tx_bps: sum.tx_bps + port.tx_bps,
            forwarded_pps: sum.forwarded_pps + port.forwarded_pps,
            slow_path_pps: sum.slow_path_pps + port.slow_path_pps,
            fib_lookup_pps: sum.fib_lookup_pps + port.fib_lookup_pps,
        };
        self.ports.iter().fold(PortRates::default(), add)
    }
}

fn share(part: f64, whole: f64) -> Option<f64> {
    (whole > 0.0).then(|| part / whole)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn status(forwarded: u64, not_ip: u64, no_neighbour: u64) -> RouteStatus {
        let totals = RouteTotals { forwarded, not_ip, no_neighbour, ..RouteTotals::default() };
        let counters = PortCounters { rx_packets: forwarded + not_ip + no_neighbour, ..PortCounters::default() };
        let port = RoutePort {
            interface: "eth0".into(),
            xdp: "native".into(),
            can_transmit: true,
            reattached: 0,
            totals,
            counters,
            lost: None,
            cpus: Vec::new(),
        };
        RouteStatus { ports: vec![port], ..RouteStatus::default() }
    }

    #[test]
    fn rates_and_shares_of_an_interval_with_the_largest_reason_first() {
        let rates = RouteRates::between(&status(100, 7, 0), &status(250, 9, 48), 2.0);
        let port = &rates.ports[0];
        assert_eq!((port.forwarded_pps, port.slow_path_pps, port.rx_pps), (75.0, 25.0, 100.0));
        assert_eq!((port.forwarded_share(), port.looked_up_share()), (Some(0.75), Some(0.0)));
        let reasons: Vec<_> = rates.reasons.iter().map(|r| (r.reason.as_str(), r.pps, r.packets)).collect();
        assert_eq!(reasons, [("no_neighbour", 24.0, 48), ("not_ip", 1.0, 9)]);
        assert_eq!(RouteRates::between(&status(1, 0, 0), &status(1, 0, 0), 1.0).sum().forwarded_share(), None);
    }
}
