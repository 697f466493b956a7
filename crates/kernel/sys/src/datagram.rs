//! UDP in batches: sendmmsg(2) and recvmmsg(2), with the marks of explicit congestion notification (RFC 3168).

use std::{
    io, mem,
    net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, SocketAddrV6},
    os::fd::{AsFd, AsRawFd, BorrowedFd, FromRawFd, OwnedFd},
    ptr,
};

use crate::packet_batch::send_all;

/// Datagrams of one system call.
pub const BATCH: usize = 32;
/// Room for one control message of a number, in words.
const CONTROL_WORDS: usize = 4;
/// The sender's transport knows congestion marks: ECT(0).
const CAPABLE: i32 = 2;
/// The bits of the mark; all of them: congestion was met.
const MARK: u8 = 3;

/// A UDP socket that others may share the port of.
///
/// # Errors
/// As socket(2), setsockopt(2) and bind(2); the device is bound to by SO_BINDTODEVICE.
pub fn open(at: SocketAddr, device: &str, buffer: u32) -> io::Result<OwnedFd> {
    let family = if at.is_ipv4() { libc::AF_INET } else { libc::AF_INET6 };
    // SAFETY: socket(2) takes no pointers.
    let fd = unsafe { libc::socket(family, libc::SOCK_DGRAM | libc::SOCK_CLOEXEC | libc::SOCK_NONBLOCK, 0) };
    if fd < 0 {
        return Err(io::Error::last_os_error());
    }
    // SAFETY: the kernel has just made this descriptor for us; nobody else owns it.
    let fd = unsafe { OwnedFd::from_raw_fd(fd) };
    let half = i32::try_from(buffer / 2).unwrap_or(i32::MAX);
    set(&fd, libc::SOL_SOCKET, libc::SO_REUSEPORT, &1i32)?;
    set(&fd, libc::SOL_SOCKET, libc::SO_BROADCAST, &1i32)?;
    // Past the limit for all, where CAP_NET_ADMIN allows that.
    set(&fd, libc::SOL_SOCKET, libc::SO_RCVBUFFORCE, &half)
        .or_else(|_| set(&fd, libc::SOL_SOCKET, libc::SO_RCVBUF, &half))?;
    set(&fd, libc::SOL_SOCKET, libc::SO_SNDBUFFORCE, &half)
        .or_else(|_| set(&fd, libc::SOL_SOCKET, libc::SO_SNDBUF, &half))?;
    let mut name = [0u8; libc::IFNAMSIZ];
    let len = device.len().min(libc::IFNAMSIZ - 1);
    name[..len].copy_from_slice(&device.as_bytes()[..len]);
    set(&fd, libc::SOL_SOCKET, libc::SO_BINDTODEVICE, &name)?;
    match at {
        SocketAddr::V4(_) => {
            set(&fd, libc::IPPROTO_IP, libc::IP_RECVTOS, &1i32)?;
            set(&fd, libc::IPPROTO_IP, libc::IP_TOS, &CAPABLE)?;
        }
        SocketAddr::V6(_) => {
            set(&fd, libc::IPPROTO_IPV6, libc::IPV6_V6ONLY, &1i32)?;
            set(&fd, libc::IPPROTO_IPV6, libc::IPV6_RECVTCLASS, &1i32)?;
            set(&fd, libc::IPPROTO_IPV6, libc::IPV6_TCLASS, &CAPABLE)?;
        }
    }
    let (name, len) = to_kernel(at);
    // SAFETY: the pointer and the length describe `name`, which the kernel only reads.
    match unsafe { libc::bind(fd.as_raw_fd(), (&raw const name).cast(), len) } {
        0 => Ok(fd),
        _ => Err(io::Error::last_os_error()),
    }
}

/// Has a kernel program choose among the sockets that share a port with this one, and nobody who only has the socket change that.
pub fn choose_by(socket: impl AsFd, program: impl AsFd) -> io::Result<()> {
    set(&socket, libc::SOL_SOCKET, libc::SO_ATTACH_REUSEPORT_EBPF, &program.as_fd().as_raw_fd())
}

/// Has no holder of the socket attach a program to it or its group any more.
pub fn lock(socket: impl AsFd) -> io::Result<()> {
    set(&socket, libc::SOL_SOCKET, libc::SO_LOCK_FILTER, &1i32)
}

/// Datagrams by one socket, in batches.
pub struct Datagrams {
    fd: OwnedFd,
    longest: usize,
    /// [`BATCH`] places of `longest` bytes each way.
    out: Box<[u8]>,
    into: Box<[u8]>,
    /// Addresses and lengths of the datagrams that wait.
    waiting: Vec<(SocketAddr, usize)>,
}

impl std::fmt::Debug for Datagrams {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Datagrams").field("fd", &self.fd).field("longest", &self.longest).finish_non_exhaustive()
    }
}

impl AsFd for Datagrams {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.fd.as_fd()
    }
}

impl Datagrams {
    /// By a socket of [`open`], datagrams of at most `longest` bytes.
    pub fn of(fd: OwnedFd, longest: usize) -> Self {
        let place = || vec![0; BATCH * longest].into_boxed_slice();
        Self { fd, longest, out: place(), into: place(), waiting: Vec::with_capacity(BATCH) }
    }

    /// Puts a datagram behind those that wait; false if it is too long, or [`BATCH`] wait: [`Datagrams::flush`] first.
    pub fn push(&mut self, to: SocketAddr, parts: [&[u8]; 2]) -> bool {
        let len = parts[0].len() + parts[1].len();
        if len > self.longest || self.waiting.len() == BATCH {
            return false;
        }
        let place = &mut self.out[self.waiting.len() * self.longest..][..len];
        let (first, second) = place.split_at_mut(parts[0].len());
        first.copy_from_slice(parts[0]);
        second.copy_from_slice(parts[1]);
        self.waiting.push((to, len));
        true
    }

    /// Sends what waits. A datagram that cannot be sent (no room, no route) is lost alone; how many were.
    ///
    /// # Errors
    /// ENETDOWN and ENODEV: the device is down or gone. All that waited is lost then.
    pub fn flush(&mut self) -> io::Result<usize> {
        let count = self.waiting.len();
        if count == 0 {
            return Ok(0);
        }
        // SAFETY: zeroes are valid addresses, iovecs and msghdrs: nothing is pointed to.
        let (mut names, mut places, mut messages): (
            [libc::sockaddr_storage; BATCH],
            [libc::iovec; BATCH],
            [libc::mmsghdr; BATCH],
        ) = unsafe { (mem::zeroed(), mem::zeroed(), mem::zeroed()) };
        for (n, (to, len)) in self.waiting.drain(..).enumerate() {
            (names[n], messages[n].msg_hdr.msg_namelen) = to_kernel(to);
            places[n].iov_base = self.out[n * self.longest..].as_ptr().cast_mut().cast();
            places[n].iov_len = len;
            messages[n].msg_hdr.msg_name = (&raw mut names[n]).cast();
            messages[n].msg_hdr.msg_iov = &raw mut places[n];
            messages[n].msg_hdr.msg_iovlen = 1;
        }
        let is_alone = |error| !matches!(error, libc::ENETDOWN | libc::ENODEV | libc::EBADF | libc::ENOTSOCK);
        // SAFETY: each header points to an address of the length that it states, and to an iovec of initialised bytes of `self.out` of at most
        // `longest` (push). All outlive the call.
        unsafe { send_all(self.fd.as_fd(), &mut messages[..count], is_alone) }
    }

    /// Hands over the datagrams that are there, up to [`BATCH`], without waiting: the sender, the bytes, and whether it met congestion. How many.
    pub fn receive(&mut self, mut on: impl FnMut(SocketAddr, &[u8], bool)) -> io::Result<usize> {
        // SAFETY: zeroes are valid addresses, iovecs and msghdrs: nothing is pointed to.
        let (mut names, mut places, mut messages): (
            [libc::sockaddr_storage; BATCH],
            [libc::iovec; BATCH],
            [libc::mmsghdr; BATCH],
        ) = unsafe { (mem::zeroed(), mem::zeroed(), mem::zeroed()) };
        let mut control = [[0u64; CONTROL_WORDS]; BATCH];
        let into = self.into.as_mut_ptr();
        for n in 0..BATCH {
            places[n].iov_base = into.wrapping_add(n * self.longest).cast();
            places[n].iov_len = self.longest;
            let head = &mut messages[n].msg_hdr;
            head.msg_name = (&raw mut names[n]).cast();
            head.msg_namelen = mem::size_of::<libc::sockaddr_storage>() as libc::socklen_t;
            head.msg_iov = &raw mut places[n];
            head.msg_iovlen = 1;
            head.msg_control = (&raw mut control[n]).cast();
            head.msg_controllen = mem::size_of::<[u64; CONTROL_WORDS]>();
        }
        // SAFETY: header n points to address, iovec and control buffer n of the lengths that it states, and that iovec to `longest` bytes inside the
        // live `self.into`, which has BATCH such places and is borrowed by nobody else.
        let count = unsafe {
            libc::recvmmsg(
                self.fd.as_raw_fd(),
                messages.as_mut_ptr(),
                BATCH as libc::c_uint,
                libc::MSG_DONTWAIT,
                ptr::null_mut(),
            )
        };
        if count < 0 {
            let error = io::Error::last_os_error();
            return match error.kind() {
                io::ErrorKind::WouldBlock | io::ErrorKind::Interrupted => Ok(0),
                _ => Err(error),
            };
        }
        let count = count.cast_unsigned() as usize;
        for n in 0..count {
            let len = (messages[n].msg_len as usize).min(self.longest);
            if let Some(from) = from_kernel(&names[n]) {
                on(
                    from,
                    &self.into[n * self.longest..][..len],
                    is_marked(&control[n], messages[n].msg_hdr.msg_controllen),
                );
            }
        }
        Ok(count)
    }
}

/// A control message (cmsg(3)): its length of 8 bytes, level, type, and the byte or number of the type of service.
fn is_marked(control: &[u64; CONTROL_WORDS], len: usize) -> bool {
    len > 16 && control[2].to_ne_bytes()[0] & MARK == MARK
}

fn to_kernel(address: SocketAddr) -> (libc::sockaddr_storage, libc::socklen_t) {
    // SAFETY: zeroes are a valid address of no family.
    let mut storage: libc::sockaddr_storage = unsafe { mem::zeroed() };
    let len = match address {
        SocketAddr::V4(v4) => {
            let name = libc::sockaddr_in {
                sin_family: libc::AF_INET as libc::sa_family_t,
                sin_port: v4.port().to_be(),
                sin_addr: libc::in_addr { s_addr: u32::from_ne_bytes(v4.ip().octets()) },
                sin_zero: [0; 8],
            };
            // SAFETY: a sockaddr_storage has room and alignment for every address.
            unsafe { (&raw mut storage).cast::<libc::sockaddr_in>().write(name) };
            mem::size_of::<libc::sockaddr_in>()
        }
        SocketAddr::V6(v6) => {
            let name = libc::sockaddr_in6 {
                sin6_family: libc::AF_INET6 as libc::sa_family_t,
                sin6_port: v6.port().to_be(),
                sin6_flowinfo: 0,
                sin6_addr: libc::in6_addr { s6_addr: v6.ip().octets() },
                sin6_scope_id: v6.scope_id(),
            };
            // SAFETY: a sockaddr_storage has room and alignment for every address.
            unsafe { (&raw mut storage).cast::<libc::sockaddr_in6>().write(name) };
            mem::size_of::<libc::sockaddr_in6>()
        }
    };
    (storage, len as libc::socklen_t)
}

fn from_kernel(storage: &libc::sockaddr_storage) -> Option<SocketAddr> {
    match i32::from(storage.ss_family) {
        libc::AF_INET => {
            // SAFETY: the kernel wrote a sockaddr_in, as the family says; the storage is aligned for it.
            let name = unsafe { &*ptr::from_ref(storage).cast::<libc::sockaddr_in>() };
            let ip = Ipv4Addr::from(name.sin_addr.s_addr.to_ne_bytes());
            Some(SocketAddr::new(IpAddr::V4(ip), u16::from_be(name.sin_port)))
        }
        libc::AF_INET6 => {
            // SAFETY: the same with a sockaddr_in6.
            let name = unsafe { &*ptr::from_ref(storage).cast::<libc::sockaddr_in6>() };
            let ip = Ipv6Addr::from(name.sin6_addr.s6_addr);
            Some(SocketAddrV6::new(ip, u16::from_be(name.sin6_port), 0, name.sin6_scope_id).into())
        }
        _ => None,
    }
}

fn set<T: Copy>(fd: &impl AsFd, level: i32, option: i32, value: &T) -> io::Result<()> {
    let len = mem::size_of::<T>() as libc::socklen_t;
    // SAFETY: the pointer and the length describe `value`, which the kernel only reads.
    let code = unsafe { libc::setsockopt(fd.as_fd().as_raw_fd(), level, option, ptr::from_ref(value).cast(), len) };
    if code < 0 { Err(io::Error::last_os_error()) } else { Ok(()) }
}
