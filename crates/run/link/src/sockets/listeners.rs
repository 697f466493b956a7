//! Listeners of this node whose accepted connections can be replaced.

use std::{
    collections::BTreeMap,
    fs,
    io::{self, Write},
    net::SocketAddr,
    os::fd::AsFd,
    path::PathBuf,
};

use host::{
    netlink::Netlink,
    stack::{listener_for, listening},
};

use super::ids::Inode;

/// Lines of the file from which on closed listeners are searched for.
const PRUNE_LINES_MIN: usize = 64;

/// Listeners whose accepted connections can be replaced. A file keeps them, so that a restarted broker
/// knows them.
#[derive(Debug)]
pub(crate) struct Listening {
    file: PathBuf,
    sockets: BTreeMap<Inode, Listener>,
    /// Lines of the file: one for each entry, and each earlier port and user of it.
    lines: usize,
    /// Number of lines at which closed listeners are removed.
    pruned_at: usize,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Listener {
    port: u16,
    uid: u32,
}

impl Listening {
    pub(crate) fn read(file: PathBuf) -> Self {
        let text = fs::read_to_string(&file).unwrap_or_default();
        let one = |line: &str| {
            let mut words = line.split(' ');
            let (inode, port) = (words.next()?.parse().ok()?, words.next()?.parse().ok()?);
            // Older brokers wrote no user.
            let uid = words.next().map_or(Ok(0), str::parse).ok()?;
            Some((Inode(inode), Listener { port, uid }))
        };
        let sockets = text.lines().filter_map(one).collect();
        Self { file, sockets, lines: text.lines().count(), pruned_at: PRUNE_LINES_MIN }
    }

    /// Adds a listener. Each time the lines of the file have doubled, closed listeners are removed and the file is rewritten.
    pub(super) fn add(&mut self, socket: &impl AsFd, port: u16, uid: u32) -> io::Result<()> {
        let inode = Inode::of(socket)?;
        let listener = Listener { port, uid };
        if self.sockets.insert(inode, listener) == Some(listener) {
            return Ok(());
        }
        if self.lines < self.pruned_at {
            self.lines += 1;
            let mut file = fs::OpenOptions::new().create(true).append(true).open(&self.file)?;
            return file.write_all(line(inode, listener).as_bytes());
        }
        if let Ok(there) = listening() {
            self.sockets.retain(|inode, _| there.contains_key(&inode.0));
        }
        self.lines = self.sockets.len();
        self.pruned_at = (2 * self.lines).max(PRUNE_LINES_MIN);
        let lines: String = self.sockets.iter().map(|(&inode, &listener)| line(inode, listener)).collect();
        fs::write(&self.file, lines)
    }

    /// The user of the listener that a connection from this node reaches, as the kernel chooses it; none: it is no listener of link.
    pub(super) fn user(&self, diag: &mut Netlink, to: SocketAddr) -> Option<u32> {
        let inode = listener_for(diag, to, SocketAddr::new(to.ip(), 0)).ok().flatten()?;
        self.sockets.get(&Inode(inode)).filter(|listener| listener.port == to.port()).map(|listener| listener.uid)
    }

    /// True if any listener is still open. `is_here`: in this network namespace, of which the kernel lists listeners. Otherwise the
    /// descriptors of all processes are searched; a process that cannot be read counts as holding one.
    pub(crate) fn is_held(&self, is_here: bool) -> bool {
        if is_here && let Ok(there) = listening() {
            return self.sockets.keys().any(|inode| there.contains_key(&inode.0));
        }
        let is_hidden = |process: &PathBuf| {
            fs::read_dir(process.join("fd")).is_err_and(|error| error.kind() == io::ErrorKind::PermissionDenied)
        };
        let entries = |folder: PathBuf| fs::read_dir(folder).into_iter().flatten().flatten().map(|entry| entry.path());
        let is_one = |fd: PathBuf| {
            let to = fs::read_link(fd).ok()?;
            let inode = Inode(to.to_str()?.strip_prefix("socket:[")?.strip_suffix(']')?.parse().ok()?);
            self.sockets.contains_key(&inode).then_some(())
        };
        !self.sockets.is_empty()
            && entries(PathBuf::from("/proc"))
                .any(|process| is_hidden(&process) || entries(process.join("fd")).any(|fd| is_one(fd).is_some()))
    }
}

fn line(Inode(inode): Inode, Listener { port, uid }: Listener) -> String {
    format!("{inode} {port} {uid}\n")
}

#[cfg(test)]
mod tests {
    use std::net::TcpListener;

    use super::*;

    #[test]
    fn a_listener_that_listens_again_and_again_takes_a_bounded_file() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("listening");
        let mut all = Listening::read(file.clone());
        let (kept, changes) = [(); 2].map(|()| TcpListener::bind("127.0.0.1:0").unwrap()).into();
        all.add(&kept, 7000, 0).unwrap();
        for port in 0..1000 {
            all.add(&changes, port, 1000).unwrap();
            assert!(fs::read_to_string(&file).unwrap().lines().count() <= PRUNE_LINES_MIN, "{port}");
        }
        // A restarted broker knows the same, and goes on where this one was.
        let again = Listening::read(file);
        assert_eq!((&again.sockets, again.lines), (&all.sockets, all.lines));
        let changed = Listener { port: 999, uid: 1000 };
        assert_eq!(again.sockets[&Inode::of(&changes).unwrap()], changed);
        assert_eq!(again.sockets.len(), 2);
    }
}
