//! The socket itself: one that receives, one that sends.

use std::{
    io, mem,
    os::fd::{AsFd, AsRawFd, BorrowedFd, FromRawFd, OwnedFd},
    ptr, thread,
    time::Duration,
};

use super::{
    BIND, CopyMode, Umem, XskError, XskSettings, XskStatistics,
    ring::{Descriptor, Ring},
};
use crate::numa::PreferredNode;

/// XDP_MAX_TX_SKB_BUDGET (Linux 6.17): frames that one call may send in copy mode, 32 by itself.
const MAX_TX_BUDGET: libc::c_int = 9;
const SO_PREFER_BUSY_POLL: libc::c_int = 69;
const SO_BUSY_POLL_BUDGET: libc::c_int = 70;

#[derive(Debug)]
struct Base {
    fd: OwnedFd,
    umem: Umem,
    offsets: libc::xdp_mmap_offsets,
    zero_copy: bool,
}

fn set<T>(fd: BorrowedFd<'_>, level: i32, name: i32, value: &T, operation: &'static str) -> Result<(), XskError> {
    // SAFETY: `value` is a plain initialised value of the size given, and outlives the call.
    let code = unsafe {
        libc::setsockopt(fd.as_raw_fd(), level, name, ptr::from_ref(value).cast(), mem::size_of::<T>() as u32)
    };
    if code == 0 { Ok(()) } else { Err(XskError::last(operation)) }
}

fn get<T: Copy>(fd: BorrowedFd<'_>, name: i32, mut value: T, operation: &'static str) -> Result<T, XskError> {
    let mut len = mem::size_of::<T>() as u32;
    // SAFETY: `value` is a plain initialised value of `len` bytes, any bits of which are valid for the kernel structs used here.
    let code = unsafe {
        libc::getsockopt(fd.as_raw_fd(), libc::SOL_XDP, name, ptr::from_mut(&mut value).cast(), &raw mut len)
    };
    if code == 0 { Ok(value) } else { Err(XskError::last(operation)) }
}

impl Base {
    fn new(settings: &XskSettings) -> Result<Self, XskError> {
        // SAFETY: no memory is involved.
        let fd = unsafe { libc::socket(libc::AF_XDP, libc::SOCK_RAW | libc::SOCK_CLOEXEC, 0) };
        if fd < 0 {
            return Err(XskError::last("open an AF_XDP socket"));
        }
        // SAFETY: the kernel has just made this descriptor for us; nobody else owns it.
        let fd = unsafe { OwnedFd::from_raw_fd(fd) };
        // Every page is allocated here, by the memory policy of this thread.
        let policy = settings.node.and_then(PreferredNode::enter);
        let umem = Umem::new(settings.frames, settings.frame_bytes, settings.huge_pages)
            .map_err(|source| XskError { operation: "get memory for the frames of an AF_XDP socket", source })?;
        drop(policy);
        let region = libc::xdp_umem_reg {
            addr: umem.address(),
            len: u64::from(umem.frames()) * u64::from(umem.frame_bytes()),
            chunk_size: settings.frame_bytes,
            headroom: 0,
            flags: 0,
            tx_metadata_len: 0,
        };
        set(fd.as_fd(), libc::SOL_XDP, libc::XDP_UMEM_REG, &region, "register the memory of an AF_XDP socket")?;
        for ring in [libc::XDP_UMEM_FILL_RING, libc::XDP_UMEM_COMPLETION_RING] {
            set(fd.as_fd(), libc::SOL_XDP, ring, &settings.frames, "size the rings of an AF_XDP socket")?;
        }
        let offsets = get(fd.as_fd(), libc::XDP_MMAP_OFFSETS, no_offsets(), "ask where the AF_XDP rings are")?;
        Ok(Self { fd, umem, offsets, zero_copy: false })
    }

    fn ring_of_socket(&self, name: i32, settings: &XskSettings, at: i64) -> Result<Ring<Descriptor>, XskError> {
        set(self.fd.as_fd(), libc::SOL_XDP, name, &settings.frames, "size the rings of an AF_XDP socket")?;
        let offsets = if name == libc::XDP_RX_RING { self.offsets.rx } else { self.offsets.tx };
        Ring::map(self.fd.as_fd(), offsets, settings.frames, at)
    }

    fn bind(&mut self, settings: &XskSettings) -> Result<(), XskError> {
        if let Some(busy) = settings.busy_poll {
            let what = "set up busy polling of an AF_XDP socket";
            set(self.fd.as_fd(), libc::SOL_SOCKET, SO_PREFER_BUSY_POLL, &1u32, what)?;
            set(self.fd.as_fd(), libc::SOL_SOCKET, libc::SO_BUSY_POLL, &busy.usecs, what)?;
            set(self.fd.as_fd(), libc::SOL_SOCKET, SO_BUSY_POLL_BUDGET, &busy.budget, what)?;
        }
        let mode = match settings.copy {
            CopyMode::Any => 0,
            CopyMode::Copy => libc::XDP_COPY,
            CopyMode::ZeroCopy => libc::XDP_ZEROCOPY,
        };
        let address = libc::sockaddr_xdp {
            sxdp_family: libc::AF_XDP as u16,
            sxdp_flags: mode | libc::XDP_USE_NEED_WAKEUP,
            sxdp_ifindex: settings.ifindex,
            sxdp_queue_id: settings.queue,
            sxdp_shared_umem_fd: 0,
        };
        let len = mem::size_of_val(&address) as u32;
        // SAFETY: `address` is an initialised sockaddr_xdp of `len` bytes that outlives the call.
        let code = unsafe { libc::bind(self.fd.as_raw_fd(), ptr::from_ref(&address).cast(), len) };
        if code != 0 {
            return Err(XskError::last(BIND));
        }
        let none = libc::xdp_options { flags: 0 };
        let got = get(self.fd.as_fd(), libc::XDP_OPTIONS, none, "ask for the mode of an AF_XDP socket")?;
        self.zero_copy = got.flags & libc::XDP_OPTIONS_ZEROCOPY != 0;
        Ok(())
    }

    fn statistics(&self) -> Result<XskStatistics, XskError> {
        let none = libc::xdp_statistics {
            rx_dropped: 0,
            rx_invalid_descs: 0,
            tx_invalid_descs: 0,
            rx_ring_full: 0,
            rx_fill_ring_empty_descs: 0,
            tx_ring_empty_descs: 0,
        };
        let got = get(self.fd.as_fd(), libc::XDP_STATISTICS, none, "read the statistics of an AF_XDP socket")?;
        Ok(XskStatistics {
            rx_dropped: got.rx_dropped,
            rx_ring_full: got.rx_ring_full,
            fill_ring_empty: got.rx_fill_ring_empty_descs,
            rx_invalid: got.rx_invalid_descs,
            tx_invalid: got.tx_invalid_descs,
        })
    }

    fn poll(&self, events: i16, timeout: Duration) -> Result<bool, XskError> {
        let timeout_ms = i32::try_from(timeout.as_micros().div_ceil(1000)).unwrap_or(i32::MAX);
        let mut poll = libc::pollfd { fd: self.fd.as_raw_fd(), events, revents: 0 };
        // SAFETY: one initialised pollfd that outlives the call.
        let code = unsafe { libc::poll(&raw mut poll, 1, timeout_ms) };
        match code {
            0.. => Ok(poll.revents & events != 0),
            _ if io::Error::last_os_error().kind() == io::ErrorKind::Interrupted => Ok(false),
            _ => Err(XskError::last("wait at an AF_XDP socket")),
        }
    }
}

fn no_offsets() -> libc::xdp_mmap_offsets {
    const NONE: libc::xdp_ring_offset = libc::xdp_ring_offset { producer: 0, consumer: 0, desc: 0, flags: 0 };
    libc::xdp_mmap_offsets { rx: NONE, tx: NONE, fr: NONE, cr: NONE }
}

/// A socket that receives the frames of one queue, once an XDP program redirects them to it.
#[derive(Debug)]
pub struct XskReceiver {
    // The rings before the socket, the socket before its memory.
    rx: Ring<Descriptor>,
    fill: Ring<u64>,
    _completion: Ring<u64>,
    base: Base,
}

impl XskReceiver {
    /// Opens and binds it, with every UMEM frame ready to be filled.
    pub fn open(settings: &XskSettings) -> Result<Self, XskError> {
        let mut base = Base::new(settings)?;
        let fd = base.fd.as_fd();
        let mut fill = Ring::map(fd, base.offsets.fr, settings.frames, libc::XDP_UMEM_PGOFF_FILL_RING.cast_signed())?;
        let completion =
            Ring::map(fd, base.offsets.cr, settings.frames, libc::XDP_UMEM_PGOFF_COMPLETION_RING.cast_signed())?;
        let rx = base.ring_of_socket(libc::XDP_RX_RING, settings, libc::XDP_PGOFF_RX_RING)?;
        for (n, address) in base.umem.addresses().enumerate() {
            fill.put(n as u32, address);
        }
        fill.submit(base.umem.frames());
        base.bind(settings)?;
        Ok(Self { rx, fill, _completion: completion, base })
    }

    /// Hands the frames that are there, `most` at the most, to `each`, gives their memory back, and returns how many there were.
    pub fn receive<F: FnMut(&[u8])>(&mut self, most: u32, mut each: F) -> u32 {
        let count = self.rx.available(most);
        for ahead in 0..count {
            let descriptor = self.rx.peek(ahead);
            // SAFETY: the kernel has handed this frame over and does not touch it until it is in the fill ring again.
            if let Some(frame) = unsafe { self.base.umem.bytes(descriptor.address, descriptor.len) } {
                each(frame);
            }
        }
        self.recycle(count);
        count
    }

    /// Gives the frames that are there back without looking at them, and returns how many there were.
    pub fn skip(&mut self, most: u32) -> u32 {
        let count = self.rx.available(most);
        self.recycle(count);
        count
    }

    fn recycle(&mut self, count: u32) {
        if count == 0 {
            return;
        }
        // There is room, as the fill ring has an entry for each frame of the UMEM: what the kernel received it has taken out of it. But it
        // publishes a batch of received frames an instant before it says so (net/xdp/xsk.c, xsk_flush).
        while self.fill.free(count) < count {
            thread::yield_now();
        }
        for ahead in 0..count {
            let address = self.base.umem.frame_of(self.rx.peek(ahead).address);
            self.fill.put(ahead, address);
        }
        self.fill.submit(count);
        self.rx.release(count);
    }

    /// Waits up to `timeout` for frames. True if there are some. It does not see that the interface is gone: [`XskReceiver::call`] does.
    pub fn wait(&self, timeout: Duration) -> Result<bool, XskError> {
        self.base.poll(libc::POLLIN, timeout)
    }

    /// Lets the kernel go on where it waits for it: a driver that found no frames to fill.
    pub fn wake(&self) -> Result<(), XskError> {
        if self.fill.needs_wakeup() { self.call() } else { Ok(()) }
    }

    /// A system call that runs the NAPI instance of the queue if busy polling was set up, and that tells whether the interface is still
    /// there: poll(2) does not.
    ///
    /// # Errors
    /// ENXIO when the interface is gone, ENETDOWN when it is down.
    pub fn call(&self) -> Result<(), XskError> {
        let fd = self.base.fd.as_raw_fd();
        // SAFETY: no buffer is given: the call only makes the kernel look at the socket.
        let code =
            unsafe { libc::recvfrom(fd, ptr::null_mut(), 0, libc::MSG_DONTWAIT, ptr::null_mut(), ptr::null_mut()) };
        if code >= 0 {
            return Ok(());
        }
        let error = XskError::last("poll an AF_XDP socket");
        match error.errno() {
            Some(libc::EAGAIN | libc::EBUSY | libc::ENOBUFS | libc::EINTR) => Ok(()),
            _ => Err(error),
        }
    }

    /// True if the NIC writes into the UMEM itself.
    pub fn is_zero_copy(&self) -> bool {
        self.base.zero_copy
    }

    pub fn statistics(&self) -> Result<XskStatistics, XskError> {
        self.base.statistics()
    }
}

impl AsFd for XskReceiver {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.base.fd.as_fd()
    }
}

/// A socket that sends frames through one queue.
#[derive(Debug)]
pub struct XskSender {
    // The rings before the socket, the socket before its memory.
    tx: Ring<Descriptor>,
    completion: Ring<u64>,
    _fill: Ring<u64>,
    base: Base,
    /// Frames that are ours to write.
    spare: Vec<u64>,
}

impl XskSender {
    pub fn open(settings: &XskSettings) -> Result<Self, XskError> {
        let mut base = Base::new(settings)?;
        let fd = base.fd.as_fd();
        let fill = Ring::map(fd, base.offsets.fr, settings.frames, libc::XDP_UMEM_PGOFF_FILL_RING.cast_signed())?;
        let completion =
            Ring::map(fd, base.offsets.cr, settings.frames, libc::XDP_UMEM_PGOFF_COMPLETION_RING.cast_signed())?;
        let tx = base.ring_of_socket(libc::XDP_TX_RING, settings, libc::XDP_PGOFF_TX_RING)?;
        // Kernels before 6.17 send 32 frames per call and do not know this option.
        let budget = settings.frames.min(1024);
        let _ = set(base.fd.as_fd(), libc::SOL_XDP, MAX_TX_BUDGET, &budget, "allow larger batches");
        base.bind(settings)?;
        let spare = base.umem.addresses().collect();
        Ok(Self { tx, completion, _fill: fill, base, spare })
    }

    /// Frames that can be written now, after those that the kernel has done with came back.
    pub fn room(&mut self) -> u32 {
        self.reap();
        let spare = self.spare.len() as u32;
        self.tx.free(spare)
    }

    /// Lets `fill` write up to `count` frames, puts them into the transmit ring, and returns how many there was room for. `fill` gets the
    /// memory of one frame and returns the frame's length in bytes. Nothing is sent before [`XskSender::kick`].
    pub fn submit<F: FnMut(&mut [u8]) -> usize>(&mut self, count: u32, mut fill: F) -> u32 {
        let count = count.min(self.room());
        for ahead in 0..count {
            let Some(address) = self.spare.pop() else { break };
            // SAFETY: a spare frame is ours, and it is in no ring.
            let len = match unsafe { self.base.umem.frame_mut(address) } {
                Some(frame) => fill(frame).min(frame.len()),
                None => 0,
            };
            self.tx.put(ahead, Descriptor { address, len: len as u32, options: 0 });
        }
        self.tx.submit(count);
        count
    }

    /// Makes the kernel send what is in the ring. False if it could not take everything now: call again.
    ///
    /// # Errors
    /// ENETDOWN or ENXIO when the interface is gone or down.
    pub fn kick(&self) -> Result<bool, XskError> {
        if !self.tx.needs_wakeup() {
            return Ok(true);
        }
        // SAFETY: no buffer is given: the call only makes the kernel look at the ring.
        let code =
            unsafe { libc::sendto(self.base.fd.as_raw_fd(), ptr::null(), 0, libc::MSG_DONTWAIT, ptr::null(), 0) };
        if code >= 0 {
            return Ok(true);
        }
        let error = XskError::last("send from an AF_XDP socket");
        match error.errno() {
            Some(libc::EAGAIN | libc::EBUSY | libc::ENOBUFS | libc::EINTR) => Ok(false),
            _ => Err(error),
        }
    }

    /// Takes back the frames that the kernel has done with, and returns how many.
    pub fn reap(&mut self) -> u32 {
        let count = self.completion.available(u32::MAX);
        for ahead in 0..count {
            self.spare.push(self.base.umem.frame_of(self.completion.peek(ahead)));
        }
        if count > 0 {
            self.completion.release(count);
        }
        count
    }

    /// Frames that the kernel has not done with yet.
    pub fn outstanding(&self) -> u32 {
        self.base.umem.frames() - self.spare.len() as u32
    }

    /// Waits up to `timeout` until there is room to send.
    pub fn wait(&self, timeout: Duration) -> Result<bool, XskError> {
        self.base.poll(libc::POLLOUT, timeout)
    }

    /// True if the NIC reads the UMEM itself.
    pub fn is_zero_copy(&self) -> bool {
        self.base.zero_copy
    }

    /// The kernel's word about it.
    pub fn statistics(&self) -> Result<XskStatistics, XskError> {
        self.base.statistics()
    }
}
