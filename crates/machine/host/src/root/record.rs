//! The contents of a recording root, laid out so that they can be served again.

use std::{
    collections::{BTreeMap, BTreeSet},
    fs, io,
    path::{Component, Path, PathBuf},
};

use super::{Node, Tree};

/// Everything a [`Root::recording`](super::Root::recording) has served, with its links as sysfs has them, and what it
/// could not read. What did not exist is left out and so does not exist in the copy either.
#[derive(Debug, Clone, Default)]
pub struct Recording {
    tree: Tree,
    seen: BTreeSet<String>,
    /// Files that are there but could not be read, with the reason.
    pub unreadable: BTreeMap<String, String>,
}

impl Recording {
    /// The tree, ready to be served again.
    pub fn tree(&self) -> &Tree {
        &self.tree
    }

    pub(super) fn read(&mut self, rel: &str, result: &io::Result<String>) {
        match result {
            Ok(text) => {
                let path = self.resolve(rel);
                // The first answer stays: one picture shows one moment.
                if !matches!(self.tree.get(&path), Some(Node::File(kept)) if !kept.is_empty()) {
                    self.tree.insert(path, Node::File(text.clone()));
                }
            }
            Err(e) if e.kind() == io::ErrorKind::PermissionDenied => {
                self.unreadable.insert(format!("/{rel}"), e.to_string());
            }
            Err(_) => {}
        }
    }

    /// Keeps the names: folders and links as they are, plain files empty until somebody reads them.
    pub(super) fn list(&mut self, rel: &str, result: &io::Result<Vec<(String, fs::FileType)>>) {
        let Ok(names) = result else { return };
        let folder = self.resolve(rel);
        for (name, kind) in names {
            let path = format!("{folder}/{name}");
            if self.tree.get(&path).is_some() {
                continue;
            }
            if kind.is_symlink() {
                self.link(&path);
            } else {
                let node = if kind.is_dir() { Node::Folder } else { Node::File(String::new()) };
                self.tree.insert(path, node);
            }
        }
        if names.is_empty() {
            self.tree.insert(folder, Node::Folder);
        }
    }

    pub(super) fn link(&mut self, rel: &str) {
        let (parent, name) = rel.rsplit_once('/').unwrap_or(("", rel));
        let path = format!("{}/{name}", self.resolve(parent));
        if let Ok(target) = fs::read_link(Path::new("/").join(&path)) {
            self.tree.insert(path, Node::Link(target.to_string_lossy().into_owned()));
        }
    }

    pub(super) fn note(&mut self, rel: &str, text: &str) {
        self.tree.insert(rel, Node::File(text.to_owned()));
    }

    /// The path without links, each link on the way being kept. Only sysfs is resolved: the links of procfs
    /// (`/proc/net`, `/proc/self`) point to whoever asks.
    fn resolve(&mut self, rel: &str) -> String {
        if !rel.starts_with("sys/") {
            return rel.to_owned();
        }
        let mut todo: Vec<String> = rel.split('/').rev().map(str::to_owned).collect();
        let mut path = PathBuf::new();
        while let Some(part) = todo.pop() {
            if part == ".." {
                path.pop();
                continue;
            }
            path.push(&part);
            let text = path.to_string_lossy().into_owned();
            if self.seen.contains(&text) {
                if let Some(Node::Link(target)) = self.tree.get(&text) {
                    todo.extend(parts(Path::new(target)));
                    path.pop();
                }
                continue;
            }
            if let Ok(target) = fs::read_link(Path::new("/").join(&path)) {
                self.tree.insert(text.clone(), Node::Link(target.to_string_lossy().into_owned()));
                todo.extend(parts(&target));
                path.pop();
            }
            self.seen.insert(text);
        }
        path.to_string_lossy().into_owned()
    }
}

/// The parts of a relative link target, last first.
fn parts(target: &Path) -> Vec<String> {
    target
        .components()
        .rev()
        .filter(|part| matches!(part, Component::Normal(_) | Component::ParentDir))
        .map(|part| part.as_os_str().to_string_lossy().into_owned())
        .collect()
}
