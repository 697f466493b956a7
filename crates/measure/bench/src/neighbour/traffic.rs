//! A neighbour that sends: frames of 512 bytes both ways through a router with ports of its own.

use std::{
    fmt, fs,
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicU32, Ordering},
    },
    thread,
    time::{Duration, Instant},
};

use lab::{
    BoxKind, BoxSpec, Lab, NamespaceHandle, TestBox,
    boxes::{Napi, Target},
};
use model::CpuSet;
use sys::{affinity::pin_current_thread, packet_batch::PacketBatch, worker::Worker};
use wire::{FlowKey, FrameSize, Kind, Template};

use crate::BenchError;

/// Bytes of a frame with FCS.
pub(super) const FRAME_BYTES: usize = 512;
/// A sender sends what is due this often.
const SEND_PERIOD: Duration = Duration::from_millis(1);
const PORTS: (u16, u16) = (1024, 9);
const BUFFER_BYTES: usize = 1 << 20;

/// Senders under way, and their router where it is one of this machine. They end when it is dropped.
pub(super) struct Traffic {
    senders: Vec<Sending>,
    _router: Option<(TestBox, Lab)>,
}

/// A sender's namespace and interface, and its frame.
pub(super) type End = (NamespaceHandle, u32, Vec<u8>);

/// A sender, and the number of its thread.
type Sending = (Worker, Arc<AtomicU32>);

impl fmt::Debug for Traffic {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Traffic").field("senders", &self.senders.len()).finish_non_exhaustive()
    }
}

impl Traffic {
    /// So many Mbit/s each way, sent from `cpus`, which then forward, too.
    pub(super) fn start(megabits: f64, cpus: &CpuSet) -> Result<Self, BenchError> {
        let lab = Lab::new("neighbour")?;
        let router = TestBox::build(&lab, &BoxSpec { napi: Napi::Inline, ..BoxSpec::new(BoxKind::Router) })?;
        let place = router.sender();
        let mut ends = vec![(place.namespace.handle(), place.end.index, frame(router.target())?)];
        if let (Some(place), Some(back)) = (router.receiver(), router.back()) {
            ends.push((place.namespace.handle(), place.end.index, frame(back)?));
        }
        let mut traffic = Self::send(megabits, ends, cpus)?;
        traffic._router = Some((router, lab));
        Ok(traffic)
    }

    /// So many Mbit/s from each end, sent from `cpus`.
    pub(super) fn send(megabits: f64, ends: Vec<End>, cpus: &CpuSet) -> Result<Self, BenchError> {
        let pps = megabits * 1e6 / (8.0 * FRAME_BYTES as f64);
        let cpus: Vec<u32> = cpus.iter().collect();
        let mut senders = Vec::new();
        for (at, (namespace, ifindex, frame)) in ends.into_iter().enumerate() {
            let cpu = cpus[at % cpus.len()];
            let tid = Arc::new(AtomicU32::new(0));
            let mine = Arc::clone(&tid);
            // Nobody waits for its error: the figures show that it sends no more.
            let work = move |stop: &AtomicBool| drop(send(&namespace, ifindex, &frame, pps, cpu, (stop, &mine)));
            let sender = Worker::start("ek-neighbour", work);
            let sender = sender.map_err(|e| BenchError::Machine(format!("cannot start a thread: {e}")))?;
            senders.push((sender, tid));
        }
        Ok(Self { senders, _router: None })
    }

    /// Processor time of the senders so far, in nanoseconds, with what they forward.
    pub(super) fn ran_ns(&self) -> u64 {
        let of = |tid: u32| {
            let text = fs::read_to_string(format!("/proc/self/task/{tid}/schedstat")).unwrap_or_default();
            text.split_whitespace().next().and_then(|ran| ran.parse::<u64>().ok()).unwrap_or(0)
        };
        self.senders.iter().map(|(_, tid)| of(tid.load(Ordering::Relaxed))).sum()
    }
}

fn frame(target: Target) -> Result<Vec<u8>, BenchError> {
    let kind = Kind::Udp;
    let template =
        Template { destination: target.mac, source: target.source_mac, tags: [None; wire::ethernet::TAGS_MAX], kind };
    let flow = FlowKey {
        source: target.sources.address,
        destination: target.destinations.address,
        source_port: PORTS.0,
        destination_port: PORTS.1,
    };
    template
        .build(&flow, FrameSize::with_fcs(FRAME_BYTES), 0)
        .map_err(|e| BenchError::Machine(format!("cannot build a neighbour's frame: {e}")))
}

fn send(
    namespace: &NamespaceHandle,
    ifindex: u32,
    frame: &[u8],
    pps: f64,
    cpu: u32,
    (stop, tid): (&AtomicBool, &AtomicU32),
) -> Result<(), BenchError> {
    let failed = |what: &str, e: &dyn fmt::Display| BenchError::Machine(format!("a neighbour cannot {what}: {e}"));
    tid.store(nix::unistd::gettid().as_raw().cast_unsigned(), Ordering::Relaxed);
    pin_current_thread(cpu).map_err(|e| failed("run on its CPU", &e))?;
    namespace.enter()?;
    let mut out =
        PacketBatch::open(ifindex, frame.len(), BUFFER_BYTES).map_err(|e| failed("open a packet socket", &e))?;
    let (began, mut sent) = (Instant::now(), 0_u64);
    while !stop.load(Ordering::Relaxed) {
        let due = (began.elapsed().as_secs_f64() * pps) as u64;
        while sent < due && out.push(frame) {
            sent += 1;
        }
        out.flush().map_err(|e| failed("send", &e))?;
        thread::sleep(SEND_PERIOD);
    }
    Ok(())
}
