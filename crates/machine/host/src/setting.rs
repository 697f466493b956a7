//! Readings beside the picture: what a check of the machine asks and the picture does not hold.
//!
//! Every reader is a function of a [`Root`]. What only a system call or another program tells is asked on the live machine and
//! kept under `setting/` in a copy, so that the same check gives the same answer there.

pub mod cgroup;
pub mod clock;
pub mod conntrack;
pub mod guest;
pub mod header_split;
pub mod kernel;
pub mod link;
pub mod listen;
pub mod napi;
pub mod neighbour;
pub mod nft;
pub mod owners;
pub mod packet_sockets;
pub mod pcie;
pub mod power;
pub mod qdisc;
pub mod sysctl;
pub mod xdp;

use serde::{Serialize, de::DeserializeOwned};

use crate::{
    picture::Host,
    root::{Root, RootError},
};

/// The reason why a reading is missing.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct Missing(pub String);

impl From<RootError> for Missing {
    fn from(error: RootError) -> Self {
        Self(error.to_string())
    }
}

model::classified!(Missing: Lacking);

/// A file that each copy with these readings holds, whatever the machine is.
const MARK: &str = "proc/sys/net/ipv4/ip_forward";

/// True if the absence of a file says that the machine lacks the thing: always on the live machine, and in copies that hold
/// these readings at all.
///
/// # Errors
/// In a copy that was saved without them.
pub fn kept(root: &Root) -> Result<(), Missing> {
    if root.is_live() || root.exists(MARK) || root.exists("evenkeel/format") {
        return Ok(());
    }
    Err(Missing("this copy holds no settings of the network stack; save it again with `evenkeel snapshot`".to_owned()))
}

/// The text of a file without white space around it; none when the machine lacks it.
pub fn text(root: &Root, rel: &str) -> Result<Option<String>, Missing> {
    match root.read_opt(rel)? {
        Some(text) => Ok(Some(text)),
        None => kept(root).map(|()| None),
    }
}

/// The number in a file; none when the machine lacks it.
///
/// # Errors
/// As [`text`], and when it holds no such number.
pub fn number<T: std::str::FromStr>(root: &Root, rel: &str) -> Result<Option<T>, Missing> {
    let Some(text) = text(root, rel)? else { return Ok(None) };
    let garbled =
        || Missing(format!("{rel} holds `{}`, which is no number", text.chars().take(40).collect::<String>()));
    text.parse().map(Some).map_err(|_| garbled())
}

/// The answer of a system call or a program: asked on the live machine (and kept when it is being recorded), else looked up in
/// the copy under `setting/`.
fn live_or_saved<T: Serialize + DeserializeOwned>(
    root: &Root,
    name: &str,
    ask: impl FnOnce() -> Result<T, Missing>,
) -> Result<T, Missing> {
    let path = format!("setting/{name}.json");
    if root.is_live() {
        let answer = ask()?;
        if let Ok(text) = serde_json::to_string_pretty(&answer) {
            root.note(&path, &(text + "\n"));
        }
        return Ok(answer);
    }
    let text =
        root.read(&path).map_err(|_| Missing(format!("the saved copy holds no {path}; save it again as root")))?;
    serde_json::from_str(&text).map_err(|e| Missing(format!("{path} in the saved copy is garbled: {e}")))
}

/// True if there is a route to everywhere (IPv4).
///
/// # Errors
/// When the routes cannot be read, or a copy does not tell. (It keeps the answer and not the routes: they hold addresses.)
pub fn has_default_route(root: &Root) -> Result<bool, Missing> {
    live_or_saved(root, "default-route", || {
        let text = Root::live().read("proc/net/route")?;
        let to = |line: &str| line.split_whitespace().nth(1) == Some("00000000");
        Ok(text.lines().skip(1).any(to))
    })
}

/// Reads everything once, so that a recording holds it.
pub(crate) fn record(root: &Root, host: &Host) {
    let _ = text(root, MARK);
    let _ = has_default_route(root);
    clock::record(root);
    conntrack::record(root);
    guest::record(root);
    kernel::record(root);
    listen::record(root);
    neighbour::record(root);
    power::record(root, host);
    sysctl::record(root, host);
    let _ = cgroup::limits(root);
    let _ = qdisc::read(root);
    let _ = nft::ruleset(root);
    let _ = packet_sockets::read(root);
    let _ = xdp::read(root);
    for nic in &host.nics {
        let _ = header_split::read(root, &nic.name);
        link::record(root, &nic.name);
        let _ = pcie::read(root, &nic.name);
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use super::*;

    /// A machine of these files, with the mark that its copy is complete.
    pub(super) fn machine(files: &[(&str, &str)]) -> Root {
        let mut all: BTreeMap<String, String> =
            files.iter().map(|(path, text)| ((*path).to_owned(), (*text).to_owned())).collect();
        all.insert(MARK.to_owned(), "0\n".to_owned());
        Root::from_files(all)
    }

    #[test]
    fn absent_means_lacking_only_in_a_complete_copy() {
        let old = Root::from_files([("proc/stat".to_owned(), String::new())].into());
        assert!(text(&old, "proc/sys/net/ipv4/tcp_sack").unwrap_err().to_string().contains("save it again"));
        let new = machine(&[("proc/sys/net/ipv4/tcp_rmem", "x y")]);
        assert_eq!(text(&new, "proc/sys/net/ipv4/tcp_sack"), Ok(None));
        assert!(number::<u32>(&new, "proc/sys/net/ipv4/tcp_rmem").unwrap_err().0.contains("no number"));
    }
}
