//! How much files of other nodes leave free of the file system that they come to.

use std::path::{Path, PathBuf};

use nix::sys::statvfs::statvfs;

/// Without another word a tenth stays free, of the inodes always.
const PART: u64 = 10;

/// The folder for files, and what they may take.
#[derive(Debug)]
pub(super) struct Room {
    folder: PathBuf,
    /// Bytes that stay free; none: a part of all.
    free: Option<u64>,
    /// Bytes that are still to come of files which have been let in.
    pub(super) promised: u64,
}

/// The size of a file system and its free part, by statvfs(3).
#[derive(Debug, Clone, Copy)]
struct Space {
    bytes: u64,
    bytes_left: u64,
    /// 0: it makes them as they are needed.
    inodes: u64,
    inodes_left: u64,
}

impl Room {
    pub(super) const fn new(folder: PathBuf, free: Option<u64>) -> Self {
        Self { folder, free, promised: 0 }
    }

    pub(super) fn folder(&self) -> &Path {
        &self.folder
    }

    /// Lets a file of `bytes` in, or says why not.
    pub(super) fn let_in(&mut self, bytes: u64) -> Result<(), String> {
        let stat = statvfs(&self.folder).map_err(|e| format!("its file system does not say what room it has: {e}"))?;
        let block = stat.fragment_size();
        let space = Space {
            bytes: stat.blocks().saturating_mul(block),
            bytes_left: stat.blocks_available().saturating_mul(block),
            inodes: stat.files(),
            inodes_left: stat.files_available(),
        };
        self.fits(space, bytes)?;
        self.promised = self.promised.saturating_add(bytes);
        Ok(())
    }

    fn fits(&self, space: Space, bytes: u64) -> Result<(), String> {
        let free = self.free.unwrap_or(space.bytes / PART);
        let taken = self.promised.saturating_add(bytes).saturating_add(free);
        if taken > space.bytes_left {
            return Err(format!(
                "there is no room for {bytes} bytes: {}M of that file system are to stay free (--receive-free of its broker)",
                free >> 20
            ));
        }
        if space.inodes > 0 && space.inodes_left <= space.inodes / PART {
            return Err(
                "there is no room for one more: a tenth of that file system's inodes is to stay free".to_owned()
            );
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn files_leave_a_part_free_whatever_is_promised() {
        let space = Space { bytes: 1000 << 20, bytes_left: 300 << 20, inodes: 100, inodes_left: 11 };
        let room = |free, promised| Room { promised, ..Room::new(PathBuf::new(), free) };
        for (free, promised, bytes, fits) in [
            (None, 0, 200 << 20, true),
            (None, 0, (200 << 20) + 1, false),
            (None, 200 << 20, 0, true),
            (None, 150 << 20, 51 << 20, false),
            (Some(1), 0, (300 << 20) - 1, true),
            (Some(1), 0, 300 << 20, false),
            (Some(u64::MAX), u64::MAX, u64::MAX, false),
        ] {
            let found = room(free, promised).fits(space, bytes);
            assert_eq!(found.is_ok(), fits, "{free:?} {promised} {bytes}: {found:?}");
        }
        let why = room(None, 0).fits(space, u64::MAX).unwrap_err();
        assert!(why.contains("100M of that file system are to stay free (--receive-free"), "{why}");
        let few = Space { inodes_left: 10, ..space };
        assert!(room(Some(1), 0).fits(few, 0).unwrap_err().contains("inodes"));
        assert_eq!(room(Some(1), 0).fits(Space { inodes: 0, inodes_left: 0, ..space }, 0), Ok(()));
    }
}
