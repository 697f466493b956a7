//! Offloads of an interface, or of the other end of a veth, that keep something from a program at XDP: tags beside the frames, and packets that were
//! merged.

use host::interface::{FrameStart, Peer, Wiring};
use sys::ethtool::Ethtool;

use crate::{PortError, keeps_tags};

/// A feature by the kernel's name, and how ethtool(8) calls it for switching it off.
pub type Feature = (&'static str, &'static str);

/// Features that merge frames in a NIC.
pub const LRO: Feature = ("rx-lro", "lro");
/// Features that merge them before a program sees them that does not run in the driver.
pub const MERGING: [Feature; 3] = [LRO, ("rx-gro-hw", "rx-gro-hw"), ("rx-gro", "gro")];
/// Features by which a veth hands over segments that nobody has cut.
pub const UNCUT: [Feature; 5] = [
    ("tx-tcp-segmentation", "tso"),
    ("tx-tcp-ecn-segmentation", "tso"),
    ("tx-tcp-mangleid-segmentation", "tso"),
    ("tx-tcp6-segmentation", "tso"),
    ("tx-udp-segmentation", "tx-udp-segmentation"),
];
/// Features by which it hands over tags beside the frames.
const BESIDE: [Feature; 2] = [("tx-vlan-hw-insert", "txvlan"), ("tx-vlan-stag-hw-insert", "tx-vlan-stag-hw-insert")];

/// The place of VLAN tags when frames come to XDP.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Tags {
    /// In the frames.
    Inside,
    /// Beside the frame, where a program does not see them.
    Beside {
        /// The device that puts them there.
        who: String,
        /// The command that ends it.
        switch: String,
    },
    /// Nobody here can tell: the other end of the veth is in another network namespace.
    Unknown {
        /// The command for there.
        switch: String,
    },
}

/// Returns the place of an interface's tags.
pub fn tags(interface: &str) -> Result<Tags, PortError> {
    Ok(match peer(interface)? {
        None => match keeps_tags("a program at XDP", interface) {
            Ok(()) => Tags::Inside,
            Err(_) => Tags::Beside {
                who: format!("the driver of {interface}"),
                switch: format!("ethtool -K {interface} rxvlan off"),
            },
        },
        Some(Peer::Here(peer)) if on(&peer, &BESIDE)?.is_empty() => Tags::Inside,
        Some(Peer::Here(peer)) => {
            let switch = off(&peer, &BESIDE.map(|(_, switch)| switch));
            Tags::Beside { who: format!("{peer}, the other end of {interface},"), switch }
        }
        Some(Peer::Elsewhere) => Tags::Unknown { switch: off("PEER", &BESIDE.map(|(_, switch)| switch)) },
    })
}

/// The commands that end the merging of frames before generic XDP gets them; none: nothing here merges them.
pub fn unmerge(interface: &str) -> Result<Vec<String>, PortError> {
    let mut commands = Vec::new();
    let mut ask = |name: &str, features: &[Feature]| {
        let found = on(name, features)?;
        if !found.is_empty() {
            commands.push(off(name, &found));
        }
        Ok::<_, PortError>(())
    };
    ask(interface, &MERGING)?;
    if let Some(Peer::Here(peer)) = peer(interface)? {
        ask(&peer, &UNCUT)?;
    }
    Ok(commands)
}

/// Returns those of the features that are on, as ethtool(8) calls them.
pub fn on(interface: &str, wanted: &[Feature]) -> Result<Vec<&'static str>, PortError> {
    let failed =
        |e: sys::ethtool::EthtoolError| PortError::Asking(format!("cannot ask the driver of {interface}: {e}"));
    // Who has no features has none of these on.
    let features = Ethtool::open().map_err(failed)?.features(interface).map_err(failed)?.unwrap_or_default();
    let is_on = |name: &str| features.iter().any(|feature| feature.name == name && feature.on);
    let mut found: Vec<_> = wanted.iter().filter(|(name, _)| is_on(name)).map(|(_, switch)| *switch).collect();
    found.dedup();
    Ok(found)
}

/// The command that switches features off.
pub fn off(interface: &str, switches: &[&str]) -> String {
    let switches: Vec<String> = switches.iter().map(|switch| format!("{switch} off")).collect();
    format!("ethtool -K {interface} {}", switches.join(" "))
}

/// The other end of a veth.
pub fn peer(interface: &str) -> Result<Option<Peer>, PortError> {
    Ok(wiring()?.peer(interface))
}

/// The VLAN devices on an interface.
pub fn vlans(interface: &str) -> Result<Vec<String>, PortError> {
    Ok(wiring()?.vlans(interface).into_iter().map(ToOwned::to_owned).collect())
}

/// True if packets that `interface` receives begin with the IP header, false if with an Ethernet header.
///
/// # Errors
/// The packets begin with neither; the interfaces cannot be listed.
pub fn begins_with_ip(interface: &str) -> Result<bool, PortError> {
    let wiring = wiring()?;
    let (start, kind) = wiring.frame_start(interface).unwrap_or((FrameStart::Ethernet, ""));
    match start {
        FrameStart::Ethernet => Ok(false),
        FrameStart::Ip => Ok(true),
        FrameStart::Other(hardware) => {
            let kind = if kind.is_empty() { String::new() } else { format!(" of kind {kind}") };
            Err(PortError::Asking(format!(
                "XDP programs cannot read the frames of {interface}{kind} (hardware type {hardware}): they read Ethernet, and IP on tun, WireGuard, PPP and \
                 IP-in-IP devices; filter there with nftables (`evenkeel shield plan {interface}`)"
            )))
        }
    }
}

fn wiring() -> Result<Wiring, PortError> {
    Wiring::read().map_err(|e| PortError::Asking(format!("cannot list the interfaces: {e}")))
}

/// Refuses the rule of that name, which is about VLAN tags, where XDP does not see them on `interface`. A sentence where nobody can tell.
///
/// # Errors
/// [`PortError::Asking`], which says how to switch off what takes the tags out; the interface cannot be asked.
pub fn sees_tags(interface: &str, rule: &str) -> Result<Option<String>, PortError> {
    match tags(interface)? {
        Tags::Inside => Ok(None),
        Tags::Beside { who, switch } => Err(PortError::Asking(format!(
            "the rule \"{rule}\" would never apply: it matches VLAN tags, and {who} may take them out of frames before XDP sees them; `{switch}`"
        ))),
        Tags::Unknown { switch } => Ok(Some(format!(
            "the rule \"{rule}\" may never apply: the other end of {interface} must keep VLAN tags in the frames, and cannot be checked from this \
             network namespace. There: `{switch}`"
        ))),
    }
}
