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

use port::{Frame, Group, PacketOptions, PortError, RingSource, Source, WHOLE_FRAME};
use sys::{
    link,
    packet::{Fanout, FanoutAlgorithm, RingLayout},
    packet_tx::{TxLayout, TxRing},
    xsk::interface_mtu,
};

use super::{
    counts::{Counts, Total},
    engine::Engine,
};
use crate::error::ShieldError;

/// How long a thread waits for frames before it looks whether it is to end.
const TICK: Duration = Duration::from_millis(50);
/// How often it asks the kernel for losses.
const ASK: Duration = Duration::from_millis(500);
/// Frames that are sent in one go: a driver that finds its queue full loses them.
const BURST: usize = 64;
const ETHERNET_LEN: usize = 14;
const TAG_LEN: usize = 4;
/// The kernel has room for this tag beyond the MTU, and for no other (packet_extra_vlan_len_allowed).
const VLAN: [u8; 2] = [0x81, 0x00];
/// Slots of a transmit ring.
const SLOTS: usize = 1024;

/// 8 MB for each thread, blocks handed over after the shortest time that the kernel knows.
const LAYOUT: RingLayout = RingLayout { block_bytes: 1 << 19, blocks: 16, retire_ms: 1, rx_hash: false, node: None };

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
}

#[derive(Debug)]
struct Sender {
    ring: TxRing,
    /// Of a frame without FCS and tags.
    frame_max: usize,
    /// Frames in the ring that were not yet sent.
    waiting: usize,
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
        sources.into_iter().map(|source| Ok(Way { source, sender: Sender::open(&self.to)? })).collect()
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
        let (mut scratch, mut missed, mut asked) = (Vec::new(), 0, Instant::now());
        while !stop.load(Ordering::Relaxed) {
            let mut failed = None;
            let (mut holds, sender) = (None, &mut self.sender);
            let each = |frame: Frame<'_>| {
                let bytes = whole(&frame, &mut scratch);
                // One set of rules for a block, and that which holds when the block is there.
                let engine: &Arc<Engine> =
                    holds.get_or_insert_with(|| engine.read().unwrap_or_else(PoisonError::into_inner).clone());
                if engine.passes(bytes, counts)
                    && let Err(error) = sender.send(bytes, counts)
                {
                    failed = Some(error);
                }
            };
            self.source.receive(TICK, each)?;
            self.sender.flush(false)?;
            if asked.elapsed() >= ASK {
                asked = Instant::now();
                let all = self.source.stats()?.dropped;
                counts.add(Total::Missed, all - missed);
                missed = all;
            }
            if let Some(error) = failed {
                return Err(error);
            }
        }
        Ok(())
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
        let lacking = |what: String| ShieldError::Lacking(what);
        let index =
            sys::packet::interface_index(interface).ok_or_else(|| port::members::unknown_interface(interface))?;
        let mtu = interface_mtu(interface).map_err(|e| lacking(format!("cannot read the MTU of {interface}: {e}")))?;
        let frame_max = mtu as usize + ETHERNET_LEN;
        let layout = TxLayout { slots: SLOTS, frame_max: frame_max + TAG_LEN, qdisc_bypass: true };
        let ring = TxRing::open(index, layout)
            .map_err(|e| lacking(format!("cannot send frames by {interface} through a packet ring: {e}")))?;
        Ok(Self { ring, frame_max, waiting: 0, name: interface.to_owned() })
    }

    /// Puts the frame into the ring. What is too large for the interface, or finds the ring full of what a link that is down does not
    /// take, is dropped and counted.
    fn send(&mut self, frame: &[u8], counts: &Counts) -> Result<(), ShieldError> {
        let max = self.frame_max + if frame.get(12..14) == Some(&VLAN) { TAG_LEN } else { 0 };
        let fits = (ETHERNET_LEN..=max).contains(&frame.len());
        if fits && (self.push(frame)? || (self.flush(true)? && self.push(frame)?)) {
            self.waiting += 1;
            if self.waiting >= BURST {
                self.flush(true)?;
                // Whoever takes them may need this CPU.
                thread::yield_now();
            }
            return Ok(());
        }
        counts.add(Total::Dropped, 1);
        counts.add(Total::DroppedBytes, frame.len() as u64);
        Ok(())
    }

    fn push(&mut self, frame: &[u8]) -> Result<bool, ShieldError> {
        self.ring.push(frame).map_err(|e| ShieldError::Lacking(format!("cannot send by {}: {e}", self.name)))
    }

    /// Whether the interface takes frames.
    fn flush(&mut self, wait: bool) -> Result<bool, ShieldError> {
        use sys::packet_tx::PacketTxError;
        self.waiting = 0;
        match self.ring.flush(wait) {
            Ok(()) => Ok(true),
            Err(PacketTxError::Send(e)) if e.raw_os_error() == Some(nix::libc::ENETDOWN) => Ok(false),
            Err(e) => Err(ShieldError::Lacking(format!("cannot send by {}: {e}", self.name))),
        }
    }
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
