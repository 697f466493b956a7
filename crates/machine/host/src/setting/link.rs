//! Settings of a link beside the picture: duplex, pause frames, queue length, the bridge it belongs to.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};
use sys::ethtool::Ethtool;

use super::{Missing, live_or_saved, number, text};
use crate::{read::Answers, root::Root};

/// Flow control by pause frames (`ethtool -a`).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct Pause {
    /// Negotiated with the peer.
    pub autoneg: bool,
    /// Pause frames of the peer are obeyed.
    pub rx: bool,
    /// Pause frames are sent when the ring runs full.
    pub tx: bool,
}

/// `full` or `half`; none when the driver does not say.
pub fn duplex(root: &Root, nic: &str) -> Result<Option<String>, Missing> {
    Ok(text(root, &format!("sys/class/net/{nic}/duplex"))?.filter(|word| word != "unknown"))
}

/// The length that a new queueing discipline takes over, in packets.
pub fn tx_queue_len(root: &Root, nic: &str) -> Result<Option<u64>, Missing> {
    number(root, &format!("sys/class/net/{nic}/tx_queue_len"))
}

/// The ports of a bridge; none for an interface that is no bridge.
pub fn bridge_ports(root: &Root, nic: &str) -> Result<Option<Vec<String>>, Missing> {
    match root.list(&format!("sys/class/net/{nic}/brif")) {
        Ok(ports) => Ok(Some(ports)),
        Err(e) if e.is_absent() => super::kept(root).map(|()| None),
        Err(e) => Err(e.into()),
    }
}

/// Flow control of the link; none when the driver has none.
pub fn pause(root: &Root, nic: &str) -> Result<Option<Pause>, Missing> {
    live_or_saved(root, &format!("pause-{nic}"), || {
        let failed = |e: sys::ethtool::EthtoolError| Missing(e.to_string());
        let answer = Ethtool::open().map_err(failed)?.pause(nic).map_err(failed)?;
        Ok(answer.map(|p| Pause { autoneg: p.autoneg, rx: p.rx, tx: p.tx }))
    })
}

/// The driver's own counters (`ethtool -S`); empty when it has none.
pub fn statistics(root: &Root, nic: &str) -> Result<BTreeMap<String, u64>, Missing> {
    if !root.is_live() {
        let saved = root.read_opt(&format!("ethtool/{nic}.json"))?.unwrap_or_default();
        return Ok(serde_json::from_str::<Answers>(&saved).map(|answers| answers.statistics).unwrap_or_default());
    }
    let failed = |e: sys::ethtool::EthtoolError| Missing(e.to_string());
    let mut ethtool = Ethtool::open().map_err(failed)?;
    let Some(names) = ethtool.stat_names(nic).map_err(failed)? else { return Ok(BTreeMap::new()) };
    let mut values = Vec::new();
    ethtool.stat_values(nic, &mut values).map_err(failed)?;
    Ok(names.into_iter().zip(values).collect())
}

/// Pause frames received and sent, by the names that drivers give them; none when the driver counts none.
pub fn pause_frames(statistics: &BTreeMap<String, u64>) -> Option<(u64, u64)> {
    const RECEIVED: [&str; 7] = [
        "rx_flow_control_xoff",
        "rx_pause",
        "rx_pause_ctrl_phy",
        "rx_pause_frames",
        "port.link_xoff_rx",
        "link_xoff_rx.nic",
        "rx_xoff_frames",
    ];
    const SENT: [&str; 7] = [
        "tx_flow_control_xoff",
        "tx_pause",
        "tx_pause_ctrl_phy",
        "tx_pause_frames",
        "port.link_xoff_tx",
        "link_xoff_tx.nic",
        "tx_xoff_frames",
    ];
    let first = |names: [&str; 7]| names.iter().find_map(|name| statistics.get(*name).copied());
    match (first(RECEIVED), first(SENT)) {
        (None, None) => None,
        (received, sent) => Some((received.unwrap_or(0), sent.unwrap_or(0))),
    }
}

pub(super) fn record(root: &Root, nic: &str) {
    let _ = duplex(root, nic);
    let _ = tx_queue_len(root, nic);
    let _ = bridge_ports(root, nic);
    let _ = pause(root, nic);
}

#[cfg(test)]
mod tests {
    use super::{super::tests::machine, *};

    #[test]
    fn links_of_a_copy() {
        let root = machine(&[
            ("sys/class/net/eth0/duplex", "half\n"),
            ("sys/class/net/eth0/tx_queue_len", "100000\n"),
            ("sys/class/net/br0/brif/eth0/port_no", "0x1\n"),
            ("setting/pause-eth0.json", r#"{"autoneg":true,"rx":true,"tx":false}"#),
            ("ethtool/eth0.json", r#"{"statistics":{"rx_pause_ctrl_phy":7,"tx_bytes":1}}"#),
        ]);
        assert_eq!(duplex(&root, "eth0").unwrap().as_deref(), Some("half"));
        assert_eq!(tx_queue_len(&root, "eth0"), Ok(Some(100_000)));
        assert_eq!(bridge_ports(&root, "br0").unwrap().unwrap(), ["eth0"]);
        assert_eq!(bridge_ports(&root, "eth0"), Ok(None));
        assert_eq!(pause(&root, "eth0"), Ok(Some(Pause { autoneg: true, rx: true, tx: false })));
        assert!(pause(&root, "eth1").unwrap_err().0.contains("setting/pause-eth1.json"));
        assert_eq!(pause_frames(&statistics(&root, "eth0").unwrap()), Some((7, 0)));
        assert_eq!(pause_frames(&BTreeMap::new()), None);
    }
}
