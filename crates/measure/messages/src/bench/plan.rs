//! What is measured, and in which order: pure.

use std::fmt;

use model::{
    CpuSet,
    link_bench::{Conditions, Receive},
};

use serde::{Deserialize, Serialize};

use super::MessagesError;

/// Bytes of the messages that go there and back. The longest is one datagram of UDP.
const SIZES: [u32; 6] = [1, 64, 1024, 5000, 16_384, 65_000];
/// Bytes of the messages that every receive call is tried with, as the source of the question did.
const COMPARED: u32 = 5000;
/// The sizes of a first look.
const QUICK_SIZES: [u32; 2] = [64, COMPARED];
/// The link as the kernel makes it.
pub(super) const PLAIN: Conditions = Conditions { mtu: 1500, offloads: true, tcp_rmem: None, lost_per_million: None };
/// Bytes of the receive buffers that TCP is swept over.
const RMEM: [u64; 3] = [10_000, 20_000, 100_000];
/// The MTU of jumbo frames.
const JUMBO: u32 = 9000;
/// Frames of a million that a wire loses.
const LOSSES: [u32; 3] = [0, 1_000, 10_000];
/// Nodes that send to one at once.
const SENDERS: u32 = 8;
/// Connections, and the nodes that they go to.
const CROWD: (u32, u32) = (1_000, 8);

#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Way {
    /// The native interface, by rings out of the XDP hook.
    Link,
    /// The same by packet sockets.
    LinkSockets,
    /// Frames by AF_PACKET, without any protocol: those that are lost stay lost.
    Packet,
    /// Frames by AF_XDP, without any protocol.
    Xdp,
    Udp,
    /// A TCP connection without Nagle's delay.
    Tcp,
    /// TCP sockets of programs, whose bytes the brokers of both nodes carry over link.
    Broker,
}

impl Way {
    /// All, as they are shown.
    pub const ALL: [Self; 7] =
        [Self::Link, Self::LinkSockets, Self::Packet, Self::Xdp, Self::Udp, Self::Tcp, Self::Broker];

    /// Its name in a run.
    pub fn key(self) -> &'static str {
        match self {
            Self::Link => "link",
            Self::LinkSockets => "link-sockets",
            Self::Packet => "packet",
            Self::Xdp => "xdp",
            Self::Udp => "udp",
            Self::Tcp => "tcp",
            Self::Broker => "broker",
        }
    }

    fn receives(self) -> &'static [Receive] {
        match self {
            Self::Link | Self::LinkSockets => &[Receive::Polling, Receive::Sleeping],
            Self::Packet | Self::Xdp | Self::Broker => &[Receive::Spinning, Receive::Sleeping],
            Self::Udp | Self::Tcp => &[Receive::Spinning, Receive::Polling, Receive::Sleeping],
        }
    }
}

impl fmt::Display for Way {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Link => "link",
            Self::LinkSockets => "link, sockets",
            Self::Packet => "AF_PACKET",
            Self::Xdp => "AF_XDP",
            Self::Udp => "UDP",
            Self::Tcp => "TCP",
            Self::Broker => "link run, by the broker",
        })
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum What {
    /// Messages of so many bytes there and back.
    Pings {
        /// How both ends wait.
        receive: Receive,
        bytes: u32,
        /// A transfer over TCP shares the link and the CPUs.
        beside_transfer: bool,
    },
    /// Bytes one way.
    Transfer,
    /// Bytes of so many nodes to one, and of one of them alone.
    Incast { senders: u32 },
    /// What so many connections of one node to others cost.
    Crowd { connections: u32, nodes: u32 },
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Step {
    pub way: Way,
    pub conditions: Conditions,
    pub what: What,
}

impl fmt::Display for Step {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { way, conditions, what } = self;
        match what {
            What::Pings { receive, bytes, beside_transfer } => {
                let beside = if *beside_transfer { ", beside a transfer" } else { "" };
                write!(f, "{way} {}, {bytes} bytes there and back{beside}", receive.word())
            }
            What::Transfer => {
                let offloads = if conditions.offloads { "" } else { ", no offloads" };
                write!(f, "transfer over {way}, MTU {}{offloads}", conditions.mtu)?;
                conditions.lost_per_million.map_or(Ok(()), |lost| write!(f, ", {lost} of a million lost"))?;
                conditions.tcp_rmem.map_or(Ok(()), |bytes| write!(f, ", tcp_rmem {bytes}"))
            }
            What::Incast { senders } => write!(f, "{way}, {senders} nodes to one"),
            What::Crowd { connections, nodes } => write!(f, "{way}, {connections} connections to {nodes} nodes"),
        }
    }
}

#[derive(Debug, Clone)]
pub struct Asked {
    pub cpus: CpuSet,
    pub rounds: u32,
    /// Messages there and back of a step.
    pub messages: u32,
    pub transfer_bytes: u64,
    /// The fewest sizes and conditions.
    pub quick: bool,
}

#[derive(Debug, Clone)]
pub struct Plan {
    pub asked: Asked,
    /// The CPU of each end.
    pub cpus: [u32; 2],
    pub steps: Vec<Step>,
}

impl Plan {
    pub fn new(asked: Asked) -> Result<Self, MessagesError> {
        let cpus: Vec<u32> = asked.cpus.iter().collect();
        let &[a, b, ..] = cpus.as_slice() else { return Err(MessagesError::Cpus(cpus.len())) };
        let mut steps = Vec::new();
        let sizes = if asked.quick { &QUICK_SIZES[..] } else { &SIZES[..] };
        for &bytes in sizes {
            for way in Way::ALL {
                let receives = way.receives().iter();
                let pings = |&receive| What::Pings { receive, bytes, beside_transfer: false };
                steps.extend(receives.map(pings).map(|what| Step { way, conditions: PLAIN, what }));
            }
        }
        for way in [Way::Link, Way::Udp, Way::Tcp] {
            let what = What::Pings { receive: Receive::Sleeping, bytes: 64, beside_transfer: true };
            steps.push(Step { way, conditions: PLAIN, what });
        }
        let bare = Conditions { offloads: false, ..PLAIN };
        let mut links = vec![PLAIN, bare];
        if !asked.quick {
            links.extend([Conditions { mtu: JUMBO, ..PLAIN }, Conditions { mtu: JUMBO, ..bare }]);
        }
        for conditions in links {
            steps.extend([Way::Link, Way::Broker, Way::Tcp].map(|way| Step { way, conditions, what: What::Transfer }));
        }
        let swept = if asked.quick { &RMEM[2..] } else { &RMEM[..] };
        let narrow = |&bytes| Conditions { tcp_rmem: Some(bytes), ..PLAIN };
        steps.extend(swept.iter().map(narrow).map(|conditions| Step {
            way: Way::Tcp,
            conditions,
            what: What::Transfer,
        }));
        let losses = if asked.quick { &LOSSES[2..] } else { &LOSSES[..] };
        for &lost in losses {
            let conditions = Conditions { lost_per_million: Some(lost), ..bare };
            steps.extend([Way::Link, Way::Tcp].map(|way| Step { way, conditions, what: What::Transfer }));
        }
        let incast = What::Incast { senders: SENDERS };
        steps.extend([Way::Link, Way::Tcp].map(|way| Step { way, conditions: PLAIN, what: incast }));
        let (connections, nodes) = CROWD;
        steps.push(Step { way: Way::Link, conditions: PLAIN, what: What::Crowd { connections, nodes } });
        Ok(Self { asked, cpus: [a, b], steps })
    }

    /// Plans a run between two machines whose link has this MTU and is measured as it is set. The CPU of the end of the other machine is its own matter.
    pub fn between(asked: Asked, mtu: u32) -> Result<Self, MessagesError> {
        let cpu = asked.cpus.iter().next().ok_or(MessagesError::Cpus(0))?;
        let conditions = Conditions { mtu, ..PLAIN };
        let mut steps = Vec::new();
        for &bytes in if asked.quick { &QUICK_SIZES[..] } else { &SIZES[..] } {
            for way in Way::ALL {
                let pings = |&receive| What::Pings { receive, bytes, beside_transfer: false };
                steps.extend(way.receives().iter().map(pings).map(|what| Step { way, conditions, what }));
            }
        }
        for way in [Way::Link, Way::Udp, Way::Tcp] {
            let what = What::Pings { receive: Receive::Sleeping, bytes: 64, beside_transfer: true };
            steps.push(Step { way, conditions, what });
        }
        steps.extend([Way::Link, Way::Tcp].map(|way| Step { way, conditions, what: What::Transfer }));
        Ok(Self { asked, cpus: [cpu, cpu], steps })
    }
}

#[cfg(test)]
mod tests {
    use std::collections::HashSet;

    use super::*;

    fn asked(cpus: &str, quick: bool) -> Asked {
        Asked { cpus: cpus.parse().unwrap(), rounds: 1, messages: 10, transfer_bytes: 1, quick }
    }

    #[test]
    fn each_end_has_a_cpu_of_its_own() {
        assert_eq!(Plan::new(asked("1,3-4", true)).unwrap().cpus, [1, 3]);
        assert!(matches!(Plan::new(asked("1", true)), Err(MessagesError::Cpus(1))));
    }

    #[test]
    fn no_step_comes_twice_and_tcp_is_beside_each_transfer() {
        for quick in [true, false] {
            let plan = Plan::new(asked("0-1", quick)).unwrap();
            let all: HashSet<Step> = plan.steps.iter().copied().collect();
            assert_eq!(all.len(), plan.steps.len());
            for step in plan.steps.iter().filter(|s| s.what == What::Transfer) {
                assert!(all.contains(&Step { way: Way::Tcp, ..*step }), "{step}");
            }
        }
    }
}
