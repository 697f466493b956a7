//! Answers about an interface that only system calls give: asked on the live machine, kept as `ethtool/<name>.json` in a copy.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};
use sys::ethtool::{Ethtool, EthtoolError};

use super::HostError;
use crate::{
    netdev::{NapiEntry, Netdev},
    picture::{Channels, Coalescing, Feature, Rings, Rss},
    root::Root,
};

#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct Answers {
    /// The driver (`ethtool -i`).
    #[serde(skip_serializing_if = "Option::is_none")]
    pub driver: Option<String>,
    /// Ring sizes (`ethtool -g`).
    #[serde(skip_serializing_if = "Option::is_none")]
    pub rings: Option<Rings>,
    /// Channel counts (`ethtool -l`).
    #[serde(skip_serializing_if = "Option::is_none")]
    pub channels: Option<Channels>,
    /// Interrupt coalescing (`ethtool -c`).
    #[serde(skip_serializing_if = "Option::is_none")]
    pub coalescing: Option<Coalescing>,
    /// Offloads (`ethtool -k`), by the kernel's names.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub features: BTreeMap<String, Feature>,
    /// Receive-side scaling (`ethtool -x`).
    #[serde(skip_serializing_if = "Option::is_none")]
    pub rss: Option<Rss>,
    /// NAPI instances (netlink family `netdev`); none when the kernel does not list them.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub napis: Option<Vec<NapiEntry>>,
    /// Questions that the kernel or the driver failed to answer, and why.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub failed: Vec<String>,
    /// The driver's own counters (`ethtool -S`); kept in copies only.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub statistics: BTreeMap<String, u64>,
}

fn path(nic: &str) -> String {
    format!("ethtool/{nic}.json")
}

/// Asks about interfaces of the live machine, or looks up what was saved.
pub(super) struct Asker {
    live: Option<Live>,
}

struct Live {
    ethtool: Result<Ethtool, String>,
    napis: Result<Option<Vec<NapiEntry>>, String>,
}

impl Asker {
    /// A machine whose kernel refuses sockets to this process still has a picture, of files only; it says so.
    pub(super) fn new(root: &Root) -> Self {
        let live = root.is_live().then(|| Live {
            ethtool: Ethtool::open().map_err(|e| e.to_string()),
            napis: Netdev::open().map(|n| n.and_then(|mut netdev| netdev.napis())).map_err(|e| e.to_string()),
        });
        Self { live }
    }

    /// The answers about the interface `nic` with that index.
    pub(super) fn ask(&mut self, root: &Root, nic: &str, index: u32) -> Result<Answers, HostError> {
        let Some(Live { ethtool, napis }) = &mut self.live else {
            return saved(root, nic);
        };
        let mut answers = match ethtool {
            // An interface that went away in between has no answers.
            Ok(ethtool) => ask_live(ethtool, nic).unwrap_or_default(),
            Err(e) => Answers { failed: vec![e.clone()], ..Answers::default() },
        };
        match napis {
            Ok(all) => {
                let own = |all: &Vec<NapiEntry>| all.iter().filter(|napi| napi.ifindex == index).cloned().collect();
                answers.napis = all.as_ref().map(own);
            }
            Err(e) => answers.failed.push(e.clone()),
        }
        if root.recorded().is_some()
            && let Ok(ethtool) = ethtool
        {
            match statistics(ethtool, nic) {
                Ok(statistics) => answers.statistics = statistics.unwrap_or_default(),
                Err(EthtoolError::NoInterface(_)) => {}
                Err(e) => answers.failed.push(e.to_string()),
            }
        }
        if let Ok(text) = serde_json::to_string_pretty(&answers) {
            root.note(&path(nic), &(text + "\n"));
        }
        Ok(answers)
    }
}

/// The answers in a copy; none when it has no file for the interface.
fn saved(root: &Root, nic: &str) -> Result<Answers, HostError> {
    let path = path(nic);
    let Some(text) = root.read_opt(&path)? else { return Ok(Answers::default()) };
    serde_json::from_str(&text).map_err(|_| HostError::Garbled {
        text: text.chars().take(40).collect(),
        expected: "the answers of ethtool as JSON",
        path,
    })
}

fn ask_live(ethtool: &mut Ethtool, nic: &str) -> Result<Answers, EthtoolError> {
    let mut failed = Vec::new();
    let driver = soft(ethtool.driver(nic), &mut failed)?;
    let rings = soft(ethtool.rings(nic), &mut failed)?;
    let channels = soft(ethtool.channels(nic), &mut failed)?;
    let coalesce = soft(ethtool.coalesce(nic), &mut failed)?;
    let features = soft(ethtool.features(nic), &mut failed)?.unwrap_or_default();
    let rss = soft(ethtool.rss(nic), &mut failed)?;
    Ok(Answers {
        driver: driver.map(|d| d.driver).filter(|d| !d.is_empty()),
        rings,
        channels,
        coalescing: coalesce.map(|c| Coalescing {
            adaptive_rx: Some(c.adaptive_rx),
            adaptive_tx: Some(c.adaptive_tx),
            rx_usecs: Some(c.rx_usecs),
            rx_frames: Some(c.rx_frames),
            tx_usecs: Some(c.tx_usecs),
            tx_frames: Some(c.tx_frames),
        }),
        features: features.into_iter().map(|f| (f.name, Feature { on: f.on, fixed: f.fixed })).collect(),
        rss,
        napis: None,
        failed,
        statistics: BTreeMap::new(),
    })
}

/// A driver that fails one question may well answer the next; only a missing interface ends it.
fn soft<T>(answer: Result<Option<T>, EthtoolError>, failed: &mut Vec<String>) -> Result<Option<T>, EthtoolError> {
    match answer {
        Err(e @ EthtoolError::Refused { .. }) => {
            failed.push(e.to_string());
            Ok(None)
        }
        other => other,
    }
}

fn statistics(ethtool: &mut Ethtool, nic: &str) -> Result<Option<BTreeMap<String, u64>>, EthtoolError> {
    let Some(names) = ethtool.stat_names(nic)? else { return Ok(None) };
    let mut values = Vec::new();
    ethtool.stat_values(nic, &mut values)?;
    Ok(Some(names.into_iter().zip(values).collect()))
}
