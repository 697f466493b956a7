//! The open connections of a program, in a memfd shared with its broker, which notifies the peers of a killed program.

use std::{
    fs::File,
    io,
    os::{
        fd::{AsFd, BorrowedFd, OwnedFd},
        unix::fs::FileExt,
    },
};

use nix::sys::memfd::{MFdFlags, memfd_create};
use transport::Endpoints;
use wire::Mac;

/// Bytes of an entry: address, ports, the peer's connection number, the epoch. An entry without a number is free.
const ENTRY_BYTES: usize = 18;
/// Entries: as many as a node may have connections.
const ENTRIES_MAX: usize = 1 << 16;

/// The table, by slots of connections.
#[derive(Debug)]
pub(crate) struct Table(File);

impl Table {
    pub(crate) fn new() -> io::Result<Self> {
        Ok(Self(File::from(memfd_create("evenkeel-link", MFdFlags::MFD_CLOEXEC)?)))
    }

    /// Opens a table that another process made.
    pub(crate) fn of(fd: OwnedFd) -> Self {
        Self(fd.into())
    }

    /// Enters or removes a connection. If the write fails, its peer is not notified.
    pub(crate) fn set(&self, at: u32, ends: Option<Endpoints<Mac>>) {
        let place = ends.map_or([0; ENTRY_BYTES], write);
        let _ = self.0.write_all_at(&place, u64::from(at) * ENTRY_BYTES as u64);
    }

    pub(crate) fn clear(&self) {
        let _ = self.0.set_len(0);
    }

    /// All entries, whoever wrote them.
    pub(crate) fn read(&self) -> io::Result<Vec<Endpoints<Mac>>> {
        let most = (ENTRIES_MAX * ENTRY_BYTES) as u64;
        let len = usize::try_from(self.0.metadata()?.len().min(most)).unwrap_or_default();
        let mut bytes = vec![0; len - len % ENTRY_BYTES];
        self.0.read_exact_at(&mut bytes, 0)?;
        Ok(bytes.as_chunks().0.iter().map(read).filter(|ends| ends.peer_number != 0).collect())
    }
}

impl AsFd for Table {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.as_fd()
    }
}

fn write(ends: Endpoints<Mac>) -> [u8; ENTRY_BYTES] {
    let mut place = [0; ENTRY_BYTES];
    place[..6].copy_from_slice(&ends.peer.0);
    place[6..8].copy_from_slice(&ends.port.to_be_bytes());
    place[8..10].copy_from_slice(&ends.peer_port.to_be_bytes());
    place[10..14].copy_from_slice(&ends.peer_number.to_be_bytes());
    place[14..].copy_from_slice(&ends.epoch.to_be_bytes());
    place
}

fn read(place: &[u8; ENTRY_BYTES]) -> Endpoints<Mac> {
    let [a, b, c, d, e, f, p0, p1, q0, q1, n0, n1, n2, n3, e0, e1, e2, e3] = *place;
    Endpoints {
        peer: Mac([a, b, c, d, e, f]),
        port: u16::from_be_bytes([p0, p1]),
        peer_port: u16::from_be_bytes([q0, q1]),
        peer_number: u32::from_be_bytes([n0, n1, n2, n3]),
        epoch: u32::from_be_bytes([e0, e1, e2, e3]),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_entered_is_read_until_it_is_taken_out() {
        let table = Table::new().unwrap();
        let ends = |n: u16| Endpoints {
            peer: Mac([2, 0, 0, 0, 0, n as u8]),
            port: 50_000 + n,
            peer_port: n,
            peer_number: 1 << 31 | u32::from(n),
            epoch: 0x0102_0304,
        };
        assert_eq!(table.read().unwrap(), []);
        table.set(7, Some(ends(7)));
        table.set(ENTRIES_MAX as u32 - 2, Some(ends(9)));
        assert_eq!(table.read().unwrap(), [ends(7), ends(9)]);
        table.set(7, None);
        assert_eq!(table.read().unwrap(), [ends(9)]);
        // Whatever a program makes of it.
        table.0.set_len(1 << 40).unwrap();
        assert_eq!(table.read().unwrap(), [ends(9)]);
        table.0.set_len(ENTRY_BYTES as u64 + 1).unwrap();
        assert_eq!(table.read().unwrap(), []);
        table.clear();
        assert_eq!(table.read().unwrap(), []);
    }
}
