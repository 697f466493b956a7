//! The result of a run.

use serde::Serialize;

#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct SenderReport {
    /// CPU of the sender; none where the scheduler chose.
    pub cpu: Option<u32>,
    /// Frames that it handed to the kernel.
    pub submitted: u64,
    /// Bytes of these frames without FCS.
    pub submitted_bytes: u64,
    /// The time that it sent, in seconds.
    pub elapsed_s: f64,
    /// Frames per second, from its own count.
    pub submitted_pps: f64,
    /// CPU time of its thread over the time it ran: 1 is a whole core.
    pub cpu_share: f64,
    /// Time behind schedule that it gave up instead of sending a longer burst or beyond its end, in seconds.
    pub skipped_s: f64,
}

#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct GenReport {
    pub interface: String,
    pub backend: String,
    pub backend_reason: String,
    /// The destination addresses; none for a replay, whose frames have their own.
    pub destination: Option<String>,
    pub destination_port: Option<String>,
    pub destination_mac: Option<String>,
    /// Each frame had a source drawn anew.
    pub random_sources: bool,
    /// The senders' wait for the time of the next packet: `even` or `sleep`; none for `max`.
    pub pacing: Option<String>,
    pub pacing_reason: Option<String>,
    /// Mean frames of a burst between two sleeps, as sent; none for senders that do not sleep.
    pub burst_mean: Option<f64>,
    /// Frames of the largest burst.
    pub burst_max: Option<u64>,
    /// Frames in the cycle that was repeated, of all senders or of the file.
    pub cycle_frames: u64,
    /// Mean size of a frame in bytes with FCS, as planned.
    pub mean_frame_bytes: f64,
    /// Packets per second asked for; none for `max`.
    pub offered_pps: Option<f64>,
    /// Frames handed to the kernel, by the senders' own counts.
    pub submitted: u64,
    /// Frames that the interface counted as sent in this time, whoever sent them.
    pub device_sent: u64,
    /// Frames that the interface counted as dropped in this time.
    pub device_dropped: u64,
    /// The time that the longest sender sent, in seconds.
    pub elapsed_s: f64,
    /// Frames per second that left: the lesser of both counts, over the time.
    pub achieved_pps: f64,
    /// Bits per second that left, frames with FCS (layer 2).
    pub achieved_l2_bps: f64,
    /// Bits per second that left, with preamble and gap too (layer 1).
    pub achieved_l1_bps: f64,
    /// Achieved over offered rate, less one; below zero is too slow. None for `max`, and for a part of a recording at its own times: the offered rate is
    /// that of all of it.
    pub pacing_error: Option<f64>,
    /// The run was stopped before its duration or count.
    pub stopped: bool,
    pub senders: Vec<SenderReport>,
}
