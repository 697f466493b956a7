//! From what the user asked for and the machine's topology to readers on CPUs: pure.

use std::{fmt, str::FromStr};

use host::{
    members::fanout_members,
    picture::{Cpu, Nic},
};
use model::CpuSet;
use sys::packet::{FANOUT_MEMBERS_MAX, FanoutAlgorithm};

#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Backend {
    Packet,
    /// Several plain packet sockets, joined by fanout.
    PacketFanout,
    Ring,
    /// Several rings, joined by fanout.
    RingFanout,
    /// AF_XDP: frames are taken from the stack before a socket buffer is made.
    Xdp,
    /// An XDP program copies frames into shared memory; they pass on, or end there.
    Tap,
}

impl Backend {
    /// All, from the simplest on.
    pub const ALL: [Self; 6] = [Self::Packet, Self::PacketFanout, Self::Ring, Self::RingFanout, Self::Xdp, Self::Tap];

    /// The name that the user writes.
    pub fn name(self) -> &'static str {
        match self {
            Self::Packet => "packet",
            Self::PacketFanout => "packet+fanout",
            Self::Ring => "ring",
            Self::RingFanout => "ring+fanout",
            Self::Xdp => "xdp",
            Self::Tap => "tap",
        }
    }

    /// Several readers share the packets by fanout.
    pub fn is_fanout(self) -> bool {
        matches!(self, Self::PacketFanout | Self::RingFanout)
    }

    /// An XDP program does the capture.
    pub fn is_xdp(self) -> bool {
        matches!(self, Self::Xdp | Self::Tap)
    }
}

impl fmt::Display for Backend {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.name())
    }
}

impl FromStr for Backend {
    type Err = PlanError;

    fn from_str(text: &str) -> Result<Self, PlanError> {
        // What chooses one of them is no backend, and can be written in its place.
        let known = || Self::ALL.map(Self::name).join(", ") + ", and auto, which tries them";
        Self::ALL
            .into_iter()
            .find(|b| b.name() == text)
            .ok_or_else(|| PlanError::UnknownBackend { name: text.to_owned(), known: known() })
    }
}

/// A request that cannot be planned.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum PlanError {
    #[error("there is no backend `{name}`; there are {known}")]
    UnknownBackend { name: String, known: String },
    #[error("CPU {cpu} is not online here; online are {online}")]
    NoSuchCpu { cpu: u32, online: CpuSet },
    #[error("the list of CPUs is empty")]
    NoCpus,
    #[error("{backend} has one reader, not {members}: take {backend}+fanout for several")]
    OneReader { backend: Backend, members: usize },
    #[error("a fanout group has 1 to {FANOUT_MEMBERS_MAX} members, not {0}")]
    Members(usize),
}

model::classified!(PlanError: Usage);

/// Readers as the user asks for them.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Request {
    pub backend: Backend,
    /// Number of members of a fanout group; none: as the topology says.
    pub members: Option<usize>,
    /// The CPUs for the readers; none: as the topology says.
    pub cpus: Option<CpuSet>,
}

/// Readers and their CPUs.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Plan {
    pub backend: Backend,
    /// A CPU for each reader; none: the scheduler chooses.
    pub readers: Vec<Option<u32>>,
    /// The NUMA node for the buffers, when the interface has one.
    pub node: Option<u32>,
}

/// Plans the readers.
///
/// AF_XDP gets a reader per queue, as far as there are CPUs; the tap one, unless several are asked for.
///
/// A fanout group gets [`fanout_members`] over the CPUs of the interface's NUMA node (of the whole machine when it has
/// none): the buffers are there too. A single reader goes to a CPU of that node that serves none of the interface's
/// interrupts; where no interrupt is known the scheduler, which sees the load, chooses better.
pub fn plan(request: &Request, cpus: &[Cpu], nic: Option<&Nic>, irq_cpus: &CpuSet) -> Result<Plan, PlanError> {
    let online: CpuSet = cpus.iter().filter(|c| c.online).map(|c| c.id).collect();
    if let Some(list) = &request.cpus {
        if list.is_empty() {
            return Err(PlanError::NoCpus);
        }
        if let Some(cpu) = list.iter().find(|&c| !online.contains(c)) {
            return Err(PlanError::NoSuchCpu { cpu, online });
        }
    }
    let node = nic.and_then(|n| n.node).filter(|node| cpus.iter().any(|c| c.node == *node && c.online));
    let near: Vec<Cpu> = cpus.iter().filter(|c| node.is_none_or(|n| c.node == n)).cloned().collect();
    let queues = if request.backend == Backend::Xdp { nic.map_or(1, |n| n.rx_queues.len().max(1)) } else { 1 };
    let readers = if request.backend.is_fanout() {
        fanout(request, &near)?
    } else if request.backend.is_xdp() && request.members.unwrap_or(queues) > 1 {
        let usable = near.iter().filter(|c| c.online && !c.isolated).count().max(1);
        let members = request.members.or(Some(queues.min(usable)));
        fanout(&Request { members, ..request.clone() }, &near)?
    } else {
        if let Some(members) = request.members.filter(|&m| m != 1 && !request.backend.is_xdp()) {
            return Err(PlanError::OneReader { backend: request.backend, members });
        }
        let free = || near.iter().find(|c| c.online && !c.isolated && !irq_cpus.contains(c.id)).map(|c| c.id);
        vec![match &request.cpus {
            Some(list) => list.first(),
            None if irq_cpus.is_empty() => None,
            None => free(),
        }]
    };
    Ok(Plan { backend: request.backend, readers, node })
}

fn fanout(request: &Request, near: &[Cpu]) -> Result<Vec<Option<u32>>, PlanError> {
    if let Some(members) = request.members.filter(|m| !(1..=FANOUT_MEMBERS_MAX).contains(m)) {
        return Err(PlanError::Members(members));
    }
    let computed = fanout_members(near);
    let places: Vec<u32> = match &request.cpus {
        Some(list) => list.iter().collect(),
        None if request.members.is_some() => computed.iter().map(|&(cpu, _)| cpu).collect(),
        None => computed.iter().flat_map(|&(cpu, n)| std::iter::repeat_n(cpu, n as usize)).collect(),
    };
    if places.is_empty() {
        return Err(PlanError::NoCpus);
    }
    let members = request.members.unwrap_or(places.len()).min(FANOUT_MEMBERS_MAX);
    Ok(places.into_iter().cycle().take(members).map(Some).collect())
}

/// A fanout algorithm by the name that the user writes.
pub fn fanout_algorithm(name: &str) -> Option<FanoutAlgorithm> {
    FANOUT_NAMES.iter().find(|(n, _)| *n == name).map(|(_, a)| *a)
}

pub const FANOUT_NAMES: [(&str, FanoutAlgorithm); 8] = [
    ("hash", FanoutAlgorithm::Hash),
    ("lb", FanoutAlgorithm::LoadBalance),
    ("cpu", FanoutAlgorithm::Cpu),
    ("rollover", FanoutAlgorithm::Rollover),
    ("rnd", FanoutAlgorithm::Random),
    ("qm", FanoutAlgorithm::QueueMapping),
    ("cbpf", FanoutAlgorithm::ClassicBpf),
    ("ebpf", FanoutAlgorithm::ExtendedBpf),
];

#[cfg(test)]
mod tests {
    use super::*;

    fn machine(cpus: u32, nodes: u32) -> Vec<Cpu> {
        (0..cpus)
            .map(|id| Cpu {
                id,
                package: id % nodes,
                core: id,
                siblings: CpuSet::single(id),
                node: id % nodes,
                online: true,
                isolated: false,
                capacity: host::picture::FULL_CAPACITY,
            })
            .collect()
    }

    fn request(backend: Backend) -> Request {
        Request { backend, members: None, cpus: None }
    }

    #[test]
    fn a_group_follows_the_topology_and_the_request() {
        let cpus = machine(4, 1);
        let none = CpuSet::new();
        let computed = plan(&request(Backend::RingFanout), &cpus, None, &none).unwrap();
        let expected: usize = fanout_members(&cpus).iter().map(|(_, n)| *n as usize).sum();
        assert_eq!(computed.readers.len(), expected);
        let three = Request { members: Some(3), ..request(Backend::PacketFanout) };
        assert_eq!(plan(&three, &cpus, None, &none).unwrap().readers, [Some(0), Some(1), Some(2)]);
        let listed = Request { members: Some(3), cpus: Some("1,3".parse().unwrap()), ..request(Backend::RingFanout) };
        assert_eq!(plan(&listed, &cpus, None, &none).unwrap().readers, [Some(1), Some(3), Some(1)]);
    }

    #[test]
    fn a_single_reader_keeps_off_the_interrupts() {
        let cpus = machine(2, 1);
        assert_eq!(plan(&request(Backend::Ring), &cpus, None, &CpuSet::new()).unwrap().readers, [None]);
        assert_eq!(plan(&request(Backend::Ring), &cpus, None, &CpuSet::single(0)).unwrap().readers, [Some(1)]);
        assert_eq!(plan(&request(Backend::Ring), &cpus, None, &"0-1".parse().unwrap()).unwrap().readers, [None]);
    }

    #[test]
    fn impossible_requests_are_named() {
        let cpus = machine(2, 1);
        let none = CpuSet::new();
        let bad = |w: Request| plan(&w, &cpus, None, &none).unwrap_err().to_string();
        assert!(bad(Request { cpus: Some("7".parse().unwrap()), ..request(Backend::Ring) }).contains("online are 0-1"));
        assert!(bad(Request { members: Some(2), ..request(Backend::Ring) }).contains("ring+fanout"));
        assert!(bad(Request { members: Some(0), ..request(Backend::RingFanout) }).contains("1 to 256"));
        assert!("rings".parse::<Backend>().unwrap_err().to_string().contains("ring+fanout"));
    }
}
