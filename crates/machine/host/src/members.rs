//! The members of a fanout group on each CPU, computed from the topology.
//!
//! The rule is Table 3 of Palchevsky and Khalikov (2016): one member per logical CPU, and a second one on the first CPU,
//! on the last physical core and on the last logical CPU. Their 24 logical CPUs get 27 members.

use model::CpuSet;

use crate::picture::Cpu;

/// The CPUs that take part and the members of each, by ascending CPU. Offline and isolated CPUs get none.
///
/// The "last physical core" is the highest CPU that is the first thread of its core. Where two of the three places are
/// the same CPU (small machines, machines without SMT) that CPU still gets two members, not three.
pub fn fanout_members(cpus: &[Cpu]) -> Vec<(u32, u32)> {
    let usable: CpuSet = cpus.iter().filter(|c| c.online && !c.isolated).map(|c| c.id).collect();
    let first_threads: CpuSet = cpus
        .iter()
        .filter(|c| usable.contains(c.id))
        .filter(|c| c.siblings.intersection(&usable).first().is_none_or(|first| first == c.id))
        .map(|c| c.id)
        .collect();
    let doubled: CpuSet =
        [usable.first(), first_threads.iter().next_back(), usable.iter().next_back()].into_iter().flatten().collect();
    usable.iter().map(|cpu| (cpu, if doubled.contains(cpu) { 2 } else { 1 })).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// `threads` logical CPUs per core; the second threads are numbered after all first ones, as Linux does on x86.
    fn machine(cores: u32, threads: u32) -> Vec<Cpu> {
        (0..cores * threads)
            .map(|id| Cpu {
                id,
                package: 0,
                core: id % cores,
                siblings: (0..threads).map(|t| id % cores + t * cores).collect(),
                node: 0,
                online: true,
                isolated: false,
                capacity: crate::picture::FULL_CAPACITY,
            })
            .collect()
    }

    fn total(members: &[(u32, u32)]) -> u32 {
        members.iter().map(|m| m.1).sum()
    }

    #[test]
    fn the_sources_machine_gets_27_members() {
        let members = fanout_members(&machine(12, 2));
        assert_eq!(total(&members), 27);
        let doubled: Vec<u32> = members.iter().filter(|m| m.1 == 2).map(|m| m.0).collect();
        assert_eq!(doubled, [0, 11, 23]);
    }

    #[test]
    fn siblings_numbered_in_pairs_count_the_same() {
        let mut cpus = machine(12, 2);
        for c in &mut cpus {
            c.core = c.id / 2;
            c.siblings = CpuSet::from_iter([c.id & !1, c.id | 1]);
        }
        let doubled: Vec<u32> = fanout_members(&cpus).iter().filter(|m| m.1 == 2).map(|m| m.0).collect();
        assert_eq!(doubled, [0, 22, 23]);
    }

    #[test]
    fn small_machines() {
        assert_eq!(fanout_members(&machine(1, 1)), [(0, 2)]);
        assert_eq!(fanout_members(&machine(2, 1)), [(0, 2), (1, 2)]);
        assert_eq!(fanout_members(&machine(1, 2)), [(0, 2), (1, 2)]);
        assert_eq!(total(&fanout_members(&machine(8, 1))), 10);
        assert_eq!(fanout_members(&[]), []);
    }

    #[test]
    fn offline_and_isolated_cpus_get_none() {
        let mut cpus = machine(4, 2);
        cpus[0].online = false;
        cpus[7].isolated = true;
        let members = fanout_members(&cpus);
        assert!(members.iter().all(|m| m.0 != 0 && m.0 != 7));
        // CPU 4 is the first usable thread of core 0, so it is the last physical core here.
        assert_eq!(members, [(1, 2), (2, 1), (3, 1), (4, 2), (5, 1), (6, 2)]);
    }
}
