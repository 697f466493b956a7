//! A packet socket: opened silent, set up, then bound.

use std::{
    io, mem,
    os::fd::{AsFd, AsRawFd, BorrowedFd, FromRawFd, OwnedFd},
    time::Duration,
};

use super::PacketError;

/// An instruction of classic BPF (struct sock_filter).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(C)]
pub struct Instruction {
    pub code: u16,
    pub jt: u8,
    pub jf: u8,
    pub k: u32,
}

const _: () = assert!(mem::size_of::<Instruction>() == mem::size_of::<libc::sock_filter>());

/// The way in which a fanout group chooses the member for a packet (PACKET_FANOUT).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum FanoutAlgorithm {
    Hash,
    LoadBalance,
    /// By the CPU that received the packet.
    Cpu,
    /// To the first member until it is full, then to the next.
    Rollover,
    Random,
    /// By the receive queue that the packet came through.
    QueueMapping,
    /// By a classic BPF program ([`PacketSocket::set_fanout_program`]).
    ClassicBpf,
    /// By an eBPF socket filter program ([`PacketSocket::set_fanout_ebpf`]).
    ExtendedBpf,
}

impl FanoutAlgorithm {
    fn number(self) -> libc::c_uint {
        match self {
            Self::Hash => libc::PACKET_FANOUT_HASH,
            Self::LoadBalance => libc::PACKET_FANOUT_LB,
            Self::Cpu => libc::PACKET_FANOUT_CPU,
            Self::Rollover => libc::PACKET_FANOUT_ROLLOVER,
            Self::Random => libc::PACKET_FANOUT_RND,
            Self::QueueMapping => libc::PACKET_FANOUT_QM,
            Self::ClassicBpf => libc::PACKET_FANOUT_CBPF,
            Self::ExtendedBpf => libc::PACKET_FANOUT_EBPF,
        }
    }
}

/// A fanout group to make or to join.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Fanout {
    pub algorithm: FanoutAlgorithm,
    /// Put IPv4 fragments together before choosing (PACKET_FANOUT_FLAG_DEFRAG), so that all parts meet one member.
    pub defrag: bool,
    /// Let a packet roll over to another member when the chosen one is full (PACKET_FANOUT_FLAG_ROLLOVER).
    pub rollover: bool,
    /// Leave out packets that this machine sends (PACKET_FANOUT_FLAG_IGNORE_OUTGOING).
    pub ignore_outgoing: bool,
}

/// Most members of one fanout group (PACKET_FANOUT_MAX in net/packet/internal.h, without struct fanout_args).
pub const FANOUT_MEMBERS_MAX: usize = 256;

/// Counters of a packet socket since they were read last.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Statistics {
    /// Packets that passed the filter, those dropped included.
    pub packets: u32,
    /// Packets of these that were dropped because ring or queue was full.
    pub drops: u32,
    /// Times a TPACKET_V3 ring was found full; 0 for others.
    pub freezes: u32,
}

/// Result of poll(2) for a packet socket.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Readiness {
    /// There is something to read.
    Ready,
    /// The time went by, or a signal came.
    Nothing,
    /// The socket reports an error: the interface went down or away.
    Failed,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum LinkState {
    /// Present, and administratively up (IFF_UP).
    Up,
    Down,
    /// The network namespace has no interface with that index.
    Gone,
}

/// An AF_PACKET socket of type SOCK_RAW.
#[derive(Debug)]
pub struct PacketSocket {
    fd: OwnedFd,
}

impl AsFd for PacketSocket {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.fd.as_fd()
    }
}

impl From<OwnedFd> for PacketSocket {
    /// A packet socket that another process opened.
    fn from(fd: OwnedFd) -> Self {
        Self { fd }
    }
}

impl PacketSocket {
    /// Opens a socket of protocol 0: it receives nothing until [`PacketSocket::bind`].
    pub fn open() -> Result<Self, PacketError> {
        Self::of_protocol(0)
    }

    /// Opens a socket that receives what arrives of one EtherType, on every interface of the namespace, from the start. Other
    /// packets do not cost anything.
    pub fn open_for(ethertype: u16) -> Result<Self, PacketError> {
        Self::of_protocol(i32::from(ethertype.to_be()))
    }

    fn of_protocol(protocol: libc::c_int) -> Result<Self, PacketError> {
        let kind = libc::SOCK_RAW | libc::SOCK_CLOEXEC | libc::SOCK_NONBLOCK;
        // SAFETY: socket(2) takes no pointers.
        let fd = unsafe { libc::socket(libc::AF_PACKET, kind, protocol) };
        if fd < 0 {
            return Err(PacketError::Open(io::Error::last_os_error()));
        }
        // SAFETY: socket(2) has just returned this descriptor, and nobody else owns it.
        Ok(Self { fd: unsafe { OwnedFd::from_raw_fd(fd) } })
    }

    /// Binds to one interface, for every protocol: packets arrive from here on.
    pub fn bind(&self, index: u32) -> Result<(), PacketError> {
        self.bind_for(index, libc::ETH_P_ALL as u16)
    }

    /// Binds to one interface, for one EtherType: its packets arrive from here on, and others cost nothing.
    pub fn bind_for(&self, index: u32, ethertype: u16) -> Result<(), PacketError> {
        let address = libc::sockaddr_ll {
            sll_family: libc::AF_PACKET as u16,
            sll_protocol: ethertype.to_be(),
            sll_ifindex: index as i32,
            sll_hatype: 0,
            sll_pkttype: 0,
            sll_halen: 0,
            sll_addr: [0; 8],
        };
        // SAFETY: the address is a live sockaddr_ll, and the length is its size.
        let result = unsafe {
            libc::bind(
                self.fd.as_raw_fd(),
                (&raw const address).cast(),
                mem::size_of::<libc::sockaddr_ll>() as libc::socklen_t,
            )
        };
        if result < 0 {
            return Err(PacketError::Bind { index, source: io::Error::last_os_error() });
        }
        Ok(())
    }

    /// Sets an option whose value is plain data (`T` is an integer or a `#[repr(C)]` struct without padding).
    pub(super) fn set<T: Copy>(
        &self,
        level: libc::c_int,
        option: libc::c_int,
        name: &str,
        value: &T,
    ) -> Result<(), PacketError> {
        // SAFETY: the pointer and the length describe the live value `value`; the kernel copies it during the call.
        let result = unsafe {
            libc::setsockopt(
                self.fd.as_raw_fd(),
                level,
                option,
                (value as *const T).cast(),
                mem::size_of::<T>() as libc::socklen_t,
            )
        };
        if result < 0 {
            return Err(PacketError::Option { option: name.to_owned(), source: io::Error::last_os_error() });
        }
        Ok(())
    }

    /// Attaches a classic BPF filter, in place of an earlier one, atomically. It returns the bytes to keep of a packet.
    pub fn set_filter(&self, program: &[Instruction]) -> Result<(), PacketError> {
        self.set_program(libc::SOL_SOCKET, libc::SO_ATTACH_FILTER, "SO_ATTACH_FILTER", program)
    }

    /// Takes the filter away: every packet is kept whole.
    pub fn clear_filter(&self) -> Result<(), PacketError> {
        self.set(libc::SOL_SOCKET, libc::SO_DETACH_FILTER, "SO_DETACH_FILTER", &0i32)
    }

    /// Attaches an eBPF filter, in place of an earlier one, atomically. It returns the bytes to keep of a packet.
    pub fn set_filter_ebpf(&self, program: BorrowedFd<'_>) -> Result<(), PacketError> {
        self.set(libc::SOL_SOCKET, libc::SO_ATTACH_BPF, "SO_ATTACH_BPF", &program.as_raw_fd())
    }

    /// Nobody changes the filter any more, whoever has the socket.
    pub fn lock_filter(&self) -> Result<(), PacketError> {
        self.set(libc::SOL_SOCKET, libc::SO_LOCK_FILTER, "SO_LOCK_FILTER", &1i32)
    }

    /// Gives the group of this socket its choosing program ([`FanoutAlgorithm::ClassicBpf`]): it returns a number, of
    /// which the group takes the rest modulo its members.
    pub fn set_fanout_program(&self, program: &[Instruction]) -> Result<(), PacketError> {
        self.set_program(libc::SOL_PACKET, libc::PACKET_FANOUT_DATA, "PACKET_FANOUT_DATA", program)
    }

    /// Gives the group of this socket its choosing program ([`FanoutAlgorithm::ExtendedBpf`]), a socket filter.
    pub fn set_fanout_ebpf(&self, program: BorrowedFd<'_>) -> Result<(), PacketError> {
        self.set(libc::SOL_PACKET, libc::PACKET_FANOUT_DATA, "PACKET_FANOUT_DATA", &program.as_raw_fd())
    }

    fn set_program(
        &self,
        level: libc::c_int,
        option: libc::c_int,
        name: &str,
        program: &[Instruction],
    ) -> Result<(), PacketError> {
        let Ok(len) = u16::try_from(program.len()) else {
            let source = io::Error::from_raw_os_error(libc::EINVAL);
            return Err(PacketError::Option { option: format!("{name} ({} instructions)", program.len()), source });
        };
        // The kernel only reads the program, though the C type lacks the `const`.
        let fprog = libc::sock_fprog { len, filter: program.as_ptr().cast::<libc::sock_filter>().cast_mut() };
        self.set(level, option, name, &fprog)
    }

    /// Joins the interface's promiscuous mode by membership: it ends with the socket.
    pub fn set_promiscuous(&self, index: u32) -> Result<(), PacketError> {
        let request = libc::packet_mreq {
            mr_ifindex: index as i32,
            mr_type: libc::PACKET_MR_PROMISC as u16,
            mr_alen: 0,
            mr_address: [0; 8],
        };
        self.set(libc::SOL_PACKET, libc::PACKET_ADD_MEMBERSHIP, "PACKET_ADD_MEMBERSHIP (promiscuous)", &request)
    }

    /// Leaves out the packets that this machine sends.
    pub fn set_ignore_outgoing(&self) -> Result<(), PacketError> {
        self.set(libc::SOL_PACKET, libc::PACKET_IGNORE_OUTGOING, "PACKET_IGNORE_OUTGOING", &1i32)
    }

    /// Asks for nanosecond timestamps, drop counts and the VLAN tags as ancillary data of each received packet.
    pub fn set_ancillary(&self) -> Result<(), PacketError> {
        self.set(libc::SOL_SOCKET, libc::SO_TIMESTAMPNS, "SO_TIMESTAMPNS", &1i32)?;
        self.set(libc::SOL_SOCKET, libc::SO_RXQ_OVFL, "SO_RXQ_OVFL", &1i32)?;
        self.set(libc::SOL_PACKET, libc::PACKET_AUXDATA, "PACKET_AUXDATA", &1i32)
    }

    /// Sets the receive buffer in bytes, beyond net.core.rmem_max where CAP_NET_ADMIN allows. Without it the kernel silently gives less:
    /// [`PacketSocket::receive_buffer`] says what it became.
    pub fn set_receive_buffer(&self, bytes: u32) -> Result<(), PacketError> {
        let value = i32::try_from(bytes).unwrap_or(i32::MAX);
        if self.set(libc::SOL_SOCKET, libc::SO_RCVBUFFORCE, "SO_RCVBUFFORCE", &value).is_err() {
            self.set(libc::SOL_SOCKET, libc::SO_RCVBUF, "SO_RCVBUF", &value)?;
        }
        Ok(())
    }

    /// The receive buffer in bytes.
    pub fn receive_buffer(&self) -> Result<u32, PacketError> {
        // The kernel reports twice what it was asked for: it counts its own overhead (socket(7)).
        Ok(self.get::<i32>(libc::SOL_SOCKET, libc::SO_RCVBUF, "SO_RCVBUF")? as u32 / 2)
    }

    /// Makes a fanout group with an id that nobody else has, this socket being the first member; gives the id. The
    /// socket must be bound.
    pub fn make_fanout(&self, fanout: Fanout) -> Result<u16, PacketError> {
        self.fanout(0, fanout, libc::PACKET_FANOUT_FLAG_UNIQUEID)?;
        let word: i32 = self.get(libc::SOL_PACKET, libc::PACKET_FANOUT, "PACKET_FANOUT")?;
        Ok(word as u16)
    }

    /// Joins the fanout group `id`, which was made with the same settings. The socket must be bound as the first was.
    pub fn join_fanout(&self, id: u16, fanout: Fanout) -> Result<(), PacketError> {
        self.fanout(id, fanout, 0)
    }

    fn fanout(&self, id: u16, fanout: Fanout, more: libc::c_uint) -> Result<(), PacketError> {
        let mut kind = fanout.algorithm.number() | more;
        if fanout.defrag {
            kind |= libc::PACKET_FANOUT_FLAG_DEFRAG;
        }
        if fanout.rollover {
            kind |= libc::PACKET_FANOUT_FLAG_ROLLOVER;
        }
        if fanout.ignore_outgoing {
            kind |= libc::PACKET_FANOUT_FLAG_IGNORE_OUTGOING;
        }
        self.set(libc::SOL_PACKET, libc::PACKET_FANOUT, "PACKET_FANOUT", &(u32::from(id) | kind << 16))
    }

    /// The counters since the last call: reading them sets them to zero.
    pub fn take_statistics(&self) -> Result<Statistics, PacketError> {
        let s: libc::tpacket_stats_v3 = self.get(libc::SOL_PACKET, libc::PACKET_STATISTICS, "PACKET_STATISTICS")?;
        Ok(Statistics { packets: s.tp_packets, drops: s.tp_drops, freezes: s.tp_freeze_q_cnt })
    }

    /// State of the interface with this index in the network namespace that the socket was made in (SIOCGIFNAME, SIOCGIFFLAGS).
    pub fn link_state(&self, index: u32) -> io::Result<LinkState> {
        // SAFETY: all zeros are a valid ifreq.
        let mut request: libc::ifreq = unsafe { mem::zeroed() };
        request.ifr_ifru.ifru_ifindex = index as libc::c_int;
        let mut ask = |what| {
            // SAFETY: the request is an initialised ifreq, whose name the first call fills, and outlives the call.
            match unsafe { libc::ioctl(self.fd.as_raw_fd(), what, &raw mut request) } {
                0.. => Ok(Some(())),
                _ => match io::Error::last_os_error() {
                    gone if gone.raw_os_error() == Some(libc::ENODEV) => Ok(None),
                    other => Err(other),
                },
            }
        };
        if ask(libc::SIOCGIFNAME)?.is_none() || ask(libc::SIOCGIFFLAGS)?.is_none() {
            return Ok(LinkState::Gone);
        }
        // SAFETY: SIOCGIFFLAGS has just filled this member.
        let up = i32::from(unsafe { request.ifr_ifru.ifru_flags }) & libc::IFF_UP != 0;
        Ok(if up { LinkState::Up } else { LinkState::Down })
    }

    /// The pending error of the socket, such as ENETDOWN; reading takes it away.
    pub fn take_error(&self) -> Result<Option<io::Error>, PacketError> {
        let code: i32 = self.get(libc::SOL_SOCKET, libc::SO_ERROR, "SO_ERROR")?;
        Ok((code != 0).then(|| io::Error::from_raw_os_error(code)))
    }

    /// True if it is bound to a present interface, up or down. The kernel unbinds the sockets of an interface that goes.
    pub fn is_bound(&self) -> bool {
        // SAFETY: all zeros is a value of this struct of integers.
        let mut name: libc::sockaddr_ll = unsafe { mem::zeroed() };
        let mut len = mem::size_of::<libc::sockaddr_ll>() as libc::socklen_t;
        // SAFETY: the pointer and the length describe `name`, and the kernel writes at most `len` bytes of integers into it.
        let result = unsafe { libc::getsockname(self.fd.as_raw_fd(), (&raw mut name).cast(), &raw mut len) };
        result == 0 && name.sll_ifindex > 0
    }

    /// Reads an option into zeroed plain data: a kernel that writes less leaves zeros.
    fn get<T: PlainOption>(&self, level: libc::c_int, option: libc::c_int, name: &str) -> Result<T, PacketError> {
        let mut len = mem::size_of::<T>() as libc::socklen_t;
        // SAFETY: PlainOption types are integers and structs of integers, for which all zeros is a value; the pointer
        // and the length describe `value`, and the kernel writes at most `len` bytes of integers into it.
        let (value, result) = unsafe {
            let mut value: T = mem::zeroed();
            let result = libc::getsockopt(self.fd.as_raw_fd(), level, option, (&raw mut value).cast(), &raw mut len);
            (value, result)
        };
        if result < 0 {
            return Err(PacketError::Option { option: name.to_owned(), source: io::Error::last_os_error() });
        }
        Ok(value)
    }

    /// Waits until there is something to read, rounding the time up to milliseconds.
    pub fn wait(&self, timeout: Duration) -> Result<Readiness, PacketError> {
        let mut fd = libc::pollfd { fd: self.fd.as_raw_fd(), events: libc::POLLIN, revents: 0 };
        let ms = i32::try_from(timeout.as_micros().div_ceil(1000)).unwrap_or(i32::MAX);
        // SAFETY: one live pollfd is passed with the count 1.
        let n = unsafe { libc::poll(&raw mut fd, 1, ms) };
        if n < 0 {
            let error = io::Error::last_os_error();
            return match error.kind() {
                io::ErrorKind::Interrupted => Ok(Readiness::Nothing),
                _ => Err(PacketError::Poll(error)),
            };
        }
        Ok(match fd.revents {
            0 => Readiness::Nothing,
            r if r & (libc::POLLERR | libc::POLLNVAL) != 0 => Readiness::Failed,
            _ => Readiness::Ready,
        })
    }
}

/// Values of socket options that are integers only, so that all zeros is valid and the kernel may write any bits.
trait PlainOption: Copy {}
impl PlainOption for i32 {}
impl PlainOption for libc::tpacket_stats_v3 {}
