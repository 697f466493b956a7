//! A namespace with two tap devices, and what sends and receives on them.

use std::time::{Duration, Instant};

use guest::{Card, Nic};
use lab::{
    Lab, Namespace,
    boxes::{Family, Target},
};
use sys::{
    packet::{Batch, PacketSocket},
    packet_batch::PacketBatch,
};
use wire::{FlowKey, FrameSize, Kind, Mac, Template};

use crate::{BenchError, dut::TestPort, outside::Addressing};

/// IPv4 (IEEE 802 numbers).
const IPV4: u16 = 0x0800;
const PORTS: (u16, u16) = (1024, 9);
const FRAME_COUNT: usize = 64;
const FRAME_MAX: usize = 1514;
const BUFFER_BYTES: u32 = 1 << 20;
/// A burst that has not come out after this time is lost: emulation is slow, and not that slow.
const BURST_TIMEOUT: Duration = Duration::from_secs(2);

/// The addresses of the tester on each side (RFC 2544).
const TESTER: [&str; 2] = ["198.18.0.2", "198.19.0.2"];
/// An address without a route (RFC 5737).
const NOWHERE: &str = "203.0.113.9";
/// The hardware addresses of the guest's cards.
pub(super) const MACS: [&str; 2] = ["52:54:00:ec:00:01", "52:54:00:ec:00:02"];

/// The namespace and its tap devices. They go when it is dropped.
pub(crate) struct Bed {
    pub(crate) space: Namespace,
    pub(super) taps: [String; 2],
    pub(crate) macs: [Mac; 2],
    indexes: [u32; 2],
    _lab: Lab,
}

impl std::fmt::Debug for Bed {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Bed").field("taps", &self.taps).finish_non_exhaustive()
    }
}

impl Bed {
    pub(crate) fn new(nic: &Nic) -> Result<Self, BenchError> {
        let lab = Lab::new("guest")?;
        let space = lab.namespace("ports")?;
        // Nobody but the tester speaks there.
        space.set_sysctl("net.ipv6.conf.default.disable_ipv6", "1")?;
        let taps = [lab.interface("ga"), lab.interface("gb")];
        let (mut macs, mut indexes) = ([Mac::default(); 2], [0; 2]);
        for (at, tap) in taps.iter().enumerate() {
            let mut words = vec!["tuntap", "add", "dev", tap, "mode", "tap"];
            if *nic == Nic::VirtioMq {
                words.push("multi_queue");
            }
            space.run(|| ip(&words).and_then(|()| ip(&["link", "set", tap, "up"])))??;
            let read = |what: &str| {
                let path = format!("/sys/class/net/{tap}/{what}");
                let text = space.run(|| std::fs::read_to_string(&path))?;
                text.map_err(|e| BenchError::Machine(format!("cannot read {path}: {e}")))
            };
            macs[at] = read("address")?
                .trim()
                .parse()
                .map_err(|_| BenchError::Machine(format!("{tap} has no hardware address")))?;
            indexes[at] = read("ifindex")?.trim().parse().unwrap_or(0);
        }
        Ok(Self { space, taps, macs, indexes, _lab: lab })
    }

    /// The ports of a tester at them, to a box that routes, or that carries each frame as it is from one to the other.
    pub(super) fn ports(&self, routes: bool) -> Result<[TestPort; 2], BenchError> {
        let at = Addressing::routed(Family::V4);
        let port = |side: usize| -> Result<TestPort, BenchError> {
            let next: Mac = MACS[side].parse().map_err(|_| unusable(&"no address"))?;
            let mac = if routes { next } else { self.macs[1 - side] };
            let [sources, destinations] = [at.hosts[side], at.hosts[1 - side]];
            let target = Target { mac, source_mac: self.macs[side], sources, destinations };
            Ok(TestPort::within(self.space.handle(), &self.taps[side], self.macs[side], target))
        };
        Ok([port(0)?, port(1)?])
    }

    /// The target of each direction: the number of the tap device, and a frame of `size` that the guest forwards to the other.
    pub(crate) fn both_ways(&self, size: FrameSize) -> Result<[(u32, Vec<u8>); 2], BenchError> {
        let [first, second] = [0, 1].map(|from| self.frame(from, TESTER[1 - from], size));
        Ok([(self.indexes[0], first?), (self.indexes[1], second?)])
    }

    /// A frame from the tester's side `from` through the guest to the address `to`.
    fn frame(&self, from: usize, to: &str, size: FrameSize) -> Result<Vec<u8>, BenchError> {
        let address = |text: &str| text.parse().map_err(|_| unusable(&"no address"));
        let destination: Mac = MACS[from].parse().map_err(|_| unusable(&"no address"))?;
        let template =
            Template { destination, source: self.macs[from], tags: [None; wire::ethernet::TAGS_MAX], kind: Kind::Udp };
        let (source, destination) = (address(TESTER[from])?, address(to)?);
        let flow = FlowKey { source, destination, source_port: PORTS.0, destination_port: PORTS.1 };
        template.build(&flow, size, 0).map_err(|e| unusable(&e))
    }

    /// The cards of a guest behind the tap devices.
    pub(crate) fn cards(&self) -> Vec<Card> {
        self.taps.iter().zip(MACS).map(|(tap, mac)| Card { tap: tap.clone(), mac: mac.to_owned() }).collect()
    }

    /// Both ends of the tester.
    pub(super) fn ends(&self) -> Result<Ends, BenchError> {
        let (frame, stray) = (self.frame(0, TESTER[1], FrameSize::MIN)?, self.frame(0, NOWHERE, FrameSize::MIN)?);
        let failed = |e: &dyn std::fmt::Display| unusable(e);
        let open = || -> Result<_, BenchError> {
            let out = PacketBatch::open(self.indexes[0], frame.len(), BUFFER_BYTES as usize).map_err(|e| failed(&e))?;
            let socket = PacketSocket::open().map_err(|e| failed(&e))?;
            let set = || {
                socket.set_receive_buffer(BUFFER_BYTES)?;
                socket.set_ignore_outgoing()?;
                socket.bind_for(self.indexes[1], IPV4)
            };
            set().map_err(|e| failed(&e))?;
            Ok((out, socket))
        };
        let (out, socket) = self.space.run(open)??;
        Ok(Ends { out, socket, batch: Batch::new(FRAME_COUNT, FRAME_MAX), frame, stray })
    }
}

/// The sender on the first tap device and the receiver on the second.
pub(super) struct Ends {
    out: PacketBatch,
    socket: PacketSocket,
    batch: Batch,
    frame: Vec<u8>,
    /// A frame without a route.
    stray: Vec<u8>,
}

impl Ends {
    /// Sends so many frames that the guest has no route for.
    pub(super) fn strand(&mut self, frames: u32) -> Result<(), BenchError> {
        for _ in 0..frames {
            self.out.push(&self.stray);
        }
        self.out.flush().map(drop).map_err(|e| BenchError::Machine(format!("cannot send to the guest: {e}")))
    }

    /// Sends so many frames, `burst` of them under way at once; how many did not come out.
    pub(super) fn train(&mut self, frames: u32, burst: u32) -> Result<u64, BenchError> {
        let failed = |e: &dyn std::fmt::Display| BenchError::Machine(format!("cannot send to the guest: {e}"));
        let mut lost = 0;
        for _ in 0..frames / burst {
            for _ in 0..burst {
                self.out.push(&self.frame);
            }
            self.out.flush().map_err(|e| failed(&e))?;
            let (mut came, began) = (0, Instant::now());
            while came < burst && began.elapsed() < BURST_TIMEOUT {
                self.socket.wait(BURST_TIMEOUT.saturating_sub(began.elapsed())).map_err(|e| failed(&e))?;
                let count = self.batch.receive(&self.socket).map_err(|e| failed(&e))?;
                came += self.batch.packets(count).filter(|packet| packet.data.len() >= 60).count() as u32;
            }
            lost += u64::from(burst.saturating_sub(came));
        }
        Ok(lost)
    }
}

fn unusable(e: &dyn std::fmt::Display) -> BenchError {
    BenchError::Machine(format!("cannot use the tap devices: {e}"))
}

/// Runs ip(8) in this thread's namespace.
fn ip(words: &[&str]) -> Result<(), BenchError> {
    let done = sys::program::command("ip").args(words).output();
    let done = done.map_err(|e| BenchError::Machine(format!("cannot run ip: {e}; apt install iproute2")))?;
    match done.status.success() {
        true => Ok(()),
        false => {
            let stderr = host::ssh::last_words(&String::from_utf8_lossy(&done.stderr));
            Err(BenchError::Machine(format!("cannot make a tap device (ip {}): {stderr}", words.join(" "))))
        }
    }
}
