//! Saves what the readers need as a plain tar: `proc/`, `sys/` with its links, `ethtool/*.json`.
//!
//! The readers run over a recording [`Root`], so that a copy never misses a file that they use.

use std::{
    collections::BTreeMap,
    io::{self, Write},
    path::Path,
    time::{SystemTime, UNIX_EPOCH},
};

use crate::{
    file::{self, AtomicFile, FileError},
    picture::Host,
    read::{Answers, HostError},
    root::{Node, Root, Tree},
};

/// The contents of a copy: 1 for the picture, 2 for the doctor's checks as well. A copy without a number is of 1.
pub const FORMAT: u32 = 2;
const FORMAT_FILE: &str = "evenkeel/format";

/// A note for the user of a copy: that it was saved by a later version of this program, or is damaged.
pub fn later(root: &Root) -> Vec<String> {
    let earlier = |text: &String| text.parse::<u32>().is_ok_and(|format| format < FORMAT);
    match root.read_opt(FORMAT_FILE).ok().flatten() {
        None => Vec::new(),
        Some(text) if earlier(&text) => Vec::new(),
        Some(_) => warnings(root),
    }
}

/// A note for the user of a copy: that it was saved by an earlier or a later version of this program.
pub fn warnings(root: &Root) -> Vec<String> {
    if root.is_live() {
        return Vec::new();
    }
    let text = root.read_opt(FORMAT_FILE).ok().flatten();
    match text.as_deref().map(str::parse::<u32>) {
        Some(Ok(FORMAT)) => Vec::new(),
        Some(Ok(later)) if later > FORMAT => vec![format!(
            "this copy was saved by a later evenkeel (format {later}, this one knows {FORMAT}): what it holds beyond that is \
             not looked at"
        )],
        Some(Err(_)) => vec![format!("{FORMAT_FILE} of this copy holds no number: it may be damaged")],
        Some(Ok(_)) | None => vec![
            "this copy was saved by an earlier evenkeel and lacks files that the checks read: they say `unknown`; save it \
             again with this version"
                .to_owned(),
        ],
    }
}

/// Counters and settings that are no part of the picture, but belong into a copy.
const BESIDES: [&str; 13] = [
    "proc/stat",
    "proc/softirqs",
    "proc/net/softnet_stat",
    "proc/net/dev",
    "proc/irq/default_smp_affinity",
    "proc/sys/net/core/rps_sock_flow_entries",
    "proc/sys/net/core/netdev_max_backlog",
    "proc/sys/net/core/netdev_budget",
    "proc/sys/net/core/netdev_budget_usecs",
    "proc/sys/net/core/dev_weight",
    "proc/sys/net/core/rmem_max",
    "proc/sys/net/core/busy_poll",
    "proc/sys/net/core/busy_read",
];

/// Files that the doctor's checks read besides; those of every interface are in [`OF_NIC`].
const FOR_DOCTOR: [&str; 17] = [
    "proc/net/snmp",
    "proc/net/snmp6",
    "proc/net/netstat",
    "proc/sys/net/core/rmem_default",
    "proc/sys/net/core/wmem_max",
    "proc/sys/net/core/wmem_default",
    "proc/sys/net/core/default_qdisc",
    "proc/sys/net/ipv4/ip_forward",
    "proc/sys/net/ipv4/tcp_rmem",
    "proc/sys/net/ipv4/tcp_wmem",
    "proc/sys/net/ipv6/conf/all/forwarding",
    "proc/sys/net/netfilter/nf_conntrack_acct",
    "proc/sys/net/netfilter/nf_conntrack_timestamp",
    "proc/sys/net/bridge/bridge-nf-call-iptables",
    "proc/sys/kernel/sched_schedstats",
    "proc/sys/kernel/task_delayacct",
    "proc/sys/kernel/numa_balancing",
];

/// Files of an interface that the doctor's checks read.
const OF_NIC: [&str; 4] = ["gro_flush_timeout", "napi_defer_hard_irqs", "tx_queue_len", "brport/port_no"];

/// A failure while a copy is saved.
#[derive(Debug, thiserror::Error)]
pub enum SnapshotError {
    #[error(transparent)]
    Host(#[from] HostError),
    #[error(transparent)]
    Write(#[from] FileError),
}

model::classified!(SnapshotError; within: Host Write);

/// A copy of what the readers need, in memory.
#[derive(Debug, Clone)]
pub struct Snapshot {
    tree: Tree,
    /// Unread sources, with the reason.
    pub unreadable: BTreeMap<String, String>,
    mtime: u64,
}

impl Snapshot {
    /// Reads the live machine.
    ///
    /// # Errors
    /// When it cannot be read at all; what is merely forbidden is in [`Snapshot::unreadable`].
    pub fn take() -> Result<Self, SnapshotError> {
        let root = Root::recording();
        let host = Host::read(&root)?;
        for rel in BESIDES.iter().chain(&FOR_DOCTOR) {
            let _ = root.read(rel); // absent on some kernels; what is forbidden is recorded
        }
        for nic in &host.nics {
            for name in OF_NIC {
                let _ = root.read(&format!("sys/class/net/{}/{name}", nic.name));
            }
            let folder = format!("sys/class/net/{}/statistics", nic.name);
            for name in root.list(&folder).unwrap_or_default() {
                let _ = root.read(&format!("{folder}/{name}"));
            }
        }
        crate::setting::record(&root, &host);
        root.note(FORMAT_FILE, &format!("{FORMAT}\n"));
        let recording = root.recorded().unwrap_or_default();
        let mtime = SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |d| d.as_secs());
        Ok(Self { tree: without_keys(recording.tree()), unreadable: recording.unreadable, mtime })
    }

    /// A copy made of this tree; every file bears the beginning of the epoch as its time.
    pub fn of(tree: Tree) -> Self {
        Self { tree, unreadable: BTreeMap::new(), mtime: 0 }
    }

    pub fn tree(&self) -> &Tree {
        &self.tree
    }

    pub fn files(&self) -> usize {
        self.tree.iter().filter(|(_, node)| matches!(node, Node::File(_))).count()
    }

    /// Replaces what tells whose machine it is: the hostname, the MAC addresses (each by one of its own, wherever it
    /// occurs, in interface names as well) and the names of control groups.
    #[must_use]
    pub fn anonymized(self) -> Self {
        let macs = self.replacements();
        let replace = |text: &str| macs.iter().fold(text.to_owned(), |text, (old, new)| text.replace(old, new));
        let tree = self
            .tree
            .iter()
            .map(|(path, node)| {
                let node = match node {
                    Node::File(_) if path == "proc/sys/kernel/hostname" => Node::File("host\n".to_owned()),
                    Node::File(text) if path == "setting/cpu-limits.json" => {
                        Node::File(crate::setting::cgroup::anonymous(text))
                    }
                    Node::File(text) if path.starts_with("ethtool/") => Node::File(replace(&without_key(text))),
                    Node::File(text) => Node::File(replace(text)),
                    Node::Link(target) => Node::Link(replace(target)),
                    Node::Folder => Node::Folder,
                };
                (replace(path), node)
            })
            .collect();
        Self { tree, ..self }
    }

    /// Each MAC address with its replacement, with colons and as it occurs in names such as `enx0a1b2c3d4e5f`.
    fn replacements(&self) -> Vec<(String, String)> {
        let mut macs: Vec<&str> = self
            .tree
            .iter()
            .filter(|(path, _)| path.ends_with("/address") && path.contains("/net/"))
            .filter_map(|(_, node)| if let Node::File(text) = node { Some(text.trim()) } else { None })
            .filter(|mac| mac.len() == 17 && *mac != "00:00:00:00:00:00" && *mac != "ff:ff:ff:ff:ff:ff")
            .collect();
        macs.sort_unstable();
        macs.dedup();
        macs.iter()
            .zip(1u16..)
            .flat_map(|(&old, n)| {
                let new = format!("02:00:00:00:{:02x}:{:02x}", n >> 8, n & 0xff);
                [(old.replace(':', ""), new.replace(':', "")), (old.to_owned(), new)]
            })
            .collect()
    }

    pub fn write(&self, out: impl Write) -> io::Result<()> {
        let mut tar = tar::Builder::new(out);
        for (path, node) in self.tree.iter() {
            let mut header = tar::Header::new_gnu();
            header.set_mtime(self.mtime);
            header.set_mode(0o644);
            header.set_size(0);
            match node {
                Node::File(text) => {
                    header.set_size(text.len() as u64);
                    tar.append_data(&mut header, path, text.as_bytes())?;
                }
                Node::Link(target) => {
                    header.set_entry_type(tar::EntryType::Symlink);
                    tar.append_link(&mut header, path, target)?;
                }
                Node::Folder => {
                    header.set_entry_type(tar::EntryType::Directory);
                    header.set_mode(0o755);
                    tar.append_data(&mut header, format!("{path}/"), io::empty())?;
                }
            }
        }
        tar.into_inner()?.flush()
    }

    /// Writes the tar to a file, whole or not at all, that this user alone may read. Something that is no plain file (a pipe, a
    /// device) is written to as it is. Says how many bytes the tar has: heads and padding are most of it.
    ///
    /// # Errors
    /// When the file or its folder cannot be written; nothing is left behind then.
    pub fn save(&self, path: &Path) -> Result<u64, SnapshotError> {
        let out = AtomicFile::open(path, file::PRIVATE)?;
        let mut tar = Vec::new();
        self.write(&mut tar).map_err(|source| FileError::Io { path: path.to_owned(), source })?;
        out.write(&tar)?;
        Ok(tar.len() as u64)
    }
}

/// The tree without the keys of receive-side scaling: who knows them can send all packets to one queue.
fn without_keys(tree: &Tree) -> Tree {
    let without = |path: &str, node: &Node| match node {
        Node::File(text) if path.starts_with("ethtool/") => Node::File(without_key(text)),
        other => other.clone(),
    };
    tree.iter().map(|(path, node)| (path.to_owned(), without(path, node))).collect()
}

/// The answers with a key of the same length that is no secret; one that spreads no flows stays, as the doctor looks for it.
fn without_key(text: &str) -> String {
    let Ok(mut answers) = serde_json::from_str::<Answers>(text) else { return text.to_owned() };
    if let Some(rss) = &mut answers.rss {
        let (first, len) = (rss.key.first().copied(), rss.key.len());
        let spreads = rss.key.iter().any(|&byte| Some(byte) != first);
        let symmetric = len >= 4 && rss.key.chunks_exact(2).all(|pair| pair == &rss.key[..2]);
        if spreads {
            rss.key = (0..len).map(|i| if symmetric { [0x6d, 0x5a][i % 2] } else { i as u8 }).collect();
        }
    }
    serde_json::to_string_pretty(&answers).map_or_else(|_| text.to_owned(), |json| json + "\n")
}

#[cfg(test)]
mod tests {
    use std::fs;

    use model::{Classified, ErrorClass};

    use super::*;

    fn sample() -> Snapshot {
        let key = r#"{"rss":{"indirection":[0],"key":[200,201],"function":"toeplitz"}}"#;
        let files = [
            ("proc/sys/kernel/hostname", "secret\n"),
            ("sys/devices/x/net/enx0a1b2c3d4e5f/address", "0a:1b:2c:3d:4e:5f\n"),
            ("sys/devices/virtual/net/lo/address", "00:00:00:00:00:00\n"),
            ("ethtool/enx0a1b2c3d4e5f.json", key),
        ];
        let mut tree: Tree =
            files.into_iter().map(|(path, text)| (path.to_owned(), Node::File(text.to_owned()))).collect();
        tree.insert("sys/class/net/enx0a1b2c3d4e5f", Node::Link("../../devices/x/net/enx0a1b2c3d4e5f".into()));
        tree.insert("sys/empty", Node::Folder);
        Snapshot::of(tree)
    }

    #[test]
    fn what_is_written_is_read_again() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("machine.tar");
        sample().save(&file).unwrap();
        let root = Root::open(&file).unwrap();
        assert_eq!(root.read("sys/class/net/enx0a1b2c3d4e5f/address").unwrap(), "0a:1b:2c:3d:4e:5f\n");
        assert_eq!(root.list("sys/empty").unwrap().len(), 0);
        assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 1, "the file beside it is gone");
    }

    #[test]
    fn a_copy_is_for_its_user_alone_and_holds_no_key() {
        use std::os::unix::fs::PermissionsExt;
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("machine.tar");
        let sample = sample();
        Snapshot { tree: without_keys(sample.tree()), ..sample }.save(&file).unwrap();
        assert_eq!(fs::metadata(&file).unwrap().permissions().mode() & 0o777, 0o600);
        let bytes = fs::read(&file).unwrap();
        assert!(!String::from_utf8_lossy(&bytes).contains("201"));
        let key = |text: &str| serde_json::from_str::<Answers>(&without_key(text)).unwrap().rss.unwrap().key;
        let of = |key: &str| format!(r#"{{"rss":{{"indirection":[0],"key":{key},"function":"toeplitz"}}}}"#);
        assert_eq!(key(&of("[0,0,0,0]")), [0; 4], "a key that spreads nothing is what the doctor looks for");
        assert_eq!(key(&of("[1,2,1,2]")), [0x6d, 0x5a, 0x6d, 0x5a], "one of both directions stays one");
    }

    #[test]
    fn anonymizing_is_consistent() {
        let anonymous = sample().anonymized();
        let mut out = Vec::new();
        anonymous.write(&mut out).unwrap();
        let text = String::from_utf8_lossy(&out);
        assert!(
            !text.contains("secret") && !text.contains("0a:1b") && !text.contains("0a1b2c") && !text.contains("201")
        );
        let root = Root::from_tree(anonymous.tree().clone());
        assert_eq!(root.read_trimmed("sys/class/net/enx020000000001/address").unwrap(), "02:00:00:00:00:01");
        assert_eq!(root.read_trimmed("proc/sys/kernel/hostname").unwrap(), "host");
    }

    #[test]
    fn unwritable_places_are_reported() {
        let error = sample().save(Path::new("/ek-missing/machine.tar")).unwrap_err();
        assert!(error.to_string().contains("the folder does not exist"), "{error}");
        assert_eq!(error.class(), ErrorClass::Usage);
        let error = sample().save(Path::new("/dev/full")).unwrap_err();
        assert!(error.to_string().contains("make room"), "{error}");
        assert_eq!(error.class(), ErrorClass::Lacking);
        assert!(matches!(sample().save(Path::new("/tmp")), Err(SnapshotError::Write { .. })));
        sample().save(Path::new("/dev/null")).unwrap();
    }
}
