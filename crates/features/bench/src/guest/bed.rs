//! A namespace with two tap devices, and what sends and receives on them.

use std::time::{Duration, Instant};

use guest::Nic;
use lab::{Lab, Namespace};
use sys::{
    packet::{Batch, PacketSocket},
    packet_batch::PacketBatch,
};
use wire::{FlowKey, FrameSize, Kind, Mac, Template};

use crate::BenchError;

/// IPv4 (IEEE 802 numbers).
const IPV4: u16 = 0x0800;
const PORTS: (u16, u16) = (1024, 9);
const FRAMES: usize = 64;
const FRAME_MAX: usize = 1514;
const BUFFER_BYTES: u32 = 1 << 20;
/// A burst that has not come out after this time is lost: emulation is slow, and not that slow.
const LOST: Duration = Duration::from_secs(2);

/// The addresses of the tester and of the guest, on each side.
pub(super) const TESTER: [&str; 2] = ["198.18.0.2", "198.19.0.2"];
pub(super) const GUEST: [&str; 2] = ["198.18.0.1", "198.19.0.1"];
/// One that it has no route to (RFC 5737).
const NOWHERE: &str = "203.0.113.9";
/// The hardware addresses of the guest's cards.
pub(super) const MACS: [&str; 2] = ["52:54:00:ec:00:01", "52:54:00:ec:00:02"];

/// The namespace and its tap devices. They go when it is dropped.
pub(super) struct Bed {
    pub(super) space: Namespace,
    pub(super) taps: [String; 2],
    /// Of the taps.
    pub(super) macs: [Mac; 2],
    indexes: [u32; 2],
    _lab: Lab,
}

impl Bed {
    pub(super) fn new(nic: &Nic) -> Result<Self, BenchError> {
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

    /// Both ends of the tester.
    pub(super) fn ends(&self) -> Result<Ends, BenchError> {
        let failed = |e: &dyn std::fmt::Display| BenchError::Machine(format!("cannot use the tap devices: {e}"));
        let destination: Mac = MACS[0].parse().map_err(|_| failed(&"no address"))?;
        let template =
            Template { destination, source: self.macs[0], tags: [None; wire::ethernet::MAX_TAGS], kind: Kind::Udp };
        let address = |text: &str| text.parse().map_err(|_| failed(&"no address"));
        let frame = |to: &str| {
            let (source, destination) = (address(TESTER[0])?, address(to)?);
            let flow = FlowKey { source, destination, source_port: PORTS.0, destination_port: PORTS.1 };
            template.build(&flow, FrameSize::MIN, 0).map_err(|e| failed(&e))
        };
        let (frame, stray) = (frame(TESTER[1])?, frame(NOWHERE)?);
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
        Ok(Ends { out, socket, batch: Batch::new(FRAMES, FRAME_MAX), frame, stray })
    }
}

/// What sends on the first tap device and receives on the second.
pub(super) struct Ends {
    out: PacketBatch,
    socket: PacketSocket,
    batch: Batch,
    frame: Vec<u8>,
    /// One without a route.
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
            while came < burst && began.elapsed() < LOST {
                self.socket.wait(LOST.saturating_sub(began.elapsed())).map_err(|e| failed(&e))?;
                let count = self.batch.receive(&self.socket).map_err(|e| failed(&e))?;
                came += self.batch.packets(count).filter(|packet| packet.data.len() >= 60).count() as u32;
            }
            lost += u64::from(burst.saturating_sub(came));
        }
        Ok(lost)
    }
}

/// Runs ip(8) in this thread's namespace.
fn ip(words: &[&str]) -> Result<(), BenchError> {
    let done = sys::program::command("ip").args(words).output();
    let done = done.map_err(|e| BenchError::Machine(format!("cannot run ip: {e}; apt install iproute2")))?;
    match done.status.success() {
        true => Ok(()),
        false => {
            let said = host::ssh::last_words(&String::from_utf8_lossy(&done.stderr));
            Err(BenchError::Machine(format!("cannot make a tap device (ip {}): {said}", words.join(" "))))
        }
    }
}
