//! The sources of a stage, opened in the server's namespace.

use bpf::XdpMode;
use port::{
    Group, PacketOptions, PacketSource, PlainReading, PortError, RingSource, TapOptions, TapSource, WHOLE_FRAME,
    XdpOptions, XdpSource,
};
use rig::readers::{PLAIN_BUFFER_BYTES, Readers};
use sys::packet::{Fanout, FanoutAlgorithm, RingLayout};

use crate::plan::{Backend, StagePlan};

/// The ring of each member.
const RING: RingLayout = RingLayout { block_bytes: 1 << 18, blocks: 128, retire_ms: 60, rx_hash: false, node: None };

/// The readers of a stage.
#[derive(Debug)]
pub(crate) struct Receiving {
    pub(crate) readers: Readers,
    /// The mode in which the XDP program was attached; none for AF_PACKET.
    pub(crate) mode: Option<String>,
    /// The place where frames are lost when a reader is too slow.
    pub(crate) place: &'static str,
}

/// Opens the sources of `stage` on `interface` in the calling thread's namespace, and starts a reader for each.
///
/// # Errors
/// The port's.
pub(crate) fn open(stage: &StagePlan, interface: &str) -> Result<Receiving, PortError> {
    let readers = stage.reader_cpus.len();
    let group = Group {
        fanout: Fanout { algorithm: FanoutAlgorithm::Cpu, defrag: false, rollover: false, ignore_outgoing: true },
        members: readers,
        program: None,
    };
    let packet = PacketOptions {
        interface: interface.to_owned(),
        filter: Vec::new(),
        snaplen: WHOLE_FRAME,
        promiscuous: true,
        ignore_outgoing: true,
    };
    let plain = PlainReading { batch: 1, buffer_bytes: PLAIN_BUFFER_BYTES };
    Ok(match (stage.backend, readers) {
        (Backend::Packet, 1) => started(stage, vec![PacketSource::open(&packet, plain)?], None, "socket buffer full"),
        (Backend::Packet, _) => {
            started(stage, PacketSource::open_group(&packet, plain, &group)?, None, "socket buffers full")
        }
        (Backend::Ring, 1) => started(stage, vec![RingSource::open(&packet, RING)?], None, "ring full"),
        (Backend::Ring, _) => started(stage, RingSource::open_group(&packet, RING, &group)?, None, "rings full"),
        (Backend::Tap | Backend::TapConsume, _) => {
            let mut options = TapOptions::new(interface);
            options.promiscuous = true;
            options.consume = stage.backend == Backend::TapConsume;
            let sources = TapSource::open(&options, readers)?;
            let mode = sources.first().map(|s| format!("XDP {}", s.mode()));
            started(stage, sources, mode, "shared memory full (the reader was too slow)")
        }
        (Backend::Xdp, _) => {
            let mut options = XdpOptions::new(interface);
            options.promiscuous = true;
            let sources = XdpSource::open(&options, readers)?;
            let copy = |s: &XdpSource| if s.is_zero_copy() { "zero-copy" } else { "copy" };
            let mode = sources.first().map(|s| match s.mode() {
                XdpMode::Native => format!("XDP native, {}", copy(s)),
                other => format!("XDP {other}, {}", copy(s)),
            });
            started(stage, sources, mode, "AF_XDP queue full (the reader was too slow)")
        }
    })
}

fn started<S: port::Source + 'static>(
    stage: &StagePlan,
    sources: Vec<S>,
    mode: Option<String>,
    place: &'static str,
) -> Receiving {
    Receiving { readers: Readers::start(sources, &stage.reader_cpus), mode, place }
}
