//! Sending through an AF_XDP socket: frames are written straight into the memory that the kernel sends from.

use std::time::Duration;

use sys::xsk::{CopyMode, XskSender, XskSettings};

use crate::{
    PortError,
    xdp::{explain_xsk, until_free},
    xdp_common::up_interface,
};

const BACKEND: &str = "xdp";

#[derive(Debug, Clone)]
pub struct XdpSinkOptions {
    pub interface: String,
    pub queue: u32,
    /// Frames of memory and ring entries: a power of two.
    pub frames: u32,
    /// Bytes of a frame in memory, and the longest frame: 2048 or 4096.
    pub frame_bytes: u32,
    pub copy: CopyMode,
}

/// A sink that sends through one queue. Write with [`XdpSink::submit`], send with [`XdpSink::kick`].
#[derive(Debug)]
pub struct XdpSink {
    socket: XskSender,
    interface: String,
    submitted: u64,
}

impl XdpSink {
    pub fn open(options: &XdpSinkOptions) -> Result<Self, PortError> {
        let ifindex = up_interface(&options.interface)?;
        let settings = XskSettings {
            ifindex,
            queue: options.queue,
            frames: options.frames,
            frame_bytes: options.frame_bytes,
            copy: options.copy,
            huge_pages: true,
            busy_poll: None,
            node: None,
        };
        let socket = until_free(|| XskSender::open(&settings))
            .map_err(|e| explain_xsk(BACKEND, &options.interface, Some(options.queue), e))?;
        Ok(Self { socket, interface: options.interface.clone(), submitted: 0 })
    }

    /// Lets `fill` write up to `count` frames and queues them; returns how many there was room for, perhaps 0. `fill` gets the memory of one
    /// frame and returns the frame's length in bytes.
    pub fn submit<F: FnMut(&mut [u8]) -> usize>(&mut self, count: u32, fill: F) -> u32 {
        let count = self.socket.submit(count, fill);
        self.submitted += u64::from(count);
        count
    }

    /// Makes the kernel send what is queued, and takes back what it has done with. False if it could not take everything now.
    pub fn kick(&mut self) -> Result<bool, PortError> {
        let all = self.socket.kick().map_err(|e| explain_xsk(BACKEND, &self.interface, None, e))?;
        self.socket.reap();
        Ok(all)
    }

    /// Sends everything that is queued, and waits up to `timeout` until the kernel has done with it. Returns the frames still out.
    pub fn flush(&mut self, timeout: Duration) -> Result<u32, PortError> {
        let start = std::time::Instant::now();
        loop {
            self.kick()?;
            let out = self.socket.outstanding();
            if out == 0 || start.elapsed() >= timeout {
                return Ok(out);
            }
            std::thread::yield_now();
        }
    }

    /// Frames that the kernel has taken and done with.
    pub fn sent(&self) -> u64 {
        self.submitted - u64::from(self.socket.outstanding())
    }

    /// True if the NIC reads the frames itself.
    pub fn is_zero_copy(&self) -> bool {
        self.socket.is_zero_copy()
    }
}
