//! AF_XDP sockets by hand, against linux/if_xdp.h: a UMEM and four rings per socket, one socket per queue.

mod ring;
mod socket;
mod umem;

pub use socket::{XskReceiver, XskSender};
pub use umem::Umem;

use std::io;

/// The way of frames between the NIC and the UMEM.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum CopyMode {
    /// Whatever the kernel chooses: zero-copy where the driver has it.
    #[default]
    Any,
    /// Copied by the kernel.
    Copy,
    /// Written by the NIC; refused where the driver has no such mode.
    ZeroCopy,
}

/// Busy polling: the reader's system call runs the NIC's NAPI instance (socket(7), SO_BUSY_POLL).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct BusyPoll {
    /// The time that a call polls, in microseconds.
    pub usecs: u32,
    /// Packets per poll.
    pub budget: u32,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct XskSettings {
    pub ifindex: u32,
    pub queue: u32,
    /// Frames in the UMEM, and entries of each ring: a power of two.
    pub frames: u32,
    /// Bytes of a UMEM frame: 2048 or 4096. The kernel keeps 256 of them for itself when it receives.
    pub frame_bytes: u32,
    pub copy: CopyMode,
    /// Try huge pages for the UMEM.
    pub huge_pages: bool,
    pub busy_poll: Option<BusyPoll>,
    /// Take the UMEM from this NUMA node, if it has memory left; none: the caller's.
    pub node: Option<u32>,
}

/// Losses of a socket since it was opened (XDP_STATISTICS).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct XskStatistics {
    /// Frames lost: too long for a UMEM frame, or no UMEM frame was free.
    pub rx_dropped: u64,
    /// Frames lost because the receive ring was full.
    pub rx_ring_full: u64,
    /// Times that the fill ring was found empty (these frames are in `rx_dropped`).
    pub fill_ring_empty: u64,
    /// Bad descriptors that we gave for receiving.
    pub rx_invalid: u64,
    /// Bad descriptors that we gave for sending.
    pub tx_invalid: u64,
}

impl XskStatistics {
    /// Frames that were meant for this socket and did not reach it.
    pub fn lost(&self) -> u64 {
        self.rx_dropped + self.rx_ring_full
    }
}

/// An AF_XDP socket that could not be made or used.
#[derive(Debug, thiserror::Error)]
#[error("cannot {operation}: {source}")]
pub struct XskError {
    pub operation: &'static str,
    pub source: io::Error,
}

const BIND: &str = "bind an AF_XDP socket to its queue";

impl XskError {
    fn last(operation: &'static str) -> Self {
        Self { operation, source: io::Error::last_os_error() }
    }

    /// The step was binding the socket to its queue.
    pub fn is_bind(&self) -> bool {
        self.operation == BIND
    }

    /// The kernel's error number, if it was the kernel.
    pub fn errno(&self) -> Option<i32> {
        self.source.raw_os_error()
    }
}
