//! The interface that is sent on, and its own counters.

use std::{fs, io, os::unix::fs::MetadataExt, path::PathBuf};

use wire::Mac;

use crate::TrafficError;

/// What a plan needs to know of an interface.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Interface {
    /// Its name.
    pub name: String,
    /// Its index in this thread's network namespace.
    pub index: u32,
    /// Its MAC address.
    pub mac: Mac,
    /// Its MTU in bytes.
    pub mtu: u32,
    /// Whether the default route of IPv4 or IPv6 leads through it.
    pub default_route: bool,
    /// Whether it lies in a namespace that a lab of this program made (`ek…`).
    pub in_lab: bool,
}

/// The transmit counters of an interface.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct TxCounters {
    /// Frames sent.
    pub packets: u64,
    /// Frames that the device dropped.
    pub dropped: u64,
}

impl Interface {
    /// Looks at `name` in this thread's network namespace.
    ///
    /// # Errors
    /// [`TrafficError::NoInterface`], [`TrafficError::Down`], and [`TrafficError::Read`] if /sys does not show this namespace.
    pub fn look(name: &str) -> Result<Self, TrafficError> {
        let index = nix::net::if_::if_nametoindex(name)
            .map_err(|_| TrafficError::NoInterface { interface: name.to_owned() })?;
        if attribute(name, "ifindex")?.parse() != Ok(index) {
            let source =
                io::Error::other("it shows another network namespace than this one: enter with `ip netns exec`");
            return Err(TrafficError::Read { path: "/sys/class/net".into(), source });
        }
        if !is_up(name)? {
            return Err(TrafficError::Down { interface: name.to_owned() });
        }
        Ok(Self {
            name: name.to_owned(),
            index,
            mac: attribute(name, "address")?.parse().unwrap_or_default(),
            mtu: attribute(name, "mtu")?.parse().unwrap_or(1500),
            default_route: has_default_route(name),
            in_lab: in_lab(),
        })
    }

    /// Whether it is still there, the same one, and up.
    pub fn is_alive(&self) -> bool {
        let same = attribute(&self.name, "ifindex").is_ok_and(|i| i.parse() == Ok(self.index));
        same && is_up(&self.name).unwrap_or(false)
    }

    /// Its transmit counters now.
    ///
    /// # Errors
    /// [`TrafficError::NoInterface`] once it is gone.
    pub fn counters(&self) -> Result<TxCounters, TrafficError> {
        let read = |what: &str| -> Result<u64, TrafficError> {
            let gone = |_| TrafficError::NoInterface { interface: self.name.clone() };
            Ok(attribute(&self.name, what).map_err(gone)?.parse().unwrap_or(0))
        };
        Ok(TxCounters { packets: read("statistics/tx_packets")?, dropped: read("statistics/tx_dropped")? })
    }
}

fn is_up(interface: &str) -> Result<bool, TrafficError> {
    let flags = attribute(interface, "flags")?;
    // IFF_UP (include/uapi/linux/if.h)
    Ok(u32::from_str_radix(flags.trim_start_matches("0x"), 16).unwrap_or(0) & 1 != 0)
}

fn attribute(interface: &str, what: &str) -> Result<String, TrafficError> {
    let path = format!("/sys/class/net/{interface}/{what}");
    fs::read_to_string(&path).map(|text| text.trim().to_owned()).map_err(|source| TrafficError::Read { path, source })
}

fn has_default_route(interface: &str) -> bool {
    let v4 = fs::read_to_string("/proc/thread-self/net/route").unwrap_or_default();
    let v6 = fs::read_to_string("/proc/thread-self/net/ipv6_route").unwrap_or_default();
    is_default_v4(&v4, interface) || is_default_v6(&v6, interface)
}

/// Columns: interface, destination, gateway, flags, …, mask (8th).
fn is_default_v4(table: &str, interface: &str) -> bool {
    table.lines().any(|line| {
        let f: Vec<&str> = line.split_whitespace().collect();
        f.len() > 7 && f[0] == interface && f[1] == "00000000" && f[7] == "00000000"
    })
}

/// Columns: destination, its length, …, gateway (5th), metric, …, interface (10th).
fn is_default_v6(table: &str, interface: &str) -> bool {
    table.lines().any(|line| {
        let f: Vec<&str> = line.split_whitespace().collect();
        f.len() > 9 && f[9] == interface && f[1] == "00" && f[4].bytes().any(|b| b != b'0')
    })
}

/// Whether this thread is in a namespace whose name begins with `ek`, as `lab` names them.
fn in_lab() -> bool {
    let id = |path: PathBuf| fs::metadata(path).map(|m| (m.dev(), m.ino())).ok();
    let Some(here) = id("/proc/thread-self/ns/net".into()) else { return false };
    fs::read_dir("/run/netns")
        .into_iter()
        .flatten()
        .flatten()
        .any(|entry| entry.file_name().to_string_lossy().starts_with("ek") && id(entry.path()) == Some(here))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn default_routes_are_found() {
        let v4 = "Iface\tDestination\tGateway\tFlags\tRefCnt\tUse\tMetric\tMask\tMTU\tWindow\tIRTT\n\
                  eth0\t00000000\t01010AAC\t0003\t0\t0\t0\t00000000\t0\t0\t0\n\
                  eth1\t00010AAC\t00000000\t0001\t0\t0\t0\t00FFFFFF\t0\t0\t0\n";
        assert!(is_default_v4(v4, "eth0") && !is_default_v4(v4, "eth1") && !is_default_v4("", "eth0"));
        let zeros = "0".repeat(32);
        let gateway = format!("fe80{}1", "0".repeat(27));
        let v6 = format!(
            "{zeros} 00 {zeros} 00 {gateway} 00000400 00000001 00000000 00000003 eth0\n{zeros} 00 {zeros} 00 {zeros} ffffffff 00000001 00000000 00200200 lo\n"
        );
        assert!(is_default_v6(&v6, "eth0") && !is_default_v6(&v6, "lo"));
    }

    #[test]
    fn an_unknown_interface_is_named() {
        let error = Interface::look("ek-none").unwrap_err().to_string();
        assert_eq!(error, "there is no interface `ek-none` in this network namespace");
    }
}
