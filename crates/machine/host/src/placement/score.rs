//! The worth of a layout, to tell whether another one would be better.

use model::CpuSet;

use super::cores::Cores;

/// Figures of a NIC in a layout.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Part {
    cpus: u32,
    physical: u32,
    /// The distances from the NIC's node, summed over its queues.
    distance: u64,
    /// The capacities of the CPUs, summed over its queues.
    capacity: u64,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Score {
    /// The sum of the squares of the CPUs' numbers of queues: the smaller, the more even.
    squares: u64,
    parts: Vec<Part>,
}

impl Score {
    /// The score of the CPUs of each NIC's queues. `cores` knows the other load of the CPUs.
    pub(super) fn of(cores: &Cores<'_>, nics: &[(Option<u32>, Vec<u32>)]) -> Self {
        let mut load = cores.load.clone();
        for cpu in nics.iter().flat_map(|(_, cpus)| cpus) {
            if let Some(load) = load.get_mut(cpu) {
                *load += 1;
            }
        }
        let part = |(node, cpus): &(Option<u32>, Vec<u32>)| {
            let set: CpuSet = cpus.iter().copied().collect();
            let each = || cpus.iter().filter_map(|&id| cores.cpu(id));
            Part {
                cpus: set.len() as u32,
                physical: cores.physical(&set),
                distance: each().map(|c| u64::from(cores.distance(c, *node))).sum(),
                capacity: each().map(|c| u64::from(c.capacity)).sum(),
            }
        };
        Self {
            squares: load.values().map(|&n| u64::from(n) * u64::from(n)).sum(),
            parts: nics.iter().map(part).collect(),
        }
    }

    /// True if nothing about it is worse than about the other.
    pub(super) fn is_as_good_as(&self, other: &Self) -> bool {
        let part = |(one, other): (&Part, &Part)| {
            one.cpus >= other.cpus
                && one.physical >= other.physical
                && one.distance <= other.distance
                && one.capacity >= other.capacity
        };
        self.squares <= other.squares && self.parts.iter().zip(&other.parts).all(part)
    }
}
