//! The TPACKET_V3 receive ring: blocks of frames shared with the kernel.
//!
//! The kernel fills a block, sets TP_STATUS_USER in its header and goes on with the next; the reader walks it and gives
//! it back by writing TP_STATUS_KERNEL (Documentation/networking/packet_mmap.rst).

use std::{
    io, mem,
    os::fd::{AsFd, AsRawFd},
    ptr::NonNull,
    sync::atomic::{AtomicU32, Ordering},
};

use super::{PacketError, PacketSocket};
use crate::numa::PreferredNode;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct RingLayout {
    /// Bytes per block: a power of two, at least a page, at most 64 MiB.
    pub block_bytes: u32,
    /// Number of blocks, at least 2.
    pub blocks: u32,
    /// The time after which a block that is not full is handed over, in milliseconds, at least 1.
    pub retire_ms: u32,
    /// Have the kernel write each frame's flow hash into its header (TP_FT_REQ_FILL_RXHASH).
    pub rx_hash: bool,
    /// Allocate from this NUMA node, if it has memory left.
    pub node: Option<u32>,
}

/// The frame size that is told to the kernel. TPACKET_V3 packs frames by their own length and only checks it.
const FRAME_BYTES: u32 = 2048;

#[derive(Debug)]
pub struct RxRing {
    socket: PacketSocket,
    base: NonNull<u8>,
    block_bytes: usize,
    blocks: usize,
    next: usize,
}

// SAFETY: the mapping belongs to this value alone and is not bound to a thread; all methods that touch it take `&mut self`.
unsafe impl Send for RxRing {}

impl Drop for RxRing {
    fn drop(&mut self) {
        // SAFETY: the range is the one that mmap returned, and no borrow of it outlives `self`.
        unsafe { libc::munmap(self.base.as_ptr().cast(), self.block_bytes * self.blocks) };
    }
}

impl RingLayout {
    pub fn bytes(&self) -> usize {
        self.block_bytes as usize * self.blocks as usize
    }

    fn check(&self) -> Result<(), PacketError> {
        let Self { block_bytes, blocks, .. } = *self;
        if !block_bytes.is_power_of_two() || !(4096..=64 << 20).contains(&block_bytes) {
            return Err(PacketError::Layout(format!(
                "a block of {block_bytes} bytes is no power of two from 4096 to 67108864"
            )));
        }
        if blocks < 2 || u64::from(block_bytes) * u64::from(blocks) > 1 << 32 {
            return Err(PacketError::Layout(format!(
                "{blocks} blocks of {block_bytes} bytes: at least 2 blocks and at most 4 GiB are possible"
            )));
        }
        Ok(())
    }
}

impl RxRing {
    /// Gives a socket that is not bound yet its ring, and maps it.
    pub fn new(socket: PacketSocket, layout: RingLayout) -> Result<Self, PacketError> {
        layout.check()?;
        let version = libc::tpacket_versions::TPACKET_V3 as i32;
        socket.set(libc::SOL_PACKET, libc::PACKET_VERSION, "PACKET_VERSION (TPACKET_V3)", &version)?;
        let frame_bytes = FRAME_BYTES.min(layout.block_bytes);
        let request = libc::tpacket_req3 {
            tp_block_size: layout.block_bytes,
            tp_block_nr: layout.blocks,
            tp_frame_size: frame_bytes,
            tp_frame_nr: layout.block_bytes / frame_bytes * layout.blocks,
            tp_retire_blk_tov: layout.retire_ms.max(1),
            tp_sizeof_priv: 0,
            tp_feature_req_word: if layout.rx_hash { libc::TP_FT_REQ_FILL_RXHASH } else { 0 },
        };
        let name = format!("PACKET_RX_RING ({} blocks of {} bytes)", layout.blocks, layout.block_bytes);
        {
            // The pages are the kernel's and are allocated inside this call, by the memory policy of this thread.
            let _policy = layout.node.and_then(PreferredNode::enter);
            socket.set(libc::SOL_PACKET, libc::PACKET_RX_RING, &name, &request)?;
        }
        let bytes = layout.bytes();
        // SAFETY: a new shared mapping of the socket's ring is asked for, of exactly the ring's size, at an address of the
        // kernel's choice.
        let base = unsafe {
            libc::mmap(
                std::ptr::null_mut(),
                bytes,
                libc::PROT_READ | libc::PROT_WRITE,
                libc::MAP_SHARED | libc::MAP_POPULATE,
                socket.as_fd().as_raw_fd(),
                0,
            )
        };
        let base = match NonNull::new(base.cast::<u8>()) {
            Some(base) if base.as_ptr().cast() != libc::MAP_FAILED => base,
            _ => return Err(PacketError::Map { bytes, source: io::Error::last_os_error() }),
        };
        Ok(Self { socket, base, block_bytes: layout.block_bytes as usize, blocks: layout.blocks as usize, next: 0 })
    }

    pub fn socket(&self) -> &PacketSocket {
        &self.socket
    }

    /// True if the next block has been handed over.
    pub fn ready(&self) -> bool {
        self.holds(0)
    }

    /// True if more than `blocks` blocks have been handed over and wait; false if there are no more than that.
    pub fn holds(&self, blocks: usize) -> bool {
        if blocks >= self.blocks {
            return false;
        }
        let at = (self.next + blocks) % self.blocks;
        // SAFETY: `at < self.blocks`, so the header lies inside the mapping, aligned to the page; the status word is only ever
        // used as an atomic word on this side.
        let status = unsafe {
            let descriptor = self.base.as_ptr().add(at * self.block_bytes).cast::<libc::tpacket_block_desc>();
            AtomicU32::from_ptr(&raw mut (*descriptor).hdr.bh1.block_status)
        };
        status.load(Ordering::Acquire) & libc::TP_STATUS_USER != 0
    }

    /// The next block, if the kernel has handed it over. It goes back to the kernel when dropped.
    pub fn next_block(&mut self) -> Option<Block<'_>> {
        let start = self.next * self.block_bytes;
        // SAFETY: `next < blocks`, so `start` lies inside the mapping, at a page boundary: the header is aligned and within
        // bounds. `status` is only ever used as an atomic word on this side.
        let (descriptor, status) = unsafe {
            let descriptor = self.base.as_ptr().add(start).cast::<libc::tpacket_block_desc>();
            let header = &raw mut (*descriptor).hdr.bh1;
            (descriptor, AtomicU32::from_ptr(&raw mut (*header).block_status))
        };
        // Acquire: pairs with the kernel's barrier before it sets the status, so that the frames are seen whole.
        let bits = status.load(Ordering::Acquire);
        if bits & libc::TP_STATUS_USER == 0 {
            return None;
        }
        // SAFETY: the block is ours until its status is written; the kernel does not write the header meanwhile.
        let (frames, first) = unsafe {
            let header = &raw const (*descriptor).hdr.bh1;
            ((*header).num_pkts, (*header).offset_to_first_pkt)
        };
        let block_bytes = self.block_bytes;
        // SAFETY: the slice is the block behind its header, so it lies inside the mapping, which outlives the borrow of
        // `self`. Nobody writes there until `Block::drop` gives the block back, and all frames borrow from the block.
        let bytes = unsafe {
            std::slice::from_raw_parts(descriptor.cast::<u8>().add(BLOCK_HEADER), block_bytes - BLOCK_HEADER)
        };
        self.next = if self.next + 1 == self.blocks { 0 } else { self.next + 1 };
        let first = (first as usize).saturating_sub(BLOCK_HEADER);
        Some(Block { bytes, status, socket: &self.socket, losing: bits & libc::TP_STATUS_LOSING != 0, frames, first })
    }
}

/// A block that belongs to the reader until it is dropped.
#[derive(Debug)]
pub struct Block<'a> {
    bytes: &'a [u8],
    status: &'a AtomicU32,
    socket: &'a PacketSocket,
    losing: bool,
    frames: u32,
    first: usize,
}

impl Drop for Block<'_> {
    fn drop(&mut self) {
        // Release: all reads of the block are done before the kernel may fill it again.
        self.status.store(libc::TP_STATUS_KERNEL, Ordering::Release);
    }
}

#[derive(Debug, Clone, Copy)]
pub struct RingFrame<'a> {
    /// Arrival in nanoseconds since the epoch.
    pub timestamp_ns: u64,
    /// Length on the wire in bytes, without a tag that was taken out.
    pub wire_len: u32,
    pub data: &'a [u8],
    /// Its direction by the kernel's number (sll_pkttype).
    pub kind: u8,
    /// TPID and TCI of a VLAN tag that the kernel took out.
    pub vlan: Option<(u16, u16)>,
    /// The transport checksum was left to a NIC that has not seen the frame (TP_STATUS_CSUMNOTREADY).
    pub unfinished: bool,
    /// The flow hash, where [`RingLayout::rx_hash`] asked for it.
    pub rx_hash: u32,
}

impl Block<'_> {
    /// The number of frames in it.
    pub fn len(&self) -> u32 {
        self.frames
    }

    /// True if it holds none (a block retired by time may).
    pub fn is_empty(&self) -> bool {
        self.frames == 0
    }

    /// True if packets were lost since the statistics were read last, as of the moment this block was closed.
    pub fn losing(&self) -> bool {
        self.losing
    }

    pub fn socket(&self) -> &PacketSocket {
        self.socket
    }

    /// Its frames, oldest first.
    #[inline]
    pub fn frames(&self) -> impl Iterator<Item = RingFrame<'_>> {
        Frames { bytes: self.bytes, left: self.frames, at: self.first }
    }
}

struct Frames<'a> {
    bytes: &'a [u8],
    left: u32,
    at: usize,
}

const BLOCK_HEADER: usize = mem::size_of::<libc::tpacket_block_desc>();
const HEADER: usize = mem::size_of::<libc::tpacket3_hdr>();
/// The place of sll_pkttype: a struct sockaddr_ll follows the header, aligned to 16 bytes.
const KIND_AT: usize = HEADER.next_multiple_of(16) + mem::offset_of!(libc::sockaddr_ll, sll_pkttype);

impl<'a> Iterator for Frames<'a> {
    type Item = RingFrame<'a>;

    #[inline]
    fn next(&mut self) -> Option<RingFrame<'a>> {
        if self.left == 0 {
            return None;
        }
        let rest = self.bytes.get(self.at..)?;
        if rest.len() < HEADER {
            return None;
        }
        // SAFETY: `rest` holds at least a whole tpacket3_hdr, which is made of integers only; read_unaligned asks for no
        // alignment, and the kernel does not write to a block that is ours.
        let h = unsafe { rest.as_ptr().cast::<libc::tpacket3_hdr>().read_unaligned() };
        let mac = h.tp_mac as usize;
        let data = rest.get(mac..mac + h.tp_snaplen as usize)?;
        self.left -= 1;
        self.at += h.tp_next_offset as usize;
        Some(RingFrame {
            timestamp_ns: u64::from(h.tp_sec) * 1_000_000_000 + u64::from(h.tp_nsec),
            wire_len: h.tp_len,
            data,
            kind: *rest.get(KIND_AT)?,
            vlan: super::batch::vlan(h.tp_status, h.hv1.tp_vlan_tci as u16, h.hv1.tp_vlan_tpid),
            unfinished: h.tp_status & libc::TP_STATUS_CSUMNOTREADY != 0,
            rx_hash: h.hv1.tp_rxhash,
        })
    }
}
