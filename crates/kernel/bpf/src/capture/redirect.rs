//! The program that hands frames to AF_XDP sockets.

use std::{
    mem::MaybeUninit,
    os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd},
};

use libbpf_rs::{MapCore, MapFlags, MapHandle};

use crate::{
    capture::filter::Filter,
    counters::per_cpu,
    link::{XdpError, XdpLink, XdpMode},
    program::{Program, to_io},
    skel::xsk_redirect::{XskRedirectSkelBuilder, types::xsk_count},
};

const PROGRAM: Program = Program("xsk_redirect");

per_cpu! {
    /// The ends of the frames of all queues since it was attached.
    pub struct RedirectCounts of xsk_count {
        /// Frames whose queue had a socket.
        redirected,
        /// Frames of a queue without a socket, which went on to the stack.
        passed,
    }
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
        let failed = |source| PROGRAM.refused(source);
        let mut object = MaybeUninit::uninit();
        let mut open = PROGRAM.open::<XskRedirectSkelBuilder>(&mut object)?;
        open.maps.xsk_sockets.set_max_entries(queues.max(1)).map_err(failed)?;
        let skel = PROGRAM.load(open)?;
        let program = PROGRAM.descriptor(skel.progs.xsk_redirect.as_fd())?;
        let filter = filter.map(|f| f.load(program.as_fd(), false)).transpose()?;
        Ok(Self {
            link: None,
            filter,
            program,
            sockets: PROGRAM.map(&skel.maps.xsk_sockets)?,
            counts: PROGRAM.map(&skel.maps.xsk_counts)?,
        })
    }

    /// Gives the frames of `queue` to `socket` from now on. The socket must be bound to that queue.
    pub fn set_socket(&self, queue: u32, socket: BorrowedFd<'_>) -> Result<(), XdpError> {
        let fd = socket.as_raw_fd().to_ne_bytes();
        self.sockets
            .update(&queue.to_ne_bytes(), &fd, MapFlags::ANY)
            .map_err(|e| PROGRAM.failed("put a socket into the map xsk_sockets", to_io(&e)).into())
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

    /// Counts so far, over all CPUs.
    pub fn counts(&self) -> Result<RedirectCounts, XdpError> {
        Ok(PROGRAM.sum(&self.counts, "read the map xsk_counts")?)
    }
}
