//! Requirements on the machine for pinning a shield.

use std::{fs, path::Path};

use nix::{
    mount::{MsFlags, mount, umount},
    sys::statfs::{BPF_FS_MAGIC, statfs},
};
use sys::lock_file::{LockFile, Until};

use crate::error::ShieldError;

/// The mount namespaces of this thread and of the first process.
const NAMESPACES: [&str; 2] = ["/proc/thread-self/ns/mnt", "/proc/1/ns/mnt"];
/// The kernel's first mount namespace has this number since 6.18 (enum init_ns_ino in linux/nsfs.h), and none else has it in any kernel. It tells
/// where process 1 may not be looked at, as inside a sandbox.
const FIRST: &str = "mnt:[4026531832]";
/// Offsets of the clocks of this process's time namespace (time_namespaces(7)).
const CLOCKS: &str = "/proc/self/timens_offsets";

/// Sees that there is a BPF file system at `root`. Where there is none and it will last as long as the machine, it is mounted; then what was done, and how
/// to undo it, is given.
pub(super) fn bpf_file_system(root: &Path) -> Result<Option<String>, ShieldError> {
    mounted(root, NAMESPACES.map(Path::new))
}

fn mounted(root: &Path, namespaces: [&Path; 2]) -> Result<Option<String>, ShieldError> {
    if is_bpf(root) {
        return Ok(None);
    }
    let at = root.display();
    let lacking = |why: String| Err(ShieldError::NoBpfFileSystem { path: root.to_owned(), why });
    let this = fs::read_link(namespaces[0]);
    let is_first = this.as_ref().is_ok_and(|this| this.as_os_str() == FIRST);
    match (&this, fs::read_link(namespaces[1])) {
        (Ok(this), Ok(first)) if *this == first => {}
        _ if is_first => {}
        // Of another mount namespace, or nobody can tell whose: a mount may be gone with it, and the shield's maps.
        _ => {
            return lacking(format!(
                ". Inside `ip netns exec`, use `nsenter --net=/run/netns/NAME evenkeel shield run …` instead; otherwise: mount -t bpf -o mode=700 bpf {at}"
            ));
        }
    }
    // Two that mount at once would hide the one's pins behind the other's mount.
    if !root.is_dir() {
        return lacking(format!(
            ", and no folder to mount one at: mount -t sysfs sysfs /sys && mount -t bpf -o mode=700 bpf {at}"
        ));
    }
    let _lock = match LockFile::take("bpffs", Until::Stopped) {
        Ok(lock_file) => lock_file,
        Err(error) => return lacking(format!(", and mounting one failed to get its lock: {error}")),
    };
    if is_bpf(root) {
        return Ok(None);
    }
    if fs::read_dir(root).is_ok_and(|mut entries| entries.next().is_some()) {
        return lacking(format!(
            ", and a mount would hide other files there: move them away, then mount -t bpf -o mode=700 bpf {at}"
        ));
    }
    let flags = MsFlags::MS_NOSUID | MsFlags::MS_NODEV | MsFlags::MS_NOEXEC | MsFlags::MS_RELATIME;
    if let Err(error) = mount(Some("bpf"), root, Some("bpf"), flags, Some("mode=700")) {
        return lacking(format!(
            ", and mounting one was refused ({}): mount -t bpf -o mode=700 bpf {at}",
            error.desc()
        ));
    }
    Ok(Some(format!(
        "mounted a BPF file system at {at}, where the shield is kept; undo it with `umount {at}` when no shield is left"
    )))
}

/// Takes away again what [`bpf_file_system`] mounted, if nobody has pinned anything there.
pub(super) fn unmount(root: &Path) -> std::io::Result<()> {
    // The kernel's own: maps.debug and progs.debug.
    let pinned = |entry: std::io::Result<fs::DirEntry>| {
        entry.is_ok_and(|e| !e.file_name().to_string_lossy().ends_with(".debug"))
    };
    if fs::read_dir(root)?.any(pinned) {
        return Ok(());
    }
    Ok(umount(root)?)
}

fn is_bpf(root: &Path) -> bool {
    statfs(root).is_ok_and(|fs| fs.filesystem_type() == BPF_FS_MAGIC)
}

/// Refuses a time namespace whose monotonic clock is not the kernel's: the program would take this process for dead, or for alive when it is not.
pub(super) fn same_clock() -> Result<(), ShieldError> {
    // Kernels without time namespaces have no such file.
    match monotonic_offset(&fs::read_to_string(CLOCKS).unwrap_or_default()) {
        None => Ok(()),
        Some(offset) => Err(ShieldError::Lacking(format!(
            "the monotonic clock of this time namespace is off by {offset} s from the machine's, which the shield in the kernel uses: start it outside of the namespace"
        ))),
    }
}

/// The offset of CLOCK_MONOTONIC, `SECONDS NANOSECONDS` as the file has it; none: there is none.
fn monotonic_offset(text: &str) -> Option<String> {
    let words = text.lines().map(|line| line.split_whitespace().collect::<Vec<_>>());
    let found = words.into_iter().find(|words| words.first() == Some(&"monotonic"))?;
    let [_, seconds, nanoseconds] = found[..] else { return None };
    (seconds != "0" || nanoseconds != "0").then(|| format!("{seconds}.{nanoseconds:0>9}"))
}

#[cfg(test)]
mod tests {
    use std::thread;

    use nix::sched::{CloneFlags, unshare};

    use super::*;

    #[test]
    fn an_offset_of_the_monotonic_clock_is_found() {
        assert_eq!(monotonic_offset("monotonic           0         0\nboottime            0         0\n"), None);
        assert_eq!(monotonic_offset("boottime 7 0\nmonotonic -3 5\n").as_deref(), Some("-3.000000005"));
        assert_eq!(monotonic_offset(""), None);
    }

    /// In a mount namespace of its own, where nothing that is mounted reaches the machine.
    fn apart(test: impl FnOnce(&Path) + Send + 'static) {
        if !nix::unistd::geteuid().is_root() {
            assert!(std::env::var_os("CI").is_none(), "mounting needs root, and CI must have it");
            eprintln!("skipped: mounting needs root");
            return;
        }
        let folder = tempfile::tempdir().unwrap();
        let root = folder.path().to_owned();
        let body = move || {
            unshare(CloneFlags::CLONE_NEWNS).unwrap();
            let none = None::<&str>;
            mount(none, "/", none, MsFlags::MS_REC | MsFlags::MS_PRIVATE, none).unwrap();
            test(&root);
        };
        thread::spawn(body).join().unwrap();
    }

    const OWN: [&str; 2] = ["/proc/thread-self/ns/mnt", "/proc/thread-self/ns/mnt"];

    #[test]
    fn a_missing_file_system_is_mounted_once_and_reported() {
        apart(|root| {
            let message = mounted(root, OWN.map(Path::new)).unwrap().unwrap();
            assert!(message.contains(&format!("`umount {}`", root.display())), "the way back: {message}");
            assert!(is_bpf(root));
            assert_eq!(mounted(root, OWN.map(Path::new)).unwrap(), None, "it is there");
            nix::mount::umount(root).unwrap();
            assert!(!is_bpf(root), "one mount");
        });
    }

    #[test]
    fn what_would_not_last_or_hide_files_is_not_mounted() {
        apart(|root| {
            let refused = |root: &Path, namespaces: [&str; 2]| {
                let error = mounted(root, namespaces.map(Path::new)).unwrap_err();
                assert!(matches!(&error, ShieldError::NoBpfFileSystem { path, .. } if path == root), "{error}");
                assert!(error.to_string().contains("mount -t bpf -o mode=700 bpf"), "the way out: {error}");
            };
            refused(root, ["/proc/thread-self/ns/mnt", "/proc/self/ns/mnt"]);
            refused(root, ["/proc/thread-self/ns/mnt", "/proc/1/ns/none"]);
            fs::write(root.join("file"), "").unwrap();
            refused(root, OWN);
            assert!(!is_bpf(root));
            refused(&root.join("none"), OWN);
        });
    }
}
