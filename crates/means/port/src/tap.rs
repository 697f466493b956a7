//! The tap: an XDP program copies frames into memory shared with us; the interface stays on the stack, or with `consume` the frames end.

use std::{
    collections::HashMap,
    mem,
    sync::{Arc, Mutex, PoisonError},
    time::{Duration, Instant},
};

use bpf::{
    Tap, TapPlace, TapReader, TapSettings, TapStamp, XdpError, XdpMode,
    chain::{self, RuleNames, Slot},
};
use model::verdict::Verdict;
use nix::time::{ClockId, clock_gettime};
use sys::packet::{Instruction, LinkState, PacketSocket};

use crate::{
    Counted, Frame, Judged, PortError, Source, SourceStats,
    presence::Presence,
    xdp_common::{Pace, companion, distribute, explain_xdp, filter, keeps_tags, up_interface},
};

const BACKEND: &str = "tap";
/// Frames that one ring hands over before the next ring's turn.
const BATCH_MAX: usize = 8192;

#[derive(Debug, Clone)]
pub struct TapOptions {
    pub interface: String,
    /// A classic BPF filter; empty: every frame. What it rejects passes to the stack.
    pub filter: Vec<Instruction>,
    /// Bytes to keep of each frame, 1 to 65536; more is taken as 65536.
    pub snaplen: u32,
    /// Join promiscuous mode, for as long as a source is open.
    pub promiscuous: bool,
    /// The frames that it sees where the interface has a shield.
    pub place: TapPlace,
    /// Native or generic. Nothing falls back from one to the other.
    pub mode: XdpMode,
    /// End captured frames here instead of letting them pass.
    pub consume: bool,
    /// Bytes of each CPU's ring, rounded up to a power of two MiB.
    pub ring_bytes: usize,
    /// The moment at which a frame gets its time.
    pub stamp: TapStamp,
    /// The NUMA node of the rings; none: the caller's.
    pub numa_node: Option<u32>,
    /// The nap of a reader that found little.
    pub nap: Duration,
}

impl TapOptions {
    /// Whole frames of `interface`, native mode, passed on; rings of 512 MiB together, but 4 to 64 MiB per CPU.
    pub fn new(interface: impl Into<String>) -> Self {
        Self {
            interface: interface.into(),
            filter: Vec::new(),
            snaplen: bpf::tap::SNAPLEN_MAX,
            promiscuous: false,
            place: TapPlace::default(),
            mode: XdpMode::Native,
            consume: false,
            ring_bytes: default_ring_bytes(),
            stamp: TapStamp::default(),
            numa_node: None,
            nap: Duration::from_micros(100),
        }
    }
}

/// Ring bytes per CPU, so that a machine of many CPUs does not give all its memory away.
fn default_ring_bytes() -> usize {
    let cpus = bpf::tap::ring_cpus().unwrap_or(1).max(1);
    ((512 << 20) / cpus).clamp(4 << 20, 64 << 20)
}

/// The program on the interface, shared by the sources that read its rings.
#[derive(Debug)]
struct Attachment {
    tap: Mutex<Tap>,
    mode: XdpMode,
    companion: PacketSocket,
}

/// Verdicts in words. They are few, and each is put into words once; names may come to stand for other rules, so that they are read again each
/// second.
#[derive(Debug)]
struct Words {
    names: Option<Arc<RuleNames>>,
    known: HashMap<Verdict, String>,
    until_ns: u64,
}

impl Words {
    fn of(&mut self, verdict: Verdict, now_ns: u64) -> &str {
        if now_ns >= self.until_ns {
            self.known.clear();
            self.until_ns = now_ns + 1_000_000_000;
        }
        self.known.entry(verdict).or_insert_with(|| {
            let name = verdict.counter().and_then(|counter| self.names.as_ref()?.get(counter));
            format!("shield: {}", verdict.text(name.as_deref()))
        })
    }
}

impl Attachment {
    fn with<T>(&self, f: impl FnOnce(&mut Tap) -> T) -> T {
        f(&mut self.tap.lock().unwrap_or_else(PoisonError::into_inner))
    }
}

/// A reader of the rings of some CPUs. The program is taken off when the first of the sources that were opened together is dropped.
#[derive(Debug)]
pub struct TapSource {
    attachment: Arc<Attachment>,
    interface: String,
    rings: Vec<TapReader>,
    words: Words,
    presence: Presence,
    pace: Pace,
    tai_ahead_ns: u64,
    /// Losses that the next frame is to carry, whichever ring it comes from.
    unmarked: u64,
    delivered: u64,
    reattached: u64,
    closed: bool,
}

impl TapSource {
    /// Attaches the program and opens up to `readers` sources, which share the rings of all CPUs among them.
    pub fn open(options: &TapOptions, readers: usize) -> Result<Vec<Self>, PortError> {
        let interface = &options.interface;
        let explain = |e| explain_xdp(BACKEND, interface, e);
        let index = up_interface(interface)?;
        keeps_tags(BACKEND, interface)?;
        let companion = companion(options.promiscuous, BACKEND, interface, index)?;
        let settings = TapSettings {
            place: options.place,
            snaplen: options.snaplen.min(bpf::tap::SNAPLEN_MAX),
            ring_bytes: options.ring_bytes,
            consume: options.consume,
            stamp: options.stamp,
            numa_node: options.numa_node,
        };
        let filter = filter(&options.filter, BACKEND, interface)?;
        let start = || {
            let mut tap = Tap::load(interface, options.mode, settings, filter.as_ref())?;
            tap.attach()?;
            Ok(tap)
        };
        let mut tap = chain::retry_if_raced(XdpError::is_raced, start).map_err(explain)?;
        let rings = tap.take_readers();
        let mode = tap.slot().map_or(options.mode, Slot::mode);
        let names = tap.slot().map(Slot::rule_names).transpose().map_err(explain)?.map(Arc::new);
        let attachment = Arc::new(Attachment { tap: Mutex::new(tap), mode, companion });
        let tai_ahead_ns = tai_ahead_ns();
        Ok(distribute(rings, readers)
            .into_iter()
            .map(|rings| Self {
                attachment: Arc::clone(&attachment),
                interface: interface.clone(),
                rings,
                presence: Presence::new(interface, index),
                words: Words { names: names.clone(), known: HashMap::new(), until_ns: 0 },
                pace: Pace::new(options.nap),
                tai_ahead_ns,
                unmarked: 0,
                delivered: 0,
                reattached: 0,
                closed: false,
            })
            .collect())
    }

    /// The mode in which the program is attached, as the kernel says.
    pub fn mode(&self) -> XdpMode {
        self.attachment.mode
    }

    /// The CPUs whose frames this source reads.
    pub fn cpus(&self) -> impl Iterator<Item = u32> {
        self.rings.iter().map(TapReader::cpu)
    }

    /// Looks until `look` found something or the time is over.
    fn wait(&mut self, timeout: Duration, mut look: impl FnMut(&mut Self) -> usize) -> Result<usize, PortError> {
        let start = Instant::now();
        loop {
            self.pace.before_look(timeout.saturating_sub(start.elapsed()));
            let found = look(self);
            self.pace.after_look(found);
            if self.pace.time_for_checks() {
                self.tai_ahead_ns = tai_ahead_ns();
                // Its number is in the statistics.
                self.attachment.with(|tap| tap.slot().and_then(Slot::put_back));
                if found == 0 && !self.closed {
                    self.check()?;
                }
            }
            if found > 0 || start.elapsed() >= timeout {
                self.delivered += found as u64;
                return Ok(found);
            }
        }
    }

    /// The error of a tap that is not alive.
    fn ended(&self) -> PortError {
        let interface = self.interface.clone();
        match self.attachment.with(|tap| tap.slot().and_then(Slot::why_ended)) {
            Some(why) if host::interface::exists(&interface) => PortError::TakenOff { interface, why },
            None if self.attachment.with(|tap| tap.slot().is_some_and(|slot| !slot.is_here())) => {
                let why = format!("{interface} was moved to another network namespace");
                PortError::TakenOff { interface, why }
            }
            _ => PortError::Vanished { interface },
        }
    }

    /// Looks at the program and at the interface. Without a slot another source of ours has ended the capture.
    fn check(&mut self) -> Result<(), PortError> {
        if !self.attachment.with(|tap| tap.slot().is_none_or(|slot| slot.is_alive() && slot.is_here())) {
            return Err(self.ended());
        }
        if self.presence.link_state(&self.attachment.companion) != LinkState::Up {
            self.presence.failed();
        }
        self.presence.check(&self.attachment.companion)
    }
}

impl Source for TapSource {
    fn backend(&self) -> &'static str {
        BACKEND
    }

    fn receive<F: FnMut(Frame<'_>)>(&mut self, timeout: Duration, mut each: F) -> Result<usize, PortError> {
        self.wait(timeout, |this| {
            let ahead = this.tai_ahead_ns;
            let (unmarked, words) = (&mut this.unmarked, &mut this.words);
            let frames = this.rings.iter_mut().map(|ring| {
                let found = ring.read(BATCH_MAX, |frame| {
                    let lost = frame.lost_before + mem::take(unmarked);
                    each(Frame {
                        timestamp_ns: frame.tai_ns.saturating_sub(ahead),
                        wire_len: frame.wire_len,
                        data: frame.data,
                        vlan: None,
                        direction: None,
                        unfinished: false,
                        judged: frame.verdict.map(|verdict| Judged { verdict, text: words.of(verdict, frame.tai_ns) }),
                        lost_before: u32::try_from(lost).unwrap_or(u32::MAX),
                    });
                });
                *unmarked += ring.take_unmarked();
                found
            });
            frames.sum()
        })
    }

    /// The program has counted: the frames stay untouched.
    fn count(&mut self, timeout: Duration) -> Result<Counted, PortError> {
        let packets =
            self.wait(timeout, |this| this.rings.iter_mut().map(TapReader::skip).sum::<u64>() as usize)? as u64;
        Ok(Counted { packets, bytes: None })
    }

    fn interface(&self) -> &str {
        &self.interface
    }

    fn is_down(&self) -> bool {
        self.presence.is_down()
    }

    /// Takes the program off, for all the sources that were opened together.
    fn close_intake(&mut self) -> Result<(), PortError> {
        self.attachment.with(Tap::detach);
        self.closed = true;
        Ok(())
    }

    fn stats(&mut self) -> Result<SourceStats, PortError> {
        let dropped = self.rings.iter().map(|ring| ring.counts().lost).sum();
        // After the end it is as it was.
        self.reattached = self.reattached.max(self.attachment.with(|tap| tap.slot().map_or(0, Slot::times_put_back)));
        Ok(SourceStats { delivered: self.delivered, dropped, reattached: self.reattached, ..SourceStats::default() })
    }
}

impl Drop for TapSource {
    fn drop(&mut self) {
        self.attachment.with(Tap::detach);
    }
}

/// By how much CLOCK_TAI is ahead of CLOCK_REALTIME: whole seconds, 0 where nobody told the kernel of leap seconds.
fn tai_ahead_ns() -> u64 {
    let now = |clock| clock_gettime(clock).map(Duration::from).unwrap_or_default();
    let ahead = now(ClockId::CLOCK_TAI).saturating_sub(now(ClockId::CLOCK_REALTIME));
    Duration::from_secs((ahead + Duration::from_millis(500)).as_secs()).as_nanos() as u64
}
