//! What only system calls tell about an interface: asked on the live machine, kept as `ethtool/<name>.json` in a copy.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};
use sys::ethtool::{Ethtool, EthtoolError};

use crate::{
    netdev::NapiEntry,
    picture::{Channels, Coalescing, Feature, Rings, Rss},
    root::Root,
};

/// The answers about one interface.
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
    /// The driver's own counters (`ethtool -S`); kept in copies only.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub statistics: BTreeMap<String, u64>,
}

/// Where the file of an interface lies in a copy.
fn path(nic: &str) -> String {
    format!("ethtool/{nic}.json")
}

/// Asks about interfaces of the live machine, or looks up what was saved.
pub(super) struct Asker {
    live: Option<(Option<Ethtool>, Option<Vec<NapiEntry>>)>,
}

impl Asker {
    /// A machine whose kernel refuses sockets to this process still has a picture, of files only.
    pub(super) fn new(root: &Root) -> Self {
        let live = root.is_live().then(|| {
            let napis = crate::netdev::Netdev::open().ok().flatten().and_then(|mut netdev| netdev.napis());
            (Ethtool::open().ok(), napis)
        });
        Self { live }
    }

    /// The answers about the interface `nic` with that index.
    pub(super) fn ask(&mut self, root: &Root, nic: &str, index: u32) -> Answers {
        let Some((ethtool, napis)) = &mut self.live else {
            let saved = root.read(&path(nic)).ok();
            return saved.and_then(|text| serde_json::from_str(&text).ok()).unwrap_or_default();
        };
        // An interface that went away in between has no answers.
        let mut answers = ethtool.as_mut().and_then(|e| asked(e, nic).ok()).unwrap_or_default();
        answers.napis = napis.as_ref().map(|all| all.iter().filter(|napi| napi.ifindex == index).cloned().collect());
        if let Some(statistics) = root.recorded().and(ethtool.as_mut()).and_then(|e| statistics(e, nic)) {
            answers.statistics = statistics;
        }
        if let Ok(text) = serde_json::to_string_pretty(&answers) {
            root.note(&path(nic), &(text + "\n"));
        }
        answers
    }
}

fn asked(ethtool: &mut Ethtool, nic: &str) -> Result<Answers, EthtoolError> {
    // A driver that fails one question may well answer the next; only a missing interface ends it.
    fn soft<T>(answer: Result<Option<T>, EthtoolError>) -> Result<Option<T>, EthtoolError> {
        match answer {
            Err(EthtoolError::Refused { .. }) => Ok(None),
            other => other,
        }
    }
    let driver = soft(ethtool.driver(nic))?;
    let rings = soft(ethtool.rings(nic))?;
    let channels = soft(ethtool.channels(nic))?;
    let coalesce = soft(ethtool.coalesce(nic))?;
    let features = soft(ethtool.features(nic))?.unwrap_or_default();
    let rss = soft(ethtool.rss(nic))?;
    Ok(Answers {
        driver: driver.map(|d| d.driver).filter(|d| !d.is_empty()),
        rings: rings.map(|r| Rings { rx: r.rx, rx_max: r.rx_max, tx: r.tx, tx_max: r.tx_max }),
        channels: channels.map(|c| Channels {
            rx: c.rx,
            rx_max: c.rx_max,
            tx: c.tx,
            tx_max: c.tx_max,
            combined: c.combined,
            combined_max: c.combined_max,
        }),
        coalescing: coalesce.map(|c| Coalescing {
            adaptive_rx: Some(c.adaptive_rx),
            adaptive_tx: Some(c.adaptive_tx),
            rx_usecs: Some(c.rx_usecs),
            rx_frames: Some(c.rx_frames),
            tx_usecs: Some(c.tx_usecs),
            tx_frames: Some(c.tx_frames),
        }),
        features: features.into_iter().map(|f| (f.name, Feature { on: f.on, fixed: f.fixed })).collect(),
        rss: rss.map(|r| Rss { indirection: r.indirection, key: r.key, function: r.function }),
        napis: None,
        statistics: BTreeMap::new(),
    })
}

fn statistics(ethtool: &mut Ethtool, nic: &str) -> Option<BTreeMap<String, u64>> {
    let mut values = Vec::new();
    let names = ethtool.stat_names(nic).ok()??;
    ethtool.stat_values(nic, &mut values).ok()?;
    Some(names.into_iter().zip(values).collect())
}
