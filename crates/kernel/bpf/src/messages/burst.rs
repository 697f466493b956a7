//! Frames of user space that leave without socket buffers.

use std::{
    mem::{MaybeUninit, offset_of},
    os::fd::AsFd,
    sync::atomic::{Ordering, fence},
};

use libbpf_rs::{Link, MapCore, MapFlags};
use sys::interface::index;
use sys::map_mmap::SharedMemory;

use crate::{
    link::XdpError,
    program::{Program, to_io},
    send::live_run::{Anchor, LIVE_FRAME_MAX, LiveRun, no_xmit},
    skel::burst::{BurstSkelBuilder, types::burst_state},
};

const PROGRAM: Program = Program("ek_burst");
const PLACE_BYTES: usize = 4096;
const HEAD_BYTES: usize = 8;
/// Frames of a burst between two looks at interrupts.
const FRAMES_PER_POLL: u32 = 64;

/// Sends bursts of frames: each is copied once, into a page that the device gets.
///
/// A system call has a fixed cost of some microseconds for a burst, whatever its length: few frames go faster by a packet socket.
#[derive(Debug)]
pub struct LinkBurst {
    run: LiveRun,
    places: SharedMemory,
    state: SharedMemory,
    waiting: usize,
    anchor: Option<Anchor>,
    _watches: [Link; 2],
}

impl LinkBurst {
    pub const FRAMES: usize = 256;

    /// Sends frames of at most `frame_max` bytes on an interface of this network namespace. [`LinkBurst::hold`] has to come before the first burst.
    ///
    /// # Errors
    /// The driver cannot send redirected frames, CAP_BPF, CAP_NET_ADMIN or CAP_PERFMON lacks, or the kernel is older than 5.18.
    pub fn load(interface: &str, frame_max: usize) -> Result<Self, XdpError> {
        if frame_max > LIVE_FRAME_MAX {
            return Err(XdpError::setting(format!(
                "a burst has frames of at most {LIVE_FRAME_MAX} bytes, not {frame_max}"
            )));
        }
        let index = index(interface)?;
        let mut object = MaybeUninit::uninit();
        let mut open = PROGRAM.open::<BurstSkelBuilder>(&mut object)?;
        if let Some(knobs) = open.maps.rodata_data.as_deref_mut() {
            knobs.burst_given = frame_max as u32;
        }
        let skel = PROGRAM.load(open)?;
        skel.maps
            .burst_device
            .update(&0u32.to_ne_bytes(), &index.to_ne_bytes(), MapFlags::ANY)
            .map_err(|e| no_xmit(interface, PROGRAM, &e))?;
        let places =
            PROGRAM.memory(&skel.maps.data_burst_places, Self::FRAMES * PLACE_BYTES, "map the places of frames")?;
        let state = PROGRAM.memory(&skel.maps.bss, size_of::<burst_state>(), "map the counters")?;
        let program = PROGRAM.descriptor(skel.progs.ek_burst.as_fd())?;
        let run = LiveRun { name: PROGRAM, program, frame: vec![0; frame_max] };
        let failed = |e| PROGRAM.failed("hear of frames that the driver does not take", to_io(&e));
        let watches = [
            skel.progs.ek_burst_refused.attach().map_err(failed)?,
            skel.progs.ek_burst_dropped.attach().map_err(failed)?,
        ];
        Ok(Self { run, places, state, waiting: 0, anchor: None, _watches: watches })
    }

    /// Makes a TAP device in the caller's network namespace, which goes with this, and attaches the program to it: each burst of a program that is
    /// attached nowhere waits for the kernel, for milliseconds.
    ///
    /// # Errors
    /// CAP_NET_ADMIN or /dev/net/tun lacks.
    pub fn hold(&mut self) -> Result<(), XdpError> {
        self.anchor = Some(Anchor::hold(self.run.program.as_fd(), PROGRAM)?);
        Ok(())
    }

    /// Puts a frame behind those that wait; false if it is too long, or the burst is full.
    #[inline]
    pub fn push(&mut self, frame: &[u8]) -> bool {
        let at = self.waiting * PLACE_BYTES;
        if self.waiting == Self::FRAMES || frame.len() > self.run.frame.len() {
            return false;
        }
        // SAFETY: the kernel's program reads the places in `send` alone, which takes `self` exclusively, too.
        unsafe { self.places.slice_mut(at + HEAD_BYTES, frame.len()) }.copy_from_slice(frame);
        self.places.half_word(at).store(frame.len() as u32, Ordering::Relaxed);
        self.waiting += 1;
        true
    }

    pub fn waiting(&self) -> usize {
        self.waiting
    }

    /// Sends what waits. What the device has no room for is lost; how many were.
    pub fn send(&mut self) -> Result<usize, XdpError> {
        let count = std::mem::take(&mut self.waiting);
        if count == 0 {
            return Ok(0);
        }
        self.state.word(offset_of!(burst_state, next)).store(0, Ordering::Relaxed);
        self.state.word(offset_of!(burst_state, dropped)).store(0, Ordering::Relaxed);
        fence(Ordering::Release);
        // Interrupts are served between the pieces: a veth keeps 256 frames for its other end.
        self.run.send(count as i32, (count as u32).min(FRAMES_PER_POLL))?;
        Ok(self.state.word(offset_of!(burst_state, dropped)).load(Ordering::Relaxed) as usize)
    }
}
