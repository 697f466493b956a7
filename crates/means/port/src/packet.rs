//! The plain AF_PACKET socket: every packet is copied out by a system call, one or a batch at a time.

use std::time::Duration;

use sys::packet::{Batch, PacketSocket, Readiness};
use wire::link::Direction;

use crate::{
    Frame, Group, PacketOptions, PortError, Source, SourceStats, VlanTag,
    members::{self, explain},
    presence::Presence,
};

/// The call by which packets are read from the socket.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct PlainReading {
    /// Packets per system call, at least 1. With 1 this is the classic capture loop.
    pub batch: usize,
    /// The receive buffer of the socket in bytes, as the kernel counts them (a small frame takes about 800).
    pub buffer_bytes: u32,
}

impl Default for PlainReading {
    fn default() -> Self {
        Self { batch: 64, buffer_bytes: 16 << 20 }
    }
}

/// A plain packet socket, alone or as a member of a fanout group.
#[derive(Debug)]
pub struct PacketSource {
    socket: PacketSocket,
    batch: Batch,
    interface: String,
    backend: &'static str,
    presence: Presence,
    /// The drop count of the last packet (SO_RXQ_OVFL), which wraps.
    drops_seen: u32,
    stats: SourceStats,
}

const PLAIN: &str = "packet";
const FANOUT: &str = "packet+fanout";

impl PacketSource {
    /// Opens a socket of its own.
    pub fn open(options: &PacketOptions, reading: PlainReading) -> Result<Self, PortError> {
        let socket = members::open_one(options, PLAIN, |s| prepare(s, reading), |s| s)?;
        Ok(Self::new(socket, options.presence()?, options, reading, PLAIN))
    }

    /// Opens the members of a fanout group.
    pub fn open_group(options: &PacketOptions, reading: PlainReading, group: &Group) -> Result<Vec<Self>, PortError> {
        let sockets = members::open_group(options, group, FANOUT, |s| prepare(s, reading), |s| s)?;
        sockets.into_iter().map(|s| Ok(Self::new(s, options.presence()?, options, reading, FANOUT))).collect()
    }

    /// The receive buffer in bytes that the kernel gave, which may be less than was asked for (net.core.rmem_max).
    pub fn buffer_bytes(&self) -> Result<u32, PortError> {
        self.socket.receive_buffer().map_err(|e| explain(self.backend, &self.interface, e))
    }

    /// Takes a batch. When the socket tells of an error instead (which it does once), what is queued is still to be read.
    fn take_batch(&mut self) -> Result<usize, PortError> {
        match self.batch.receive(&self.socket).map_err(|e| explain(self.backend, &self.interface, e)) {
            Err(PortError::Vanished { .. }) => {
                self.presence.failed();
                self.batch.receive(&self.socket).map_err(|e| explain(self.backend, &self.interface, e))
            }
            other => other,
        }
    }

    fn new(
        socket: PacketSocket,
        presence: Presence,
        options: &PacketOptions,
        reading: PlainReading,
        backend: &'static str,
    ) -> Self {
        Self {
            socket,
            batch: Batch::new(reading.batch, options.snaplen as usize),
            interface: options.interface.clone(),
            backend,
            presence,
            drops_seen: 0,
            stats: SourceStats::default(),
        }
    }
}

fn prepare(socket: PacketSocket, reading: PlainReading) -> Result<PacketSocket, sys::packet::PacketError> {
    socket.set_ancillary()?;
    socket.set_receive_buffer(reading.buffer_bytes)?;
    Ok(socket)
}

impl Source for PacketSource {
    fn backend(&self) -> &'static str {
        self.backend
    }

    fn receive<F: FnMut(Frame<'_>)>(&mut self, timeout: Duration, mut each: F) -> Result<usize, PortError> {
        let mut n = self.take_batch()?;
        if n == 0 {
            self.presence.check(&self.socket)?;
            let explain = |e| explain(self.backend, &self.interface, e);
            match self.socket.wait(timeout).map_err(explain)? {
                Readiness::Nothing => return Ok(0),
                Readiness::Ready => {}
                Readiness::Failed => {
                    if self.socket.take_error().map_err(explain)?.is_some() {
                        self.presence.failed();
                    }
                }
            }
            n = self.take_batch()?;
        }
        for packet in self.batch.packets(n) {
            let lost_before = packet.drops.wrapping_sub(self.drops_seen);
            // A packet that was queued before the first loss carries no count.
            let lost_before = if packet.drops == 0 { 0 } else { lost_before };
            self.drops_seen = self.drops_seen.wrapping_add(lost_before);
            each(Frame {
                timestamp_ns: packet.timestamp_ns,
                wire_len: packet.wire_len,
                data: packet.data,
                vlan: packet.vlan.map(|(tpid, tci)| VlanTag { tpid, tci }),
                direction: Direction::of(packet.kind),
                unfinished: false,
                judged: None,
                lost_before,
            });
        }
        self.stats.delivered += n as u64;
        Ok(n)
    }

    fn interface(&self) -> &str {
        &self.interface
    }

    fn is_down(&self) -> bool {
        self.presence.is_down()
    }

    fn close_intake(&mut self) -> Result<(), PortError> {
        members::close_intake(&self.socket).map_err(|e| explain(self.backend, &self.interface, e))
    }

    fn stats(&mut self) -> Result<SourceStats, PortError> {
        let new = self.socket.take_statistics().map_err(|e| explain(self.backend, &self.interface, e))?;
        self.stats.dropped += u64::from(new.drops);
        Ok(self.stats)
    }
}
