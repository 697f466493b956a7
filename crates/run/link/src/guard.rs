//! Guards: programs of users other than root can send from their own ports alone.
//!
//! Whoever has a packet socket can send any frame on every interface of the socket's network namespace, and no option takes that away. So their sockets
//! are in a namespace of their own, with one interface; behind it a program looks at each frame, and knows the socket that it came from.

use std::os::fd::BorrowedFd;

use bpf::{LinkGuard, LinkOptionsGuard, PortOwners, ProgramError};
use lab::Cell;
use sys::{fds::socket_cookie, packet::PacketSocket, packet_batch::PacketBatch, socket_kind::network_namespace};
use transport::HEADER_BYTES;

use crate::{LinkError, Wire};

/// A namespace for the sockets of such programs, and what stands at its door.
#[derive(Debug)]
pub(crate) struct Guard {
    programs: LinkGuard,
    options: Result<LinkOptionsGuard, ProgramError>,
    cell: Cell,
    /// The interface inside, in the place of the real one.
    inside: Wire,
}

impl Guard {
    /// Begins to guard.
    ///
    /// # Errors
    /// The kernel has no tcx (below 6.6); CAP_SYS_ADMIN, CAP_NET_ADMIN or CAP_BPF lacks.
    pub(crate) fn start(owners: &PortOwners, wire: &Wire) -> Result<Self, LinkError> {
        let mtu = u32::from(wire.payload_max) + HEADER_BYTES as u32;
        let cell = Cell::new(&format!("ek-link{}", wire.index), mtu)?;
        let programs = LinkGuard::attach(owners, &wire.interface, wire.address.0, cell.door())?;
        let failed = |source| LinkError::System { operation: "read the number of a network namespace", source };
        let namespace = network_namespace(&cell.run(PacketSocket::open)??).map_err(failed)?;
        let options = LinkOptionsGuard::attach(namespace);
        cell.open()?;
        let inside = Wire { index: cell.inside().index, ..wire.clone() };
        Ok(Self { programs, options, cell, inside })
    }

    /// A socket that receives and one that sends for an owner of ports, and the numbers by which [`Guard::expel`] knows them.
    pub(crate) fn sockets(
        &self,
        filter: BorrowedFd<'_>,
        owner: u32,
    ) -> Result<(PacketSocket, PacketBatch, Vec<u64>), LinkError> {
        let (receives, sends) = self.cell.run(|| self.inside.sockets(Some(filter)))??;
        let failed = |source| LinkError::System { operation: "read the number of a socket", source };
        let cookies = vec![socket_cookie(&receives).map_err(failed)?, socket_cookie(&sends).map_err(failed)?];
        for &cookie in &cookies {
            self.programs.admit(cookie, owner)?;
        }
        Ok((receives, sends, cookies))
    }

    /// The warning that holders of such sockets can take the kernel's memory by rings; none: they cannot.
    pub(crate) fn unbounded(&self) -> Option<String> {
        let why = self.options.as_ref().err()?;
        Some(format!(
            "members of the group can exhaust this machine's memory: rings of the packet sockets that they get have no limit ({why})"
        ))
    }

    /// Lets these sockets send no longer.
    pub(crate) fn expel(&self, cookies: &[u64]) {
        cookies.iter().for_each(|&cookie| self.programs.expel(cookie));
    }

    /// Takes the door away: what is inside is told that its interface is gone.
    pub(crate) fn close(&self) {
        self.cell.close();
    }

    /// Frames that were not let out.
    pub(crate) fn refused(&self) -> Result<u64, LinkError> {
        Ok(self.programs.refused()?)
    }
}
