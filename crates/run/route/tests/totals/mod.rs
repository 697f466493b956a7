//! Counters of a router.

use model::route::RouteTotals;
use route::Router;

/// Counters of all ports.
pub(crate) fn totals(router: &Router) -> RouteTotals {
    let mut sum = RouteTotals::default();
    router.counts().unwrap().iter().for_each(|(_, counts)| sum += *counts);
    sum
}
