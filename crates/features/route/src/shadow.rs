//! What the programs would have done, held against what the kernel did.

use bpf::{RouteLeaving, RouteSample};

/// How a frame's two ways differ.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Difference {
    /// Out of another port, or in another VLAN.
    Way,
    /// To or from another address on the link.
    Macs,
    /// With other hops left.
    HopLimit,
    /// The kernel did not send it by any port: dropped, or kept for itself.
    NotSent,
}

/// What the comparison found so far.
#[derive(Debug, Clone, Default)]
pub struct Comparison {
    /// Frames that left the same way.
    pub same: u64,
    /// Frames that did not, by [`Difference`].
    pub way: u64,
    /// As there.
    pub macs: u64,
    /// As there.
    pub hop_limit: u64,
    /// As there.
    pub not_sent: u64,
    /// The first of them.
    pub examples: Vec<(Difference, RouteSample)>,
}

/// Differing frames that are kept to be shown.
const EXAMPLES: usize = 16;

impl Comparison {
    /// With another frame.
    pub fn add(&mut self, sample: RouteSample) {
        let Some(difference) = difference(&sample) else {
            self.same += 1;
            return;
        };
        *match difference {
            Difference::Way => &mut self.way,
            Difference::Macs => &mut self.macs,
            Difference::HopLimit => &mut self.hop_limit,
            Difference::NotSent => &mut self.not_sent,
        } += 1;
        if self.examples.len() < EXAMPLES {
            self.examples.push((difference, sample));
        }
    }

    /// Frames that were sent in another way than the kernel's.
    pub fn wrong(&self) -> u64 {
        self.way + self.macs + self.hop_limit
    }

    /// Frames compared.
    pub fn compared(&self) -> u64 {
        self.same + self.wrong() + self.not_sent
    }
}

/// How the two ways of a frame differ; none: they do not.
pub fn difference(sample: &RouteSample) -> Option<Difference> {
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
