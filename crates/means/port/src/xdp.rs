//! AF_XDP: frames of every queue of an interface, taken from the stack before a socket buffer exists.

use std::{
    os::fd::AsFd,
    sync::{
        Arc, Mutex, PoisonError,
        atomic::{AtomicU64, Ordering},
    },
    thread,
    time::{Duration, Instant},
};

use bpf::{RedirectCounts, XdpMode, XskRedirect};
use host::interface::NoInterface;
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use sys::{
    packet::{Instruction, PacketSocket},
    xsk::{BusyPoll, CopyMode, XskError, XskReceiver, XskSettings},
};

use crate::{
    Counted, Frame, PortError, Source, SourceStats,
    presence::Presence,
    xdp_common::{CHECK_PERIOD, Pace, companion, distribute, explain_xdp, filter, keeps_tags, now_ns, up_interface},
};

const BACKEND: &str = "xdp";

/// A reader's way to wait for frames.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum XdpWait {
    /// Polls at intervals, and sleeps this long when little was found. The kernel never has to wake it: the cheapest way at high rates.
    Nap(Duration),
    /// Sleeps in poll(2), and the kernel wakes it.
    Poll,
    /// Its system calls run the NIC's NAPI instance, so that kernel and reader cannot starve each other.
    Busy(BusyPoll),
}

#[derive(Debug, Clone)]
pub struct XdpOptions {
    pub interface: String,
    /// A classic BPF filter; empty: every frame. What it rejects passes to the stack.
    pub filter: Vec<Instruction>,
    /// Bytes to hand over of each frame.
    pub snaplen: u32,
    /// Join promiscuous mode, for as long as a source is open.
    pub promiscuous: bool,
    /// Native or generic. Nothing falls back from one to the other.
    pub mode: XdpMode,
    pub copy: CopyMode,
    /// Frames of memory and ring entries per queue: a power of two.
    pub frames: u32,
    /// Bytes of a frame in memory: 2048 holds frames up to 1792 bytes, 4096 up to 3840. None: by the MTU. A longer frame is lost, and
    /// counted.
    pub frame_bytes: Option<u32>,
    pub wait: XdpWait,
    /// The NUMA node of the frames' memory; none: the caller's.
    pub numa_node: Option<u32>,
}

impl XdpOptions {
    /// Whole frames of `interface`, native mode, 8192 frames per queue, a reader that naps.
    pub fn new(interface: impl Into<String>) -> Self {
        Self {
            interface: interface.into(),
            filter: Vec::new(),
            snaplen: crate::WHOLE_FRAME,
            promiscuous: false,
            mode: XdpMode::Native,
            copy: CopyMode::Any,
            frames: 8192,
            frame_bytes: None,
            wait: XdpWait::Nap(Duration::from_micros(100)),
            numa_node: None,
        }
    }
}

/// The program on the interface, shared by the sources of its queues.
#[derive(Debug)]
struct Attachment {
    program: Mutex<Option<XskRedirect>>,
    mode: XdpMode,
    /// Frames passed on from queues without a socket when the program was taken off.
    passed: AtomicU64,
    companion: PacketSocket,
}

impl Attachment {
    fn with<T>(&self, f: impl FnOnce(&mut Option<XskRedirect>) -> T) -> T {
        f(&mut self.program.lock().unwrap_or_else(PoisonError::into_inner))
    }

    /// Takes the program off, and remembers its counts.
    fn detach(&self) {
        self.with(|program| {
            if let Some(mut program) = program.take() {
                program.detach();
                let passed = program.counts().map_or(0, |counts| counts.passed);
                self.passed.store(passed, Ordering::Relaxed);
            }
        });
    }
}

/// A reader of some queues.
///
/// The program is taken off when the first of the sources that were opened together is dropped, and the sockets are closed after that:
/// a program that redirects to a closed socket loses frames unseen.
#[derive(Debug)]
pub struct XdpSource {
    attachment: Arc<Attachment>,
    interface: String,
    sockets: Vec<XskReceiver>,
    queues: Vec<u32>,
    presence: Presence,
    snaplen: usize,
    wait: XdpWait,
    pace: Pace,
    batch: u32,
    delivered: u64,
}

impl XdpSource {
    /// Opens a socket for every queue of the interface, attaches the program, and deals the sockets to up to `readers` sources.
    ///
    /// # Errors
    /// If any queue cannot have a socket, nothing is opened: its frames would not be captured.
    pub fn open(options: &XdpOptions, readers: usize) -> Result<Vec<Self>, PortError> {
        let interface = &options.interface;
        let explain = |e| explain_xdp(BACKEND, interface, e);
        let frame_bytes = check(options)?;
        let index = up_interface(interface)?;
        keeps_tags(BACKEND, interface)?;
        let sockets = open_queues(options, index, frame_bytes)?;
        let companion = companion(options.promiscuous, BACKEND, interface, index)?;
        let filter = filter(&options.filter, BACKEND, interface)?;
        let mut program = XskRedirect::load(sockets.len() as u32, filter.as_ref()).map_err(explain)?;
        for (queue, socket) in sockets.iter().enumerate() {
            program.set_socket(queue as u32, socket.as_fd()).map_err(explain)?;
        }
        program.attach(interface, options.mode).map_err(explain)?;
        let mode = program.link().map_or(options.mode, bpf::XdpLink::mode);
        let attachment =
            Arc::new(Attachment { program: Mutex::new(Some(program)), mode, passed: AtomicU64::new(0), companion });
        let nap = if let XdpWait::Nap(nap) = options.wait { nap } else { Duration::ZERO };
        let numbered = (0..).zip(sockets).collect();
        Ok(distribute(numbered, readers)
            .into_iter()
            .map(|hand| {
                let (queues, sockets) = hand.into_iter().unzip();
                Self {
                    attachment: Arc::clone(&attachment),
                    interface: interface.clone(),
                    sockets,
                    queues,
                    presence: Presence::new(interface, index),
                    snaplen: options.snaplen as usize,
                    wait: options.wait,
                    pace: Pace::new(nap),
                    batch: (options.frames / 4).max(1),
                    delivered: 0,
                }
            })
            .collect())
    }

    /// The mode in which the program is attached, as the kernel says.
    pub fn mode(&self) -> XdpMode {
        self.attachment.mode
    }

    /// True if the NIC writes the frames itself, for all queues of this source.
    pub fn is_zero_copy(&self) -> bool {
        self.sockets.iter().all(XskReceiver::is_zero_copy)
    }

    /// The queues that this source reads.
    pub fn queues(&self) -> &[u32] {
        &self.queues
    }

    /// The ends of the frames of all queues; none once it is off.
    pub fn redirect_counts(&self) -> Result<Option<RedirectCounts>, PortError> {
        self.attachment
            .with(|program| program.as_ref().map(XskRedirect::counts).transpose())
            .map_err(|e| explain_xdp(BACKEND, &self.interface, e))
    }

    /// Looks until `look` found something or the time is over.
    fn wait(&mut self, timeout: Duration, look: impl FnMut(&mut Self) -> usize) -> Result<usize, PortError> {
        let found = match self.wait_up(timeout, look) {
            // Of an interface that is down each call of its sockets says so.
            Err(PortError::Vanished { .. }) => {
                self.presence.failed();
                if self.presence.is_down() {
                    thread::sleep(timeout.min(CHECK_PERIOD));
                }
                0
            }
            other => other?,
        };
        if found == 0 {
            self.presence.check(&self.attachment.companion)?;
        }
        Ok(found)
    }

    fn wait_up(&mut self, timeout: Duration, mut look: impl FnMut(&mut Self) -> usize) -> Result<usize, PortError> {
        let start = Instant::now();
        loop {
            let left = timeout.saturating_sub(start.elapsed());
            match self.wait {
                XdpWait::Nap(_) => self.pace.before_look(left),
                XdpWait::Busy(_) => self.each_socket(XskReceiver::call)?,
                XdpWait::Poll => {}
            }
            let found = look(self);
            self.pace.after_look(found);
            if found > 0 {
                self.delivered += found as u64;
                // An error of a socket that still had frames is told when it has none.
                let _ = self.each_socket(XskReceiver::wake);
                return Ok(found);
            }
            self.each_socket(XskReceiver::wake)?;
            if self.pace.time_for_checks() {
                self.each_socket(XskReceiver::call)?;
            }
            if left.is_zero() {
                return Ok(0);
            }
            if self.wait == XdpWait::Poll {
                self.sleep(left.min(CHECK_PERIOD))?;
            }
        }
    }

    fn each_socket(&self, f: impl Fn(&XskReceiver) -> Result<(), XskError>) -> Result<(), PortError> {
        self.sockets.iter().try_for_each(f).map_err(|e| self.explain(e))
    }

    /// Sleeps until a socket has frames or the time is over.
    fn sleep(&self, timeout: Duration) -> Result<(), PortError> {
        if let [socket] = &self.sockets[..] {
            return socket.wait(timeout).map(drop).map_err(|e| self.explain(e));
        }
        let mut fds: Vec<_> = self.sockets.iter().map(|s| PollFd::new(s.as_fd(), PollFlags::POLLIN)).collect();
        let timeout_ms = i32::try_from(timeout.as_micros().div_ceil(1000)).unwrap_or(i32::MAX);
        let timeout = PollTimeout::try_from(timeout_ms).unwrap_or(PollTimeout::MAX);
        match poll(&mut fds, timeout) {
            Ok(_) | Err(nix::errno::Errno::EINTR) => Ok(()),
            Err(e) => Err(PortError::System {
                backend: BACKEND,
                interface: self.interface.clone(),
                operation: "wait for frames".to_owned(),
                source: e.into(),
            }),
        }
    }

    fn explain(&self, error: XskError) -> PortError {
        explain_xsk(BACKEND, &self.interface, None, error)
    }
}

/// Bytes of a frame in memory that the kernel keeps for the program (XDP_PACKET_HEADROOM).
const HEADROOM: u32 = 256;
/// Bytes of a frame that do not count for the MTU: addresses, two VLAN tags, type.
const ETHERNET: u32 = 22;

/// Checks the sizes, and returns the bytes per frame.
fn check(options: &XdpOptions) -> Result<u32, PortError> {
    let setting = |reason| PortError::Setting { backend: BACKEND, reason };
    if !options.frames.is_power_of_two() || !(64..=1 << 20).contains(&options.frames) {
        let text = format!("frames per queue must be a power of two from 64 to 1048576, not {}", options.frames);
        return Err(setting(text));
    }
    match options.frame_bytes {
        Some(bytes @ (2048 | 4096)) => return Ok(bytes),
        Some(bytes) => return Err(setting(format!("bytes per frame must be 2048 or 4096, not {bytes}"))),
        None => {}
    }
    let interface = &options.interface;
    let mtu = sys::link::mtu(interface).map_err(|source| match source.raw_os_error() {
        Some(libc::ENODEV) | None => NoInterface::here(interface).into(),
        Some(_) => PortError::System {
            backend: BACKEND,
            interface: interface.clone(),
            operation: "ask for the MTU".to_owned(),
            source,
        },
    })?;
    [2048, 4096].into_iter().find(|bytes| mtu + ETHERNET + HEADROOM <= *bytes).ok_or_else(|| PortError::Unsupported {
        backend: BACKEND,
        interface: interface.clone(),
        reason: format!(
            "its MTU of {mtu} bytes is more than an AF_XDP frame holds: set it to {} or less (`ip link set {interface} mtu …`), or use \
             the tap",
            4096 - HEADROOM - ETHERNET
        ),
    })
}

/// A socket for each queue. The kernel refuses a queue that does not exist with EINVAL: that is how the last one is found, in any network namespace.
fn open_queues(options: &XdpOptions, ifindex: u32, frame_bytes: u32) -> Result<Vec<XskReceiver>, PortError> {
    let busy_poll = if let XdpWait::Busy(busy) = options.wait { Some(busy) } else { None };
    let mut sockets = Vec::new();
    for queue in 0.. {
        let settings = XskSettings {
            ifindex,
            queue,
            frames: options.frames,
            frame_bytes,
            copy: options.copy,
            huge_pages: true,
            busy_poll,
            node: options.numa_node,
        };
        match until_free(|| XskReceiver::open(&settings)) {
            Ok(socket) => sockets.push(socket),
            Err(e) if e.errno() == Some(libc::EINVAL) && e.is_bind() && queue > 0 => break,
            Err(e) => return Err(explain_xsk(BACKEND, &options.interface, Some(queue), e)),
        }
    }
    Ok(sockets)
}

/// Opens a socket, and waits a moment if its queue is taken: the kernel frees a queue some time after the socket that had it was closed.
pub(crate) fn until_free<T>(open: impl Fn() -> Result<T, XskError>) -> Result<T, XskError> {
    // It takes the lock of all network configuration for that, which is contended while namespaces come and go.
    const BUSY_TIMEOUT: Duration = Duration::from_secs(3);
    let start = Instant::now();
    loop {
        match open() {
            Err(e) if e.errno() == Some(libc::EBUSY) && start.elapsed() < BUSY_TIMEOUT => {
                thread::sleep(Duration::from_millis(5));
            }
            other => return other,
        }
    }
}

/// Turns a failed step of an AF_XDP socket into words for the user.
pub(crate) fn explain_xsk(backend: &'static str, interface: &str, queue: Option<u32>, error: XskError) -> PortError {
    let interface = interface.to_owned();
    let queue = queue.unwrap_or_default();
    let reason = match error.errno() {
        Some(libc::EPERM | libc::EACCES) => {
            return PortError::Privilege { backend, interface, capability: "CAP_NET_RAW" };
        }
        Some(libc::ENETDOWN | libc::ENODEV | libc::ENXIO) => return PortError::Vanished { interface },
        Some(libc::EAFNOSUPPORT) => "this kernel is built without AF_XDP (CONFIG_XDP_SOCKETS)".to_owned(),
        Some(libc::EBUSY) => format!("queue {queue} already has an AF_XDP socket: end the program that holds it"),
        Some(libc::EOPNOTSUPP | libc::EINVAL) if error.is_bind() => {
            format!("queue {queue} cannot have an AF_XDP socket of this kind: its driver may have no zero-copy mode, or the frames of memory are too small for it")
        }
        Some(libc::ENOBUFS | libc::ENOMEM) => {
            "there is no memory for its frames: take fewer frames, raise the limit of locked memory (ulimit -l), or grant CAP_IPC_LOCK".to_owned()
        }
        _ => {
            let operation = error.operation.to_owned();
            return PortError::System { backend, interface, operation, source: error.source };
        }
    };
    PortError::Unsupported { backend, interface, reason }
}

impl Source for XdpSource {
    fn backend(&self) -> &'static str {
        BACKEND
    }

    /// The time of a frame is when the reader took it from the ring: copy mode keeps no other.
    fn receive<F: FnMut(Frame<'_>)>(&mut self, timeout: Duration, mut each: F) -> Result<usize, PortError> {
        self.wait(timeout, |this| {
            let timestamp_ns = now_ns();
            let (batch, snaplen) = (this.batch, this.snaplen);
            let frames = this.sockets.iter_mut().map(|socket| {
                socket.receive(batch, |data| {
                    let kept = &data[..data.len().min(snaplen)];
                    let wire_len = data.len() as u32;
                    each(Frame {
                        timestamp_ns,
                        wire_len,
                        data: kept,
                        vlan: None,
                        direction: None,
                        unfinished: false,
                        judged: None,
                        lost_before: 0,
                    });
                }) as usize
            });
            frames.sum()
        })
    }

    /// The frames stay untouched.
    fn count(&mut self, timeout: Duration) -> Result<Counted, PortError> {
        let packets = self.wait(timeout, |this| {
            let batch = this.batch;
            this.sockets.iter_mut().map(|socket| socket.skip(batch) as usize).sum()
        })?;
        Ok(Counted { packets: packets as u64, bytes: None })
    }

    fn interface(&self) -> &str {
        &self.interface
    }

    fn is_down(&self) -> bool {
        self.presence.is_down()
    }

    /// Takes the program off, for all the sources that were opened together.
    fn close_intake(&mut self) -> Result<(), PortError> {
        self.attachment.detach();
        Ok(())
    }

    fn stats(&mut self) -> Result<SourceStats, PortError> {
        let mut stats = SourceStats { delivered: self.delivered, ..SourceStats::default() };
        for socket in &self.sockets {
            let lost = socket.statistics().map_err(|e| self.explain(e))?;
            stats.dropped += lost.lost();
            stats.freezes += lost.fill_ring_empty;
        }
        // One source tells for all of them.
        if self.queues.contains(&0) {
            let now = self.redirect_counts()?.map(|counts| counts.passed);
            stats.missed = now.unwrap_or_else(|| self.attachment.passed.load(Ordering::Relaxed));
        }
        Ok(stats)
    }
}

impl Drop for XdpSource {
    fn drop(&mut self) {
        // Before the sockets, which are closed right after this.
        self.attachment.detach();
    }
}
