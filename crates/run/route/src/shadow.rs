//! What the programs would have done, held against what the kernel did.

use bpf::{RouteLeaving, RouteSample};
use model::route::ShadowResult;

/// How a frame's two ways differ.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Difference {
    /// Out of another port, or in another VLAN.
    Way,
    /// To or from another address on the link.
    Macs,
    /// With other hops left.
    HopLimit,
    /// The kernel did not send it by any port: dropped, or kept for itself.
    NotSent,
}

/// Differing frames that are kept to be shown.
const EXAMPLES: usize = 16;

/// Adds a frame to the result. `name` gives an interface's name by its index.
pub(crate) fn add(result: &mut ShadowResult, sample: &RouteSample, name: impl Fn(u32) -> String) {
    let Some(difference) = difference(sample) else {
        result.same += 1;
        return;
    };
    *match difference {
        Difference::Way => &mut result.way,
        Difference::Macs => &mut result.macs,
        Difference::HopLimit => &mut result.hop_limit,
        Difference::NotSent => &mut result.not_sent,
    } += 1;
    if result.examples.len() < EXAMPLES {
        result.examples.push(words(sample, name));
    }
}

/// Both ways of a frame, and its first bytes.
fn words(sample: &RouteSample, name: impl Fn(u32) -> String) -> String {
    let leaving = |l: &RouteLeaving| {
        let tag = l.tag.map_or_else(String::new, |tag| format!(" VLAN {tag}"));
        format!("{}{tag} to {} from {}, hop limit {}", name(l.ifindex), mac(l.to), mac(l.from), l.hop_limit)
    };
    let kernel = sample.kernel.as_ref().map_or_else(|| "not sent by a port".to_owned(), leaving);
    let bytes: String = sample.head.iter().map(|byte| format!("{byte:02x}")).collect();
    format!(
        "{} bytes by {}: the fast path {}; the kernel {kernel}; {bytes}",
        sample.len,
        name(sample.in_ifindex),
        leaving(&sample.own)
    )
}

fn mac(bytes: [u8; 6]) -> String {
    bytes.map(|byte| format!("{byte:02x}")).join(":")
}

/// How the two ways of a frame differ; none: they do not.
pub(crate) fn difference(sample: &RouteSample) -> Option<Difference> {
    let Some(kernel) = sample.kernel else { return Some(Difference::NotSent) };
    let way = |l: &RouteLeaving| (l.ifindex, l.tag);
    let macs = |l: &RouteLeaving| (l.to, l.from);
    if way(&kernel) != way(&sample.own) {
        Some(Difference::Way)
    } else if macs(&kernel) != macs(&sample.own) {
        Some(Difference::Macs)
    } else if kernel.hop_limit != sample.own.hop_limit {
        Some(Difference::HopLimit)
    } else {
        None
    }
}
