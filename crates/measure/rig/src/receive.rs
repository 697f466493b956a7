//! Ways to receive frames: the sources of a backend, with a reader for each.

use bpf::XdpMode;
use port::{
    Group, PacketOptions, PacketSource, PlainReading, RingSource, Source, TapOptions, TapSource, WHOLE_FRAME,
    XdpOptions, XdpSource,
};
use sys::packet::{Fanout, FanoutAlgorithm, RingLayout};

use crate::{MeasureError, readers::Readers};

/// The socket buffer of a plain socket: the default of a machine that nobody tuned (net.core.rmem_default).
const PLAIN_BUFFER_BYTES: u32 = 212_992;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Backend {
    /// A packet per system call through a plain AF_PACKET socket.
    Packet,
    Ring,
    /// Copied in XDP; the frame goes on to the stack.
    Tap,
    /// Copied in XDP; the frame ends there.
    TapConsume,
    Xdp,
}

#[derive(Debug, Clone, Copy)]
pub struct Sources {
    pub backend: Backend,
    /// The number of sources. Several AF_PACKET sockets are a fanout group.
    pub members: usize,
    /// The choice of a member of the group.
    pub fanout: FanoutAlgorithm,
    /// 256 KiB blocks of each ring.
    pub ring_blocks: u32,
}

/// Readers at work, one for each source.
#[derive(Debug)]
pub struct Receiving {
    pub readers: Readers,
    /// The mode in which the XDP program was attached; none for AF_PACKET.
    pub mode: Option<String>,
    /// The place where frames are lost when a reader is too slow.
    pub place: &'static str,
}

impl Sources {
    /// Opens the sources on `interface` in the calling thread's namespace, and starts a reader for each, on `cpus` in turn.
    pub fn open(&self, interface: &str, cpus: &[u32]) -> Result<Receiving, MeasureError> {
        let alone = self.members == 1;
        let fanout = Fanout { algorithm: self.fanout, defrag: false, rollover: false, ignore_outgoing: true };
        let group = Group { fanout, members: self.members, program: None };
        let ring =
            RingLayout { block_bytes: 1 << 18, blocks: self.ring_blocks, retire_ms: 60, rx_hash: false, node: None };
        let packet = PacketOptions {
            interface: interface.to_owned(),
            filter: Vec::new(),
            snaplen: WHOLE_FRAME,
            promiscuous: true,
            ignore_outgoing: true,
        };
        let plain = PlainReading { batch: 1, buffer_bytes: PLAIN_BUFFER_BYTES };
        Ok(match self.backend {
            Backend::Packet if alone => {
                started(vec![PacketSource::open(&packet, plain)?], cpus, None, "socket buffer full")
            }
            Backend::Packet => {
                started(PacketSource::open_group(&packet, plain, &group)?, cpus, None, "socket buffer full")
            }
            Backend::Ring if alone => started(vec![RingSource::open(&packet, ring)?], cpus, None, "ring full"),
            Backend::Ring => started(RingSource::open_group(&packet, ring, &group)?, cpus, None, "rings full"),
            Backend::Tap | Backend::TapConsume => {
                let mut options = TapOptions::new(interface);
                options.promiscuous = true;
                options.consume = self.backend == Backend::TapConsume;
                let sources = TapSource::open(&options, self.members)?;
                let mode = sources.first().map(|s| format!("XDP {}", s.mode()));
                started(sources, cpus, mode, "shared memory full (the reader was too slow)")
            }
            Backend::Xdp => {
                let mut options = XdpOptions::new(interface);
                options.promiscuous = true;
                let sources = XdpSource::open(&options, self.members)?;
                let copy = |s: &XdpSource| if s.is_zero_copy() { "zero-copy" } else { "copy" };
                let mode = sources.first().map(|s| match s.mode() {
                    XdpMode::Native => format!("XDP native, {}", copy(s)),
                    other => format!("XDP {other}, {}", copy(s)),
                });
                started(sources, cpus, mode, "AF_XDP queue full (the reader was too slow)")
            }
        })
    }
}

fn started<S: Source + 'static>(sources: Vec<S>, cpus: &[u32], mode: Option<String>, place: &'static str) -> Receiving {
    Receiving { readers: Readers::start(sources, cpus), mode, place }
}
