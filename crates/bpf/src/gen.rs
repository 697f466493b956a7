//! The live-frame generator: one loaded program per sender, run by one long BPF_PROG_TEST_RUN call.

use std::{
    io,
    mem::{MaybeUninit, offset_of},
    os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd},
    sync::atomic::{AtomicU64, Ordering},
    thread,
    time::{Duration, Instant},
};

use libbpf_rs::{
    MapCore, MapFlags, MapHandle, libbpf_sys,
    skel::{OpenSkel, SkelBuilder},
};
use sys::{map_mmap::SharedMemory, tun::Tap};

use crate::{
    redirect::duplicate,
    skel::r#gen::{GenSkelBuilder, types::gen_state},
    xdp::{XdpError, XdpLink, XdpMode, interface_index, quiet_libbpf},
};

const PROGRAM: &str = "ek_gen";
/// GEN_RATE_SHIFT of src/bpf/gen.bpf.c; the test `the_achieved_rate_follows_the_knob` holds the two together.
const RATE_SHIFT: u32 = 40;
/// The longest headers, in bytes (GEN_HEADER_MAX).
pub const HEADER_MAX: usize = 120;
/// The longest frame that a test run takes: a page less its head, XDP_PACKET_HEADROOM and the shared info, rounded down.
pub const LIVE_FRAME_MAX: usize = 3072;
/// The highest rate that can be paced, in packets per second: beyond it the 64-bit sums would overflow.
pub const PACED_PPS_MAX: f64 = 5e7;
/// The largest table, in bytes.
const TABLE_MAX: usize = 1 << 28;
/// Frames between two looks at signals and the scheduler: the most that the kernel takes (TEST_XDP_MAX_BATCH), and the fastest of 16 to
/// 256 as measured on veth.
const BATCH: u32 = 256;
/// A sender that naps looks once more this long before its end, and sends what became due since the look before.
const LAST_LOOK: Duration = Duration::from_micros(200);

const _: () = assert!(offset_of!(gen_state, sent) == 0 && size_of::<gen_state>() == 72);

/// One packet of the cycle that a sender repeats.
#[derive(Debug, Clone, Copy)]
pub struct LivePacket<'a> {
    /// The bytes that differ from packet to packet: the headers, checksums included. All of one length.
    pub headers: &'a [u8],
    /// The length of the whole frame in bytes without FCS.
    pub frame_len: usize,
}

/// How long and how fast a sender is to send.
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

/// What a sender has done so far.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct LiveCounts {
    /// Frames handed to the device. What the device did with them is in the device's own counters.
    pub sent: u64,
    /// Runs of the program that had nothing to send yet.
    pub fillers: u64,
    /// Time behind schedule that was given up, in nanoseconds.
    pub given_up_ns: u64,
    /// From the first run to the last look at the clock, in nanoseconds.
    pub elapsed_ns: u64,
    /// Bursts that were sent between two naps; none without naps.
    pub bursts: u64,
    /// Frames of the largest of them.
    pub largest_burst: u64,
    /// Whether count or duration is reached, or the sender was stopped.
    pub done: bool,
}

/// A loaded sender. [`LiveSender::run`] sends from the calling thread; the other methods may be called from elsewhere meanwhile.
#[derive(Debug)]
pub struct LiveSender {
    program: OwnedFd,
    state: SharedMemory,
    frame: Vec<u8>,
    pace: LivePace,
    anchor: Option<Anchor>,
    bursts: AtomicU64,
    largest_burst: AtomicU64,
}

/// A TAP device of this process, never up, that the program is attached to.
///
/// Each BPF_PROG_TEST_RUN enters the program into the kernel's XDP dispatcher and takes it out again, and either waits for an
/// RCU grace period (tens of milliseconds; kernel/bpf/dispatcher.c). A program that is attached somewhere is in there already.
#[derive(Debug)]
struct Anchor {
    // In the order in which they are to go.
    _link: XdpLink,
    _tap: Tap,
}

impl Anchor {
    fn hold(program: BorrowedFd<'_>) -> Result<Self, XdpError> {
        let tap = Tap::create("ekgen%d").map_err(|source| XdpError::System {
            interface: "/dev/net/tun".into(),
            operation: "make a TAP device to hold the program, which a sender that sleeps needs,",
            source,
        })?;
        Ok(Self { _link: XdpLink::attach(program, PROGRAM, tap.name(), XdpMode::Native)?, _tap: tap })
    }
}

impl LiveSender {
    /// Loads a program that sends the packets of `cycle` in order, over and over, to `interface` of this thread's namespace.
    ///
    /// `frame` is the longest frame; what lies behind the headers is taken from it. With `tcp_offset` (bytes to the TCP header,
    /// whose sequence number must be a multiple of 65536) the lower half of each sequence number counts the packets, and the checksum follows.
    ///
    /// # Errors
    /// [`XdpError::Setting`] for an empty or uneven cycle, lengths out of bounds or a rate above [`PACED_PPS_MAX`].
    pub fn load(
        interface: &str,
        frame: Vec<u8>,
        cycle: &[LivePacket<'_>],
        tcp_offset: Option<usize>,
        pace: LivePace,
    ) -> Result<Self, XdpError> {
        quiet_libbpf();
        let index = interface_index(interface)?;
        let table = Table::lay_out(&frame, cycle, tcp_offset)?;
        let failed = |source| XdpError::load(PROGRAM, source);
        let mut object = MaybeUninit::uninit();
        let mut open = GenSkelBuilder::default().open(&mut object).map_err(failed)?;
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
        }
        open.maps.data_gen_table.set_value_size(table.bytes.len() as u32).map_err(failed)?;
        let skel = open.load().map_err(failed)?;
        let key = 0u32.to_ne_bytes();
        skel.maps.data_gen_table.update(&key, &table.bytes, MapFlags::ANY).map_err(|e| XdpError::Map {
            program: PROGRAM,
            operation: "fill the table of packets",
            source: io::Error::other(e),
        })?;
        skel.maps.gen_device.update(&key, &index.to_ne_bytes(), MapFlags::ANY).map_err(|e| no_xmit(interface, &e))?;
        let state = MapHandle::try_from(&skel.maps.bss).map_err(failed)?;
        let state = SharedMemory::of(state.as_fd(), size_of::<gen_state>(), 0).map_err(|source| XdpError::Map {
            program: PROGRAM,
            operation: "map the counters",
            source,
        })?;
        let program = duplicate(skel.progs.ek_gen.as_fd(), PROGRAM)?;
        let anchor = match (pace.nap, pace.pps) {
            (Some(_), Some(_)) => Some(Anchor::hold(program.as_fd())?),
            _ => None,
        };
        Ok(Self { program, state, frame, pace, anchor, bursts: AtomicU64::new(0), largest_burst: AtomicU64::new(0) })
    }

    /// Sends until count or duration is reached or [`LiveSender::stop`] was called. Signals alone end nothing: they only make the
    /// kernel come back to look, so that whoever stops a sender (or sees it done) must interrupt its thread.
    ///
    /// # Errors
    /// What BPF_PROG_TEST_RUN answers.
    pub fn run(&self) -> Result<(), XdpError> {
        if let (Some(_), Some(nap), Some(pps)) = (&self.anchor, self.pace.nap, self.pace.pps) {
            return self.run_napping(nap, pps);
        }
        while !self.counts().done && !self.is_stopped() {
            // Without a pace every run sends, and one more run sees that all is sent; with a pace there are fillers between.
            self.test_run(match self.pace.count {
                Some(count) if self.pace.pps.is_none() => {
                    i32::try_from(count - self.counts().sent + 1).unwrap_or(i32::MAX)
                }
                _ => i32::MAX,
            })?;
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
            self.test_run(due.ceil() as i32 + 1)?;
            let burst = self.counts().sent - sent;
            sent += burst;
            if burst > 0 {
                self.bursts.fetch_add(1, Ordering::Relaxed);
                self.largest_burst.fetch_max(burst, Ordering::Relaxed);
            }
            let left = self.pace.duration.saturating_sub(start.elapsed());
            let wake = if left > LAST_LOOK { nap.min(left - LAST_LOOK) } else { nap.min(left) };
            thread::sleep(wake.saturating_sub(last.elapsed()));
        }
        Ok(())
    }

    fn test_run(&self, repeat: i32) -> Result<(), XdpError> {
        let mut opts = libbpf_sys::bpf_test_run_opts {
            sz: size_of::<libbpf_sys::bpf_test_run_opts>() as libbpf_sys::size_t,
            data_in: self.frame.as_ptr().cast(),
            data_size_in: self.frame.len() as u32,
            repeat,
            flags: libbpf_sys::BPF_F_TEST_XDP_LIVE_FRAMES,
            batch_size: BATCH,
            ..Default::default()
        };
        // SAFETY: the descriptor is ours; `opts` carries its own size and points at the frame, which is alive and of the
        // stated length; the call reads the frame and writes into `opts` only.
        let code = unsafe { libbpf_sys::bpf_prog_test_run_opts(self.program.as_raw_fd(), &raw mut opts) };
        if code < 0 && code != -libc::EINTR {
            let source = io::Error::from_raw_os_error(-code);
            let operation = "run with BPF_F_TEST_XDP_LIVE_FRAMES (kernel 5.18 or newer, CAP_NET_ADMIN and CAP_BPF)";
            return Err(XdpError::Map { program: PROGRAM, operation, source });
        }
        Ok(())
    }

    /// Runs the program once on `frame` without sending it, and gives its verdict and what it made of the frame.
    ///
    /// # Errors
    /// What BPF_PROG_TEST_RUN answers.
    pub fn try_once(&self) -> Result<(u32, Vec<u8>), XdpError> {
        let mut out = vec![0u8; self.frame.len()];
        let mut opts = libbpf_sys::bpf_test_run_opts {
            sz: size_of::<libbpf_sys::bpf_test_run_opts>() as libbpf_sys::size_t,
            data_in: self.frame.as_ptr().cast(),
            data_size_in: self.frame.len() as u32,
            data_out: out.as_mut_ptr().cast(),
            data_size_out: out.len() as u32,
            repeat: 1,
            ..Default::default()
        };
        // SAFETY: the descriptor is ours; `opts` carries its own size, and both buffers are alive and of the stated lengths.
        let code = unsafe { libbpf_sys::bpf_prog_test_run_opts(self.program.as_raw_fd(), &raw mut opts) };
        if code < 0 {
            let source = io::Error::from_raw_os_error(-code);
            return Err(XdpError::Map { program: PROGRAM, operation: "test", source });
        }
        out.truncate(opts.data_size_out as usize);
        Ok((opts.retval, out))
    }

    /// Asks the program to send no more.
    pub fn stop(&self) {
        self.state.half_word(offset_of!(gen_state, stop)).store(1, Ordering::Relaxed);
    }

    fn is_stopped(&self) -> bool {
        self.state.half_word(offset_of!(gen_state, stop)).load(Ordering::Relaxed) != 0
    }

    /// What it has done so far.
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

/// Whether frames can be sent to `interface` by XDP redirect; none when the kernel (before 6.3) cannot tell.
///
/// A veth takes them only while its peer runs NAPI.
///
/// # Errors
/// [`XdpError::NoInterface`], or what the kernel answers.
pub fn takes_redirected_frames(interface: &str) -> Result<Option<bool>, XdpError> {
    /// NETDEV_XDP_ACT_NDO_XMIT (include/uapi/linux/netdev.h).
    const NDO_XMIT: u64 = 4;
    let index = interface_index(interface)?.cast_signed();
    let mut opts = libbpf_sys::bpf_xdp_query_opts {
        sz: size_of::<libbpf_sys::bpf_xdp_query_opts>() as libbpf_sys::size_t,
        ..Default::default()
    };
    // SAFETY: `opts` is initialised, carries its own size and outlives the call, which only writes into it.
    let code = unsafe { libbpf_sys::bpf_xdp_query(index, 0, &raw mut opts) };
    if code < 0 {
        let source = io::Error::from_raw_os_error(-code);
        return Err(XdpError::System { interface: interface.to_owned(), operation: "ask for XDP features", source });
    }
    Ok((opts.feature_flags != 0).then_some(opts.feature_flags & NDO_XMIT != 0))
}

fn no_xmit(interface: &str, e: &libbpf_rs::Error) -> XdpError {
    let reason = format!("its driver cannot transmit redirected frames (no ndo_xdp_xmit): {e}");
    XdpError::Unsupported { interface: interface.to_owned(), program: PROGRAM, mode: XdpMode::Native, reason }
}

/// Packets per nanosecond in the program's fixed point.
fn rate(pps: Option<f64>) -> Result<u64, XdpError> {
    match pps {
        None => Ok(0),
        Some(pps) if pps.is_finite() && pps > 0.0 && pps <= PACED_PPS_MAX => {
            Ok(((pps * (1u64 << RATE_SHIFT) as f64 / 1e9).round() as u64).max(1))
        }
        Some(pps) => {
            Err(XdpError::Setting(format!("a sender paces above 0 and up to {PACED_PPS_MAX:.0} packets/s, not {pps}")))
        }
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
        let bad = |text: String| Err(XdpError::Setting(text));
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
