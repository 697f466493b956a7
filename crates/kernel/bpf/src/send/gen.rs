//! The live-frame generator: one loaded program per sender, run by one long BPF_PROG_TEST_RUN call.

use std::{
    io,
    mem::{MaybeUninit, offset_of},
    os::fd::AsFd,
    sync::atomic::{AtomicU64, Ordering},
    thread,
    time::{Duration, Instant},
};

use libbpf_rs::{MapCore, MapFlags};
use sys::interface::index;
use sys::map_mmap::SharedMemory;

use crate::{
    link::{XdpError, query},
    program::{Program, kernel_has},
    send::live_run::{Anchor, LiveRun, no_xmit, rate},
    skel::r#gen::{GenSkelBuilder, types::gen_state},
};

pub use crate::send::live_run::{HEADER_MAX, LIVE_FRAME_MAX, PACED_PPS_MAX};

const PROGRAM: Program = Program("ek_gen");
const TABLE_MAX: usize = 1 << 28;
/// Frames between two looks at signals and the scheduler: the most that the kernel takes (TEST_XDP_MAX_BATCH), and the fastest of 16 to
/// 256 as measured on veth.
const BATCH: u32 = 256;
/// A sender that naps looks once more this long before its end, and sends what became due since the look before.
const LAST_LOOK_LEAD: Duration = Duration::from_micros(200);

const _: () = assert!(offset_of!(gen_state, sent) == 0 && size_of::<gen_state>() == 96);

/// A packet of the cycle that a sender repeats.
#[derive(Debug, Clone, Copy)]
pub struct LivePacket<'a> {
    /// The bytes that differ from packet to packet: the headers, checksums included. All of one length.
    pub headers: &'a [u8],
    /// The length of the whole frame in bytes without FCS.
    pub frame_len: usize,
}

/// Sources that are drawn anew for each packet, as a flood of spoofed packets has them: 1024 to 65535 as port, and an address of which some
/// bits are drawn.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct RandomSources {
    /// The offset of the IP header in the frame, in bytes.
    pub ip_offset: usize,
    /// The offset of the transport header.
    pub transport_offset: usize,
    /// Bits at the end of the source address that are drawn: 0 to 32.
    pub bits: u8,
    /// Of IPv6 draw the bits before the last 64 instead: each source is then of a /64 of its own, as whoever counts by /64 sees it.
    pub networks: bool,
    /// Seed of the random numbers.
    pub seed: u64,
}

/// The time and the speed of a sender.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct LivePace {
    /// Packets per second, up to [`PACED_PPS_MAX`]; none is as fast as it goes.
    pub pps: Option<f64>,
    /// Packets to send; none is no limit.
    pub count: Option<u64>,
    /// The time after which the sender stops in any case.
    pub duration: Duration,
    /// Sleep this long between bursts instead of waiting inside the program: leaves the core to others, at the price of bursts.
    /// Only with a rate.
    pub nap: Option<Duration>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct LiveCounts {
    /// Frames handed to the device. What the device did with them is in the device's own counters.
    pub sent: u64,
    /// Runs of the program that had nothing to send yet.
    pub fillers: u64,
    /// Time behind schedule that was given up, in nanoseconds: in the midst of the run, and what was left when its time was over.
    pub given_up_ns: u64,
    /// From the first run to the last look at the clock, in nanoseconds; to the end of its time if nothing went after that.
    pub elapsed_ns: u64,
    /// Bursts that were sent between two naps; none without naps.
    pub bursts: u64,
    /// Frames of the largest of them.
    pub largest_burst: u64,
    /// Count or duration is reached, or the sender was stopped.
    pub done: bool,
}

/// A loaded sender. [`LiveSender::run`] sends from the calling thread; the other methods may be called from elsewhere meanwhile.
#[derive(Debug)]
pub struct LiveSender {
    run: LiveRun,
    state: SharedMemory,
    pace: LivePace,
    anchor: Option<Anchor>,
    bursts: AtomicU64,
    largest_burst: AtomicU64,
}

impl LiveSender {
    /// Loads a program that sends the packets of `cycle` in order, over and over, to `interface` of this thread's namespace.
    ///
    /// `frame` is the longest frame; what lies behind the headers is taken from it. With `tcp_offset` (bytes to the TCP header,
    /// whose sequence number must be a multiple of 65536) the lower half of each sequence number counts the packets, and the checksum follows.
    ///
    /// # Errors
    /// [`crate::ProgramError::Setting`] for an empty or uneven cycle, lengths out of bounds or a rate above [`PACED_PPS_MAX`].
    pub fn load(
        interface: &str,
        frame: Vec<u8>,
        cycle: &[LivePacket<'_>],
        tcp_offset: Option<usize>,
        pace: LivePace,
    ) -> Result<Self, XdpError> {
        Self::load_with(interface, frame, cycle, tcp_offset, None, pace)
    }

    /// As [`LiveSender::load`], with sources drawn anew for each packet.
    ///
    /// # Errors
    /// As there, and [`crate::ProgramError::Setting`] for offsets beyond the headers.
    pub fn load_with(
        interface: &str,
        frame: Vec<u8>,
        cycle: &[LivePacket<'_>],
        tcp_offset: Option<usize>,
        random: Option<RandomSources>,
        pace: LivePace,
    ) -> Result<Self, XdpError> {
        let index = index(interface)?;
        let table = Table::lay_out(&frame, cycle, tcp_offset)?;
        let failed = |source| PROGRAM.refused(source);
        let mut object = MaybeUninit::uninit();
        let mut open = PROGRAM.open::<GenSkelBuilder>(&mut object)?;
        if let Some(knobs) = open.maps.rodata_data.as_deref_mut() {
            knobs.gen_header_len = table.header_len as u64;
            knobs.gen_stride = table.stride as u64;
            knobs.gen_table_len = table.used as u64;
            knobs.gen_table_mask = table.mask as u64;
            knobs.gen_tcp_offset = tcp_offset.unwrap_or(0) as u64;
            knobs.gen_frame_max = frame.len() as u32;
            knobs.gen_sizes_vary = table.sizes_vary;
            knobs.gen_rate = rate(pace.pps)?;
            knobs.gen_count = pace.count.unwrap_or(u64::MAX);
            knobs.gen_duration_ns = u64::try_from(pace.duration.as_nanos()).unwrap_or(u64::MAX);
            if let (Some(random), Some(first)) = (random, cycle.first()) {
                let at = SourcePlaces::find(&random, first.headers, tcp_offset.is_some())?;
                knobs.gen_random_at = at.address as u64;
                knobs.gen_random_mask = at.mask;
                knobs.gen_port_at = random.transport_offset as u64;
                knobs.gen_checksum_at = at.checksum as u64;
                knobs.gen_ip_checksum_at = at.ip_checksum.unwrap_or(0) as u64;
            }
        }
        if let (Some(random), Some(bss)) = (random, open.maps.bss_data.as_deref_mut()) {
            bss.gen_state.random = random.seed;
        }
        open.maps.data_gen_table.set_value_size(table.bytes.len() as u32).map_err(failed)?;
        let skel = PROGRAM.load(open)?;
        let key = 0u32.to_ne_bytes();
        skel.maps
            .data_gen_table
            .update(&key, &table.bytes, MapFlags::ANY)
            .map_err(|e| PROGRAM.failed("fill the table of packets", io::Error::other(e)))?;
        skel.maps
            .gen_device
            .update(&key, &index.to_ne_bytes(), MapFlags::ANY)
            .map_err(|e| no_xmit(interface, PROGRAM, &e))?;
        let state = PROGRAM.memory(&skel.maps.bss, size_of::<gen_state>(), "map the counters")?;
        let program = PROGRAM.descriptor(skel.progs.ek_gen.as_fd())?;
        let anchor = match (pace.nap, pace.pps) {
            (Some(_), Some(_)) => Some(Anchor::hold(program.as_fd(), PROGRAM)?),
            _ => None,
        };
        let run = LiveRun { name: PROGRAM, program, frame };
        Ok(Self { run, state, pace, anchor, bursts: AtomicU64::new(0), largest_burst: AtomicU64::new(0) })
    }

    /// Sends until count or duration is reached or [`LiveSender::stop`] was called. Signals alone end nothing: they only make the
    /// kernel come back to look, so that whoever stops a sender (or sees it done) must interrupt its thread.
    pub fn run(&self) -> Result<(), XdpError> {
        if let (Some(_), Some(nap), Some(pps)) = (&self.anchor, self.pace.nap, self.pace.pps) {
            return self.run_napping(nap, pps);
        }
        while !self.counts().done && !self.is_stopped() {
            // Without a pace every run sends, and one more run sees that all is sent; with a pace there are fillers between.
            self.run.send(
                match self.pace.count {
                    Some(count) if self.pace.pps.is_none() => {
                        i32::try_from(count - self.counts().sent + 1).unwrap_or(i32::MAX)
                    }
                    _ => i32::MAX,
                },
                BATCH,
            )?;
        }
        Ok(())
    }

    /// Sends what is due, sleeps, and so on; looks once more shortly before the end.
    fn run_napping(&self, nap: Duration, pps: f64) -> Result<(), XdpError> {
        let start = Instant::now();
        let (mut last, mut sent) = (start, 0);
        while !self.counts().done && !self.is_stopped() {
            let due = pps * last.elapsed().as_secs_f64();
            last = Instant::now();
            self.run.send(due.ceil() as i32 + 1, BATCH)?;
            let burst = self.counts().sent - sent;
            sent += burst;
            if burst > 0 {
                self.bursts.fetch_add(1, Ordering::Relaxed);
                self.largest_burst.fetch_max(burst, Ordering::Relaxed);
            }
            let left = self.pace.duration.saturating_sub(start.elapsed());
            let wake = if left > LAST_LOOK_LEAD { nap.min(left - LAST_LOOK_LEAD) } else { nap.min(left) };
            thread::sleep(wake.saturating_sub(last.elapsed()));
        }
        Ok(())
    }

    /// Runs the program once on `frame` without sending it, and gives its verdict and what it made of the frame.
    pub fn try_once(&self) -> Result<(u32, Vec<u8>), XdpError> {
        self.run.try_once()
    }

    /// Asks the program to send no more.
    pub fn stop(&self) {
        self.state.half_word(offset_of!(gen_state, stop)).store(1, Ordering::Relaxed);
    }

    fn is_stopped(&self) -> bool {
        self.state.half_word(offset_of!(gen_state, stop)).load(Ordering::Relaxed) != 0
    }

    /// Counts so far.
    pub fn counts(&self) -> LiveCounts {
        let word = |offset| self.state.word(offset).load(Ordering::Relaxed);
        LiveCounts {
            sent: word(offset_of!(gen_state, sent)),
            fillers: word(offset_of!(gen_state, fillers)),
            given_up_ns: word(offset_of!(gen_state, given_up_ns)),
            elapsed_ns: word(offset_of!(gen_state, seen_ns)).saturating_sub(word(offset_of!(gen_state, started_ns))),
            bursts: self.bursts.load(Ordering::Relaxed),
            largest_burst: self.largest_burst.load(Ordering::Relaxed),
            done: self.state.half_word(offset_of!(gen_state, done)).load(Ordering::Relaxed) != 0,
        }
    }
}

/// True if frames can be sent to `interface` by XDP redirect; none when the kernel (before 6.3) cannot tell.
///
/// A veth takes them only while its peer runs NAPI.
///
/// # Errors
/// [`XdpError::NoInterface`], or what the kernel answers.
pub fn takes_redirected_frames(interface: &str) -> Result<Option<bool>, XdpError> {
    /// NETDEV_XDP_ACT_NDO_XMIT (include/uapi/linux/netdev.h).
    const NDO_XMIT: u64 = 4;
    has_feature(interface, NDO_XMIT)
}

/// The same of frames of several buffers, such as those of an MTU that one buffer does not hold.
pub fn takes_large_redirected_frames(interface: &str) -> Result<Option<bool>, XdpError> {
    /// NETDEV_XDP_ACT_NDO_XMIT_SG.
    const NDO_XMIT_SG: u64 = 64;
    has_feature(interface, NDO_XMIT_SG)
}

/// True if the driver of `interface` runs XDP programs itself (native mode); none when the kernel (before 6.3) cannot tell.
pub fn runs_native_xdp(interface: &str) -> Result<Option<bool>, XdpError> {
    /// NETDEV_XDP_ACT_BASIC.
    const BASIC: u64 = 1;
    has_feature(interface, BASIC)
}

/// True if the driver of `interface` gives frames to AF_XDP sockets without a copy; none when the kernel (before 6.3) cannot tell.
pub fn has_zero_copy(interface: &str) -> Result<Option<bool>, XdpError> {
    /// NETDEV_XDP_ACT_XSK_ZEROCOPY.
    const XSK_ZEROCOPY: u64 = 8;
    has_feature(interface, XSK_ZEROCOPY)
}

fn has_feature(interface: &str, feature: u64) -> Result<Option<bool>, XdpError> {
    let features = query(interface, "ask for XDP features")?.feature_flags;
    // A driver without any says nothing, as a kernel does that cannot tell.
    let is_known = features != 0 || kernel_has("netdev_nl_dev_get_doit");
    Ok(is_known.then_some(features & feature != 0))
}

/// The places in a frame that change with the source.
struct SourcePlaces {
    address: usize,
    /// The mask in network order.
    mask: u32,
    checksum: usize,
    ip_checksum: Option<usize>,
}

impl SourcePlaces {
    fn find(random: &RandomSources, headers: &[u8], tcp: bool) -> Result<Self, XdpError> {
        let (ip, transport) = (random.ip_offset, random.transport_offset);
        let checksum = transport + if tcp { 16 } else { 6 };
        let v4 = headers.get(ip).is_some_and(|b| b >> 4 == 4);
        // The last 32 bits of an IPv4 source, or of the first half of an IPv6 one, or of all of it.
        let address = ip + if v4 || random.networks { 12 } else { 20 };
        if random.bits > 32 || checksum + 2 > headers.len() || address + 4 > transport {
            return Err(XdpError::setting(format!(
                "{} random bits in a source address with the IP header at {ip} and the transport header at {transport} of {} bytes of headers",
                random.bits,
                headers.len()
            )));
        }
        let mask = u32::MAX.checked_shl(u32::from(random.bits)).map_or(u32::MAX, |fixed| !fixed).to_be();
        Ok(Self { address, mask, checksum, ip_checksum: v4.then_some(ip + 10) })
    }
}

/// The packets of a cycle as the program reads them.
struct Table {
    bytes: Vec<u8>,
    header_len: usize,
    stride: usize,
    used: usize,
    mask: usize,
    sizes_vary: bool,
}

impl Table {
    fn lay_out(frame: &[u8], cycle: &[LivePacket<'_>], tcp_offset: Option<usize>) -> Result<Self, XdpError> {
        let bad = |text: String| Err(XdpError::setting(text));
        let Some(first) = cycle.first() else { return bad("a cycle of no packets cannot be sent".into()) };
        let header_len = first.headers.len();
        if !(8..=HEADER_MAX).contains(&header_len) || tcp_offset.is_some_and(|o| o + 20 > header_len) {
            return bad(format!(
                "headers of {header_len} bytes, but 8 to {HEADER_MAX} with all of TCP can be rewritten"
            ));
        }
        if frame.len() > LIVE_FRAME_MAX {
            return bad(format!("frames of {} bytes, but live frames have up to {LIVE_FRAME_MAX}", frame.len()));
        }
        for (i, p) in cycle.iter().enumerate() {
            if p.headers.len() != header_len || p.frame_len < header_len.max(14) || p.frame_len > frame.len() {
                return bad(format!("packet {i} of the cycle has other headers or another length than the template"));
            }
        }
        let stride = (header_len + 4).next_multiple_of(8);
        let used = stride * cycle.len();
        let mask = used.next_power_of_two() - 1;
        if mask >= TABLE_MAX {
            return bad(format!("{} packets of {stride} bytes are too many for one cycle", cycle.len()));
        }
        let mut bytes = vec![0u8; (mask + 1 + stride).next_multiple_of(8)];
        for (entry, p) in bytes.chunks_exact_mut(stride).zip(cycle) {
            entry[..header_len].copy_from_slice(p.headers);
            entry[stride - 4..].copy_from_slice(&(p.frame_len as u32).to_ne_bytes());
        }
        let sizes_vary = cycle.iter().any(|p| p.frame_len != frame.len());
        Ok(Self { bytes, header_len, stride, used, mask, sizes_vary })
    }
}
