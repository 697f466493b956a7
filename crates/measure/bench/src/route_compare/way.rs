//! A way to forward: before anything is known of it, and the medians of all its rounds.

use model::{
    route_compare::{Allocations, Configuration},
    sweep::Setup,
};
use rig::repeat::{median, median_by, middle};

use super::plan::WayId;

/// A way of which nothing is known yet.
pub(super) fn empty(id: WayId) -> Configuration {
    Configuration {
        mode: id.forwarding.key().into(),
        cores: id.cores,
        setup: Setup { key: format!("{}-{}", id.forwarding.key(), id.cores), name: id.to_string(), ..Setup::default() },
        ..Configuration::default()
    }
}

/// The medians of all rounds.
pub(super) fn summed_up(mut way: Configuration) -> Configuration {
    let rounds = &way.rounds;
    let latencies = || rounds.iter().filter_map(|r| r.latency.as_ref());
    let delays = || latencies().filter_map(|l| l.one_way[0]);
    way.round_trip_ns = median(latencies().filter_map(|l| l.round_trip_ns));
    way.delay_p50_ns = median(delays().map(|d| d.p50_ns as f64));
    way.delay_p99_ns = median(delays().map(|d| d.p99_ns as f64));
    let beside = || rounds.iter().filter_map(|r| r.latency_at_reference.as_ref()?.one_way[0]);
    way.reference_p50_ns = median(beside().map(|d| d.p50_ns as f64));
    way.reference_p99_ns = median(beside().map(|d| d.p99_ns as f64));
    let counted: Vec<_> = rounds.iter().filter_map(|r| r.allocations).collect();
    let of = |part: fn(&Allocations) -> f64| median(counted.iter().map(part));
    if let (Some(pages), Some(pool_pages), Some(socket_buffers)) =
        (of(|a| a.pages), of(|a| a.pool_pages), of(|a| a.socket_buffers))
    {
        let packets = counted.iter().map(|a| a.packets).sum();
        way.allocations = Some(Allocations { packets, pages, pool_pages, socket_buffers });
    }
    let setup = &mut way.setup;
    setup.ceiling_pps = middle(setup.ceilings_pps.iter().copied());
    // The figure of the headline is in the table.
    setup.steps.extend(median_by(setup.at_ceiling.clone(), |step| step.loss_ratio));
    setup.steps.sort_by(|a, b| a.intended_pps.total_cmp(&b.intended_pps));
    way
}
