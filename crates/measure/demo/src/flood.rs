//! The flood: SYNs of 60 bytes from many sources, a sender on each of its cores.

use std::{
    net::{IpAddr, Ipv4Addr},
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
        mpsc,
    },
    thread,
    time::Duration,
};

use bpf::{LivePace, LivePacket, LiveSender};
use nix::time::{ClockId, clock_gettime};
use rig::MeasureError;
use sys::{affinity::pin_current_thread, interrupt::InterruptibleThread};
use wire::{FlowKey, FrameSize, Kind, Template};

use crate::{
    bed::{Bed, SERVER},
    error::DemoError,
};

/// The length of a frame without its checksum, in bytes: the smallest that Ethernet has.
pub(crate) const FRAME_BYTES: usize = 60;
/// Sources of each sender; every one comes up once in a cycle.
const SOURCE_COUNT: u32 = 8192;
/// The sleep between two bursts of a paced sender.
const BURST_PERIOD: Duration = Duration::from_micros(50);
/// The packets that each sender tells apart: the lower half of the sequence number counts up.
const TCP_SEQUENCE: u32 = 0x0001_0000;

#[derive(Debug, Clone, Copy, PartialEq, Default)]
pub(crate) struct FloodResult {
    /// Frames handed to the interface.
    pub sent: u64,
    /// The longest time that a sender took, in seconds.
    pub seconds: f64,
    /// CPU time of all senders together, in nanoseconds.
    pub cpu_ns: u64,
    /// Time that senders were behind and gave up to catch up, in seconds, summed: more than a trace means that they were the limit.
    pub behind_seconds: f64,
}

/// The senders of a flood, loaded and ready.
#[derive(Debug)]
pub(crate) struct Flood {
    senders: Vec<(u32, LiveSender)>,
}

impl Flood {
    /// Loads a sender for each CPU of `cpus`; together they make `pps` packets per second, or as many as they can.
    pub(crate) fn load(bed: &Bed, cpus: &[u32], pps: Option<f64>, duration: Duration) -> Result<Self, DemoError> {
        let share = pps.map(|pps| pps / cpus.len() as f64);
        let pace = LivePace { pps: share, count: None, duration, nap: share.map(|_| BURST_PERIOD) };
        bed.attacker.run(|| {
            let senders = cpus.iter().zip(0..).map(|(&cpu, i)| Ok((cpu, sender(bed, i, pace)?)));
            Ok(Self { senders: senders.collect::<Result<_, DemoError>>()? })
        })?
    }

    /// Sends until the duration is over, or `stop` is set when `meanwhile` returns, which runs in the calling thread.
    pub(crate) fn run<T>(
        self,
        bed: &Bed,
        stop: &AtomicBool,
        meanwhile: impl FnOnce() -> T,
    ) -> Result<(FloodResult, T), DemoError> {
        let senders = Arc::new(self.senders);
        thread::scope(|scope| {
            let (ready, all_ready) = mpsc::channel();
            let threads: Vec<_> = (0..senders.len())
                .map(|i| {
                    let (senders, ready) = (Arc::clone(&senders), ready.clone());
                    scope.spawn(move || -> Result<u64, DemoError> {
                        let (cpu, sender) = &senders[i];
                        bed.attacker.enter()?;
                        pin_current_thread(*cpu).map_err(|source| MeasureError::Pin {
                            who: "sender",
                            cpu: *cpu,
                            source,
                        })?;
                        let _ = nix::sys::prctl::set_timerslack(1);
                        // The receiver takes until every sender has spoken or ended.
                        let _ = ready.send((i, InterruptibleThread::current().map_err(DemoError::Signals)?));
                        drop(ready);
                        sender.run()?;
                        let spent = clock_gettime(ClockId::CLOCK_THREAD_CPUTIME_ID).map(Duration::from);
                        Ok(spent.unwrap_or_default().as_nanos() as u64)
                    })
                })
                .collect();
            drop(ready);
            let interruptible: Vec<_> = all_ready.iter().collect();
            let value = meanwhile();
            if stop.load(Ordering::Relaxed) {
                senders.iter().for_each(|(_, sender)| sender.stop());
            }
            // A sender that is done goes on with empty runs of its program until a signal makes the kernel look.
            while threads.iter().any(|t| !t.is_finished()) {
                for &(i, thread) in &interruptible {
                    if senders[i].1.counts().done || stop.load(Ordering::Relaxed) {
                        thread.interrupt();
                    }
                }
                thread::sleep(Duration::from_millis(1));
            }
            let mut result = FloodResult::default();
            for thread in threads {
                result.cpu_ns += thread.join().map_err(|_| MeasureError::Panicked("sender of the flood"))??;
            }
            for (_, sender) in senders.iter() {
                let counts = sender.counts();
                result.sent += counts.sent;
                result.seconds = result.seconds.max(counts.elapsed_ns as f64 / 1e9);
                result.behind_seconds += counts.given_up_ns as f64 / 1e9;
            }
            Ok((result, value))
        })
    }
}

/// A sender with its own sources out of 198.19.0.0/16.
fn sender(bed: &Bed, number: u32, pace: LivePace) -> Result<LiveSender, DemoError> {
    let template = Template {
        destination: wire::Mac(Bed::mirrored_mac().0),
        source: wire::Mac(bed.attacker_end.mac.0),
        tags: [None; 2],
        kind: Kind::TcpSyn,
    };
    let size = FrameSize::in_memory(FRAME_BYTES);
    let frames: Vec<Vec<u8>> = (0..SOURCE_COUNT)
        .map(|i| {
            // An odd factor scatters the sources over the network and meets each once.
            let scattered = (number * SOURCE_COUNT + i).wrapping_mul(0x9e37_79b1);
            let flow = FlowKey {
                source: IpAddr::V4(Ipv4Addr::from_bits(0xc613_0000 | scattered >> 16)),
                destination: IpAddr::V4(SERVER),
                source_port: 1024 + (scattered & 0x7fff) as u16,
                destination_port: 80,
            };
            template.build(&flow, size, TCP_SEQUENCE)
        })
        .collect::<Result<_, _>>()?;
    let headers = template.headers_len(false);
    let cycle: Vec<LivePacket<'_>> =
        frames.iter().map(|f| LivePacket { headers: &f[..headers], frame_len: f.len() }).collect();
    let transport = template.transport_offset(false);
    Ok(LiveSender::load(&bed.attacker_end.name, frames[0].clone(), &cycle, Some(transport), pace)?)
}
