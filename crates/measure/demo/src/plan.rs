//! The stages, and the cores of each: pure.

use host::picture::Cpu;
use model::{
    CpuSet,
    run::{Arrangement, Sharing, keys},
};
use rig::{
    cores::role,
    receive::{Backend, Sources},
};
use sys::packet::FanoutAlgorithm;

/// From this many cores on the generator gets cores of its own.
const CORES_FOR_APART: usize = 4;

/// The 256 KiB blocks of each ring.
const RING_BLOCKS: u32 = 128;

#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct StagePlan {
    /// The key (see [`keys`]).
    pub key: &'static str,
    pub name: &'static str,
    /// A description, in a sentence.
    pub what: &'static str,
    /// The backend as `evenkeel capture --backend` calls it.
    pub mode: &'static str,
    pub backend: Backend,
    /// The CPU of the NAPI thread of each receive queue.
    pub queue_cpus: Vec<u32>,
    pub reader_cpus: Vec<u32>,
}

impl StagePlan {
    pub(crate) fn sources(&self) -> Sources {
        let (backend, members) = (self.backend, self.reader_cpus.len());
        Sources { backend, members, fanout: FanoutAlgorithm::Cpu, ring_blocks: RING_BLOCKS }
    }
}

/// The names of the stages on these CPUs, in their order.
pub fn stage_names(usable: &CpuSet, topology: &[Cpu]) -> Vec<&'static str> {
    DemoCores::split(usable, topology).stages().iter().map(|stage| stage.name).collect()
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct DemoCores {
    pub senders: Vec<u32>,
    pub receivers: Vec<u32>,
    /// True if these are the same cores.
    pub sharing: Sharing,
}

impl DemoCores {
    /// Splits the usable CPUs between generator and receivers: apart on whole physical cores when there are at least four, else
    /// all CPUs for both.
    ///
    /// On a veth, a sender's frames go to the receive queue with the number of its own CPU, modulo the number of queues
    /// (drivers/net/veth.c, veth_xdp_xmit), and fanout by CPU chooses a member in the same way. So senders and receivers are
    /// chosen such that each has a queue and a member of its own: their numbers differ modulo their count. Of each physical core only
    /// one thread sends or receives.
    pub(crate) fn split(usable: &CpuSet, topology: &[Cpu]) -> Self {
        let cores = one_thread_per_core(usable, topology);
        if cores.len() < CORES_FOR_APART {
            let all: Vec<u32> = usable.iter().collect();
            let both = (1..=all.len()).rev().find_map(|count| apart_modulo(&all, count)).unwrap_or_default();
            return Self { senders: both.clone(), receivers: both, sharing: Sharing::Inline };
        }
        let split = |count: usize| {
            let senders = apart_modulo(&cores, count)?;
            let rest: Vec<u32> = cores.iter().copied().filter(|c| !senders.contains(c)).collect();
            Some((senders, apart_modulo(&rest, count)?))
        };
        let (senders, receivers) = (1..=cores.len() / 2).rev().find_map(split).unwrap_or_default();
        Self { senders, receivers, sharing: Sharing::Apart }
    }

    /// The arrangement of the cores in `stage`.
    pub(crate) fn arrangement(&self, stage: &StagePlan) -> Arrangement {
        Arrangement {
            sharing: self.sharing,
            roles: vec![
                role(&self.senders, "generator"),
                role(&stage.queue_cpus, "receive queues (NAPI threads)"),
                role(&stage.reader_cpus, "readers"),
            ],
        }
    }

    pub(crate) fn stages(&self) -> Vec<StagePlan> {
        let all = self.receivers.clone();
        let last = vec![*all.last().unwrap_or(&0)];
        let stage = |key, name, what, mode, backend, queue_cpus: &Vec<u32>, reader_cpus: &Vec<u32>| StagePlan {
            key,
            name,
            what,
            mode,
            backend,
            queue_cpus: queue_cpus.clone(),
            reader_cpus: reader_cpus.clone(),
        };
        vec![
            stage(
                keys::PLAIN,
                "One queue, one socket",
                "Every frame comes through one receive queue on one core, where one program reads one packet per system call.",
                "packet",
                Backend::Packet,
                &last,
                &last,
            ),
            stage(
                keys::SPREAD,
                "Queues spread",
                "Each receive queue has a core of its own; still one plain socket.",
                "packet",
                Backend::Packet,
                &all,
                &last,
            ),
            stage(
                keys::FANOUT,
                "+ fanout",
                "A plain socket and a reader on every receiving core, joined by PACKET_FANOUT.",
                "packet+fanout",
                Backend::Packet,
                &all,
                &all,
            ),
            stage(
                keys::RING,
                "Ring",
                "One TPACKET_V3 ring: the kernel writes frames into shared memory, the reader takes them by the block.",
                "ring",
                Backend::Ring,
                &all,
                &last,
            ),
            stage(
                keys::RING_FANOUT,
                "Ring + fanout",
                "A ring and a reader on every receiving core.",
                "ring+fanout",
                Backend::Ring,
                &all,
                &all,
            ),
            stage(
                keys::TAP,
                "Tap",
                "An XDP program copies each frame into memory shared with the reader before a socket buffer is made; the frame \
                 then goes on to the stack.",
                "tap",
                Backend::Tap,
                &all,
                &all,
            ),
            stage(
                keys::TAP_CONSUME,
                "Tap, consuming",
                "As before, and the frame ends in XDP: for a mirror port, whose frames nobody else wants.",
                "tap --consume",
                Backend::TapConsume,
                &all,
                &all,
            ),
            stage(
                keys::XDP,
                "AF_XDP",
                "XDP redirects each frame into an AF_XDP socket per queue; the stack does not see it.",
                "xdp",
                Backend::Xdp,
                &all,
                &all,
            ),
        ]
    }
}

/// The first usable thread of each physical core, in ascending order.
fn one_thread_per_core(usable: &CpuSet, topology: &[Cpu]) -> Vec<u32> {
    let first_of_core = |cpu: &u32| {
        let siblings = topology.iter().find(|c| c.id == *cpu).map(|c| c.siblings.intersection(usable));
        siblings.and_then(|s| s.first()).is_none_or(|first| first == *cpu)
    };
    usable.iter().filter(first_of_core).collect()
}

/// `count` of `cpus` whose numbers all differ modulo `count`; none when there are no such.
fn apart_modulo(cpus: &[u32], count: usize) -> Option<Vec<u32>> {
    let mut taken = vec![None; count];
    for &cpu in cpus {
        taken[cpu as usize % count].get_or_insert(cpu);
    }
    let mut chosen: Vec<u32> = taken.into_iter().collect::<Option<_>>()?;
    chosen.sort_unstable();
    Some(chosen)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A machine of `n` CPUs with `threads` to a core; the second threads come after all first ones, as on Intel's servers.
    fn topology(n: u32, threads: u32) -> Vec<Cpu> {
        let cores = n / threads;
        let siblings = |id: u32| (0..threads).map(|t| id % cores + t * cores).collect();
        (0..n)
            .map(|id| Cpu {
                id,
                package: 0,
                core: id % cores,
                siblings: siblings(id),
                node: 0,
                online: true,
                isolated: false,
                capacity: host::picture::FULL_CAPACITY,
            })
            .collect()
    }

    fn cores(n: u32) -> DemoCores {
        DemoCores::split(&(0..n).collect(), &topology(n, 1))
    }

    #[test]
    fn few_cores_do_both_and_many_are_split() {
        let two = cores(2);
        assert_eq!((two.senders, two.receivers, two.sharing), (vec![0, 1], vec![0, 1], Sharing::Inline));
        let nine = cores(9);
        assert_eq!(nine.senders, vec![0, 1, 2, 3]);
        assert_eq!(nine.receivers, vec![4, 5, 6, 7], "as many queues as senders");
        assert_eq!(nine.sharing, Sharing::Apart);
    }

    #[test]
    fn senders_and_receivers_share_no_physical_core() {
        let machine = topology(24, 2);
        let split = DemoCores::split(&(0..24).collect(), &machine);
        assert_eq!(split.sharing, Sharing::Apart);
        for sender in &split.senders {
            let siblings = &machine[*sender as usize].siblings;
            assert!(split.receivers.iter().all(|r| !siblings.contains(*r)), "{split:?}");
        }
    }

    #[test]
    fn every_sender_has_a_queue_of_its_own_when_spread() {
        let even: CpuSet = (0..16).filter(|n| n % 2 == 0).collect();
        let machines = (1..64).map(cores).chain([DemoCores::split(&even, &topology(16, 1))]);
        for cores in machines {
            assert!(!cores.senders.is_empty() && cores.senders.len() == cores.receivers.len());
            for stage in cores.stages() {
                let queues = stage.queue_cpus.len() as u32;
                let hit: CpuSet = cores.senders.iter().map(|cpu| cpu % queues).collect();
                assert_eq!(hit.len() as u32, queues, "{cores:?}, {}: a queue gets nothing", stage.key);
                let members = stage.reader_cpus.len() as u32;
                let hit: CpuSet = stage.queue_cpus.iter().map(|cpu| cpu % members).collect();
                assert_eq!(hit.len() as u32, members, "{cores:?}, {}: a member gets nothing", stage.key);
            }
        }
    }

    #[test]
    fn the_first_stage_is_the_worst_and_keys_are_unique() {
        let stages = cores(8).stages();
        assert_eq!(stages[0].queue_cpus, stages[0].reader_cpus);
        assert_eq!(stages[0].queue_cpus.len(), 1);
        let mut keys: Vec<_> = stages.iter().map(|s| s.key).collect();
        keys.dedup();
        assert_eq!(keys.len(), 8);
    }
}
