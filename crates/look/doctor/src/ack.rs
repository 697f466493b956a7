//! Findings that somebody has seen and accepts: counts begin there, and findings are set aside.

use std::{
    collections::BTreeMap,
    fs, io,
    path::{Path, PathBuf},
    time::{Duration, SystemTime, UNIX_EPOCH},
};

use host::{
    Host, Root,
    file::{self, FileError},
};
use model::doctor::{Finding, Verdict};
use serde::{Deserialize, Serialize};

/// Files whose counts begin anew.
const COUNTED: [&str; 9] = [
    "proc/sys/net/ipv4/ip_forward",
    "proc/sys/net/netfilter/nf_conntrack_count",
    "proc/sys/net/netfilter/nf_conntrack_max",
    "proc/net/stat/nf_conntrack",
    "proc/net/netstat",
    "proc/net/snmp",
    "proc/net/softnet_stat",
    "proc/stat",
    "proc/sys/net/ipv4/conf/all/rp_filter",
];
/// Counts of each interface.
const OF_NIC: [&str; 3] = ["rx_missed_errors", "rx_fifo_errors", "rx_packets"];

/// A finding that was set aside.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Accepted {
    pub check: String,
    /// Object of the finding, when that is not the whole machine.
    pub object: Option<String>,
    /// Gravity then: should it become graver, the finding is shown again.
    pub verdict: Verdict,
}

/// Acknowledged findings of a network namespace.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct Acknowledged {
    /// The boot whose counts these are.
    pub boot_id: String,
    /// Time of the counts, in seconds since the epoch.
    pub counted_unix_s: u64,
    /// The counts, as their files read then.
    pub counts: BTreeMap<String, String>,
    /// The findings that were set aside.
    pub accepted: Vec<Accepted>,
}

/// The file of acknowledgements cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum AckError {
    #[error("cannot read {}: {source}", path.display())]
    Read { path: PathBuf, source: io::Error },
    #[error("{} is damaged ({why}); `evenkeel doctor --ack none` removes it", path.display())]
    Damaged { path: PathBuf, why: String },
    #[error(transparent)]
    Write(#[from] FileError),
    #[error("cannot {operation} {}: {source}; run as root, or name a folder of your own with --state", path.display())]
    Folder { operation: &'static str, path: PathBuf, source: io::Error },
}

model::classified!(AckError: Lacking);

/// The file in this state folder for the network namespace of this process.
pub fn path(state: &Path) -> PathBuf {
    let netns = host::namespace::own().unwrap_or(0);
    state.join(format!("doctor-ack-{netns}.json"))
}

fn boot_id() -> String {
    Root::live().read_trimmed("proc/sys/kernel/random/boot_id").unwrap_or_default()
}

impl Acknowledged {
    /// The content of the file; none when there is no such file.
    ///
    /// # Errors
    /// When it is there and cannot be read, or is damaged.
    pub fn load(path: &Path) -> Result<Option<Self>, AckError> {
        let text = match fs::read_to_string(path) {
            Ok(text) => text,
            Err(e) if matches!(e.kind(), io::ErrorKind::NotFound | io::ErrorKind::NotADirectory) => return Ok(None),
            Err(source) => return Err(AckError::Read { path: path.to_owned(), source }),
        };
        let damaged = |e: serde_json::Error| AckError::Damaged { path: path.to_owned(), why: e.to_string() };
        serde_json::from_str(&text).map(Some).map_err(damaged)
    }

    pub fn save(&self, path: &Path) -> Result<(), AckError> {
        if let Some(folder) = path.parent() {
            let failed = |source| AckError::Folder { operation: "make", path: folder.to_owned(), source };
            fs::create_dir_all(folder).map_err(failed)?;
        }
        let damaged = |e: serde_json::Error| AckError::Damaged { path: path.to_owned(), why: e.to_string() };
        let text = serde_json::to_string_pretty(self).map_err(damaged)?;
        Ok(file::replace(path, (text + "\n").as_bytes(), 0o600)?)
    }

    /// Removes the file; whether there was one.
    pub fn forget(path: &Path) -> Result<bool, AckError> {
        match fs::remove_file(path) {
            Ok(()) => Ok(true),
            Err(e) if e.kind() == io::ErrorKind::NotFound => Ok(false),
            Err(source) => Err(AckError::Folder { operation: "remove", path: path.to_owned(), source }),
        }
    }

    /// Lets all counts begin now.
    pub fn count_from_now(&mut self, root: &Root, host: &Host) {
        let of_nics = host.nics.iter().flat_map(|nic| OF_NIC.map(|name| statistic(&nic.name, name)));
        let paths = COUNTED.iter().map(|path| (*path).to_owned()).chain(of_nics);
        self.counts = paths.filter_map(|path| Some((path.clone(), root.read(&path).ok()?))).collect();
        self.boot_id = boot_id();
        self.counted_unix_s = now();
    }

    /// Sets these findings aside, besides those that are already.
    pub fn accept<'a>(&mut self, findings: impl Iterator<Item = &'a Finding>) {
        for finding in findings {
            self.accepted.retain(|a| a.check != finding.check || a.object != finding.object);
            let (check, object, verdict) = (finding.check.clone(), finding.object.clone(), finding.verdict);
            self.accepted.push(Accepted { check, object, verdict });
        }
    }

    /// Start of the counts; none when they are of another boot.
    pub(crate) fn since(&self) -> Option<Since> {
        (!self.counts.is_empty() && self.boot_id == boot_id())
            .then(|| Since { root: Root::from_files(self.counts.clone()), unix_s: self.counted_unix_s })
    }
}

/// The file of a counter of an interface.
pub(crate) fn statistic(nic: &str, name: &str) -> String {
    format!("sys/class/net/{nic}/statistics/{name}")
}

fn now() -> u64 {
    SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |d| d.as_secs())
}

/// Counts as they stood when they were acknowledged.
#[derive(Debug)]
pub(crate) struct Since {
    pub(crate) root: Root,
    unix_s: u64,
}

impl Since {
    /// `since counts began anew 3 min ago (--ack or --fix)`
    pub(crate) fn text(&self) -> String {
        let ago = Duration::from_secs(now().saturating_sub(self.unix_s)).as_secs();
        let ago = match ago {
            0..120 => format!("{ago} s"),
            120..7200 => format!("{} min", ago / 60),
            7200..172_800 => format!("{} h", ago / 3600),
            _ => format!("{} days", ago / 86_400),
        };
        format!("since counts began anew {ago} ago (--ack or --fix)")
    }
}
