//! Processes that listen at a control socket whose file is gone: nobody can ask them.

use std::{
    fs,
    os::unix::fs::{FileTypeExt, MetadataExt},
    path::{Path, PathBuf},
    thread,
    time::{Duration, Instant},
};

use nix::unistd::geteuid;

use crate::{
    error::ServeError,
    home::{LOCK, SOCKET},
};

/// A process that ends removes its files some moments before its socket.
const END_TIMEOUT: Duration = Duration::from_secs(2);
const RETRY_PERIOD: Duration = Duration::from_millis(20);
/// Flag of a socket that listens, in /proc/net/unix (`__SO_ACCEPTCON`).
const LISTENS: u64 = 1 << 16;

/// Says which process of this user still listens at `socket`, whose file or folder was removed; none: nobody, or the file is there.
///
/// The kernel has the name of a socket as long as the socket, whatever becomes of its file.
pub fn lost(socket: &Path) -> Option<ServeError> {
    let begun = Instant::now();
    loop {
        if socket.exists() {
            return None;
        }
        let pid = holder(socket)?;
        if begun.elapsed() >= END_TIMEOUT {
            return Some(ServeError::Lost { path: socket.parent().unwrap_or(socket).to_owned(), pid });
        }
        thread::sleep(RETRY_PERIOD);
    }
}

/// The folders below `root`, removed ones, at whose control sockets processes of this user still listen.
pub fn lost_folders(root: &Path) -> Vec<PathBuf> {
    let mut folders: Vec<PathBuf> = listening()
        .into_iter()
        .filter(|(path, _)| path.file_name().is_some_and(|name| name == SOCKET))
        .filter_map(|(path, _)| Some(path.parent()?.to_owned()))
        .filter(|folder| folder.parent() == Some(root) && !folder.exists())
        .collect();
    folders.sort();
    folders.dedup();
    folders.retain(|folder| holder(&folder.join(SOCKET)).is_some());
    folders
}

/// The process that listens there, and by no other name.
fn holder(socket: &Path) -> Option<u32> {
    let inodes: Vec<u64> = listening().into_iter().filter(|(path, _)| path == socket).map(|(_, inode)| inode).collect();
    if inodes.is_empty() {
        return None;
    }
    let pid = processes().find(|pid| inodes.iter().any(|inode| has_socket(*pid, *inode)))?;
    // Who renames its folder goes on to listen under the earlier name.
    let folder = socket.parent()?;
    let others = fs::read_dir(folder.parent()?).into_iter().flatten().flatten().map(|entry| entry.path());
    let is_its = |other: PathBuf| fs::read_to_string(other.join(LOCK)).is_ok_and(|text| text.trim().parse() == Ok(pid));
    (!others.filter(|other| other != folder).any(is_its)).then_some(pid)
}

/// The paths of sockets of this network namespace that listen, with their inodes.
fn listening() -> Vec<(PathBuf, u64)> {
    let text = fs::read("/proc/thread-self/net/unix").unwrap_or_default();
    String::from_utf8_lossy(&text).lines().filter_map(parse).collect()
}

/// Reads a line such as `0000000000000000: 00000002 00000000 00010000 0001 01 12345 /run/x`.
fn parse(line: &str) -> Option<(PathBuf, u64)> {
    let (head, path) = line.split_once(" /")?;
    let words: Vec<&str> = head.split_whitespace().collect();
    let &[_, _, _, flags, _, _, inode] = words.as_slice() else { return None };
    let listens = u64::from_str_radix(flags, 16).ok()? & LISTENS != 0;
    listens.then_some((PathBuf::from(format!("/{path}")), inode.parse().ok()?))
}

/// True if the process has a descriptor of that socket, and this user made it: other users can give one any name in a mount namespace of
/// their own.
fn has_socket(pid: u32, inode: u64) -> bool {
    let descriptors = fs::read_dir(format!("/proc/{pid}/fd")).into_iter().flatten().flatten();
    let is_it = |found: fs::Metadata| {
        found.file_type().is_socket() && found.ino() == inode && found.uid() == geteuid().as_raw()
    };
    descriptors.into_iter().any(|entry| fs::metadata(entry.path()).is_ok_and(is_it))
}

fn processes() -> impl Iterator<Item = u32> {
    let entries = fs::read_dir("/proc").into_iter().flatten().flatten();
    entries.filter_map(|entry| entry.file_name().to_str()?.parse().ok())
}

#[cfg(test)]
mod tests {
    use std::os::unix::net::UnixListener;

    use super::*;
    use crate::{Home, HomeError, HomeKind};

    const KIND: HomeKind = HomeKind { prefix: "test@", mode: 0o700, files: &[] };

    #[test]
    fn a_line_names_a_socket_that_listens() {
        let line = |flags: &str, path: &str| format!("0000000000000000: 00000002 00000000 {flags} 0001 01   547{path}");
        assert_eq!(parse(&line("00010000", " /run/a b/control")), Some((PathBuf::from("/run/a b/control"), 547)));
        assert_eq!(parse(&line("00000000", " /run/a")), None, "it is connected");
        assert_eq!(parse(&line("00010000", " @abstract")), None);
        assert_eq!(parse(&line("00010000", "")), None);
        assert_eq!(parse("Num       RefCount Protocol Flags    Type St Inode Path"), None);
    }

    #[test]
    fn an_instance_whose_folder_was_removed_is_named_and_no_second_one_begins() {
        let root = tempfile::tempdir().unwrap();
        let home = Home::new(KIND, root.path(), "a");
        let held = home.hold().unwrap();
        let listener = UnixListener::bind(home.socket()).unwrap();
        assert!(lost(&home.socket()).is_none() && lost_folders(root.path()).is_empty(), "its file is there");
        fs::remove_dir_all(home.folder()).unwrap();
        let me = std::process::id();
        let is_me = |error: &ServeError| matches!(error, ServeError::Lost { pid, .. } if *pid == me);
        assert!(lost(&home.socket()).is_some_and(|error| is_me(&error)));
        assert_eq!(lost_folders(root.path()), [home.folder().to_owned()]);
        assert!(matches!(home.hold(), Err(HomeError::Serve(error)) if is_me(&error)));
        assert!(!home.folder().exists(), "nothing is left of the try");
        // One that ends just now is waited for.
        let next = thread::scope(|scope| {
            let next = scope.spawn(|| home.hold());
            thread::sleep(5 * RETRY_PERIOD);
            drop((listener, held));
            next.join().unwrap()
        });
        assert!(next.is_ok() && lost(&home.socket()).is_none());
    }

    #[test]
    fn an_instance_that_has_renamed_its_folder_is_not_lost() {
        let root = tempfile::tempdir().unwrap();
        let [before, now] = ["before", "now"].map(|key| Home::new(KIND, root.path(), key));
        let _held = before.hold().unwrap();
        let _listener = UnixListener::bind(before.socket()).unwrap();
        fs::rename(before.folder(), now.folder()).unwrap();
        assert!(lost(&before.socket()).is_none() && lost_folders(root.path()).is_empty());
        before.hold().unwrap();
    }
}
