//! Names that carry the process that made something for a run: `ek-<pid>-<start time>-<lab>-<role>`. What a process that died left behind is recognised by
//! them.

use std::{
    fs, io,
    os::unix::fs::{MetadataExt, PermissionsExt},
    path::{Path, PathBuf},
};

/// Goes with all that is in it when it is dropped.
pub use tempfile::TempDir as TemporaryFolder;

const PREFIX: &str = "ek-";

/// The name of what this process makes for `role` in the run `tag`.
pub fn name(tag: &str, role: &str) -> String {
    let pid = std::process::id();
    format!("{PREFIX}{pid}-{}-{tag}-{role}", start_time(pid).unwrap_or(0))
}

/// Makes a folder for temporary files of such a name, for this user alone. It is new.
pub fn temporary_folder(tag: &str, role: &str) -> io::Result<TemporaryFolder> {
    let mut folder = tempfile::Builder::new();
    folder.prefix(&format!("{}-", name(tag, role))).permissions(fs::Permissions::from_mode(0o700)).tempdir()
}

/// True for such a name whose process is no longer alive.
pub fn is_dead(name: &str) -> bool {
    owner(name).is_some_and(|(pid, started)| is_gone(pid, started))
}

/// Files and folders of this user in the folder for temporary files whose process is no longer alive.
pub fn dead_files() -> Vec<PathBuf> {
    let entries = fs::read_dir(std::env::temp_dir()).into_iter().flatten().flatten();
    let me = nix::unistd::geteuid().as_raw();
    // Everybody writes there: another user's file of such a name is not ours to remove.
    let is_ours = |path: &PathBuf| path.symlink_metadata().is_ok_and(|meta| meta.uid() == me);
    let dead = entries.filter(|entry| entry.file_name().to_str().is_some_and(is_dead));
    let mut dead: Vec<PathBuf> = dead.map(|entry| entry.path()).filter(is_ours).collect();
    dead.sort();
    dead
}

/// Removes them; returns their paths.
///
/// # Errors
/// The first that cannot be removed.
pub fn clear_dead_files() -> io::Result<Vec<PathBuf>> {
    let dead = dead_files();
    for path in &dead {
        // A link is removed itself, never what it leads to.
        match path.symlink_metadata()?.is_dir() {
            true => fs::remove_dir_all(path)?,
            false => fs::remove_file(path)?,
        }
    }
    Ok(dead)
}

/// The pid and start time in a name of ours.
fn owner(name: &str) -> Option<(u32, u64)> {
    let mut parts = name.strip_prefix(PREFIX)?.splitn(3, '-');
    Some((parts.next()?.parse().ok()?, parts.next()?.parse().ok()?))
}

/// True if the process of that pid and start time is known to have ended. What cannot be read, for want of descriptors say, may
/// be alive.
fn is_gone(pid: u32, started: u64) -> bool {
    match stat(pid) {
        Ok(stat) => start_in(&stat).is_some_and(|now| now != started),
        // ESRCH: it ended between opening and reading.
        Err(e) => e.kind() == io::ErrorKind::NotFound || e.raw_os_error() == Some(nix::libc::ESRCH),
    }
}

/// The start of a process, in clock ticks since boot.
fn start_time(pid: u32) -> Option<u64> {
    start_in(&stat(pid).ok()?)
}

fn stat(pid: u32) -> io::Result<String> {
    fs::read_to_string(Path::new("/proc").join(pid.to_string()).join("stat"))
}

/// Field 22 of /proc/pid/stat (proc(5)).
fn start_in(stat: &str) -> Option<u64> {
    // The command in parentheses may hold spaces: count fields behind the last parenthesis.
    stat.rsplit_once(')')?.1.split_ascii_whitespace().nth(19)?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_temporary_folder_is_for_us_alone() {
        let folder = temporary_folder("test", "mode").unwrap();
        assert_eq!(folder.path().metadata().unwrap().mode() & 0o777, 0o700);
        assert!(folder.path().file_name().unwrap().to_str().is_some_and(|name| owner(name).is_some()));
        let path = folder.path().to_owned();
        fs::write(path.join("x"), "").unwrap();
        drop(folder);
        assert!(!path.exists());
    }

    #[test]
    fn a_name_shows_its_owner() {
        let me = std::process::id();
        let (pid, started) = owner(&name("demo", "server")).unwrap();
        assert_eq!(pid, me);
        assert_eq!(Some(started), start_time(me));
        assert_eq!(owner("ek-but-not-ours"), None);
        assert_eq!(owner("blue"), None);
        assert!(!is_gone(me, started) && is_gone(me, started + 1), "a pid that was used again is another process");
        // Above PID_MAX_LIMIT, so that there is none.
        assert!(is_gone(1 << 23, 1));
    }
}
