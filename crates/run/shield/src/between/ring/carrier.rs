//! A direction: threads that read frames of one interface and send those that pass by the other one.

use std::{
    ops::Range,
    sync::{
        Arc, PoisonError, RwLock,
        atomic::{AtomicBool, Ordering},
    },
    thread,
    time::{Duration, Instant},
};

use model::clock::monotonic_ns;
use port::{Frame, Group, PacketOptions, PortError, RingSource, Source, WHOLE_FRAME};
use sys::{
    link,
    packet::{Fanout, FanoutAlgorithm, RingLayout},
};

use super::{
    checksum,
    counts::Counts,
    engine::{Engine, Judged},
    name_of,
    proof::Overload,
    sending::{Sender, SynAckSender},
};
use crate::error::ShieldError;

/// A thread waits so long for frames before it looks whether it is to end.
const RECEIVE_TIMEOUT: Duration = Duration::from_millis(50);
/// More blocks than these wait: it is behind.
const BACKLOG_BLOCKS_MAX: usize = 4;
/// Period in which the kernel's losses are read.
const LOSSES_PERIOD: Duration = Duration::from_millis(100);
/// Rings are opened again so often, a tick apart, for an interface that is up and yet refuses.
const REOPEN_TRIES_MAX: u32 = 20;
/// 8 MB for each thread, blocks handed over after the shortest time that the kernel knows. Each then takes a block of its own, however few
/// frames are in it, so that a ring of few blocks is full as soon as the thread has to wait for its CPU for as many milliseconds.
const LAYOUT: RingLayout = RingLayout { block_bytes: 1 << 17, blocks: 64, retire_ms: 1, rx_hash: false, node: None };

#[derive(Debug)]
pub(super) struct Carrier {
    /// Indices of the interfaces.
    from: u32,
    to: u32,
    /// The numbers of its threads, and of their counts.
    mine: Range<usize>,
    engine: Arc<RwLock<Arc<Engine>>>,
    counts: Arc<Vec<Counts>>,
    stop: Arc<AtomicBool>,
    sockets: Vec<Sockets>,
}

/// The sockets of one thread.
#[derive(Debug)]
struct Sockets {
    source: RingSource,
    sender: Sender,
    /// Sender of questions to where the frames come from.
    syn_acks: SynAckSender,
    /// Frames that the ring had no place for, as far as they are counted.
    missed: u64,
}

impl Carrier {
    /// Opens the rings of as many threads as there are counts in `mine`.
    pub(super) fn open(
        from: u32,
        to: u32,
        mine: Range<usize>,
        engine: Arc<RwLock<Arc<Engine>>>,
        counts: Arc<Vec<Counts>>,
        stop: Arc<AtomicBool>,
    ) -> Result<Self, ShieldError> {
        let mut carrier = Self { from, to, mine, engine, counts, stop, sockets: Vec::new() };
        carrier.sockets = carrier.open_sockets()?;
        Ok(carrier)
    }

    fn open_sockets(&self) -> Result<Vec<Sockets>, ShieldError> {
        let options = PacketOptions {
            interface: name_of(self.from).ok_or(ShieldError::Removed { index: self.from })?,
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
        let senders = || Ok((Sender::open(self.to)?, SynAckSender::open(self.from)?));
        let sockets = |source| senders().map(|(sender, syn_acks)| Sockets { source, sender, syn_acks, missed: 0 });
        sources.into_iter().map(sockets).collect()
    }

    /// Carries until it is told to stop. While its interface is down nothing comes; it goes on when that is up again.
    pub(super) fn run(mut self) -> Result<(), ShieldError> {
        loop {
            let mut sockets = std::mem::take(&mut self.sockets);
            let one_ended = AtomicBool::new(false);
            let ended = thread::scope(|scope| {
                let threads: Vec<_> = sockets
                    .iter_mut()
                    .zip(self.mine.clone())
                    .map(|(sockets, thread)| {
                        let (counts, one_ended) = (&self.counts[thread], &one_ended);
                        let (engine, stop) = (&self.engine, &self.stop);
                        scope.spawn(move || {
                            let _ends = Ends(one_ended);
                            sockets.carry((thread, counts), engine, [stop, one_ended])
                        })
                    })
                    .collect();
                let broke = |_| Err(broke_off());
                threads.into_iter().map(|thread| thread.join().unwrap_or_else(broke)).fold(Ok(()), Result::and)
            });
            drop(sockets);
            match ended {
                Err(ShieldError::Port(PortError::Down { .. } | PortError::Vanished { .. })) => {}
                other => return other,
            }
            match self.reopen()? {
                Some(sockets) => self.sockets = sockets,
                None => return Ok(()),
            }
        }
    }

    /// Rings as before, as soon as the interface is up; none if it is told to stop first.
    fn reopen(&self) -> Result<Option<Vec<Sockets>>, ShieldError> {
        let mut tries = 0;
        while !self.stop.load(Ordering::Relaxed) {
            let flags = name_of(self.from)
                .and_then(|name| link::flags(&name).ok())
                .ok_or(ShieldError::Removed { index: self.from })?;
            if flags.up {
                match self.open_sockets() {
                    Ok(sockets) => return Ok(Some(sockets)),
                    Err(ShieldError::Port(PortError::InterfaceDown { .. })) => {}
                    // It may have gone down between two steps, which then fail in one way or another.
                    Err(error) if tries == REOPEN_TRIES_MAX => return Err(error),
                    Err(_) => tries += 1,
                }
            }
            thread::sleep(RECEIVE_TIMEOUT);
        }
        Ok(None)
    }
}

/// Tells the other threads of a direction that one has ended, however: its share of the flows would come into a ring that nobody reads.
struct Ends<'a>(&'a AtomicBool);

impl Drop for Ends<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

/// The error of a thread that panicked.
pub(super) fn broke_off() -> ShieldError {
    ShieldError::Lacking("a thread that carries frames panicked: a bug in evenkeel, whose message is above".to_owned())
}

impl Sockets {
    fn carry(
        &mut self,
        (thread, counts): (usize, &Counts),
        engine: &RwLock<Arc<Engine>>,
        ends: [&AtomicBool; 2],
    ) -> Result<(), ShieldError> {
        let mut overload = Overload::default();
        let ended = self.carry_on(thread, counts, engine, ends, &mut overload);
        self.sender.give_up(counts);
        counts.totals.unanswered.add(overload.take_unanswered());
        // Of a ring that has gone there is nothing to be had.
        let _ = self.count_missed(counts);
        ended
    }

    fn carry_on(
        &mut self,
        thread: usize,
        counts: &Counts,
        engine: &RwLock<Arc<Engine>>,
        ends: [&AtomicBool; 2],
        overload: &mut Overload,
    ) -> Result<(), ShieldError> {
        let (mut scratch, mut frames, mut looked) = (Vec::new(), 0, Instant::now());
        while !ends.iter().any(|end| end.load(Ordering::Relaxed)) {
            let mut failed = None;
            overload.block(std::mem::take(&mut frames), self.source.holds(BACKLOG_BLOCKS_MAX), monotonic_ns());
            let (mut holds, sender, syn_acks) = (None, &mut self.sender, &mut self.syn_acks);
            let each = |frame: Frame<'_>| {
                let bytes = whole(&frame, &mut scratch);
                frames += 1;
                // One set of rules for a block, and that which holds when the block is there; and one time.
                let (engine, now_ns): &(Arc<Engine>, u64) = holds.get_or_insert_with(|| {
                    (engine.read().unwrap_or_else(PoisonError::into_inner).clone(), monotonic_ns())
                });
                let sent = match engine.judge(bytes, thread, *now_ns, counts, overload) {
                    Judged::Pass => sender.send(bytes, counts),
                    Judged::Drop => Ok(()),
                    Judged::SynAck(syn_ack) => syn_acks.send(&syn_ack, counts),
                    Judged::Resumed(syn) => sender.send(syn.bytes(), counts),
                };
                if let Err(error) = sent {
                    failed = Some(error);
                }
            };
            self.source.receive(RECEIVE_TIMEOUT, each)?;
            self.sender.flush(false, counts)?;
            self.syn_acks.flush(counts)?;
            if looked.elapsed() >= LOSSES_PERIOD {
                self.count_missed(counts)?;
                counts.totals.unanswered.add(overload.take_unanswered());
                looked = Instant::now();
            }
            if let Some(error) = failed {
                return Err(error);
            }
        }
        Ok(())
    }
}

impl Sockets {
    fn count_missed(&mut self, counts: &Counts) -> Result<(), ShieldError> {
        let all = self.source.stats()?.dropped;
        counts.totals.missed.add(all - std::mem::replace(&mut self.missed, all));
        Ok(())
    }
}

/// The frame as it would be on a wire: with the tag that the kernel took out, and the checksum that was left to a NIC.
fn whole<'a>(frame: &Frame<'a>, scratch: &'a mut Vec<u8>) -> &'a [u8] {
    if !frame.unfinished {
        return frame.with_tag(scratch);
    }
    scratch.clear();
    frame.write_with_tag(scratch);
    checksum::finish(scratch);
    scratch
}

#[cfg(test)]
mod tests {
    use port::VlanTag;

    use super::*;

    #[test]
    fn a_tag_that_was_taken_out_is_put_back() {
        let data: Vec<u8> = (0..20).collect();
        let frame = |vlan| Frame {
            timestamp_ns: 0,
            wire_len: 20,
            data: &data,
            vlan,
            direction: None,
            unfinished: false,
            judged: None,
            lost_before: 0,
        };
        assert_eq!(whole(&frame(None), &mut Vec::new()), data);
        let mut scratch = Vec::new();
        let tagged = whole(&frame(Some(VlanTag { tpid: 0x88a8, tci: 0x2005 })), &mut scratch);
        assert_eq!(tagged[10..18], [10, 11, 0x88, 0xa8, 0x20, 0x05, 12, 13]);
        assert_eq!(tagged.len(), 24);
    }
}
