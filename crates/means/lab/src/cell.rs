//! A network namespace with one way out: sockets in it reach nothing but what stands at its door.

use std::os::fd::AsFd;

use crate::{LabError, NamespaceHandle, VethEnd, link};

/// Checksum offload that a packet socket might ask for on its interface (PACKET_VNET_HDR): a sum at any place of a frame.
const SUMS: &str = "tx-checksum-ip-generic";
const INSIDE: &str = "inside";

/// A namespace without a name, and a pair of interfaces between it and this one. It goes with its last socket; the pair goes with it, or when this is
/// dropped.
#[derive(Debug)]
pub struct Cell {
    here: NamespaceHandle,
    space: NamespaceHandle,
    door: String,
    /// The door's. Another cell's door may get its name, but never its index.
    index: u32,
    inside: VethEnd,
}

impl Cell {
    /// A cell whose door into this network namespace has that name. A door of that name that was left is removed. Frames have at most `mtu` bytes of
    /// payload, and all their sums when they come to the door: none is made behind it. The kernel itself sends nothing on either interface. Both are
    /// down until [`Cell::open`].
    pub fn new(door: &str, mtu: u32) -> Result<Self, LabError> {
        let here = NamespaceHandle::own("of this program")?;
        let space = NamespaceHandle::nameless("for programs of other users")?;
        let index = here.run(|| {
            if link::index_of(door).is_ok() {
                link::remove(door)?;
            }
            link::create_veth(door, INSIDE, space.file().as_fd(), 1)?;
            link::silence(door)?;
            link::set_mtu(door, mtu)?;
            link::index_of(door)
        })??;
        let mut cell = Self { here, space, door: door.to_owned(), index, inside: VethEnd::default() };
        cell.inside = cell.space.run(|| {
            link::silence(INSIDE)?;
            link::set_mtu(INSIDE, mtu)?;
            link::set_feature(INSIDE, SUMS, false)?;
            link::describe(INSIDE)
        })??;
        Ok(cell)
    }

    /// Sets both ends up: what stands at the door has to stand there before.
    pub fn open(&self) -> Result<(), LabError> {
        self.here.run(|| link::set_up(&self.door))??;
        self.space.run(|| link::set_up(INSIDE))??;
        self.space.run(|| link::wait_until_ready(INSIDE))??;
        self.here.run(|| link::wait_until_ready(&self.door))?
    }

    /// Takes both ends away.
    pub fn close(&self) {
        // They go with the last socket inside at the latest.
        let _ = self.here.run(|| match link::index_of(&self.door)? == self.index {
            true => link::remove(&self.door),
            false => Ok(()),
        });
    }

    /// The end in this network namespace.
    pub fn door(&self) -> &str {
        &self.door
    }

    pub fn inside(&self) -> &VethEnd {
        &self.inside
    }

    /// Runs `work` inside, as [`NamespaceHandle::run`].
    pub fn run<T: Send>(&self, work: impl FnOnce() -> T + Send) -> Result<T, LabError> {
        self.space.run(work)
    }
}

impl Drop for Cell {
    fn drop(&mut self) {
        self.close();
    }
}
