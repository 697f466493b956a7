//! The flood: SYNs of the smallest size, the source of each drawn anew.

use std::{
    sync::{
        Arc,
        mpsc::{self, RecvTimeoutError},
    },
    thread::{self, JoinHandle},
    time::Duration,
};

use bpf::{LiveCounts, LivePace, LivePacket, LiveSender, RandomSources};
use lab::NamespaceHandle;
use sys::{affinity::pin_current_thread, interrupt::InterruptibleThread};
use wire::{FlowKey, Kind, Mac, Template};

use super::addresses::Addresses;
use crate::BenchError;

/// Nobody floods longer than this, whatever happens.
const SEND_TIMEOUT: Duration = Duration::from_secs(120);
/// The time between two interrupts of a sender that is to end.
const INTERRUPT_PERIOD: Duration = Duration::from_millis(1);
/// The seed of the random sources.
const SEED: u64 = 0x9e37_79b9_7f4a_7c15;

/// A flood under way; it ends when it is dropped.
pub(super) struct Attack {
    sender: Arc<LiveSender>,
    thread: Option<Sending>,
}

/// The thread that sends, a way to interrupt it, and what is hung up when it ends.
struct Sending {
    thread: JoinHandle<Result<(), BenchError>>,
    interrupt: InterruptibleThread,
    ended: mpsc::Receiver<()>,
}

/// A SYN to the server from the first of the spoofed sources, and what it was made of.
fn frame(addresses: &Addresses, (source, destination): (Mac, Mac)) -> Result<(Template, Vec<u8>), BenchError> {
    let template = Template { destination, source, tags: [None; wire::ethernet::TAGS_MAX], kind: Kind::TcpSyn };
    let flow = FlowKey {
        source: addresses.first_spoofed(),
        destination: addresses.server.ip(),
        source_port: 1024,
        destination_port: addresses.server.port(),
    };
    let frame = template
        .build(&flow, template.min_size(addresses.server.is_ipv6()), 0)
        .map_err(|e| BenchError::Machine(format!("cannot build the flood's frame: {e}")))?;
    Ok((template, frame))
}

/// The length of each frame in bytes, without FCS.
pub(super) fn frame_bytes(addresses: &Addresses) -> Result<u32, BenchError> {
    Ok(frame(addresses, (Mac([0; 6]), Mac([0; 6])))?.1.len() as u32)
}

impl Attack {
    /// Begins it on `cpu`, through `interface` of `net`.
    pub(super) fn start(
        net: &NamespaceHandle,
        interface: &str,
        macs: (Mac, Mac),
        addresses: &Addresses,
        pps: Option<f64>,
        cpu: u32,
    ) -> Result<Self, BenchError> {
        let (template, frame) = frame(addresses, macs)?;
        let ipv6 = addresses.server.is_ipv6();
        let headers = template.headers_len(ipv6);
        let (bits, networks) = addresses.drawn;
        let random = RandomSources {
            ip_offset: template.ip_offset(),
            transport_offset: template.transport_offset(ipv6),
            bits,
            networks,
            seed: SEED,
        };
        let pace = LivePace { pps, count: None, duration: SEND_TIMEOUT, nap: None };
        let load = || {
            let cycle = [LivePacket { headers: &frame[..headers], frame_len: frame.len() }];
            LiveSender::load_with(interface, frame.clone(), &cycle, Some(random.transport_offset), Some(random), pace)
        };
        let sender = Arc::new(net.run(load)??);
        let (ready, is_ready) = mpsc::channel();
        let (alive, ended) = mpsc::channel();
        let (inside, mine) = (net.clone(), Arc::clone(&sender));
        let work = move || -> Result<(), BenchError> {
            // Dropped at the end, however it comes.
            let _alive: mpsc::Sender<()> = alive;
            inside.enter()?;
            pin_current_thread(cpu).map_err(|e| BenchError::Machine(format!("cannot send from CPU {cpu}: {e}")))?;
            let interrupt = InterruptibleThread::current()
                .map_err(|e| BenchError::Machine(format!("cannot set a signal's handler: {e}")))?;
            // Nobody listens any more only if the flood was given up.
            let _ = ready.send(interrupt);
            Ok(mine.run()?)
        };
        let thread = thread::Builder::new().name("ek-flood".into()).spawn(work);
        let thread = thread.map_err(|e| BenchError::Machine(format!("cannot start a thread: {e}")))?;
        match is_ready.recv() {
            Ok(interrupt) => Ok(Self { sender, thread: Some(Sending { thread, interrupt, ended }) }),
            Err(_) => match thread.join() {
                Ok(Err(error)) => Err(error),
                _ => Err(BenchError::Panicked("flood's sender")),
            },
        }
    }

    /// Ends it, and says what was sent.
    pub(super) fn stop(mut self) -> Result<LiveCounts, BenchError> {
        self.end()?;
        Ok(self.sender.counts())
    }

    fn end(&mut self) -> Result<(), BenchError> {
        let Some(Sending { thread, interrupt, ended }) = self.thread.take() else { return Ok(()) };
        self.sender.stop();
        // It may not yet be inside the call that a signal ends.
        loop {
            interrupt.interrupt();
            if ended.recv_timeout(INTERRUPT_PERIOD) != Err(RecvTimeoutError::Timeout) {
                break;
            }
        }
        thread.join().map_err(|_| BenchError::Panicked("flood's sender"))?
    }
}

impl Drop for Attack {
    fn drop(&mut self) {
        // Whoever drops it has another error to tell.
        let _ = self.end();
    }
}
