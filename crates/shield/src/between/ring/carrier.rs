//! One direction: threads that read frames of one interface and send what passes by the other one.

use std::{
    ops::Range,
    sync::{
        Arc, PoisonError, RwLock,
        atomic::{AtomicBool, Ordering},
    },
    thread,
    time::{Duration, Instant},
};

use bpf::shield::monotonic_ns;
use port::{Frame, Group, PacketOptions, PortError, RingSource, Source, WHOLE_FRAME};
use sys::{
    link,
    packet::{Fanout, FanoutAlgorithm, RingLayout},
    packet_batch::{BATCH, PacketBatch},
    packet_tx::PacketTxError,
    xsk::interface_mtu,
};

use super::{
    asking::{Question, Strain},
    counts::{Counts, Total},
    engine::{Engine, Judged},
};
use crate::error::ShieldError;

/// How long a thread waits for frames before it looks whether it is to end.
const TICK: Duration = Duration::from_millis(50);
/// How often it asks the kernel for losses, and whether more SYNs come than can be answered.
const LOOK: Duration = Duration::from_millis(100);
/// The kernel's memory for frames that were sent and not yet received: less than 200 small ones, as a veth loses what finds 256 waiting.
const IN_FLIGHT: usize = 1 << 17;
/// The same for questions, which share a queue with what comes from the other side.
const QUESTIONS_IN_FLIGHT: usize = 1 << 17;
const ETHERNET_LEN: usize = 14;
const TAG_LEN: usize = 4;
/// The kernel has room for this tag beyond the MTU, and for no other (packet_extra_vlan_len_allowed).
const VLAN: [u8; 2] = [0x81, 0x00];

/// 8 MB for each thread, blocks handed over after the shortest time that the kernel knows. Each then takes a block of its own, however few
/// frames are in it, so that a ring of few blocks is full as soon as the thread has to wait for its CPU for as many milliseconds.
const LAYOUT: RingLayout = RingLayout { block_bytes: 1 << 17, blocks: 64, retire_ms: 1, rx_hash: false, node: None };

/// One direction.
#[derive(Debug)]
pub(super) struct Carrier {
    from: String,
    to: String,
    /// Which of the counts are its threads'.
    mine: Range<usize>,
    engine: Arc<RwLock<Arc<Engine>>>,
    counts: Arc<Vec<Counts>>,
    stop: Arc<AtomicBool>,
    ways: Vec<Way>,
}

/// What one thread reads from and sends by.
#[derive(Debug)]
struct Way {
    source: RingSource,
    sender: Sender,
    /// To where the frames come from: questions.
    back: Sender,
}

#[derive(Debug)]
struct Sender {
    batch: PacketBatch,
    /// Of a frame without FCS and tags.
    frame_max: usize,
    /// Whether frames wait for room rather than being dropped.
    waits: bool,
    name: String,
}

impl Carrier {
    /// Opens the rings of as many threads as there are counts in `mine`.
    pub(super) fn open(
        from: &str,
        to: &str,
        mine: Range<usize>,
        engine: Arc<RwLock<Arc<Engine>>>,
        counts: Arc<Vec<Counts>>,
        stop: Arc<AtomicBool>,
    ) -> Result<Self, ShieldError> {
        let mut carrier =
            Self { from: from.to_owned(), to: to.to_owned(), mine, engine, counts, stop, ways: Vec::new() };
        carrier.ways = carrier.ways()?;
        Ok(carrier)
    }

    fn ways(&self) -> Result<Vec<Way>, ShieldError> {
        let options = PacketOptions {
            interface: self.from.clone(),
            filter: Vec::new(),
            snaplen: WHOLE_FRAME,
            promiscuous: true,
            ignore_outgoing: true,
        };
        let sources = match self.mine.len() {
            1 => vec![RingSource::open(&options, LAYOUT)?],
            members => {
                // Packets of a flow keep their order; fragments are not put together: they are to cross as they are.
                let fanout =
                    Fanout { algorithm: FanoutAlgorithm::Hash, defrag: false, rollover: false, ignore_outgoing: true };
                RingSource::open_group(&options, LAYOUT, &Group { fanout, members, program: None })?
            }
        };
        let senders = || Ok((Sender::open(&self.to)?, Sender::open_for_questions(&self.from)?));
        sources.into_iter().map(|source| senders().map(|(sender, back)| Way { source, sender, back })).collect()
    }

    /// Carries until it is told to stop. While its interface is down nothing comes; it goes on when that is up again.
    ///
    /// # Errors
    /// An interface is gone, or a ring fails.
    pub(super) fn run(mut self) -> Result<(), ShieldError> {
        loop {
            let mut ways = std::mem::take(&mut self.ways);
            let ended = thread::scope(|scope| {
                let threads: Vec<_> = ways
                    .iter_mut()
                    .zip(&self.counts[self.mine.clone()])
                    .map(|(way, counts)| scope.spawn(|| way.carry(counts, &self.engine, &self.stop)))
                    .collect();
                let broke = |_| Err(ShieldError::Lacking("a thread that carries frames broke off".to_owned()));
                threads.into_iter().map(|thread| thread.join().unwrap_or_else(broke)).fold(Ok(()), Result::and)
            });
            drop(ways);
            match ended {
                Err(ShieldError::Port(PortError::Vanished { .. })) => {}
                other => return other,
            }
            loop {
                if self.stop.load(Ordering::Relaxed) {
                    return Ok(());
                }
                match link::flags(&self.from) {
                    Err(_) => {
                        return Err(ShieldError::Lacking(format!("{} is gone, and the shield with it", self.from)));
                    }
                    Ok(flags) if flags.up => break,
                    Ok(_) => thread::sleep(TICK),
                }
            }
            self.ways = match self.ways() {
                // Down again.
                Err(ShieldError::Port(PortError::InterfaceDown { .. })) => continue,
                other => other?,
            };
        }
    }
}

impl Way {
    fn carry(&mut self, counts: &Counts, engine: &RwLock<Arc<Engine>>, stop: &AtomicBool) -> Result<(), ShieldError> {
        let (mut scratch, mut strain, mut looked) = (Vec::new(), Strain::default(), Looked::default());
        while !stop.load(Ordering::Relaxed) {
            let mut failed = None;
            let (mut holds, sender, back) = (None, &mut self.sender, &mut self.back);
            let each = |frame: Frame<'_>| {
                let bytes = whole(&frame, &mut scratch);
                looked.frames += 1;
                // One set of rules for a block, and that which holds when the block is there; and one time.
                let (engine, now_ns): &(Arc<Engine>, u64) = holds.get_or_insert_with(|| {
                    (engine.read().unwrap_or_else(PoisonError::into_inner).clone(), monotonic_ns())
                });
                let sent = match engine.judge(bytes, *now_ns, counts, &mut strain) {
                    Judged::Pass => sender.send(bytes, counts),
                    Judged::Drop => Ok(()),
                    Judged::Question(question) => back.send(question.bytes(), counts),
                };
                if let Err(error) = sent {
                    failed = Some(error);
                }
            };
            self.source.receive(TICK, each)?;
            self.sender.flush(counts)?;
            self.back.flush(counts)?;
            let time = looked.at.elapsed();
            if time >= LOOK {
                let missed = self.source.stats()?.dropped;
                let lost = missed - looked.missed;
                counts.add(Total::Missed, lost);
                counts.add(Total::Unanswered, strain.look(looked.frames, lost, time));
                looked = Looked { at: Instant::now(), frames: 0, missed };
            }
            if let Some(error) = failed {
                return Err(error);
            }
        }
        Ok(())
    }
}

/// What was there when the kernel was last asked for losses, and what has come since.
struct Looked {
    at: Instant,
    frames: u64,
    /// Lost frames since the start.
    missed: u64,
}

impl Default for Looked {
    fn default() -> Self {
        Self { at: Instant::now(), frames: 0, missed: 0 }
    }
}

/// The frame with the tag that the kernel took out.
fn whole<'a>(frame: &Frame<'a>, scratch: &'a mut Vec<u8>) -> &'a [u8] {
    let Some(tag) = frame.vlan.filter(|_| frame.data.len() >= ETHERNET_LEN - 2) else { return frame.data };
    scratch.clear();
    scratch.extend_from_slice(&frame.data[..ETHERNET_LEN - 2]);
    scratch.extend_from_slice(&tag.tpid.to_be_bytes());
    scratch.extend_from_slice(&tag.tci.to_be_bytes());
    scratch.extend_from_slice(&frame.data[ETHERNET_LEN - 2..]);
    scratch
}

impl Sender {
    fn open(interface: &str) -> Result<Self, ShieldError> {
        let mtu = interface_mtu(interface)
            .map_err(|e| ShieldError::Lacking(format!("cannot read the MTU of {interface}: {e}")))?;
        let frame_max = mtu as usize + ETHERNET_LEN;
        Self::with(interface, frame_max, frame_max + TAG_LEN, IN_FLIGHT, true)
    }

    fn open_for_questions(interface: &str) -> Result<Self, ShieldError> {
        Self::with(interface, Question::MAX, Question::MAX, QUESTIONS_IN_FLIGHT, false)
    }

    fn with(
        interface: &str,
        frame_max: usize,
        place: usize,
        in_flight: usize,
        waits: bool,
    ) -> Result<Self, ShieldError> {
        let index =
            sys::packet::interface_index(interface).ok_or_else(|| port::members::unknown_interface(interface))?;
        let batch = PacketBatch::open(index, place, in_flight)
            .map_err(|e| ShieldError::Lacking(format!("cannot send frames by {interface}: {e}")))?;
        Ok(Self { batch, frame_max, waits, name: interface.to_owned() })
    }

    /// Sends the frame with others. What is too large for the interface, or what that does not take because its link is down, is dropped
    /// and counted.
    fn send(&mut self, frame: &[u8], counts: &Counts) -> Result<(), ShieldError> {
        let max = self.frame_max + if frame.get(12..14) == Some(&VLAN) { TAG_LEN } else { 0 };
        if !(ETHERNET_LEN..=max).contains(&frame.len()) || !self.batch.push(frame) {
            dropped(counts, 1, frame.len());
            return Ok(());
        }
        if self.batch.waiting() < BATCH {
            return Ok(());
        }
        self.flush(counts)?;
        if self.waits {
            // Whoever takes them may need this CPU.
            thread::yield_now();
        }
        Ok(())
    }

    fn flush(&mut self, counts: &Counts) -> Result<(), ShieldError> {
        let (waiting, bytes) = (self.batch.waiting(), self.batch.bytes());
        let lost = match self.batch.flush(self.waits) {
            Ok(lost) => lost,
            Err(PacketTxError::Send(e)) if e.raw_os_error() == Some(nix::libc::ENETDOWN) => waiting,
            Err(e) => return Err(ShieldError::Lacking(format!("cannot send by {}: {e}", self.name))),
        };
        if lost > 0 {
            // Which ones nobody tells.
            dropped(counts, lost, bytes * lost / waiting);
        }
        Ok(())
    }
}

fn dropped(counts: &Counts, frames: usize, bytes: usize) {
    counts.add(Total::Dropped, frames as u64);
    counts.add(Total::DroppedBytes, bytes as u64);
}

#[cfg(test)]
mod tests {
    use port::VlanTag;

    use super::*;

    #[test]
    fn a_tag_that_was_taken_out_is_put_back() {
        let data: Vec<u8> = (0..20).collect();
        let frame = |vlan| Frame { timestamp_ns: 0, wire_len: 20, data: &data, vlan, lost_before: 0 };
        assert_eq!(whole(&frame(None), &mut Vec::new()), data);
        let mut scratch = Vec::new();
        let tagged = whole(&frame(Some(VlanTag { tpid: 0x88a8, tci: 0x2005 })), &mut scratch);
        assert_eq!(tagged[10..18], [10, 11, 0x88, 0xa8, 0x20, 0x05, 12, 13]);
        assert_eq!(tagged.len(), 24);
    }
}
