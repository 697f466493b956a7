//! Shared by the AF_PACKET backends: one socket, or a fanout group that starts without loss.

use std::os::fd::{AsFd, OwnedFd};

use host::interface;
use sys::packet::{FANOUT_MEMBERS_MAX, Fanout, Instruction, PacketError, PacketSocket};

use crate::{PortError, presence::Presence};

/// A snap length that no frame reaches: nothing is cut (libpcap's MAXIMUM_SNAPLEN).
pub const WHOLE_FRAME: u32 = 262_144;

#[derive(Debug, Clone)]
pub struct PacketOptions {
    pub interface: String,
    /// A classic BPF filter that returns how many bytes to keep; empty: every packet, cut to `snaplen`.
    pub filter: Vec<Instruction>,
    /// Bytes to keep of each packet, at most [`WHOLE_FRAME`].
    pub snaplen: u32,
    /// Join promiscuous mode, for as long as the source is open.
    pub promiscuous: bool,
    /// Leave out what this machine sends.
    pub ignore_outgoing: bool,
}

/// The program by which a fanout group chooses, where its algorithm needs one.
#[derive(Debug)]
pub enum FanoutProgram {
    /// Classic BPF, for `cbpf`.
    Classic(Vec<Instruction>),
    /// A loaded eBPF socket filter, for `ebpf`.
    Extended(OwnedFd),
}

#[derive(Debug)]
pub struct Group {
    /// The spread of packets over the members.
    pub fanout: Fanout,
    /// The number of members, 1 to 256.
    pub members: usize,
    /// The choosing program of `cbpf` and `ebpf`.
    pub program: Option<FanoutProgram>,
}

/// `ret #bytes`.
fn keep(bytes: u32) -> Instruction {
    Instruction { code: (libc::BPF_RET | libc::BPF_K) as u16, jt: 0, jf: 0, k: bytes }
}

impl PacketOptions {
    /// The filter to attach; none when every packet is kept whole, which spares the kernel a program.
    fn program(&self) -> Option<Vec<Instruction>> {
        match () {
            () if !self.filter.is_empty() => Some(self.filter.clone()),
            () if self.snaplen < WHOLE_FRAME => Some(vec![keep(self.snaplen)]),
            () => None,
        }
    }

    /// On the loopback every packet passes twice, out and in: one of the two is enough (libpcap does the same).
    fn only_incoming(&self) -> bool {
        self.ignore_outgoing || self.interface == "lo"
    }

    /// The interface, which is up.
    pub(crate) fn presence(&self) -> Result<Presence, PortError> {
        Ok(Presence::new(&self.interface, self.index()?))
    }

    /// The interface's index, or an error that lists names like it.
    pub(crate) fn index(&self) -> Result<u32, PortError> {
        Ok(interface::index(&self.interface)?)
    }
}

/// Opens one silent socket with the settings that come before a ring.
fn socket(options: &PacketOptions, index: u32, backend: &'static str) -> Result<PacketSocket, PortError> {
    let explain = |e| explain(backend, &options.interface, e);
    let socket = PacketSocket::open().map_err(explain)?;
    if options.promiscuous {
        socket.set_promiscuous(index).map_err(explain)?;
    }
    if options.only_incoming() {
        socket.set_ignore_outgoing().map_err(explain)?;
    }
    Ok(socket)
}

fn bind(socket: &PacketSocket, options: &PacketOptions, index: u32, backend: &'static str) -> Result<(), PortError> {
    let explain = |e| explain(backend, &options.interface, e);
    socket.bind(index).map_err(explain)?;
    match socket.take_error().map_err(explain)? {
        Some(e) if e.raw_os_error() == Some(libc::ENETDOWN) => {
            Err(PortError::InterfaceDown { interface: options.interface.clone() })
        }
        Some(source) => Err(PortError::System {
            backend,
            interface: options.interface.clone(),
            operation: "bind the socket".to_owned(),
            source,
        }),
        None => Ok(()),
    }
}

/// Opens a single receiver. `prepare` turns the silent socket into it; filter and ring are in place before the first
/// packet can arrive.
pub(crate) fn open_one<T>(
    options: &PacketOptions,
    backend: &'static str,
    prepare: impl Fn(PacketSocket) -> Result<T, PacketError>,
    socket_of: impl Fn(&T) -> &PacketSocket,
) -> Result<T, PortError> {
    let index = options.index()?;
    let explain = |e| explain(backend, &options.interface, e);
    let receiver = prepare(socket(options, index, backend)?).map_err(explain)?;
    if let Some(program) = options.program() {
        socket_of(&receiver).set_filter(&program).map_err(explain)?;
    }
    bind(socket_of(&receiver), options, index, backend)?;
    Ok(receiver)
}

/// Opens the members of a fanout group.
///
/// While members join, packets that belong to a member on its way in are lost, and those of the early members pile up. Therefore all join behind a
/// filter that rejects everything, which the counters do not count; then each gets the real filter.
pub(crate) fn open_group<T>(
    options: &PacketOptions,
    group: &Group,
    backend: &'static str,
    prepare: impl Fn(PacketSocket) -> Result<T, PacketError>,
    socket_of: impl Fn(&T) -> &PacketSocket,
) -> Result<Vec<T>, PortError> {
    if !(1..=FANOUT_MEMBERS_MAX).contains(&group.members) {
        let reason = format!("a fanout group has 1 to {FANOUT_MEMBERS_MAX} members, not {}", group.members);
        return Err(PortError::Setting { backend, reason });
    }
    let index = options.index()?;
    let explain = |e| explain(backend, &options.interface, e);
    // The kernel asks the hook of the group, which knows its own flag only and not the option of its members.
    let ignore_outgoing = group.fanout.ignore_outgoing || options.only_incoming();
    let fanout = Fanout { ignore_outgoing, ..group.fanout };
    let mut members = Vec::with_capacity(group.members);
    let mut id = None;
    for _ in 0..group.members {
        let member = prepare(socket(options, index, backend)?).map_err(explain)?;
        let socket = socket_of(&member);
        socket.set_filter(&[keep(0)]).map_err(explain)?;
        bind(socket, options, index, backend)?;
        match id {
            None => id = Some(socket.make_fanout(fanout).map_err(explain)?),
            Some(id) => socket.join_fanout(id, fanout).map_err(explain)?,
        }
        members.push(member);
    }
    if let (Some(program), Some(first)) = (&group.program, members.first()) {
        match program {
            FanoutProgram::Classic(program) => socket_of(first).set_fanout_program(program),
            FanoutProgram::Extended(program) => socket_of(first).set_fanout_ebpf(program.as_fd()),
        }
        .map_err(explain)?;
    }
    let program = options.program();
    for member in &members {
        let socket = socket_of(member);
        match &program {
            Some(program) => socket.set_filter(program),
            None => socket.clear_filter(),
        }
        .map_err(explain)?;
    }
    Ok(members)
}

/// Lets nothing more in: what was received before remains to be read.
pub(crate) fn close_intake(socket: &PacketSocket) -> Result<(), PacketError> {
    socket.set_filter(&[keep(0)])
}

/// Turns a failed step into words for the user.
pub(crate) fn explain(backend: &'static str, interface: &str, error: PacketError) -> PortError {
    let interface = interface.to_owned();
    let code = error.os_error().and_then(std::io::Error::raw_os_error);
    match (error, code) {
        (PacketError::Open(_), Some(libc::EPERM | libc::EACCES)) => {
            PortError::Privilege { backend, interface, capability: "CAP_NET_RAW" }
        }
        (PacketError::Open(_), Some(libc::EAFNOSUPPORT)) => PortError::Unsupported {
            backend,
            interface,
            reason: "this kernel is built without packet sockets (CONFIG_PACKET)".to_owned(),
        },
        (PacketError::Receive(_) | PacketError::Bind { .. }, Some(libc::ENETDOWN | libc::ENODEV | libc::ENXIO)) => {
            PortError::Vanished { interface }
        }
        (PacketError::Layout(reason), _) => PortError::Setting { backend, reason },
        (PacketError::Option { option, .. }, Some(libc::ENOMEM)) => PortError::Unsupported {
            backend,
            interface,
            reason: format!("the kernel has no memory for {option}: take a smaller ring or fewer members"),
        },
        (error, code) => PortError::System {
            backend,
            interface,
            operation: match &error {
                PacketError::Open(_) => "open a packet socket".to_owned(),
                PacketError::Option { option, .. } => format!("set {option}"),
                PacketError::Bind { .. } => "bind the packet socket".to_owned(),
                PacketError::Layout(_) => "lay out the ring".to_owned(),
                PacketError::Map { bytes, .. } => format!("map the ring of {bytes} bytes"),
                PacketError::Poll(_) => "wait for packets".to_owned(),
                PacketError::Receive(_) => "receive packets".to_owned(),
            },
            source: code.map_or_else(|| std::io::Error::other(error.to_string()), std::io::Error::from_raw_os_error),
        },
    }
}
