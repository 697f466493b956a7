//! The carrier that the broker of a node chose: Ethernet or UDP.

use std::{os::fd::RawFd, time::Duration};

use nix::sys::epoll::Epoll;
use transport::{Endpoints, HEADER_BYTES};

use crate::{Address, Carrier, LinkError, Raw, Wire, udp::Udp};

/// Carrier of the frames of a node's programs.
#[derive(Debug)]
pub struct BrokerCarrier {
    path: Path,
    everyone: Vec<Address>,
}

#[derive(Debug)]
enum Path {
    Ethernet(Box<Raw>),
    Udp(Box<Udp>),
}

impl From<Raw> for BrokerCarrier {
    fn from(raw: Raw) -> Self {
        let everyone = raw.everyone().iter().map(|&mac| Address::Ethernet(mac)).collect();
        Self { path: Path::Ethernet(Box::new(raw)), everyone }
    }
}

impl From<Udp> for BrokerCarrier {
    fn from(udp: Udp) -> Self {
        let everyone = udp.everyone().iter().map(|&at| Address::Udp(at)).collect();
        Self { path: Path::Udp(Box::new(udp)), everyone }
    }
}

impl BrokerCarrier {
    pub fn wire(&self) -> &Wire {
        match &self.path {
            Path::Ethernet(raw) => raw.wire(),
            Path::Udp(udp) => udp.wire(),
        }
    }

    pub fn address(&self) -> Address {
        let wire = self.wire();
        wire.udp.map_or(Address::Ethernet(wire.address), Address::Udp)
    }

    /// Descriptors that it has open.
    pub(crate) fn descriptors(&self) -> Vec<RawFd> {
        match &self.path {
            Path::Ethernet(raw) => raw.descriptors(),
            Path::Udp(udp) => udp.descriptors(),
        }
    }
}

impl Carrier for BrokerCarrier {
    type Address = Address;

    fn payload_max(&self) -> u16 {
        self.wire().payload_max
    }

    fn everyone(&self) -> &[Address] {
        &self.everyone
    }

    #[inline]
    fn receive(&mut self, mut on: impl FnMut(Address, &[u8], bool)) -> Result<usize, LinkError> {
        match &mut self.path {
            Path::Ethernet(raw) => raw.receive(|from, frame, congested| on(Address::Ethernet(from), frame, congested)),
            Path::Udp(udp) => udp.receive(|from, frame, congested| on(Address::Udp(from), frame, congested)),
        }
    }

    /// A frame to a node of the other carrier is lost.
    #[inline]
    fn send(&mut self, to: Address, head: &[u8; HEADER_BYTES], payload: &[u8]) -> Result<(), LinkError> {
        match (&mut self.path, to) {
            (Path::Ethernet(raw), Address::Ethernet(to)) => raw.send(to, head, payload),
            (Path::Udp(udp), Address::Udp(to)) => udp.send(to, head, payload),
            _ => Ok(()),
        }
    }

    #[inline]
    fn flush(&mut self) -> Result<(), LinkError> {
        match &mut self.path {
            Path::Ethernet(raw) => raw.flush(),
            Path::Udp(udp) => udp.flush(),
        }
    }

    fn is_down(&self) -> bool {
        matches!(&self.path, Path::Ethernet(raw) if raw.is_down())
    }

    fn wait(&mut self, at_most: Duration) -> Result<bool, LinkError> {
        match &mut self.path {
            Path::Ethernet(raw) => raw.wait(at_most),
            Path::Udp(udp) => udp.wait(at_most),
        }
    }

    fn watch(&self, epoll: &Epoll) -> Result<(), LinkError> {
        match &self.path {
            Path::Ethernet(raw) => raw.watch(epoll),
            Path::Udp(udp) => udp.watch(epoll),
        }
    }

    fn sleep(&mut self) -> bool {
        match &mut self.path {
            Path::Ethernet(raw) => raw.sleep(),
            Path::Udp(udp) => udp.sleep(),
        }
    }

    fn set_connection(&mut self, slot: u32, endpoints: Option<Endpoints<Address>>) {
        let Path::Ethernet(raw) = &mut self.path else { return };
        let endpoints = endpoints.and_then(|Endpoints { peer, port, peer_port, peer_number, epoch }| match peer {
            Address::Ethernet(peer) => Some(Endpoints { peer, port, peer_port, peer_number, epoch }),
            Address::Udp(_) => None,
        });
        raw.set_connection(slot, endpoints);
    }

    fn awake(&mut self) {
        match &mut self.path {
            Path::Ethernet(raw) => raw.awake(),
            Path::Udp(udp) => udp.awake(),
        }
    }
}
