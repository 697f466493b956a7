//! Which core does what in which stage: pure.

use model::{
    CpuSet,
    run::{Arrangement, CoreRole, Sharing, keys},
};

/// From this many cores on the generator gets cores of its own.
const CORES_FOR_APART: usize = 4;

/// The backend of a stage.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Backend {
    /// One packet per system call through a plain AF_PACKET socket.
    Packet,
    /// A TPACKET_V3 ring.
    Ring,
    /// Copied in XDP; the frame goes on to the stack.
    Tap,
    /// Copied in XDP; the frame ends there.
    TapConsume,
    /// AF_XDP.
    Xdp,
}

/// One stage of the demo.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct StagePlan {
    /// The key (see [`keys`]).
    pub key: &'static str,
    /// The name for people.
    pub name: &'static str,
    /// What it does, in a sentence.
    pub what: &'static str,
    /// The backend as `evenkeel capture --mode` calls it.
    pub mode: &'static str,
    /// The backend.
    pub backend: Backend,
    /// The CPU of the NAPI thread of each receive queue.
    pub queue_cpus: Vec<u32>,
    /// The CPU of each reader.
    pub reader_cpus: Vec<u32>,
}

/// The cores of the demo.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Cores {
    /// One sender on each.
    pub senders: Vec<u32>,
    /// The cores that receive.
    pub receivers: Vec<u32>,
    /// Whether these are the same cores.
    pub sharing: Sharing,
}

impl Cores {
    /// Splits the usable cores: half for the generator when there are at least four, else all for both.
    ///
    /// On a veth, a sender's frames go to the receive queue with the number of its own CPU, modulo the number of queues
    /// (drivers/net/veth.c, veth_xdp_xmit). So senders sit on neighbouring CPUs, and there are as many queues as senders.
    pub(crate) fn split(usable: &CpuSet) -> Self {
        let cpus: Vec<u32> = usable.iter().collect();
        if cpus.len() < CORES_FOR_APART {
            return Self { senders: cpus.clone(), receivers: cpus, sharing: Sharing::Inline };
        }
        let (senders, receivers) = cpus.split_at(cpus.len() / 2);
        Self { senders: senders.to_vec(), receivers: receivers[..senders.len()].to_vec(), sharing: Sharing::Apart }
    }

    /// Which core does what in `stage`.
    pub(crate) fn arrangement(&self, stage: &StagePlan) -> Arrangement {
        let role = |cpus: &[u32], does: &str| CoreRole { cpus: cpus.iter().copied().collect(), does: does.to_owned() };
        Arrangement {
            sharing: self.sharing,
            roles: vec![
                role(&self.senders, "generator"),
                role(&stage.queue_cpus, "receive queues (NAPI threads)"),
                role(&stage.reader_cpus, "readers"),
            ],
        }
    }

    /// The stages in their order.
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

#[cfg(test)]
mod tests {
    use super::*;

    fn cores(n: u32) -> Cores {
        Cores::split(&(0..n).collect())
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
    fn every_sender_has_a_queue_of_its_own_when_spread() {
        for n in 1..64 {
            let cores = cores(n);
            for stage in cores.stages() {
                let queues = stage.queue_cpus.len() as u32;
                let hit: CpuSet = cores.senders.iter().map(|cpu| cpu % queues).collect();
                assert_eq!(hit.len() as u32, queues, "{n} cores, {}: a queue gets nothing", stage.key);
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
