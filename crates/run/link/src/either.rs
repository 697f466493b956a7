//! Either carrier, as the broker of a node chose it.

use std::{os::fd::RawFd, time::Duration};

use nix::sys::epoll::Epoll;
use transport::{Ends, HEADER_BYTES};

use crate::{Address, Carrier, LinkError, Raw, Wire, udp::Udp};

/// What carries the frames of a node's programs.
#[derive(Debug)]
pub struct Either {
    way: Way,
    everyone: Vec<Address>,
}

#[derive(Debug)]
enum Way {
    Ethernet(Box<Raw>),
    Udp(Box<Udp>),
}

impl From<Raw> for Either {
    fn from(raw: Raw) -> Self {
        let everyone = raw.everyone().iter().map(|&mac| Address::Ethernet(mac)).collect();
        Self { way: Way::Ethernet(Box::new(raw)), everyone }
    }
}

impl From<Udp> for Either {
    fn from(udp: Udp) -> Self {
        let everyone = udp.everyone().iter().map(|&at| Address::Udp(at)).collect();
        Self { way: Way::Udp(Box::new(udp)), everyone }
    }
}

impl Either {
    /// The interface.
    pub fn wire(&self) -> &Wire {
        match &self.way {
            Way::Ethernet(raw) => raw.wire(),
            Way::Udp(udp) => udp.wire(),
        }
    }

    /// The address of this node.
    pub fn address(&self) -> Address {
        let wire = self.wire();
        wire.udp.map_or(Address::Ethernet(wire.address), Address::Udp)
    }

    /// The descriptors that it has open.
    pub(crate) fn descriptors(&self) -> Vec<RawFd> {
        match &self.way {
            Way::Ethernet(raw) => raw.descriptors(),
            Way::Udp(udp) => udp.descriptors(),
        }
    }

    /// Frames come by a ring out of the XDP hook.
    pub fn has_ring(&self) -> bool {
        matches!(&self.way, Way::Ethernet(raw) if raw.has_ring())
    }
}

impl Carrier for Either {
    type Address = Address;

    fn payload_max(&self) -> u16 {
        self.wire().payload_max
    }

    fn everyone(&self) -> &[Address] {
        &self.everyone
    }

    #[inline]
    fn receive(&mut self, mut on: impl FnMut(Address, &[u8], bool)) -> Result<usize, LinkError> {
        match &mut self.way {
            Way::Ethernet(raw) => raw.receive(|from, frame, congested| on(Address::Ethernet(from), frame, congested)),
            Way::Udp(udp) => udp.receive(|from, frame, congested| on(Address::Udp(from), frame, congested)),
        }
    }

    /// A node of the other carrier is not reached: the frame is lost.
    #[inline]
    fn send(&mut self, to: Address, head: &[u8; HEADER_BYTES], payload: &[u8]) -> Result<(), LinkError> {
        match (&mut self.way, to) {
            (Way::Ethernet(raw), Address::Ethernet(to)) => raw.send(to, head, payload),
            (Way::Udp(udp), Address::Udp(to)) => udp.send(to, head, payload),
            _ => Ok(()),
        }
    }

    #[inline]
    fn flush(&mut self) -> Result<(), LinkError> {
        match &mut self.way {
            Way::Ethernet(raw) => raw.flush(),
            Way::Udp(udp) => udp.flush(),
        }
    }

    fn is_down(&self) -> bool {
        matches!(&self.way, Way::Ethernet(raw) if raw.is_down())
    }

    fn wait(&mut self, at_most: Duration) -> Result<bool, LinkError> {
        match &mut self.way {
            Way::Ethernet(raw) => raw.wait(at_most),
            Way::Udp(udp) => udp.wait(at_most),
        }
    }

    fn watch(&self, epoll: &Epoll) -> Result<(), LinkError> {
        match &self.way {
            Way::Ethernet(raw) => raw.watch(epoll),
            Way::Udp(udp) => udp.watch(epoll),
        }
    }

    fn sleep(&mut self) -> bool {
        match &mut self.way {
            Way::Ethernet(raw) => raw.sleep(),
            Way::Udp(udp) => udp.sleep(),
        }
    }

    fn opened(&mut self, at: u32, ends: Option<Ends<Address>>) {
        let Way::Ethernet(raw) = &mut self.way else { return };
        let ends = ends.and_then(|Ends { peer, port, peer_port, peer_number, epoch }| match peer {
            Address::Ethernet(peer) => Some(Ends { peer, port, peer_port, peer_number, epoch }),
            Address::Udp(_) => None,
        });
        raw.opened(at, ends);
    }

    fn awake(&mut self) {
        match &mut self.way {
            Way::Ethernet(raw) => raw.awake(),
            Way::Udp(udp) => udp.awake(),
        }
    }
}
