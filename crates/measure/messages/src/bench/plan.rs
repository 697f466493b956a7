//! The plan of a run.

use std::fmt;

use model::{
    CpuSet,
    link_bench::{Conditions, Receive},
};

use serde::{Deserialize, Serialize};

use super::MessagesError;

/// Bytes of the messages that go there and back. The longest is one datagram of UDP.
const MESSAGE_BYTES: [u32; 6] = [1, 64, 1024, 5000, 16_384, 65_000];
/// Bytes of the messages that every receive call is tried with, as the source of the question did.
const COMPARED_BYTES: u32 = 5000;
/// The sizes of a first look.
const QUICK_MESSAGE_BYTES: [u32; 2] = [64, COMPARED_BYTES];
pub(super) const PLAIN: Conditions = Conditions { mtu: 1500, offloads: true, tcp_rmem: None, lost_per_million: None };
/// Bytes of the receive buffers that TCP is swept over.
const TCP_RMEM_BYTES: [u64; 3] = [10_000, 20_000, 100_000];
/// The MTU of jumbo frames.
const JUMBO_MTU: u32 = 9000;
/// Frames of a million that a wire loses.
const LOSSES_PER_MILLION: [u32; 3] = [0, 1_000, 10_000];
/// Nodes that send to one at once.
const INCAST_SENDERS: u32 = 8;
/// Connections, and the nodes that they go to.
const CROWD: (u32, u32) = (1_000, 8);

#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Transport {
    /// The native interface, by rings out of the XDP hook.
    Link,
    /// The native interface, by packet sockets.
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

impl Transport {
    /// All, as they are shown.
    pub const ALL: [Self; 7] =
        [Self::Link, Self::LinkSockets, Self::Packet, Self::Xdp, Self::Udp, Self::Tcp, Self::Broker];

    /// Name of the transport in a run.
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

impl fmt::Display for Transport {
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
pub enum Workload {
    /// Messages of so many bytes there and back.
    Pings {
        /// Receive mode of both ends.
        receive: Receive,
        bytes: u32,
        /// A transfer over TCP shares the link and the CPUs.
        beside_transfer: bool,
    },
    /// Bytes one way.
    Transfer,
    /// Bytes of so many nodes to one, and of one of them alone.
    Incast { senders: u32 },
    /// Cost of many connections of one node to others.
    Crowd { connections: u32, nodes: u32 },
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Step {
    pub transport: Transport,
    pub conditions: Conditions,
    pub workload: Workload,
}

impl fmt::Display for Step {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { transport, conditions, workload } = self;
        match workload {
            Workload::Pings { receive, bytes, beside_transfer } => {
                let beside = if *beside_transfer { ", beside a transfer" } else { "" };
                write!(f, "{transport} {}, {bytes} bytes there and back{beside}", receive.word())
            }
            Workload::Transfer => {
                let offloads = if conditions.offloads { "" } else { ", no offloads" };
                write!(f, "transfer over {transport}, MTU {}{offloads}", conditions.mtu)?;
                conditions.lost_per_million.map_or(Ok(()), |lost| write!(f, ", {lost} of a million lost"))?;
                conditions.tcp_rmem.map_or(Ok(()), |bytes| write!(f, ", tcp_rmem {bytes}"))
            }
            Workload::Incast { senders } => write!(f, "{transport}, {senders} nodes to one"),
            Workload::Crowd { connections, nodes } => {
                write!(f, "{transport}, {connections} connections to {nodes} nodes")
            }
        }
    }
}

#[derive(Debug, Clone)]
pub struct BenchOptions {
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
    pub options: BenchOptions,
    /// The CPU of each end.
    pub cpus: [u32; 2],
    pub steps: Vec<Step>,
}

impl Plan {
    pub fn new(options: BenchOptions) -> Result<Self, MessagesError> {
        let cpus: Vec<u32> = options.cpus.iter().collect();
        let &[a, b, ..] = cpus.as_slice() else { return Err(MessagesError::Cpus(cpus.len())) };
        let mut steps = Vec::new();
        let sizes = if options.quick { &QUICK_MESSAGE_BYTES[..] } else { &MESSAGE_BYTES[..] };
        for &bytes in sizes {
            for transport in Transport::ALL {
                let receives = transport.receives().iter();
                let pings = |&receive| Workload::Pings { receive, bytes, beside_transfer: false };
                steps.extend(receives.map(pings).map(|workload| Step { transport, conditions: PLAIN, workload }));
            }
        }
        for transport in [Transport::Link, Transport::Udp, Transport::Tcp] {
            let workload = Workload::Pings { receive: Receive::Sleeping, bytes: 64, beside_transfer: true };
            steps.push(Step { transport, conditions: PLAIN, workload });
        }
        let bare = Conditions { offloads: false, ..PLAIN };
        let mut links = vec![PLAIN, bare];
        if !options.quick {
            links.extend([Conditions { mtu: JUMBO_MTU, ..PLAIN }, Conditions { mtu: JUMBO_MTU, ..bare }]);
        }
        for conditions in links {
            steps.extend([Transport::Link, Transport::Broker, Transport::Tcp].map(|transport| Step {
                transport,
                conditions,
                workload: Workload::Transfer,
            }));
        }
        let swept = if options.quick { &TCP_RMEM_BYTES[2..] } else { &TCP_RMEM_BYTES[..] };
        let narrow = |&bytes| Conditions { tcp_rmem: Some(bytes), ..PLAIN };
        steps.extend(swept.iter().map(narrow).map(|conditions| Step {
            transport: Transport::Tcp,
            conditions,
            workload: Workload::Transfer,
        }));
        let losses = if options.quick { &LOSSES_PER_MILLION[2..] } else { &LOSSES_PER_MILLION[..] };
        for &lost in losses {
            let conditions = Conditions { lost_per_million: Some(lost), ..bare };
            steps.extend([Transport::Link, Transport::Tcp].map(|transport| Step {
                transport,
                conditions,
                workload: Workload::Transfer,
            }));
        }
        let incast = Workload::Incast { senders: INCAST_SENDERS };
        steps.extend([Transport::Link, Transport::Tcp].map(|transport| Step {
            transport,
            conditions: PLAIN,
            workload: incast,
        }));
        let (connections, nodes) = CROWD;
        steps.push(Step {
            transport: Transport::Link,
            conditions: PLAIN,
            workload: Workload::Crowd { connections, nodes },
        });
        Ok(Self { options, cpus: [a, b], steps })
    }

    /// Plans a run between two machines whose link has this MTU and is measured as it is set. The CPU of the end of the other machine is its own matter.
    pub fn between(options: BenchOptions, mtu: u32) -> Result<Self, MessagesError> {
        let cpu = options.cpus.iter().next().ok_or(MessagesError::Cpus(0))?;
        let conditions = Conditions { mtu, ..PLAIN };
        let mut steps = Vec::new();
        for &bytes in if options.quick { &QUICK_MESSAGE_BYTES[..] } else { &MESSAGE_BYTES[..] } {
            for transport in Transport::ALL {
                let pings = |&receive| Workload::Pings { receive, bytes, beside_transfer: false };
                steps.extend(transport.receives().iter().map(pings).map(|workload| Step {
                    transport,
                    conditions,
                    workload,
                }));
            }
        }
        for transport in [Transport::Link, Transport::Udp, Transport::Tcp] {
            let workload = Workload::Pings { receive: Receive::Sleeping, bytes: 64, beside_transfer: true };
            steps.push(Step { transport, conditions, workload });
        }
        steps.extend([Transport::Link, Transport::Tcp].map(|transport| Step {
            transport,
            conditions,
            workload: Workload::Transfer,
        }));
        Ok(Self { options, cpus: [cpu, cpu], steps })
    }
}

#[cfg(test)]
mod tests {
    use std::collections::HashSet;

    use super::*;

    fn options(cpus: &str, quick: bool) -> BenchOptions {
        BenchOptions { cpus: cpus.parse().unwrap(), rounds: 1, messages: 10, transfer_bytes: 1, quick }
    }

    #[test]
    fn each_end_has_a_cpu_of_its_own() {
        assert_eq!(Plan::new(options("1,3-4", true)).unwrap().cpus, [1, 3]);
        assert!(matches!(Plan::new(options("1", true)), Err(MessagesError::Cpus(1))));
    }

    #[test]
    fn no_step_comes_twice_and_tcp_is_beside_each_transfer() {
        for quick in [true, false] {
            let plan = Plan::new(options("0-1", quick)).unwrap();
            let all: HashSet<Step> = plan.steps.iter().copied().collect();
            assert_eq!(all.len(), plan.steps.len());
            for step in plan.steps.iter().filter(|s| s.workload == Workload::Transfer) {
                assert!(all.contains(&Step { transport: Transport::Tcp, ..*step }), "{step}");
            }
        }
    }
}
