//! A tree of files, folders and links in memory.

use std::{
    collections::BTreeMap,
    io::{self, Read},
    path::Path,
};

use super::{MAX_COPY_BYTES, MAX_FILE_BYTES, RootError};

/// Links that may follow each other, as in the kernel.
const LINKS_MAX: u32 = 40;
/// More than the names in any /proc or /sys.
const MAX_NAME_BYTES: u64 = 1 << 16;

#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Node {
    /// A file and its text.
    File(String),
    /// A symbolic link and its target as written, relative to the folder it lies in.
    Link(String),
    /// A folder (only needed for empty ones: a file's folders are implied).
    Folder,
}

/// Files, folders and links by path, without a leading slash.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Tree(BTreeMap<String, Node>);

impl FromIterator<(String, Node)> for Tree {
    fn from_iter<I: IntoIterator<Item = (String, Node)>>(iter: I) -> Self {
        Self(iter.into_iter().collect())
    }
}

impl Tree {
    /// Adds or replaces an entry.
    pub fn insert(&mut self, path: impl Into<String>, node: Node) {
        self.0.insert(path.into(), node);
    }

    /// Every entry by path.
    pub fn iter(&self) -> impl Iterator<Item = (&str, &Node)> {
        self.0.iter().map(|(path, node)| (path.as_str(), node))
    }

    /// The entry at exactly this path: no link is followed.
    pub fn get(&self, path: &str) -> Option<&Node> {
        self.0.get(path)
    }

    pub(super) fn read(&self, rel: &str) -> Option<&str> {
        match self.0.get(&self.resolve(rel)?) {
            Some(Node::File(text)) => Some(text),
            _ => None,
        }
    }

    pub(super) fn link(&self, rel: &str) -> Option<String> {
        let (parent, name) = rel.rsplit_once('/').unwrap_or(("", rel));
        match self.0.get(&join(&self.resolve(parent)?, name)) {
            Some(Node::Link(target)) => Some(target.clone()),
            _ => None,
        }
    }

    pub(super) fn exists(&self, rel: &str) -> bool {
        self.resolve(rel).is_some_and(|path| self.0.contains_key(&path) || self.children(&path).next().is_some())
    }

    pub(super) fn list(&self, rel: &str) -> Option<Vec<String>> {
        let path = self.resolve(rel)?;
        let skip = if path.is_empty() { 0 } else { path.len() + 1 };
        let mut names: Vec<String> = Vec::new();
        for (child, _) in self.children(&path) {
            let name = child[skip..].split('/').next().unwrap_or_default();
            if names.last().is_none_or(|last| last != name) {
                names.push(name.to_owned());
            }
        }
        if names.is_empty() && self.0.get(&path) != Some(&Node::Folder) {
            return None;
        }
        // `a-b` sorts between `a` and `a/c`, so that a name can come up twice.
        names.sort_unstable();
        names.dedup();
        Some(names)
    }

    fn children(&self, path: &str) -> impl Iterator<Item = (&String, &Node)> {
        let prefix = if path.is_empty() { String::new() } else { format!("{path}/") };
        self.0.range(prefix.clone()..).take_while(move |(child, _)| child.starts_with(&prefix))
    }

    /// Follows every link on the way; none when links run in a circle or climb above the root.
    fn resolve(&self, rel: &str) -> Option<String> {
        let mut links = 0;
        let mut todo: Vec<&str> = rel.split('/').rev().collect();
        let mut path = String::with_capacity(rel.len() + 32);
        while let Some(part) = todo.pop() {
            match part {
                "" | "." => {}
                ".." => match path.rfind('/') {
                    Some(slash) => path.truncate(slash),
                    None if path.is_empty() => return None,
                    None => path.clear(),
                },
                name => {
                    let parent = path.len();
                    if parent > 0 {
                        path.push('/');
                    }
                    path.push_str(name);
                    if let Some(Node::Link(target)) = self.0.get(&path) {
                        links += 1;
                        if links > LINKS_MAX {
                            return None;
                        }
                        path.truncate(if target.starts_with('/') { 0 } else { parent });
                        todo.extend(target.split('/').rev());
                    }
                }
            }
        }
        Some(path)
    }
}

fn join(parent: &str, name: &str) -> String {
    if parent.is_empty() { name.to_owned() } else { format!("{parent}/{name}") }
}

/// Reads a plain tar into a tree. Entries other than files, folders and symbolic links are passed over, and so are
/// paths that climb out of the root.
pub(super) fn read_tar(reader: impl Read, path: &Path) -> Result<Tree, RootError> {
    let bad = |e: io::Error| RootError::NotATar { path: path.to_owned(), why: e.to_string() };
    let mut tree = Tree::default();
    let mut total = 0;
    let mut archive = tar::Archive::new(io::BufReader::with_capacity(1 << 16, reader));
    let mut long = LongNames::default();
    // Raw: the entries that only say more of the next one count like all others, before they are read.
    for entry in archive.entries().map_err(bad)?.raw(true) {
        let mut entry = entry.map_err(bad)?;
        let kind = entry.header().entry_type();
        total = entry.size().saturating_add(total);
        if total > MAX_COPY_BYTES {
            return Err(bad(io::Error::other(format!("it claims more than {MAX_COPY_BYTES} bytes"))));
        }
        if long.take(kind, &mut entry).map_err(bad)? {
            continue;
        }
        let LongNames { path: long_path, link: long_link } = std::mem::take(&mut long);
        let raw = long_path.unwrap_or_else(|| String::from_utf8_lossy(&entry.path_bytes()).into_owned());
        let name = raw.trim_start_matches("./").trim_matches('/').to_owned();
        if name.is_empty() || super::check(&name).is_err() {
            continue;
        }
        if kind.is_dir() {
            tree.insert(name, Node::Folder);
        } else if kind.is_symlink() {
            let short = || entry.link_name_bytes().map(|t| String::from_utf8_lossy(&t).into_owned());
            tree.insert(name, Node::Link(long_link.or_else(short).unwrap_or_default()));
        } else if kind.is_file() {
            if entry.size() > MAX_FILE_BYTES {
                return Err(bad(io::Error::other(format!("{name} claims {} bytes", entry.size()))));
            }
            let mut bytes = Vec::new();
            entry.read_to_end(&mut bytes).map_err(bad)?;
            if (bytes.len() as u64) < entry.size() {
                return Err(bad(io::Error::other(format!("{name} is cut off"))));
            }
            tree.insert(name, Node::File(String::from_utf8_lossy(&bytes).into_owned()));
        }
    }
    Ok(tree)
}

/// Long names from the entries before an entry, which do not fit its header (GNU's `L` and `K`, pax's `x`).
#[derive(Default)]
struct LongNames {
    path: Option<String>,
    link: Option<String>,
}

impl LongNames {
    /// Takes over an entry that only says more of the next one; false for any other.
    fn take(&mut self, kind: tar::EntryType, entry: &mut impl Read) -> io::Result<bool> {
        let known = kind.is_gnu_longname() || kind.is_gnu_longlink() || kind.is_pax_local_extensions();
        if !known && !kind.is_pax_global_extensions() {
            return Ok(false);
        }
        let mut bytes = Vec::new();
        entry.take(MAX_NAME_BYTES + 1).read_to_end(&mut bytes)?;
        if bytes.len() as u64 > MAX_NAME_BYTES {
            return Err(io::Error::other(format!("a name has more than {MAX_NAME_BYTES} bytes")));
        }
        let text = |bytes: &[u8]| Some(String::from_utf8_lossy(bytes).trim_end_matches('\0').to_owned());
        if kind.is_gnu_longname() {
            self.path = text(&bytes);
        } else if kind.is_gnu_longlink() {
            self.link = text(&bytes);
        } else if kind.is_pax_local_extensions() {
            for extension in tar::PaxExtensions::new(&bytes) {
                let extension = extension?;
                match extension.key_bytes() {
                    b"path" => self.path = text(extension.value_bytes()),
                    b"linkpath" => self.link = text(extension.value_bytes()),
                    _ => {}
                }
            }
        }
        Ok(true)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn tree() -> Tree {
        [
            ("sys/class/net/eth0", Node::Link("../../devices/pci/net/eth0".into())),
            ("sys/class/net-x", Node::File("between".into())),
            ("sys/devices/pci/net/eth0/mtu", Node::File("1500\n".into())),
            ("sys/devices/pci/net/eth0/device", Node::Link("../..".into())),
            ("sys/devices/pci/numa_node", Node::File("1\n".into())),
            ("sys/circle", Node::Link("circle".into())),
            ("sys/out", Node::Link("../../../etc".into())),
            ("sys/empty", Node::Folder),
        ]
        .map(|(path, node)| (path.to_owned(), node))
        .into_iter()
        .collect()
    }

    /// An entry of a tar, which claims `claims` bytes.
    fn entry(kind: tar::EntryType, name: &str, body: &[u8], claims: u64) -> Vec<u8> {
        let mut header = tar::Header::new_gnu();
        header.set_path(name).unwrap();
        header.set_entry_type(kind);
        header.set_size(claims);
        header.set_cksum();
        let mut out = header.as_bytes().to_vec();
        out.extend(body);
        out.resize(out.len().next_multiple_of(512), 0);
        out
    }

    fn read(bytes: &[u8], zeros: u64) -> Result<Tree, RootError> {
        read_tar(bytes.chain(io::repeat(0).take(zeros)), Path::new("x.tar"))
    }

    #[test]
    fn names_too_long_for_their_header_are_read_in_both_forms() {
        use tar::EntryType;
        let long = format!("sys/{}/file", "a".repeat(150));
        let pax = format!("path={long}2\n");
        let pax = format!("{} {pax}", pax.len() + 4);
        let tar = [
            entry(EntryType::GNULongName, "x", long.as_bytes(), long.len() as u64),
            entry(EntryType::Regular, "short", b"1", 1),
            entry(EntryType::XHeader, "x", pax.as_bytes(), pax.len() as u64),
            entry(EntryType::Regular, "short", b"2", 1),
            entry(EntryType::Regular, "sys/plain", b"3", 1),
        ]
        .concat();
        let tree = read(&tar, 1024).unwrap();
        let values = [long.clone(), format!("{long}2"), "sys/plain".into(), "short".into()]
            .map(|path| tree.read(&path).map(str::to_owned));
        assert_eq!(values, [Some("1".into()), Some("2".into()), Some("3".into()), None]);
    }

    #[test]
    fn entries_that_say_more_of_others_are_limited_too() {
        use tar::EntryType;
        for kind in [EntryType::GNULongName, EntryType::GNULongLink, EntryType::XHeader, EntryType::XGlobalHeader] {
            let tar = entry(kind, "x", b"", 2 << 30);
            assert!(matches!(read(&tar, 2 << 30), Err(RootError::NotATar { .. })), "{kind:?} of 2 GB");
            let tar = entry(kind, "x", b"", 1 << 20);
            assert!(matches!(read(&tar, 1 << 20), Err(RootError::NotATar { .. })), "{kind:?} of 1 MB");
        }
    }

    #[test]
    fn links_are_followed_as_in_sysfs() {
        let tree = tree();
        assert_eq!(tree.read("sys/class/net/eth0/mtu"), Some("1500\n"));
        assert_eq!(tree.read("sys/class/net/eth0/device/numa_node"), Some("1\n"));
        assert_eq!(tree.link("sys/class/net/eth0/device").as_deref(), Some("../.."));
        assert_eq!(tree.list("sys/class").unwrap(), ["net", "net-x"]);
        assert_eq!(tree.list("sys/class/net/eth0").unwrap(), ["device", "mtu"]);
        assert_eq!(tree.list("sys/empty").unwrap(), [""; 0]);
        assert!(tree.exists("sys/class/net/eth0/device/numa_node") && !tree.exists("sys/class/net/eth1"));
    }

    #[test]
    fn circles_and_climbing_are_absent() {
        let tree = tree();
        assert_eq!(tree.read("sys/circle"), None);
        assert_eq!(tree.read("sys/out/passwd"), None);
        assert_eq!(tree.list("sys/out"), None);
    }
}
