//! Limits outside the kernel: what [`crate::reference`] and [`crate::compile::lookup`] ask whether a packet exceeds one.
//!
//! As in the kernel program, a bucket is one number, the time at which it will be full again (the generic cell rate algorithm, ITU-T
//! I.371).

use std::{collections::HashMap, net::IpAddr};

use crate::rule::{Action, Limit, Rule};

/// Buckets of sources that are kept; with more, those that are full are forgotten, and if none is, all.
const SOURCES_MAX: usize = 1 << 20;

/// The buckets of one set of rules.
#[derive(Debug, Clone, Default)]
pub struct Limits {
    limits: Vec<Option<Limit>>,
    /// The time at which each rule's bucket is full again, in nanoseconds of the caller's clock.
    full_at: Vec<u64>,
    sources: HashMap<(usize, IpAddr), u64>,
}

impl Limits {
    /// Full buckets for these rules.
    pub fn new(rules: &[Rule]) -> Self {
        let limit = |rule: &Rule| match rule.action {
            Action::Limit(limit) => Some(limit),
            _ => None,
        };
        Self { limits: rules.iter().map(limit).collect(), full_at: vec![0; rules.len()], sources: HashMap::new() }
    }

    /// Takes a packet of this source out of the rule's bucket; true: it exceeds the limit, and nothing was taken.
    ///
    /// `now_ns` is any clock that runs forward.
    pub fn exceeds(&mut self, rule: usize, source: IpAddr, now_ns: u64) -> bool {
        let Some(limit) = self.limits.get(rule).copied().flatten() else {
            return false;
        };
        let Some((v4, v6)) = limit.per_source else {
            return !take(&mut self.full_at[rule], limit, now_ns);
        };
        if self.sources.len() >= SOURCES_MAX {
            self.sources.retain(|_, full_at| *full_at > now_ns);
            if self.sources.len() >= SOURCES_MAX {
                self.sources.clear();
            }
        }
        let prefix = match source {
            IpAddr::V4(a) => {
                IpAddr::V4((a.to_bits() & u32::MAX.checked_shl(32u32.saturating_sub(v4.into())).unwrap_or(0)).into())
            }
            IpAddr::V6(a) => {
                IpAddr::V6((a.to_bits() & u128::MAX.checked_shl(128u32.saturating_sub(v6.into())).unwrap_or(0)).into())
            }
        };
        !take(self.sources.entry((rule, prefix)).or_default(), limit, now_ns)
    }
}

fn take(full_at: &mut u64, limit: Limit, now_ns: u64) -> bool {
    // What a rate of nothing lets pass in a hundred years is not waited for.
    let interval = 1_000_000_000u64.checked_div(limit.pps).unwrap_or(u64::MAX >> 1);
    let next = (*full_at).max(now_ns);
    if next - now_ns > interval.saturating_mul(limit.burst.saturating_sub(1)) {
        return false;
    }
    *full_at = next.saturating_add(interval);
    true
}

#[cfg(test)]
mod tests {
    use super::*;

    fn limits(pps: u64, burst: u64, per_source: Option<(u8, u8)>) -> Limits {
        let action = Action::Limit(Limit { pps, burst, per_source });
        Limits::new(&[Rule::default(), Rule { action, ..Rule::default() }])
    }

    #[test]
    fn a_burst_and_then_the_rate() {
        let mut limits = limits(100, 5, None);
        let any: IpAddr = "192.0.2.1".parse().unwrap();
        let within = |limits: &mut Limits, ns| (0..20).filter(|_| !limits.exceeds(1, any, ns)).count();
        assert_eq!(within(&mut limits, 1_000_000_000), 5);
        assert_eq!(within(&mut limits, 1_000_000_000), 0);
        assert_eq!(within(&mut limits, 1_030_000_000), 3);
        assert_eq!(within(&mut limits, 9_000_000_000), 5);
        assert!(!limits.exceeds(0, any, 0), "no limit");
    }

    #[test]
    fn each_source_prefix_by_itself() {
        let mut limits = limits(1, 1, Some((24, 64)));
        let mut exceeds = |address: &str| limits.exceeds(1, address.parse().unwrap(), 5);
        assert!(!exceeds("192.0.2.1"));
        assert!(exceeds("192.0.2.255"));
        assert!(!exceeds("192.0.3.1"));
        assert!(!exceeds("2001:2::1"));
        assert!(exceeds("2001:2::ffff:0:0:1"));
        assert!(!exceeds("2001:2:0:1::1"));
    }
}
