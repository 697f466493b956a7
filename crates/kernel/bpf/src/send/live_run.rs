//! Running a loaded program over live frames: what the generator and the bench's sender have in common.

use std::{
    io,
    os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd},
};

use libbpf_rs::libbpf_sys;
use sys::tun::Tap;

use crate::{
    link::{XdpError, XdpLink, XdpMode},
    program::{Program, opts},
};

/// PACE_RATE_SHIFT of src/lib/pace.h; the tests of the rate of both senders hold the two together.
const RATE_SHIFT: u32 = 40;
/// The longest headers, in bytes (PACE_HEADER_MAX).
pub const HEADER_MAX: usize = 120;
/// The longest frame that a test run takes: a page less its head, XDP_PACKET_HEADROOM and the shared info, rounded down.
pub const LIVE_FRAME_MAX: usize = 3072;
/// The highest rate that can be paced, in packets per second: beyond it the 64-bit sums would overflow.
pub const PACED_PPS_MAX: f64 = 5e7;

/// A program and the frame that each of its runs gets.
#[derive(Debug)]
pub(crate) struct LiveRun {
    pub(crate) name: Program,
    pub(crate) program: OwnedFd,
    pub(crate) frame: Vec<u8>,
}

impl LiveRun {
    /// Runs the program `repeat` times, `batch` frames between two looks at signals and the scheduler. A signal ends it early, without an error.
    pub(crate) fn send(&self, repeat: i32, batch: u32) -> Result<(), XdpError> {
        let mut opts = opts!(bpf_test_run_opts {
            data_in: self.frame.as_ptr().cast(),
            data_size_in: self.frame.len() as u32,
            repeat,
            flags: libbpf_sys::BPF_F_TEST_XDP_LIVE_FRAMES,
            batch_size: batch,
        });
        // SAFETY: the descriptor is ours; `opts` carries its own size and points at the frame, which is alive and of the
        // stated length; the call reads the frame and writes into `opts` only.
        let code = unsafe { libbpf_sys::bpf_prog_test_run_opts(self.program.as_raw_fd(), &raw mut opts) };
        if code < 0 && code != -libc::EINTR {
            let source = io::Error::from_raw_os_error(-code);
            let operation = "run with BPF_F_TEST_XDP_LIVE_FRAMES (kernel 5.18 or newer, CAP_NET_ADMIN and CAP_BPF)";
            return Err(self.name.failed(operation, source).into());
        }
        Ok(())
    }

    /// Runs the program once on the frame without sending it, and gives its verdict and what it made of the frame.
    pub(crate) fn try_once(&self) -> Result<(u32, Vec<u8>), XdpError> {
        Ok(self.name.test(&self.program, &self.frame)?)
    }
}

/// A TAP device of this process, never up, that a program is attached to.
///
/// Each BPF_PROG_TEST_RUN enters the program into the kernel's XDP dispatcher and takes it out again, and either waits for an
/// RCU grace period (tens of milliseconds; kernel/bpf/dispatcher.c). A program that is attached somewhere is in there already.
#[derive(Debug)]
pub(crate) struct Anchor {
    // In the order in which they are to go.
    _link: XdpLink,
    _tap: Tap,
}

impl Anchor {
    pub(crate) fn hold(program: BorrowedFd<'_>, name: Program) -> Result<Self, XdpError> {
        let operation = "make a TAP device to hold the program, which a sender that sleeps needs,";
        let tap = Tap::create("ekgen%d").map_err(XdpError::on("/dev/net/tun", operation))?;
        Ok(Self { _link: XdpLink::attach(program.as_fd(), name, tap.name(), XdpMode::Native)?, _tap: tap })
    }
}

/// Packets per nanosecond in the programs' fixed point; none, as fast as it goes, is 0.
pub(crate) fn rate(pps: Option<f64>) -> Result<u64, XdpError> {
    match pps {
        None => Ok(0),
        Some(pps) if pps.is_finite() && pps > 0.0 && pps <= PACED_PPS_MAX => {
            Ok(((pps * (1u64 << RATE_SHIFT) as f64 / 1e9).round() as u64).max(1))
        }
        Some(pps) => {
            Err(XdpError::setting(format!("a sender paces above 0 and up to {PACED_PPS_MAX:.0} packets/s, not {pps}")))
        }
    }
}

pub(crate) fn no_xmit(interface: &str, program: Program, e: &libbpf_rs::Error) -> XdpError {
    let reason = format!("its driver cannot transmit redirected frames (no ndo_xdp_xmit): {e}");
    XdpError::Unsupported { interface: interface.to_owned(), program: program.0, mode: XdpMode::Native, reason }
}
