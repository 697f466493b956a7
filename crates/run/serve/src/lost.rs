//! Processes that listen at a control socket whose file was removed, so that they cannot be asked.

use std::{
    collections::{BTreeMap, HashMap, HashSet},
    fs::{self, File},
    io::{BufRead, BufReader},
    os::unix::fs::MetadataExt,
    path::{Path, PathBuf},
    process, thread,
    time::{Duration, Instant},
};

use nix::unistd::geteuid;

use crate::{
    error::ServeError,
    home::{LOCK, SOCKET},
};

/// Time that a process may take from the removal of its files to its end.
const END_TIMEOUT: Duration = Duration::from_secs(2);
const RETRY_PERIOD: Duration = Duration::from_millis(20);
/// Flag of a socket that listens, in /proc/net/unix (`__SO_ACCEPTCON`).
const LISTENS: u64 = 1 << 16;
/// The kernel's suffix of the path of a removed file.
const DELETED: &str = " (deleted)";

/// The error that names the process of this user which still listens at `socket` after its file or folder was removed; none: no process, or
/// the file exists.
///
/// The kernel keeps the name of a socket after the removal of its file.
pub fn lost(socket: &Path) -> Option<ServeError> {
    let begun = Instant::now();
    loop {
        if socket.exists() {
            return None;
        }
        let (path, pid) = holders(|path| path == socket).pop_first()?;
        if begun.elapsed() >= END_TIMEOUT {
            return Some(ServeError::Lost { path, pid });
        }
        thread::sleep(RETRY_PERIOD);
    }
}

/// The removed folders below `root` at whose control sockets processes of this user still listen.
pub fn lost_folders(root: &Path) -> Vec<PathBuf> {
    let is_removed = |socket: &Path| {
        let is_control = socket.file_name().is_some_and(|name| name == SOCKET);
        is_control && socket.parent().is_some_and(|folder| folder.parent() == Some(root) && !folder.exists())
    };
    holders(is_removed).into_keys().collect()
}

/// The folders of control sockets for which `is_meant`, each with the process of this user that listens there and has the folder's lock open. A
/// process that has renamed its folder has the lock under the new name and the socket under the old one, and is not among them.
///
/// The table of sockets alone is no proof: any user can make a socket of that name in a mount namespace, or a name that contains a line.
fn holders(is_meant: impl Fn(&Path) -> bool) -> BTreeMap<PathBuf, u32> {
    let mut sockets = HashMap::<PathBuf, HashSet<u64>>::new();
    for (socket, inode) in listening().filter(|(socket, _)| is_meant(socket)) {
        sockets.entry(socket.parent().unwrap_or(&socket).to_owned()).or_default().insert(inode);
    }
    let mut found = BTreeMap::new();
    if sockets.is_empty() {
        return found;
    }
    for pid in processes() {
        let (own, locked) = descriptors(pid);
        let listens = |folder: &PathBuf| sockets.get(folder).is_some_and(|inodes| !inodes.is_disjoint(&own));
        found.extend(locked.into_iter().filter(listens).map(|folder| (folder, pid)));
    }
    found
}

/// The sockets of this network namespace that listen and have a path, with their inodes.
fn listening() -> impl Iterator<Item = (PathBuf, u64)> {
    let table = File::open("/proc/thread-self/net/unix").into_iter();
    let lines = table.flat_map(|table| BufReader::new(table).split(b'\n').map_while(Result::ok));
    lines.filter_map(|line| parse(&String::from_utf8_lossy(&line)))
}

/// Parses a line such as `0000000000000000: 00000002 00000000 00010000 0001 01 12345 /run/x`.
fn parse(line: &str) -> Option<(PathBuf, u64)> {
    let (head, path) = line.split_once(" /")?;
    let words: Vec<&str> = head.split_whitespace().collect();
    let &[_, _, _, flags, _, _, inode] = words.as_slice() else { return None };
    let listens = u64::from_str_radix(flags, 16).ok()? & LISTENS != 0;
    listens.then_some((PathBuf::from(format!("/{path}")), inode.parse().ok()?))
}

/// The inodes of a process's sockets, and the folders whose locks it has open.
fn descriptors(pid: u32) -> (HashSet<u64>, Vec<PathBuf>) {
    let (mut sockets, mut folders) = (HashSet::new(), Vec::new());
    for entry in fs::read_dir(format!("/proc/{pid}/fd")).into_iter().flatten().flatten() {
        let Ok(link) = fs::read_link(entry.path()) else { continue };
        let link = link.to_string_lossy();
        if let Some(inode) = link.strip_prefix("socket:[").and_then(|rest| rest.strip_suffix(']')?.parse().ok()) {
            sockets.insert(inode);
            continue;
        }
        let lock = Path::new(link.strip_suffix(DELETED).unwrap_or(&link));
        if lock.file_name().is_some_and(|name| name == LOCK) && is_lost(pid, &entry.path(), lock) {
            folders.extend(lock.parent().map(Path::to_owned));
        }
    }
    (sockets, folders)
}

/// True if the file of the descriptor is this user's, and not the lock that this process has just taken at that path.
fn is_lost(pid: u32, descriptor: &Path, lock: &Path) -> bool {
    let Ok(open) = fs::metadata(descriptor) else { return false };
    let is_at = || fs::symlink_metadata(lock).is_ok_and(|at| (at.dev(), at.ino()) == (open.dev(), open.ino()));
    open.uid() == geteuid().as_raw() && !(pid == process::id() && is_at())
}

/// The processes of this user.
fn processes() -> impl Iterator<Item = u32> {
    let entries = fs::read_dir("/proc").into_iter().flatten().flatten();
    let own = entries.filter(|entry| entry.metadata().is_ok_and(|process| process.uid() == geteuid().as_raw()));
    own.filter_map(|entry| entry.file_name().to_str()?.parse().ok())
}

#[cfg(test)]
mod tests {
    use std::os::{
        linux::net::SocketAddrExt,
        unix::net::{SocketAddr, UnixListener, UnixStream},
    };

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
        // A process that is ending is waited for.
        let next = thread::scope(|scope| {
            let next = scope.spawn(|| home.hold());
            thread::sleep(5 * RETRY_PERIOD);
            drop((listener, held));
            next.join().unwrap()
        });
        assert!(next.is_ok() && lost(&home.socket()).is_none());
    }

    #[test]
    fn a_line_within_the_name_of_another_socket_is_no_instance() {
        let root = tempfile::tempdir().unwrap();
        let home = Home::new(KIND, root.path(), "a");
        let (any, _other) = UnixStream::pair().unwrap();
        let inode = nix::sys::stat::fstat(&any).unwrap().st_ino;
        let name = format!("x\n0: 2 0 10000 1 1 {inode} {}", home.socket().display());
        let _forged = UnixListener::bind_addr(&SocketAddr::from_abstract_name(name).unwrap()).unwrap();
        assert!(listening().any(|found| found == (home.socket(), inode)), "the kernel writes it as it is");
        assert!(lost(&home.socket()).is_none() && lost_folders(root.path()).is_empty());
        home.hold().unwrap();
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
