//! Admission of files of other nodes by the free space of the file system.

use std::{
    fmt,
    path::{Path, PathBuf},
};

use nix::sys::statvfs::statvfs;

use crate::Address;

/// Share of the file system that stays free by default, and of its inodes always.
const FREE_DIVISOR: u64 = 10;
/// Upper bound of the default reserve in bytes, as for systemd's journal: a tenth of a file system of terabytes is too much.
const FREE_DEFAULT_MAX: u64 = 4 << 30;
/// Share of the room for files of one node: a node that announces large files does not lock out others.
const NODE_DIVISOR: u64 = 2;

/// The folder for files, and the space they may take.
#[derive(Debug)]
pub(super) struct Room {
    folder: PathBuf,
    /// Bytes that stay free; none: the default share, at most [`FREE_DEFAULT_MAX`].
    free: Option<u64>,
    /// Node and outstanding bytes of each incoming file.
    pub(super) promised: Vec<(Option<Address>, u64)>,
}

/// Size and free space of a file system, by statvfs(3).
#[derive(Debug, Clone, Copy)]
struct Space {
    bytes: u64,
    bytes_left: u64,
    /// 0: the file system allocates inodes as needed.
    inodes: u64,
    inodes_left: u64,
}

impl Room {
    pub(super) const fn new(folder: PathBuf, free: Option<u64>) -> Self {
        Self { folder, free, promised: Vec::new() }
    }

    pub(super) fn folder(&self) -> &Path {
        &self.folder
    }

    /// Admits a file of a node; the error is a reason.
    pub(super) fn admit(&mut self, from: Option<Address>, bytes: u64) -> Result<(), String> {
        let stat = statvfs(&self.folder).map_err(|e| format!("the free space of its file system is not known: {e}"))?;
        let block = stat.fragment_size();
        let space = Space {
            bytes: stat.blocks().saturating_mul(block),
            bytes_left: stat.blocks_available().saturating_mul(block),
            inodes: stat.files(),
            inodes_left: stat.files_available(),
        };
        self.fits(space, from, bytes)?;
        self.promised.push((from, bytes));
        Ok(())
    }

    fn fits(&self, space: Space, from: Option<Address>, bytes: u64) -> Result<(), String> {
        let free = self.free.unwrap_or((space.bytes / FREE_DIVISOR).min(FREE_DEFAULT_MAX));
        let (of_all, of_node) = (self.promises(|_| true), self.promises(|node| node == from));
        if of_all.bytes.saturating_add(bytes).saturating_add(free) > space.bytes_left {
            return Err(format!(
                "there is no room for {bytes} bytes: {}M of that file system stay free (--receive-free){of_all}",
                free >> 20
            ));
        }
        let room = space.bytes_left.saturating_sub(free);
        if of_node.bytes.saturating_add(bytes) > room / NODE_DIVISOR {
            return Err(format!(
                "there is no room for {bytes} bytes: one node may have half of the {}M that are free (--receive-free){of_node}",
                room >> 20
            ));
        }
        if space.inodes > 0 && space.inodes_left <= space.inodes / FREE_DIVISOR {
            return Err("there is no room for one more: a tenth of that file system's inodes stays free".to_owned());
        }
        Ok(())
    }

    /// Sum of the outstanding bytes of some nodes.
    fn promises(&self, of: impl Fn(Option<Address>) -> bool) -> Promises {
        let files = self.promised.iter().filter(|(node, _)| of(*node));
        files.fold(Promises { files: 0, bytes: 0 }, |sum, (_, left)| Promises {
            files: sum.files + 1,
            bytes: sum.bytes.saturating_add(*left),
        })
    }
}

/// Outstanding bytes of some files.
#[derive(Debug, Clone, Copy)]
struct Promises {
    files: usize,
    bytes: u64,
}

impl fmt::Display for Promises {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self { files: 0, .. } => Ok(()),
            Self { files: 1, bytes } => write!(f, ", {bytes} bytes are promised to 1 file that is being received"),
            Self { files, bytes } => write!(f, ", {bytes} bytes are promised to {files} files that are being received"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SPACE: Space = Space { bytes: 1000 << 20, bytes_left: 300 << 20, inodes: 100, inodes_left: 11 };

    fn room(free: Option<u64>, promised: &[(u8, u64)]) -> Room {
        let promised = promised.iter().map(|&(of, bytes)| (node(of), bytes)).collect();
        Room { promised, ..Room::new(PathBuf::new(), free) }
    }

    fn node(last: u8) -> Option<Address> {
        Some(Address::Ethernet(wire::Mac([2, 0, 0, 0, 0, last])))
    }

    #[test]
    fn files_leave_a_part_free_whatever_is_promised() {
        for (free, promised, bytes, fits) in [
            (None, 0, 100 << 20, true),
            (None, 200 << 20, 0, true),
            (None, 150 << 20, 50 << 20, true),
            (None, 150 << 20, (50 << 20) + 1, false),
            (None, u64::MAX, 1, false),
            (Some(100 << 20), 99 << 20, 100 << 20, true),
            (Some(100 << 20), 101 << 20, 100 << 20, false),
            (Some(u64::MAX), u64::MAX, u64::MAX, false),
            (Some(u64::MAX), 0, 0, false),
        ] {
            let found = room(free, &[(1, promised)]).fits(SPACE, node(2), bytes);
            assert_eq!(found.is_ok(), fits, "{free:?} {promised} {bytes}: {found:?}");
        }
        let large = Space { bytes: 252 << 30, bytes_left: 5 << 30, ..SPACE };
        assert_eq!(room(None, &[]).fits(large, node(2), 512 << 20), Ok(()), "not a tenth, which would be 25 GiB");
        assert!(room(None, &[]).fits(large, node(2), (1 << 30) + 1).is_err());
        let why = room(None, &[]).fits(SPACE, node(2), u64::MAX).unwrap_err();
        assert!(why.ends_with("100M of that file system stay free (--receive-free)"), "{why}");
        let few = Space { inodes_left: 10, ..SPACE };
        assert!(room(Some(1), &[]).fits(few, node(2), 0).unwrap_err().contains("inodes"));
        assert_eq!(room(Some(1), &[]).fits(Space { inodes: 0, inodes_left: 0, ..SPACE }, node(2), 0), Ok(()));
    }

    #[test]
    fn files_of_one_node_leave_half_of_the_room_to_others() {
        for (promised, bytes, fits) in [
            (&[][..], 100 << 20, true),
            (&[], (100 << 20) + 1, false),
            (&[(2, 60 << 20), (2, 10 << 20)], 30 << 20, true),
            (&[(2, 60 << 20), (2, 10 << 20)], (30 << 20) + 1, false),
            // What another node is promised is not its own.
            (&[(1, 100 << 20)], 100 << 20, true),
            // Of the whole room nothing may be left.
            (&[(1, 60 << 20), (3, 60 << 20)], 80 << 20, true),
            (&[(1, 60 << 20), (3, 60 << 20)], (80 << 20) + 1, false),
        ] {
            let found = room(None, promised).fits(SPACE, node(2), bytes);
            assert_eq!(found.is_ok(), fits, "{promised:?} {bytes}: {found:?}");
        }
    }

    #[test]
    fn a_refusal_says_what_is_promised() {
        let promised = [(1, 70 << 20), (1, 30 << 20), (2, 7)];
        let of = |last, bytes| room(None, &promised).fits(SPACE, node(last), bytes).unwrap_err();
        let all = ", 104857607 bytes are promised to 3 files that are being received";
        let own = "one node may have half of the 300M that are free (--receive-free), 7 bytes are promised to 1 file that is being received";
        assert!(of(3, 101 << 20).ends_with(all) && of(2, 100 << 20).ends_with(all));
        let more = Room { free: Some(0), ..room(None, &promised) }.fits(SPACE, node(2), 160 << 20).unwrap_err();
        assert!(more.ends_with(own), "{more}");
        let long = room(None, &[(1, u64::MAX); 256]).fits(SPACE, node(2), u64::MAX).unwrap_err();
        assert!(long.len() <= 200, "{long}");
    }
}
