//! The owner of a namespace, whose pid and start time are in its name.

use std::{fs, io, path::Path};

use crate::{LabError, netns};

const PREFIX: &str = "ek-";

/// The name of the namespace for `role` in the lab `tag` of this process.
pub(crate) fn name(tag: &str, role: &str) -> String {
    let pid = std::process::id();
    format!("{PREFIX}{pid}-{}-{tag}-{role}", start_time(pid).unwrap_or(0))
}

/// A name of at most 15 characters for an interface of this process.
pub(crate) fn interface(label: &str) -> String {
    let mut pid = std::process::id();
    let mut digits = Vec::new();
    while pid > 0 || digits.is_empty() {
        digits.push(char::from_digit(pid % 36, 36).unwrap_or('0'));
        pid /= 36;
    }
    format!("ek{}{label}", digits.iter().rev().collect::<String>())
}

/// The namespaces of this program whose owner is no longer alive.
pub fn dead() -> Result<Vec<String>, LabError> {
    let entries = match fs::read_dir(netns::FOLDER) {
        Ok(entries) => entries,
        Err(e) if e.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
        Err(source) => return Err(LabError::Namespace { what: "list", name: netns::FOLDER.into(), source }),
    };
    let names = entries.flatten().filter_map(|e| e.file_name().into_string().ok());
    let mut dead: Vec<String> = names.filter(|name| is_dead(name)).collect();
    dead.sort();
    Ok(dead)
}

/// Removes every namespace of this program whose owner is no longer alive, with the interfaces in it; returns their names.
///
/// # Errors
/// The first namespace that cannot be removed.
pub fn clear_dead() -> Result<Vec<String>, LabError> {
    let dead = dead()?;
    dead.iter().try_for_each(|name| netns::remove(name))?;
    Ok(dead)
}

/// True for a name of ours whose owner is no longer alive.
pub(crate) fn is_dead(name: &str) -> bool {
    owner(name).is_some_and(|(pid, started)| is_gone(pid, started))
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
    fn a_name_tells_its_owner() {
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
