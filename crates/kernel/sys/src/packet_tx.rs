//! AF_PACKET transmit: a TPACKET_V2 ring whose frames go to the driver, past the qdisc where asked.
//!
//! Layout: include/uapi/linux/if_packet.h; Documentation/networking/packet_mmap.rst.

use std::{
    io, mem,
    os::fd::{AsFd, AsRawFd, BorrowedFd, FromRawFd, OwnedFd},
    sync::atomic::Ordering,
};

use crate::map_mmap::SharedMemory;

/// Offset of the frame in its slot: the aligned header, without PACKET_TX_HAS_OFF (tpacket_parse_header).
const DATA_OFFSET: usize = mem::size_of::<libc::tpacket2_hdr>().next_multiple_of(libc::TPACKET_ALIGNMENT);
const STATUS: usize = mem::offset_of!(libc::tpacket2_hdr, tp_status);
const LEN: usize = mem::offset_of!(libc::tpacket2_hdr, tp_len);

/// A step of AF_PACKET transmit that failed.
#[derive(Debug, thiserror::Error)]
pub enum PacketTxError {
    #[error("cannot open a packet socket: {0}")]
    Open(#[source] io::Error),
    #[error("cannot set {option} on a packet socket: {source}")]
    Option { option: &'static str, source: io::Error },
    #[error("cannot bind a packet socket to interface index {index}: {source}")]
    Bind { index: u32, source: io::Error },
    #[error("cannot map a transmit ring of {bytes} bytes: {source}")]
    Map { bytes: usize, source: io::Error },
    #[error("cannot send from a transmit ring: {0}")]
    Send(#[source] io::Error),
    #[error("the kernel refused a frame that is longer than the MTU, Ethernet header and one 802.1Q tag allow")]
    TooLong,
    #[error(
        "the kernel refused a frame of {len} bytes: it is longer than the MTU allows, or shorter than an Ethernet header"
    )]
    WrongFormat { len: u32 },
}

impl PacketTxError {
    /// The kernel's answer, where a system call failed.
    pub fn os_error(&self) -> Option<&io::Error> {
        match self {
            Self::Open(source)
            | Self::Option { source, .. }
            | Self::Bind { source, .. }
            | Self::Map { source, .. }
            | Self::Send(source) => Some(source),
            Self::TooLong | Self::WrongFormat { .. } => None,
        }
    }
}

/// Size and kind of a transmit ring.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct TxLayout {
    /// Slots, rounded up to a power of two.
    pub slots: usize,
    /// The longest frame in bytes without FCS.
    pub frame_max: usize,
    /// Past the qdisc, straight to the driver (PACKET_QDISC_BYPASS). Taps such as tcpdump on this interface then see nothing.
    pub qdisc_bypass: bool,
}

/// A transmit ring on one interface.
#[derive(Debug)]
pub struct TxRing {
    fd: OwnedFd,
    memory: SharedMemory,
    slot_bytes: usize,
    slots: usize,
    next: usize,
    unsent: usize,
}

impl TxRing {
    /// Opens a ring on the interface of index `index` in this thread's namespace. The socket receives nothing.
    pub fn open(index: u32, layout: TxLayout) -> Result<Self, PacketTxError> {
        // SAFETY: socket(2) takes no pointers.
        let fd = unsafe { libc::socket(libc::AF_PACKET, libc::SOCK_RAW | libc::SOCK_CLOEXEC, 0) };
        if fd < 0 {
            return Err(PacketTxError::Open(io::Error::last_os_error()));
        }
        // SAFETY: the kernel has just made this descriptor for us; nobody else owns it.
        let fd = unsafe { OwnedFd::from_raw_fd(fd) };
        let version = libc::tpacket_versions::TPACKET_V2 as i32;
        set(fd.as_fd(), libc::SOL_PACKET, libc::PACKET_VERSION, "PACKET_VERSION", &version)?;
        if layout.qdisc_bypass {
            set(fd.as_fd(), libc::SOL_PACKET, libc::PACKET_QDISC_BYPASS, "PACKET_QDISC_BYPASS", &1i32)?;
        }
        let page = 4096;
        let slot_bytes = (DATA_OFFSET + layout.frame_max).next_power_of_two();
        let slots = layout.slots.next_power_of_two().max(page / slot_bytes.min(page)).max(2);
        let bytes = slot_bytes * slots;
        let block_bytes = slot_bytes.max(1 << 16).min(bytes).max(page);
        let request = libc::tpacket_req {
            tp_block_size: block_bytes as u32,
            tp_block_nr: (bytes / block_bytes) as u32,
            tp_frame_size: slot_bytes as u32,
            tp_frame_nr: slots as u32,
        };
        set(fd.as_fd(), libc::SOL_PACKET, libc::PACKET_TX_RING, "PACKET_TX_RING", &request)?;
        let memory = SharedMemory::of(fd.as_fd(), bytes, 0).map_err(|source| PacketTxError::Map { bytes, source })?;
        bind(fd.as_fd(), index)?;
        Ok(Self { fd, memory, slot_bytes, slots, next: 0, unsent: 0 })
    }

    /// Puts a frame into the next slot; false when the kernel has not yet given it back: [`TxRing::flush`] first.
    ///
    /// # Errors
    /// [`PacketTxError::WrongFormat`] if the kernel refused the frame that was in the slot before, or this one does not fit.
    #[inline]
    pub fn push(&mut self, frame: &[u8]) -> Result<bool, PacketTxError> {
        let at = self.next * self.slot_bytes;
        let status = self.memory.half_word(at + STATUS);
        match status.load(Ordering::Acquire) {
            libc::TP_STATUS_AVAILABLE => {}
            s if s & libc::TP_STATUS_WRONG_FORMAT != 0 => {
                return Err(PacketTxError::WrongFormat {
                    len: self.memory.half_word(at + LEN).load(Ordering::Relaxed),
                });
            }
            _ => return Ok(false),
        }
        if frame.len() > self.slot_bytes - DATA_OFFSET {
            return Err(PacketTxError::WrongFormat { len: frame.len() as u32 });
        }
        // SAFETY: an available slot is ours until its status says otherwise, and `self` is borrowed exclusively.
        unsafe { self.memory.slice_mut(at + DATA_OFFSET, frame.len()) }.copy_from_slice(frame);
        self.memory.half_word(at + LEN).store(frame.len() as u32, Ordering::Relaxed);
        status.store(libc::TP_STATUS_SEND_REQUEST, Ordering::Release);
        self.next = (self.next + 1) & (self.slots - 1);
        self.unsent += 1;
        Ok(true)
    }

    /// Makes the kernel send what was pushed. With `wait`, returns once the kernel is through with all of it.
    ///
    /// A queue or driver that is full makes the kernel drop the frame, which its device counts; that is no error.
    ///
    /// # Errors
    /// [`PacketTxError::Send`], among others ENETDOWN for an interface that is down and ENXIO for one that is gone.
    /// [`PacketTxError::TooLong`] if the MTU is smaller than it was; the ring is of no more use then, and [`TxRing::unsent`] tells what it
    /// did not send.
    pub fn flush(&mut self, wait: bool) -> Result<(), PacketTxError> {
        let flags = if wait { 0 } else { libc::MSG_DONTWAIT };
        // A send may stop at a frame that the driver would not take (ENOBUFS); what is behind it goes with the next one.
        for _ in 0..=self.slots {
            if self.unsent == 0 {
                return Ok(());
            }
            // SAFETY: no data pointer is passed: the frames are in the ring.
            let code = unsafe { libc::send(self.fd.as_raw_fd(), std::ptr::null(), 0, flags) };
            let error = io::Error::last_os_error();
            if code >= 0 {
                self.unsent = 0;
                return Ok(());
            }
            match error.raw_os_error() {
                Some(libc::EAGAIN | libc::EINTR) => return Ok(()),
                Some(libc::ENOBUFS) => {}
                Some(libc::EMSGSIZE) => return Err(PacketTxError::TooLong),
                _ => return Err(PacketTxError::Send(error)),
            }
        }
        Ok(())
    }
}

impl TxRing {
    /// Frames that were pushed and that the kernel has not begun to send or has refused, and their bytes.
    pub fn unsent(&self) -> (usize, usize) {
        let waits = libc::TP_STATUS_SEND_REQUEST | libc::TP_STATUS_WRONG_FORMAT;
        let slots = (0..self.slots).map(|n| n * self.slot_bytes);
        slots.filter(|at| self.memory.half_word(at + STATUS).load(Ordering::Acquire) & waits != 0).fold(
            (0, 0),
            |(frames, bytes), at| {
                (frames + 1, bytes + self.memory.half_word(at + LEN).load(Ordering::Relaxed) as usize)
            },
        )
    }
}

/// Binds a packet socket to an interface, for no protocol: it receives nothing.
pub(crate) fn bind(fd: BorrowedFd<'_>, index: u32) -> Result<(), PacketTxError> {
    let address = libc::sockaddr_ll {
        sll_family: libc::AF_PACKET as u16,
        sll_protocol: 0,
        sll_ifindex: index.cast_signed(),
        sll_hatype: 0,
        sll_pkttype: 0,
        sll_halen: 0,
        sll_addr: [0; 8],
    };
    // SAFETY: the address is a live sockaddr_ll of the stated length.
    let code = unsafe {
        libc::bind(fd.as_raw_fd(), (&raw const address).cast(), mem::size_of::<libc::sockaddr_ll>() as libc::socklen_t)
    };
    if code < 0 {
        return Err(PacketTxError::Bind { index, source: io::Error::last_os_error() });
    }
    Ok(())
}

pub(crate) fn set<T: Copy>(
    fd: BorrowedFd<'_>,
    level: i32,
    option: i32,
    name: &'static str,
    value: &T,
) -> Result<(), PacketTxError> {
    // SAFETY: the pointer and the length describe `value`, which the kernel only reads.
    let code = unsafe {
        libc::setsockopt(
            fd.as_raw_fd(),
            level,
            option,
            std::ptr::from_ref(value).cast(),
            mem::size_of::<T>() as libc::socklen_t,
        )
    };
    if code < 0 {
        return Err(PacketTxError::Option { option: name, source: io::Error::last_os_error() });
    }
    Ok(())
}
