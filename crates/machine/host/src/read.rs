//! Reads the picture of the machine from a [`Root`].

mod answers;
mod cpus;
mod device;
mod irqs;
mod nic_irqs;
mod nics;

use model::{CpuSet, visible::visible_word};

pub use answers::Answers;
pub use irqs::parse_interrupts;
use sys::affinity::is_kernel_thread;

use crate::{
    picture::{FastPath, Host},
    root::{Root, RootError},
};

/// A failure while the machine is read.
#[derive(Debug, thiserror::Error)]
pub enum HostError {
    #[error("cannot learn the machine: {0}")]
    Root(#[from] RootError),
    #[error("{path} holds `{}`, which is not {expected}; if this is a saved copy, save it again", visible_word(.text))]
    Garbled { path: String, text: String, expected: &'static str },
}

model::classified!(HostError: Usage; within: Root);

impl Host {
    /// Reads the whole picture. What an old kernel, a driver or a missing privilege does not tell is left out of the
    /// picture; only the lists of CPUs, of interfaces and of interrupts must be there.
    pub fn read(root: &Root) -> Result<Self, HostError> {
        // Any user can give that name to a process.
        let is_napi = |pid, comm: &str| comm.starts_with("napi/") && (!root.is_live() || is_kernel_thread(pid));
        let processes = root.processes(|pid, comm| comm == "irqbalance" || is_napi(pid, comm));
        let irqbalance_pid = processes.iter().find(|(_, comm)| comm == "irqbalance").map(|(pid, _)| *pid);
        let cpus = cpus::read(root)?;
        let (irqs, garbled_irqs) = irqs::read(root)?;
        Ok(Self {
            hostname: soft(root, "proc/sys/kernel/hostname").unwrap_or_default(),
            kernel: soft(root, "proc/sys/kernel/osrelease").unwrap_or_default(),
            cpus,
            nics: nics::read(root, &irqs, &processes)?,
            irqs,
            irqbalance_pid,
            distances: cpus::distances(root),
            garbled_irqs,
            fast_path: fast_path(root),
        })
    }
}

/// The name of the process that runs a router.
const ROUTER: &str = "evenkeel";

/// Status of the router of this network namespace, while its process is there; of a saved machine, the saved one.
fn fast_path(root: &Root) -> Option<FastPath> {
    let folders = match root.is_live() {
        true => vec![format!("route@{}", crate::namespace::own().ok()?)],
        false => root.list("run/evenkeel").unwrap_or_default(),
    };
    let file = |folder: &String| soft(root, &format!("run/evenkeel/{folder}/{}", FastPath::FILE));
    let content = folders.iter().filter(|folder| folder.starts_with("route@")).find_map(file)?;
    let path = FastPath::parse(&content)?;
    (soft(root, &format!("proc/{}/comm", path.pid))?.trim_end() == ROUTER).then_some(path)
}

/// The text of a file that may be missing, unreadable or without an answer.
fn soft(root: &Root, rel: &str) -> Option<String> {
    root.read_opt(rel).ok().flatten()
}

/// A number in a file that may be missing, or hold something else.
fn soft_number<T: std::str::FromStr>(root: &Root, rel: &str) -> Option<T> {
    soft(root, rel)?.parse().ok()
}

/// A list of CPUs in a file that may be missing.
fn soft_list(root: &Root, rel: &str) -> Option<CpuSet> {
    CpuSet::parse_list(&soft(root, rel)?).ok()
}

/// A list of CPUs in a file that must be there.
fn cpu_list(root: &Root, rel: &str) -> Result<CpuSet, HostError> {
    let text = root.read_trimmed(rel)?;
    CpuSet::parse_list(&text).map_err(|_| HostError::Garbled {
        path: rel.to_owned(),
        text: text.chars().take(40).collect(),
        expected: "a list of CPUs such as 0-7",
    })
}
