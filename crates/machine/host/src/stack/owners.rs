//! The process that holds a socket: a walk over `/proc/PID/fd`.

use std::{
    collections::{BTreeMap, BTreeSet},
    fs,
    io::Read,
    os::unix::ffi::OsStrExt,
};

use super::sockets::{Owner, Sockets};

/// Remembers who holds which socket, so that the walk is made only when a new one turns up.
#[derive(Debug, Default)]
pub(super) struct Owners {
    /// By inode; none for a socket whose process was not found (another container's, or gone).
    known: BTreeMap<u32, Option<Owner>>,
}

impl Owners {
    /// Enters the owners of the sockets that matter.
    pub(super) fn name(&mut self, sockets: &mut Sockets) {
        let wanted: BTreeSet<u32> = sockets.values().filter(|s| s.inode != 0 && s.matters()).map(|s| s.inode).collect();
        let missing: BTreeSet<u32> = wanted.iter().copied().filter(|inode| !self.known.contains_key(inode)).collect();
        if !missing.is_empty() {
            let mut found = walk(&missing);
            self.known.extend(missing.into_iter().map(|inode| (inode, found.remove(&inode))));
        }
        self.known.retain(|inode, _| wanted.contains(inode));
        for socket in sockets.values_mut() {
            socket.owner = self.known.get(&socket.inode).cloned().flatten();
        }
    }
}

/// The processes that hold these inodes. Those of other users stay unknown without privilege.
fn walk(wanted: &BTreeSet<u32>) -> BTreeMap<u32, Owner> {
    let mut found: BTreeMap<u32, Owner> = BTreeMap::new();
    let Ok(folder) = fs::read_dir("/proc") else { return found };
    for entry in folder.flatten() {
        let Some(pid) = entry.file_name().to_str().and_then(|name| name.parse::<u32>().ok()) else { continue };
        let Ok(files) = fs::read_dir(entry.path().join("fd")) else { continue };
        let mut comm = None;
        for file in files.flatten() {
            let Ok(target) = fs::read_link(file.path()) else { continue };
            let Some(inode) = socket_inode(target.as_os_str().as_bytes()) else { continue };
            if !wanted.contains(&inode) || found.get(&inode).is_some_and(|owner| owner.pid <= pid) {
                continue;
            }
            let comm = comm.get_or_insert_with(|| comm_of(pid)).clone();
            found.insert(inode, Owner { pid, comm });
        }
    }
    found
}

/// `socket:[1234]`
fn socket_inode(target: &[u8]) -> Option<u32> {
    std::str::from_utf8(target).ok()?.strip_prefix("socket:[")?.strip_suffix(']')?.parse().ok()
}

fn comm_of(pid: u32) -> String {
    let mut text = String::new();
    let read = fs::File::open(format!("/proc/{pid}/comm")).and_then(|mut file| file.read_to_string(&mut text));
    read.map_or_else(|_| String::new(), |_| text.trim().to_owned())
}

#[cfg(test)]
mod tests {
    use std::{net::UdpSocket, os::fd::AsRawFd};

    use super::*;

    #[test]
    fn our_own_socket_is_ours() {
        let socket = UdpSocket::bind("127.0.0.1:0").expect("a port");
        let link = fs::read_link(format!("/proc/self/fd/{}", socket.as_raw_fd())).expect("a descriptor");
        let inode = socket_inode(link.as_os_str().as_bytes()).expect("a socket");
        let found = walk(&[inode].into());
        let comm = fs::read_to_string("/proc/self/comm").expect("/proc is mounted");
        assert_eq!(found[&inode], Owner { pid: std::process::id(), comm: comm.trim().to_owned() });
        assert_eq!(socket_inode(b"pipe:[5]"), None);
    }
}
