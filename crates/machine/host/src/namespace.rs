//! The network namespace that files tell of, compared with that of sockets.
//!
//! /sys shows the namespace that it was mounted in, sockets that of the process. `ip netns exec` mounts /sys anew; `nsenter --net` does
//! not, and whoever reads both mixes up two machines.

use std::{
    collections::{BTreeMap, BTreeSet},
    fs, io,
    os::unix::fs::MetadataExt,
    path::{Path, PathBuf},
    thread,
    time::Duration,
};

use crate::{interface::Wiring, root::Root};

/// An interface may come or go between two readings: so often is looked again.
const ATTEMPTS_MAX: u32 = 4;
const OWN: &str = "/proc/thread-self/ns/net";
const RETRY_PERIOD: Duration = Duration::from_millis(25);

/// /sys is another network namespace's.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error(
    "/sys shows the interfaces of another network namespace than this process is in (`nsenter --net` leaves /sys as it is), so \
     the two would be mixed up; run {}", way(.name)
)]
pub struct OtherNamespace {
    /// The name of the process's own, where `ip netns` has one.
    pub name: Option<String>,
}

fn way(name: &Option<String>) -> String {
    match name {
        Some(name) => format!("`ip netns exec {name} evenkeel …` instead"),
        None => "`unshare --mount sh -c 'mount -t sysfs sysfs /sys && exec evenkeel …'` in that namespace instead"
            .to_owned(),
    }
}

model::classified!(OtherNamespace: Lacking);

/// Holds the interfaces of the live machine's /sys against those that the kernel lists to a socket.
///
/// # Errors
/// When they differ, and go on differing. Where either cannot be read, nothing is said: the readers say it themselves.
pub fn check() -> Result<(), OtherNamespace> {
    for attempt in 0..ATTEMPTS_MAX {
        let (Some(files), Ok(wiring)) = (by_files(&Root::live()), Wiring::read()) else { return Ok(()) };
        // A name that is no text cannot be looked up in /sys: nobody asks for its interface.
        let mut listed = wiring.interfaces();
        listed.retain(|_, (name, _)| !name.contains(char::REPLACEMENT_CHARACTER));
        if files == listed {
            return Ok(());
        }
        if attempt + 1 < ATTEMPTS_MAX {
            thread::sleep(RETRY_PERIOD);
        }
    }
    Err(OtherNamespace { name: own_name() })
}

/// Index, name and address of each interface, as /sys has them.
fn by_files(root: &Root) -> Option<BTreeMap<u32, (String, String)>> {
    let text = |name: &str, file: &str| root.read_opt(&format!("sys/class/net/{name}/{file}")).ok().flatten();
    let one = |name: String| {
        let index = text(&name, "ifindex")?.parse().ok()?;
        let address = text(&name, "address").unwrap_or_default();
        Some((index, (name, address)))
    };
    Some(root.list("sys/class/net").ok()?.into_iter().filter_map(one).collect())
}

/// The number of this thread's network namespace: the inode of its /proc/PID/ns/net.
pub fn own() -> io::Result<u64> {
    Ok(fs::metadata(OWN)?.ino())
}

/// The numbers of all network namespaces that a thread is in or that have a name; none: this process may not look at all threads.
pub fn all() -> Option<BTreeSet<u64>> {
    // A /proc that hides processes of other users (hidepid) hides process 1 or its threads.
    fs::metadata("/proc/1/task").ok()?;
    let entries = |folder: &Path| -> io::Result<Vec<PathBuf>> {
        Ok(fs::read_dir(folder)?.flatten().map(|entry| entry.path()).collect())
    };
    // A thread by namespace, and the threads whose namespace this process may not read.
    let (mut threads, mut denied) = (BTreeMap::new(), Vec::new());
    for process in entries(Path::new("/proc")).ok()? {
        let tasks = match entries(&process.join("task")) {
            Err(error) if error.kind() == io::ErrorKind::PermissionDenied => return None,
            // The entry is no process, or the process has ended.
            tasks => tasks.unwrap_or_default(),
        };
        for thread in tasks {
            match fs::metadata(thread.join("ns/net")) {
                Ok(file) => drop(threads.insert(file.ino(), thread)),
                Err(error) if error.kind() == io::ErrorKind::PermissionDenied => denied.push(thread),
                // The thread has ended.
                Err(_) => {}
            }
        }
    }
    let known: Vec<PathBuf> = threads.values().cloned().collect();
    if !are_in_namespaces_of(&denied, &known) {
        return None;
    }
    let named = entries(Path::new("/run/netns")).unwrap_or_default();
    let named = named.into_iter().filter_map(|path| fs::metadata(path).ok()).map(|file| file.ino());
    Some(threads.into_keys().chain(named).collect())
}

/// True if each of `threads` is in the network namespace of one of `known`. A process that may not read a thread's namespace can still read the
/// inodes of its files in /proc/PID/net, which differ between namespaces.
fn are_in_namespaces_of(threads: &[PathBuf], known: &[PathBuf]) -> bool {
    let files = |thread: &PathBuf| fs::metadata(thread.join("net/dev")).map(|file| file.ino());
    if threads.is_empty() {
        return true;
    }
    let known: BTreeSet<u64> = known.iter().filter_map(|thread| files(thread).ok()).collect();
    threads.iter().all(|thread| match files(thread) {
        Ok(inode) => known.contains(&inode),
        // The thread may have ended.
        Err(error) => error.kind() == io::ErrorKind::NotFound,
    })
}

/// The name that `ip netns` has for this thread's namespace.
pub fn own_name() -> Option<String> {
    name_in(Path::new("/run/netns")).unwrap_or_default()
}

fn name_in(folder: &Path) -> io::Result<Option<String>> {
    let identity = |path: &Path| fs::metadata(path).map(|m| (m.dev(), m.ino()));
    let own = identity(Path::new(OWN))?;
    let is_own = |entry: &fs::DirEntry| identity(&entry.path()).is_ok_and(|other| other == own);
    let found = fs::read_dir(folder)?.flatten().find(is_own);
    Ok(found.map(|entry| entry.file_name().to_string_lossy().into_owned()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_namespace_of_an_unreadable_thread_is_known_by_its_files() {
        let folder = tempfile::tempdir().unwrap();
        let thread = |name: &str| folder.path().join(name);
        for name in ["root", "apart"] {
            fs::create_dir_all(thread(name).join("net")).unwrap();
            fs::write(thread(name).join("net/dev"), "").unwrap();
        }
        // Threads of one namespace have the same files.
        fs::create_dir_all(thread("same").join("net")).unwrap();
        fs::hard_link(thread("root").join("net/dev"), thread("same").join("net/dev")).unwrap();
        let known = [thread("root")];
        assert!(are_in_namespaces_of(&[], &known));
        assert!(are_in_namespaces_of(&[thread("same"), thread("ended")], &known));
        assert!(!are_in_namespaces_of(&[thread("same"), thread("apart")], &known));
    }

    #[test]
    fn root_finds_its_own_namespace_among_all() {
        if nix::unistd::geteuid().is_root() {
            // In some containers root may not read the namespace of process 1.
            assert!(all().is_some_and(|all| all.contains(&own().unwrap())));
        }
    }
}
