//! Decisions of the programs in shadow, compared with the kernel's.

use std::time::Duration;

use bpf::{RouteEgress, RouteEgressWatch, RoutePort, RouteSample, RouteTables};
use model::route::ShadowResult;
use nix::time::{ClockId, clock_gettime};

use crate::{RouteError, evidence::Evidence};

/// A frame that the kernel has not sent so long after it came is one that it does not send.
const SENT_TIMEOUT: Duration = Duration::from_millis(300);
/// Differing frames that are kept to be shown.
const EXAMPLES_MAX: usize = 16;

/// The comparison that runs in mode shadow.
#[derive(Debug, Default)]
pub(crate) struct Shadow {
    /// Programs that see what the kernel sends out of each port.
    watches: Vec<RouteEgressWatch>,
    result: ShadowResult,
}

impl Shadow {
    /// Begins a comparison, unless one runs.
    pub(crate) fn begin(&mut self, ports: &[RoutePort], tables: &RouteTables) -> Result<(), RouteError> {
        if !self.watches.is_empty() {
            return Ok(());
        }
        // Frames that an earlier shadow wrote down at its end are none of this one's.
        tables.take_samples(u64::MAX)?;
        self.result = ShadowResult::default();
        let attach = |port: &RoutePort| RouteEgressWatch::attach(tables, port.slot().interface());
        self.watches = ports.iter().map(attach).collect::<Result<_, _>>()?;
        Ok(())
    }

    pub(crate) fn end(&mut self) {
        self.watches.clear();
    }

    /// Takes the frames that have been compared since.
    pub(crate) fn compare(&mut self, evidence: &Evidence, tables: &RouteTables) -> Result<&ShadowResult, RouteError> {
        for sample in tables.take_samples(now_ns().saturating_sub(SENT_TIMEOUT.as_nanos() as u64))? {
            add(&mut self.result, &sample, |index| match evidence.links.get(&index) {
                Some(link) => link.name.clone(),
                None => format!("interface {index}"),
            });
        }
        Ok(&self.result)
    }

    /// The result so far; none: nothing was compared.
    pub(crate) fn result(&self) -> Option<ShadowResult> {
        (self.result.compared() > 0).then(|| self.result.clone())
    }
}

/// CLOCK_MONOTONIC.
pub(crate) fn now_ns() -> u64 {
    clock_gettime(ClockId::CLOCK_MONOTONIC).map_or(0, |now| now.tv_sec() as u64 * 1_000_000_000 + now.tv_nsec() as u64)
}

/// Difference between a frame's two ways.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Difference {
    /// Out of another port, or in another VLAN.
    Output,
    /// Another MAC address, of the sender or the receiver.
    Macs,
    /// Another hop limit.
    HopLimit,
    /// The kernel did not send it by any port: dropped, or kept for itself.
    NotSent,
}

/// Adds a frame to the result. `name` gives an interface's name by its index.
fn add(result: &mut ShadowResult, sample: &RouteSample, name: impl Fn(u32) -> String) {
    let Some(difference) = difference(sample) else {
        result.same += 1;
        return;
    };
    *match difference {
        Difference::Output => &mut result.output,
        Difference::Macs => &mut result.macs,
        Difference::HopLimit => &mut result.hop_limit,
        Difference::NotSent => &mut result.not_sent,
    } += 1;
    if result.examples.len() < EXAMPLES_MAX {
        result.examples.push(words(sample, name));
    }
}

/// The frame's ways and first bytes, in words.
fn words(sample: &RouteSample, name: impl Fn(u32) -> String) -> String {
    let egress = |l: &RouteEgress| {
        let tag = l.tag.map_or_else(String::new, |tag| format!(" VLAN {tag}"));
        format!("{}{tag} to {} from {}, hop limit {}", name(l.ifindex), mac(l.to), mac(l.from), l.hop_limit)
    };
    let kernel = sample.kernel.as_ref().map_or_else(|| "not sent by a port".to_owned(), egress);
    let bytes: String = sample.head.iter().map(|byte| format!("{byte:02x}")).collect();
    format!(
        "{} bytes by {}: the fast path {}; the kernel {kernel}; {bytes}",
        sample.len,
        name(sample.in_ifindex),
        egress(&sample.own)
    )
}

fn mac(bytes: [u8; 6]) -> String {
    bytes.map(|byte| format!("{byte:02x}")).join(":")
}

/// Difference between the two ways of a frame; none: they are equal.
fn difference(sample: &RouteSample) -> Option<Difference> {
    let Some(kernel) = sample.kernel else { return Some(Difference::NotSent) };
    let port = |l: &RouteEgress| (l.ifindex, l.tag);
    let macs = |l: &RouteEgress| (l.to, l.from);
    if port(&kernel) != port(&sample.own) {
        Some(Difference::Output)
    } else if macs(&kernel) != macs(&sample.own) {
        Some(Difference::Macs)
    } else if kernel.hop_limit != sample.own.hop_limit {
        Some(Difference::HopLimit)
    } else {
        None
    }
}
