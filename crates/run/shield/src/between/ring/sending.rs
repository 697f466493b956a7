//! Transmission: forwarded frames, and SYN-ACKs back to their senders.

use std::{
    thread,
    time::{Duration, Instant},
};

use sys::{
    link,
    packet_batch::{BATCH, PacketBatch},
    packet_tx::{PacketTxError, TxLayout, TxRing},
};

use super::{counts::Counts, name_of, proof::ReplyFrame};
use crate::error::ShieldError;

/// Frames that are sent in one go: a driver that finds its queue full loses them.
const BURST_MAX: usize = 64;
/// The kernel's memory for questions that were sent and not yet received: less than 200, as a veth loses what finds 256 waiting.
const IN_FLIGHT_BYTES_MAX: usize = 1 << 17;
const ETHERNET_LEN: usize = 14;
const TAG_LEN: usize = 4;
/// The kernel has room for this tag beyond the MTU, and for no other (packet_extra_vlan_len_allowed).
const VLAN: [u8; 2] = [0x81, 0x00];
/// The MTU is read again for frames that are too large, so often at most.
const MTU_PERIOD: Duration = Duration::from_secs(1);
/// Slots of a transmit ring.
const SLOT_COUNT: usize = 1024;

/// Sends frames that cross, each as soon as there is room for it.
#[derive(Debug)]
pub(super) struct Sender {
    ring: TxRing,
    /// Longest frame without FCS and tags, in bytes.
    frame_max: usize,
    /// Frames in the ring that were not yet sent.
    waiting: usize,
    index: u32,
    name: String,
    /// The moment at which the MTU was last read.
    looked: Instant,
}

/// Sends questions, as far as there is room for them.
#[derive(Debug)]
pub(super) struct SynAckSender {
    batch: PacketBatch,
    name: String,
}

impl Sender {
    pub(super) fn open(index: u32) -> Result<Self, ShieldError> {
        let lacking = |what: String| ShieldError::Lacking(what);
        let interface = name_of(index).ok_or(ShieldError::Removed { index })?;
        let mtu = link::mtu(&interface).map_err(|e| lacking(format!("cannot read the MTU of {interface}: {e}")))?;
        let frame_max = mtu as usize + ETHERNET_LEN;
        let layout = TxLayout { slots: SLOT_COUNT, frame_max: frame_max + TAG_LEN, qdisc_bypass: true };
        let ring = TxRing::open(index, layout)
            .map_err(|e| lacking(format!("cannot send frames by {interface} through a packet ring: {e}")))?;
        Ok(Self { ring, frame_max, waiting: 0, index, name: interface, looked: Instant::now() })
    }

    /// Puts the frame into the ring. What is too large for the interface, or finds the ring full of what a link that is down does not
    /// take, is dropped and counted.
    pub(super) fn send(&mut self, frame: &[u8], counts: &Counts) -> Result<(), ShieldError> {
        if !self.fits(frame) {
            self.follow_mtu(counts)?;
        }
        if self.push(frame)? || (self.fits(frame) && self.flush(true, counts)? && self.push(frame)?) {
            self.waiting += 1;
            if self.waiting >= BURST_MAX {
                self.flush(true, counts)?;
                // Whoever takes them may need this CPU.
                thread::yield_now();
            }
            return Ok(());
        }
        counts.refused(1, frame.len());
        Ok(())
    }

    fn fits(&self, frame: &[u8]) -> bool {
        let tag = if frame.get(12..14) == Some(&VLAN) { TAG_LEN } else { 0 };
        (ETHERNET_LEN..=self.frame_max + tag).contains(&frame.len())
    }

    fn push(&mut self, frame: &[u8]) -> Result<bool, ShieldError> {
        let failed = |e| ShieldError::Lacking(format!("cannot send by {}: {e}", self.name));
        if self.fits(frame) { self.ring.push(frame).map_err(failed) } else { Ok(false) }
    }

    /// Returns whether the interface takes frames. One that takes smaller ones than before gets a new ring.
    pub(super) fn flush(&mut self, wait: bool, counts: &Counts) -> Result<bool, ShieldError> {
        self.waiting = 0;
        match self.ring.flush(wait) {
            Ok(()) => Ok(true),
            Err(PacketTxError::Send(e)) if e.raw_os_error() == Some(nix::libc::ENETDOWN) => Ok(false),
            Err(PacketTxError::TooLong) => self.reopen(counts).map(|()| true),
            Err(e) => Err(ShieldError::Lacking(format!("cannot send by {}: {e}", self.name))),
        }
    }

    /// Looks, when a frame is too large, whether the interface takes larger ones now.
    fn follow_mtu(&mut self, counts: &Counts) -> Result<(), ShieldError> {
        if self.looked.elapsed() < MTU_PERIOD {
            return Ok(());
        }
        self.looked = Instant::now();
        let mtu = name_of(self.index).ok_or(ShieldError::Removed { index: self.index }).map(|name| link::mtu(&name));
        let grown = mtu?.is_ok_and(|mtu| mtu as usize + ETHERNET_LEN > self.frame_max);
        if grown && self.flush(true, counts)? { self.reopen(counts) } else { Ok(()) }
    }

    /// A ring for the MTU of now. What was not sent by the one before is dropped and counted.
    fn reopen(&mut self, counts: &Counts) -> Result<(), ShieldError> {
        self.give_up(counts);
        *self = Self::open(self.index)?;
        Ok(())
    }

    /// Counts what was not sent: this ring sends no more.
    pub(super) fn give_up(&self, counts: &Counts) {
        let (frames, bytes) = self.ring.unsent();
        counts.refused(frames, bytes);
    }
}

impl SynAckSender {
    pub(super) fn open(index: u32) -> Result<Self, ShieldError> {
        let interface = name_of(index).ok_or(ShieldError::Removed { index })?;
        let batch = PacketBatch::open(index, ReplyFrame::MAX, IN_FLIGHT_BYTES_MAX)
            .map_err(|e| ShieldError::Lacking(format!("cannot send frames by {interface}: {e}")))?;
        Ok(Self { batch, name: interface })
    }

    pub(super) fn send(&mut self, syn_ack: &ReplyFrame, counts: &Counts) -> Result<(), ShieldError> {
        self.batch.push(syn_ack.bytes());
        if self.batch.waiting() < BATCH { Ok(()) } else { self.flush(counts) }
    }

    /// Drops and counts questions that find no room: whoever is asked tries again.
    pub(super) fn flush(&mut self, counts: &Counts) -> Result<(), ShieldError> {
        let (waiting, bytes) = (self.batch.waiting(), self.batch.bytes());
        let lost = match self.batch.flush() {
            Ok(lost) => lost,
            Err(PacketTxError::Send(e)) if e.raw_os_error() == Some(nix::libc::ENETDOWN) => waiting,
            Err(e) => return Err(ShieldError::Lacking(format!("cannot send by {}: {e}", self.name))),
        };
        if lost > 0 {
            counts.totals.dropped.add(lost as u64);
            // Which ones nobody tells.
            counts.totals.dropped_bytes.add((bytes * lost / waiting) as u64);
        }
        Ok(())
    }
}
