//! The protocol behind UDP: a socket for each program, which share one port, and a kernel program that gives each datagram to the one it is for.

use std::{
    io,
    net::{IpAddr, Ipv6Addr, SocketAddr, SocketAddrV6},
    os::fd::{AsFd, AsRawFd, OwnedFd, RawFd},
    time::Duration,
};

use host::netlink::{Netlink, route};
use ipnet::IpNet;
use nix::{
    poll::PollFlags,
    sys::epoll::{Epoll, EpollEvent, EpollFlags},
};
use sys::datagram::{self, Datagrams};
use transport::HEADER_BYTES;

use crate::{Carrier, LinkError, Wire, address::UDP_PORT, raw};

/// Bytes of the socket's receive and send buffer.
const SOCKET_BUFFER_BYTES: u32 = 8 << 20;
/// Pause after a socket's error, which would make it readable again at once.
const ERROR_PAUSE: Duration = Duration::from_millis(1);
const UDP_BYTES: u16 = 8;
const IPV4_BYTES: u16 = 20;
const IPV6_BYTES: u16 = 40;
/// All nodes of a link (RFC 4291).
const ALL_NODES: Ipv6Addr = Ipv6Addr::new(0xff02, 0, 0, 0, 0, 0, 0, 1);

/// Settings of a broker over UDP.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct UdpSettings {
    /// Nodes that no broadcast reaches.
    pub peers: Vec<IpAddr>,
    /// Prefixes, in one of which its address is to be if the interface has one there.
    pub near: Vec<IpNet>,
}

impl Wire {
    /// An interface of this network namespace, for messages behind UDP; and where all nodes of its network hear, if there is such an address.
    ///
    /// # Errors
    /// There is none of that name, it has no IP address of the family of the peers, or its frames are too short.
    pub(crate) fn of_udp(interface: &str, settings: &UdpSettings) -> Result<(Self, Option<SocketAddr>), LinkError> {
        let failed = |source| LinkError::System { operation: "ask the kernel for addresses", source };
        let mut wire = Self::of_any(interface)?;
        let mut netlink = Netlink::route().map_err(failed)?;
        let all = route::addresses(&mut netlink).map_err(failed)?;
        let family = settings.peers.first().map(IpAddr::is_ipv4);
        let rank = |ip: IpAddr| {
            let is_near = settings.near.iter().any(|prefix| prefix.contains(&ip));
            let is_local = matches!(ip, IpAddr::V6(v6) if v6.is_unicast_link_local());
            (!is_near, is_local, ip.is_ipv6())
        };
        let here = all.into_iter().filter(|a| a.ifindex == wire.index).map(|a| a.prefix);
        let fits = here.filter(|own| family.is_none_or(|v4| own.address.is_ipv4() == v4));
        let Some(own) = fits.min_by_key(|own| rank(own.address)) else {
            return Err(LinkError::NoIp { interface: interface.to_owned() });
        };
        let headers = UDP_BYTES + if own.address.is_ipv4() { IPV4_BYTES } else { IPV6_BYTES };
        wire.payload_max = wire.payload_max.saturating_sub(headers);
        let at = |ip: IpAddr| match ip {
            IpAddr::V6(v6) if v6.is_unicast_link_local() || v6.is_multicast() => {
                SocketAddrV6::new(v6, UDP_PORT, 0, wire.index).into()
            }
            ip => SocketAddr::new(ip, UDP_PORT),
        };
        let everyone = match own.address {
            IpAddr::V6(_) => Some(ALL_NODES.into()),
            IpAddr::V4(_) => match IpNet::new(own.address, own.length) {
                Ok(net) if net.prefix_len() < 31 => Some(net.broadcast()),
                _ => None,
            },
        };
        let (udp, everyone) = (at(own.address), everyone.map(at));
        wire.udp = Some(udp);
        Ok((wire, everyone))
    }

    /// A socket of a node behind UDP, at its own address or at one of a group.
    pub(crate) fn udp_socket(&self, at: SocketAddr) -> Result<OwnedFd, LinkError> {
        datagram::open(at, &self.interface, SOCKET_BUFFER_BYTES).map_err(|source| match source.raw_os_error() {
            Some(nix::libc::EADDRINUSE) => LinkError::UdpTaken { at },
            _ => LinkError::System { operation: "open a UDP socket", source },
        })
    }

    fn datagram_max(&self) -> usize {
        HEADER_BYTES + usize::from(self.payload_max)
    }
}

/// Datagrams on one interface.
#[derive(Debug)]
pub struct Udp {
    wire: Wire,
    own: Datagrams,
    /// Multicast address of all nodes; only brokers have it.
    group: Option<Datagrams>,
    everyone: Vec<SocketAddr>,
}

impl Udp {
    pub(crate) fn of(wire: Wire, own: OwnedFd, group: Option<OwnedFd>, everyone: Vec<SocketAddr>) -> Self {
        let longest = wire.datagram_max();
        let of = |fd| Datagrams::of(fd, longest);
        Self { own: of(own), group: group.map(of), everyone, wire }
    }

    /// The descriptors that it has open.
    pub(crate) fn descriptors(&self) -> Vec<RawFd> {
        [Some(&self.own), self.group.as_ref()].into_iter().flatten().map(|from| from.as_fd().as_raw_fd()).collect()
    }

    pub fn wire(&self) -> &Wire {
        &self.wire
    }
}

fn failed(operation: &'static str) -> impl Fn(io::Error) -> LinkError {
    move |source| LinkError::System { operation, source }
}

impl Carrier for Udp {
    type Address = SocketAddr;

    fn payload_max(&self) -> u16 {
        self.wire.payload_max
    }

    fn everyone(&self) -> &[SocketAddr] {
        &self.everyone
    }

    #[inline]
    fn receive(&mut self, mut on: impl FnMut(SocketAddr, &[u8], bool)) -> Result<usize, LinkError> {
        let mut count = 0;
        let here = self.wire.udp;
        for from in [Some(&mut self.own), self.group.as_mut()].into_iter().flatten() {
            count += from
                .receive(|from, frame, congested| {
                    // Any user may send from another port; and what all hear comes back.
                    if from.port() == UDP_PORT && Some(from) != here {
                        on(from, frame, congested);
                    }
                })
                .map_err(failed("receive by UDP"))?;
        }
        Ok(count)
    }

    #[inline]
    fn send(&mut self, to: SocketAddr, head: &[u8; HEADER_BYTES], payload: &[u8]) -> Result<(), LinkError> {
        if !self.own.push(to, [head, payload]) {
            self.flush()?;
            self.own.push(to, [head, payload]);
        }
        Ok(())
    }

    #[inline]
    fn flush(&mut self) -> Result<(), LinkError> {
        // What finds no room or no route is sent again as if the network had lost it.
        self.own.flush().map(drop).map_err(failed("send by UDP"))
    }

    fn wait(&mut self, at_most: Duration) -> Result<bool, LinkError> {
        let mut waits: Vec<_> = [Some(&self.own), self.group.as_ref()]
            .into_iter()
            .flatten()
            .map(|from| nix::poll::PollFd::new(from.as_fd(), PollFlags::POLLIN))
            .collect();
        match raw::sleep(&mut waits, at_most)? {
            // A read says what it is; none does without an end.
            raw::Woken::Failed => {
                std::thread::sleep(at_most.min(ERROR_PAUSE));
                Ok(true)
            }
            woken => Ok(woken != raw::Woken::Signal),
        }
    }

    fn watch(&self, epoll: &Epoll) -> Result<(), LinkError> {
        for from in [Some(&self.own), self.group.as_ref()].into_iter().flatten() {
            epoll
                .add(from.as_fd(), EpollEvent::new(EpollFlags::EPOLLIN, 0))
                .map_err(|e| LinkError::System { operation: "wait for frames by epoll", source: e.into() })?;
        }
        Ok(())
    }

    fn sleep(&mut self) -> bool {
        true
    }

    fn awake(&mut self) {}
}
