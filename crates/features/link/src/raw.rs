//! The protocol as the payload of Ethernet frames, by AF_PACKET.

use std::time::Duration;

use host::{
    interface::{index, links},
    netlink::Netlink,
};
use sys::{
    packet::{Batch, PacketSocket, Readiness},
    packet_batch::PacketBatch,
};
use transport::HEADER_BYTES;
use wire::Mac;

use crate::{Carrier, ETHERTYPE, LinkError};

const ETHERNET_BYTES: usize = 14;
/// Frames that one system call reads.
const BATCH: usize = 32;
/// A frame has at least so many bytes of payload, or nobody would use it.
const PAYLOAD_MIN: u32 = 64;
/// Bytes of the kernel's memory for frames that wait to be read, and to leave.
const BUFFER: u32 = 8 << 20;

/// Frames on one interface, in its VLAN or untagged.
#[derive(Debug)]
pub struct Raw {
    socket: PacketSocket,
    batch: Batch,
    out: PacketBatch,
    frame: Box<[u8]>,
    mac: Mac,
    payload_max: u16,
}

impl Raw {
    /// On an interface of this network namespace.
    ///
    /// # Errors
    /// There is none of that name, it carries no Ethernet, or CAP_NET_RAW lacks.
    pub fn open(interface: &str) -> Result<Self, LinkError> {
        let system = |operation| move |source| LinkError::System { operation, source };
        let mut route = Netlink::route().map_err(system("ask the kernel for its interfaces"))?;
        let index = index(interface)?;
        let mut all = links(&mut route).map_err(system("read the interfaces"))?;
        let link = all.remove(&index).unwrap_or_default();
        let mac: Mac = match link.address.parse() {
            Ok(mac) if mac != Mac::default() => mac,
            _ => return Err(LinkError::NotEthernet { interface: interface.to_owned() }),
        };
        let least = HEADER_BYTES as u32 + PAYLOAD_MIN;
        if link.mtu < least {
            return Err(LinkError::Mtu { interface: interface.to_owned(), mtu: link.mtu, least });
        }
        let payload_max = u16::try_from(link.mtu - HEADER_BYTES as u32).unwrap_or(u16::MAX);
        let frame_max = ETHERNET_BYTES + HEADER_BYTES + usize::from(payload_max);
        let socket = PacketSocket::open()?;
        socket.set_receive_buffer(BUFFER)?;
        socket.set_ignore_outgoing()?;
        socket.bind_for(index, ETHERTYPE)?;
        let mut frame = vec![0; frame_max].into_boxed_slice();
        frame[6..12].copy_from_slice(&mac.0);
        frame[12..14].copy_from_slice(&ETHERTYPE.to_be_bytes());
        Ok(Self {
            socket,
            batch: Batch::new(BATCH, frame_max),
            out: PacketBatch::open(index, frame_max, BUFFER as usize)?,
            frame,
            mac,
            payload_max,
        })
    }

    /// The address of this node.
    pub fn address(&self) -> Mac {
        self.mac
    }
}

impl Carrier for Raw {
    type Address = Mac;

    fn payload_max(&self) -> u16 {
        self.payload_max
    }

    fn everyone(&self) -> &[Mac] {
        const { &[Mac([0xff; 6])] }
    }

    #[inline]
    fn receive(&mut self, mut on: impl FnMut(Mac, &[u8])) -> Result<usize, LinkError> {
        let count = self.batch.receive(&self.socket)?;
        for packet in self.batch.packets(count) {
            if let Some((head, frame)) = packet.data.split_at_checked(ETHERNET_BYTES) {
                on(Mac([head[6], head[7], head[8], head[9], head[10], head[11]]), frame);
            }
        }
        Ok(count)
    }

    #[inline]
    fn send(&mut self, to: Mac, head: &[u8; HEADER_BYTES], payload: &[u8]) -> Result<(), LinkError> {
        const PAYLOAD_AT: usize = ETHERNET_BYTES + HEADER_BYTES;
        let end = PAYLOAD_AT + payload.len();
        self.frame[..6].copy_from_slice(&to.0);
        self.frame[ETHERNET_BYTES..PAYLOAD_AT].copy_from_slice(head);
        self.frame[PAYLOAD_AT..end].copy_from_slice(payload);
        if !self.out.push(&self.frame[..end]) {
            self.out.flush()?;
            self.out.push(&self.frame[..end]);
        }
        Ok(())
    }

    #[inline]
    fn flush(&mut self) -> Result<(), LinkError> {
        // What finds no room is sent again as if the network had lost it.
        self.out.flush()?;
        Ok(())
    }

    fn wait(&mut self, at_most: Duration) -> Result<(), LinkError> {
        if self.socket.wait(at_most)? == Readiness::Failed
            && let Some(source) = self.socket.take_error()?
        {
            return Err(LinkError::System { operation: "receive on the interface", source });
        }
        Ok(())
    }
}
