//! Files that people name to be read: whole, of a bounded size, and never one that has no end.

use std::{
    fs::{self, File, Metadata},
    io::{self, Read},
    os::{
        fd::AsFd,
        unix::fs::{FileTypeExt, MetadataExt, OpenOptionsExt},
    },
    path::Path,
};

use nix::{fcntl::OFlag, libc, sys::stat::makedev};

/// More bytes than any file of rules, prefixes, runs or profiles has.
pub const FILE_MAX: u64 = 256 << 20;

/// Reads a file, or a pipe to its end. A device is refused unless it is the standard input or /dev/null, and so is what never ends, such as
/// /proc/kmsg.
///
/// # Errors
/// The system's answer, or why this is no file to read.
pub fn read(path: &Path) -> io::Result<Vec<u8>> {
    read_up_to(path, FILE_MAX)
}

fn read_up_to(path: &Path, max: u64) -> io::Result<Vec<u8>> {
    let found = fs::metadata(path)?;
    let kind = found.file_type();
    let is_null = kind.is_char_device() && found.rdev() == makedev(1, 3);
    if (kind.is_char_device() || kind.is_block_device()) && !is_null && !is_standard_input(&found) {
        return Err(io::Error::other("it is a device; name a file, a pipe, or - for the standard input"));
    }
    let mut options = File::options();
    options.read(true);
    if kind.is_file() {
        // Files of the kernel that wait for more are told from those that end.
        options.custom_flags(OFlag::O_NONBLOCK.bits());
    }
    let file = options.open(path)?;
    let mut bytes = Vec::with_capacity(usize::try_from(found.len().min(max)).unwrap_or(0));
    file.take(max + 1).read_to_end(&mut bytes).map_err(|error| match error.kind() {
        io::ErrorKind::WouldBlock => io::Error::other("it has no end: whoever reads it waits for more"),
        _ => error,
    })?;
    if bytes.len() as u64 > max {
        return Err(io::Error::other(format!("it has more than {} MiB", max >> 20)));
    }
    Ok(bytes)
}

fn is_standard_input(found: &Metadata) -> bool {
    let own = nix::sys::stat::fstat(io::stdin().as_fd());
    own.is_ok_and(|own: libc::stat| own.st_dev == found.dev() && own.st_ino == found.ino())
}

/// True if reading `path` waits for somebody to write: a pipe with a name, not one that is open already (`/dev/stdin`, `<(...)`).
pub fn waits_for_a_writer(path: &Path) -> bool {
    // What a process has open has no path that leads to it.
    fs::canonicalize(path).and_then(fs::metadata).is_ok_and(|found| found.file_type().is_fifo())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_has_no_end_is_refused() {
        for path in ["/dev/zero", "/dev/full", "/dev/tty"] {
            assert!(read(Path::new(path)).is_err(), "{path}");
        }
        assert!(read(Path::new("/dev/null")).unwrap().is_empty());
        assert!(read(Path::new("/dev")).is_err_and(|e| e.kind() == io::ErrorKind::IsADirectory));
        assert_eq!(read(Path::new("/proc/self/comm")).unwrap().last(), Some(&b'\n'), "a file without a size");
        let file = Path::new(file!());
        let file =
            if file.exists() { file.to_owned() } else { Path::new(env!("CARGO_MANIFEST_DIR")).join("src/input.rs") };
        assert!(read_up_to(&file, 100).is_err());
        assert_eq!(read(&file).unwrap().len() as u64, fs::metadata(&file).unwrap().len());
        assert!(!waits_for_a_writer(&file) && !waits_for_a_writer(Path::new("/dev/stdin")));
    }
}
