//! Counts of the readers: while they run, and at the end.

use std::{
    sync::atomic::{AtomicBool, AtomicU64, Ordering},
    time::Duration,
};

use super::RunError;

#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct ReaderStats {
    /// CPU of the reader, when it is pinned.
    pub cpu: Option<u32>,
    pub packets: u64,
    /// Their bytes on the wire without FCS; none when they were counted without being touched.
    pub bytes: Option<u64>,
    /// Packets lost because its buffer was full.
    pub dropped: u64,
    /// Packets that a filter in this process left out.
    pub filtered_out: u64,
    /// Packets of queues that were made after the capture began and have no reader, as far as this reader is the one to tell.
    pub missed: u64,
    /// Times that others emptied the capture's place in the interface's chain; the same for all its readers.
    pub reattached: u64,
    /// Times its ring was full.
    pub freezes: u64,
    /// CPU time of its thread in nanoseconds; known at the end.
    pub cpu_ns: u64,
    /// Packets that passed the filter and reached this reader, those beyond the number asked for included.
    pub received: u64,
    /// Packets that it had taken when the capture ended, without what was collected after that; known at the end.
    pub in_time: u64,
    /// The time in which those came; known at the end.
    pub span: Duration,
}

/// End of a capture.
#[derive(Debug)]
pub struct Report {
    pub readers: Vec<ReaderStats>,
    /// The time from the start of the readers to the end of the capture, without what collecting the rest took.
    pub elapsed: Duration,
    pub files: u32,
    /// The capture ended because the reader of standard output went away, or the last file of a rotation was full.
    pub closed: bool,
    /// Error that ended it, if any: the rest of the report still holds.
    pub failure: Option<RunError>,
}

impl Report {
    pub fn packets(&self) -> u64 {
        self.readers.iter().map(|r| r.packets).sum()
    }

    pub fn dropped(&self) -> u64 {
        self.readers.iter().map(|r| r.dropped).sum()
    }

    /// Packets that a filter in this process left out.
    pub fn filtered_out(&self) -> u64 {
        self.readers.iter().map(|r| r.filtered_out).sum()
    }

    /// Packets that passed the filter: those that reached a reader, and those lost before. What was lost before a filter in this process counts too,
    /// whatever that would have made of it.
    pub fn received(&self) -> u64 {
        self.readers.iter().map(|r| r.received).sum::<u64>() + self.dropped()
    }

    /// Packets that no reader could see: those of queues that were made after the capture began.
    pub fn missed(&self) -> u64 {
        self.readers.iter().map(|r| r.missed).sum()
    }

    /// Times that others emptied the capture's place in the interface's chain: frames passed it unseen until it was put back.
    pub fn reattached(&self) -> u64 {
        self.readers.iter().map(|r| r.reattached).max().unwrap_or(0)
    }

    /// Packets taken per second while the capture ran; what a buffer still held at its end does not count as speed, nor the time in which
    /// the last block of a ring was filling as time without packets.
    pub fn packets_per_second(&self) -> f64 {
        self.readers.iter().map(|r| r.in_time as f64 / r.span.as_secs_f64().max(1e-9)).sum()
    }
}

/// Counters of one reader, on cache lines of their own: the reader alone writes them.
#[derive(Debug, Default)]
#[repr(align(128))]
pub(super) struct Slot {
    pub(super) packets: AtomicU64,
    pub(super) received: AtomicU64,
    pub(super) bytes: AtomicU64,
    pub(super) bytes_unknown: AtomicBool,
    pub(super) dropped: AtomicU64,
    pub(super) filtered_out: AtomicU64,
    pub(super) missed: AtomicU64,
    pub(super) reattached: AtomicU64,
    pub(super) freezes: AtomicU64,
    pub(super) cpu_ns: AtomicU64,
    pub(super) in_time: AtomicU64,
    pub(super) span_ns: AtomicU64,
}

impl Slot {
    pub(super) fn read(&self, cpu: Option<u32>) -> ReaderStats {
        let bytes = self.bytes.load(Ordering::Relaxed);
        ReaderStats {
            cpu,
            packets: self.packets.load(Ordering::Relaxed),
            received: self.received.load(Ordering::Relaxed),
            bytes: (!self.bytes_unknown.load(Ordering::Relaxed)).then_some(bytes),
            dropped: self.dropped.load(Ordering::Relaxed),
            filtered_out: self.filtered_out.load(Ordering::Relaxed),
            missed: self.missed.load(Ordering::Relaxed),
            reattached: self.reattached.load(Ordering::Relaxed),
            freezes: self.freezes.load(Ordering::Relaxed),
            cpu_ns: self.cpu_ns.load(Ordering::Relaxed),
            in_time: self.in_time.load(Ordering::Relaxed),
            span: Duration::from_nanos(self.span_ns.load(Ordering::Relaxed)),
        }
    }
}
