//! The TPACKET_V3 ring: the kernel writes frames into shared blocks, and the reader is woken once a block.

use std::{
    mem, thread,
    time::{Duration, SystemTime, UNIX_EPOCH},
};

use sys::packet::{Block, Readiness, RingFrame, RingLayout, RxRing, Statistics};
use wire::link::Direction;

use crate::{
    Counted, Frame, Group, PacketOptions, PortError, Source, SourceStats, VlanTag,
    members::{self, explain},
    presence::Presence,
};

/// A ring, alone or as a member of a fanout group.
#[derive(Debug)]
pub struct RingSource {
    ring: RxRing,
    interface: String,
    backend: &'static str,
    retire: Duration,
    presence: Presence,
    losses: Losses,
    delivered: u64,
    naps_left: u32,
}

/// A reader's sleep between two looks while it is busy, and the number of naps without a block that end that.
const NAP_PERIOD: Duration = Duration::from_micros(100);
const NAPS_MAX: u32 = 50;

const ALONE: &str = "ring";
const FANOUT: &str = "ring+fanout";

impl RingSource {
    pub fn open(options: &PacketOptions, layout: RingLayout) -> Result<Self, PortError> {
        let ring = members::open_one(options, ALONE, |s| RxRing::new(s, layout), RxRing::socket)?;
        Ok(Self::new(ring, options.presence()?, options, layout, ALONE))
    }

    /// Opens the members of a fanout group, each with a ring of this layout.
    pub fn open_group(options: &PacketOptions, layout: RingLayout, group: &Group) -> Result<Vec<Self>, PortError> {
        let rings = members::open_group(options, group, FANOUT, |s| RxRing::new(s, layout), RxRing::socket)?;
        rings.into_iter().map(|r| Ok(Self::new(r, options.presence()?, options, layout, FANOUT))).collect()
    }

    fn new(
        ring: RxRing,
        presence: Presence,
        options: &PacketOptions,
        layout: RingLayout,
        backend: &'static str,
    ) -> Self {
        Self {
            ring,
            interface: options.interface.clone(),
            backend,
            retire: Duration::from_millis(u64::from(layout.retire_ms)),
            presence,
            losses: Losses::default(),
            delivered: 0,
            naps_left: 0,
        }
    }

    /// True if more than `blocks` blocks of frames wait: then they come faster than they are taken.
    pub fn holds(&self, blocks: usize) -> bool {
        self.ring.holds(blocks)
    }

    /// Waits for a block; false when the time went by.
    ///
    /// While blocks come thick and fast it looks by itself between naps: a reader that sleeps in poll(2) is woken by the
    /// CPU that receives, which has better things to do.
    fn wait(&mut self, timeout: Duration) -> Result<bool, PortError> {
        let explain = |e| explain(self.backend, &self.interface, e);
        self.presence.check(self.ring.socket())?;
        let mut timeout = timeout;
        while self.naps_left != 0 && timeout > NAP_PERIOD {
            self.naps_left -= 1;
            thread::sleep(NAP_PERIOD);
            if self.ring.ready() {
                return Ok(true);
            }
            timeout -= NAP_PERIOD;
        }
        match self.ring.socket().wait(timeout).map_err(explain)? {
            Readiness::Ready => Ok(true),
            Readiness::Nothing => Ok(false),
            Readiness::Failed => {
                if self.ring.socket().take_error().map_err(explain)?.is_some() {
                    self.presence.failed();
                }
                // The last block is still open; its timer hands it over.
                thread::sleep(self.retire * 2);
                Ok(true)
            }
        }
    }

    /// Gives the next block to `take`, waiting for it up to `timeout`; none when there was none.
    fn block<T>(
        &mut self,
        timeout: Duration,
        take: impl FnOnce(&Block<'_>, &mut Losses) -> T,
    ) -> Result<Option<T>, PortError> {
        if !self.ring.ready() && !self.wait(timeout)? {
            return Ok(None);
        }
        let Some(block) = self.ring.next_block() else { return Ok(None) };
        self.naps_left = NAPS_MAX;
        if block.losing() {
            // Rare. The kernel sets the flag on blocks that it closes between a loss and the reading of the counters, and it
            // loses packets only while no block is open: so the loss came before the first frame of this one.
            let new = block.socket().take_statistics().map_err(|e| explain(self.backend, &self.interface, e))?;
            self.losses.add(new, 0);
        }
        self.delivered += u64::from(block.len());
        Ok(Some(take(&block, &mut self.losses)))
    }
}

/// Losses, and those of them that no frame has carried yet.
#[derive(Debug, Default)]
struct Losses {
    dropped: u64,
    freezes: u64,
    unmarked: u32,
    /// Frames from this time on, in nanoseconds since the epoch, came after the unmarked losses.
    before_ns: u64,
}

impl Losses {
    fn add(&mut self, new: Statistics, before_ns: u64) {
        self.dropped += u64::from(new.drops);
        self.freezes += u64::from(new.freezes);
        if new.drops != 0 {
            self.unmarked = self.unmarked.saturating_add(new.drops);
            self.before_ns = before_ns;
        }
    }

    /// The losses that `frame` is the first to come after.
    #[inline]
    fn before(&mut self, frame: &RingFrame<'_>) -> u32 {
        if self.unmarked != 0 && frame.timestamp_ns >= self.before_ns {
            return mem::take(&mut self.unmarked);
        }
        0
    }
}

impl Source for RingSource {
    fn backend(&self) -> &'static str {
        self.backend
    }

    fn receive<F: FnMut(Frame<'_>)>(&mut self, timeout: Duration, mut each: F) -> Result<usize, PortError> {
        let n = self.block(timeout, |block, losses| {
            let mut n = 0;
            for frame in block.frames() {
                n += 1;
                each(Frame {
                    timestamp_ns: frame.timestamp_ns,
                    wire_len: frame.wire_len,
                    data: frame.data,
                    vlan: frame.vlan.map(|(tpid, tci)| VlanTag { tpid, tci }),
                    direction: Direction::of(frame.kind),
                    unfinished: frame.unfinished,
                    judged: None,
                    lost_before: losses.before(&frame),
                });
            }
            n
        })?;
        Ok(n.unwrap_or(0))
    }

    /// The count stands in the header of the block: the frames stay untouched.
    fn count(&mut self, timeout: Duration) -> Result<Counted, PortError> {
        let n = self.block(timeout, |block, _| block.len())?;
        Ok(Counted { packets: u64::from(n.unwrap_or(0)), bytes: None })
    }

    /// The kernel's timer may have looked just before the block was opened.
    fn holds_back(&self) -> Duration {
        self.retire * 2
    }

    fn interface(&self) -> &str {
        &self.interface
    }

    fn is_down(&self) -> bool {
        self.presence.is_down()
    }

    fn close_intake(&mut self) -> Result<(), PortError> {
        members::close_intake(self.ring.socket()).map_err(|e| explain(self.backend, &self.interface, e))
    }

    fn stats(&mut self) -> Result<SourceStats, PortError> {
        let new = self.ring.socket().take_statistics().map_err(|e| explain(self.backend, &self.interface, e))?;
        let now = SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |d| d.as_nanos() as u64);
        self.losses.add(new, now);
        let Losses { dropped, freezes, .. } = self.losses;
        Ok(SourceStats { delivered: self.delivered, dropped, freezes, ..SourceStats::default() })
    }
}
