//! The program that hands frames to AF_XDP sockets.

use std::{
    mem::MaybeUninit,
    os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd},
};

use libbpf_rs::{
    MapCore, MapFlags, MapHandle,
    skel::{OpenSkel, SkelBuilder},
};

use crate::{
    capture::filter::Filter,
    skel::xsk_redirect::{XskRedirectSkelBuilder, types::xsk_count},
    xdp::{XdpError, XdpLink, XdpMode, quiet_libbpf},
};

const PROGRAM: &str = "xsk_redirect";

/// What the program did with the frames of all queues since it was attached.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct RedirectCounts {
    /// Frames whose queue had a socket.
    pub redirected: u64,
    /// Frames of a queue without a socket, which went on to the stack.
    pub passed: u64,
}

/// The loaded program, on an interface once [`XskRedirect::attach`] was called; off again when dropped.
#[derive(Debug)]
pub struct XskRedirect {
    // The link goes first: the sockets in the map are closed by their owners after it.
    link: Option<XdpLink>,
    filter: Option<crate::capture::filter::LoadedFilter>,
    program: OwnedFd,
    sockets: MapHandle,
    counts: MapHandle,
}

impl XskRedirect {
    /// Loads the program for `queues` receive queues; with a filter, only the frames that it takes are redirected.
    pub fn load(queues: u32, filter: Option<&Filter>) -> Result<Self, XdpError> {
        quiet_libbpf();
        let failed = |source| XdpError::load(PROGRAM, source);
        let mut object = MaybeUninit::uninit();
        let mut open = XskRedirectSkelBuilder::default().open(&mut object).map_err(failed)?;
        open.maps.xsk_sockets.set_max_entries(queues.max(1)).map_err(failed)?;
        let skel = open.load().map_err(failed)?;
        let program = duplicate(skel.progs.xsk_redirect.as_fd(), PROGRAM)?;
        let filter = filter.map(|f| f.load(program.as_fd(), false)).transpose()?;
        Ok(Self {
            link: None,
            filter,
            program,
            sockets: MapHandle::try_from(&skel.maps.xsk_sockets).map_err(failed)?,
            counts: MapHandle::try_from(&skel.maps.xsk_counts).map_err(failed)?,
        })
    }

    /// Gives the frames of `queue` to `socket` from now on. The socket must be bound to that queue.
    pub fn set_socket(&self, queue: u32, socket: BorrowedFd<'_>) -> Result<(), XdpError> {
        let fd = socket.as_raw_fd().to_ne_bytes();
        self.sockets
            .update(&queue.to_ne_bytes(), &fd, MapFlags::ANY)
            .map_err(|e| map_error("put a socket into the map xsk_sockets", &e))
    }

    /// Attaches the program. See [`XdpLink::attach`] for what is refused.
    pub fn attach(&mut self, interface: &str, mode: XdpMode) -> Result<(), XdpError> {
        let entry = self.filter.as_ref().map_or(self.program.as_fd(), crate::capture::filter::LoadedFilter::entry);
        self.link = Some(XdpLink::attach(entry, PROGRAM, interface, mode)?);
        Ok(())
    }

    /// Takes the program off; its counts stay readable.
    pub fn detach(&mut self) {
        self.link = None;
    }

    /// The attached program; nothing before [`XskRedirect::attach`].
    pub fn link(&self) -> Option<&XdpLink> {
        self.link.as_ref()
    }

    /// What it did so far, over all CPUs.
    pub fn counts(&self) -> Result<RedirectCounts, XdpError> {
        let mut sum = RedirectCounts::default();
        for count in per_cpu(&self.counts, PROGRAM, "read the map xsk_counts")? {
            let (redirected, rest) = count.split_at(size_of::<xsk_count>() / 2);
            sum.redirected += number(redirected);
            sum.passed += number(rest);
        }
        Ok(sum)
    }
}

/// The values that all CPUs have under key 0 of a per-CPU array.
pub(crate) fn per_cpu(
    map: &MapHandle,
    program: &'static str,
    operation: &'static str,
) -> Result<Vec<Vec<u8>>, XdpError> {
    map.lookup_percpu(&0u32.to_ne_bytes(), MapFlags::ANY).map(Option::unwrap_or_default).map_err(|e| XdpError::Map {
        program,
        operation,
        source: to_io(&e),
    })
}

/// The native-endian 64-bit number at the beginning of `bytes`.
pub(crate) fn number(bytes: &[u8]) -> u64 {
    bytes.first_chunk().map_or(0, |&b| u64::from_ne_bytes(b))
}

/// A second descriptor for `program`, which outlives its skeleton.
pub(crate) fn duplicate(fd: BorrowedFd<'_>, program: &'static str) -> Result<OwnedFd, XdpError> {
    fd.try_clone_to_owned().map_err(|source| XdpError::Map { program, operation: "duplicate the descriptor", source })
}

/// A libbpf error as an I/O error, with its number where that decides what class of error it is: libbpf-rs keeps the number to itself.
pub(crate) fn to_io(e: &libbpf_rs::Error) -> std::io::Error {
    match e.kind() {
        libbpf_rs::ErrorKind::PermissionDenied => std::io::Error::from_raw_os_error(libc::EPERM),
        libbpf_rs::ErrorKind::OutOfMemory => std::io::Error::from_raw_os_error(libc::ENOMEM),
        _ => std::io::Error::other(e.to_string()),
    }
}

fn map_error(operation: &'static str, e: &libbpf_rs::Error) -> XdpError {
    XdpError::Map { program: PROGRAM, operation, source: to_io(e) }
}
