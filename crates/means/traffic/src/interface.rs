//! The interface that is sent on, and its own counters.

use std::fs;

use host::interface::{self, NoInterface};
use wire::Mac;

use crate::TrafficError;

/// An interface as a plan needs to know it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Interface {
    pub name: String,
    /// Index of the interface in this thread's network namespace.
    pub index: u32,
    pub mac: Mac,
    pub mtu: u32,
    /// The default route of IPv4 or IPv6 leads through it.
    pub default_route: bool,
    /// True in a namespace that a lab of this program made (`ek-PID-START-…`, or `ekb-PID-…` for its benchmarks).
    pub in_lab: bool,
}

/// The transmit counters of an interface.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct TxCounters {
    pub packets: u64,
    /// Frames that the device dropped.
    pub dropped: u64,
}

impl Interface {
    /// Looks at `name` in this thread's network namespace.
    ///
    /// # Errors
    /// [`TrafficError::NoInterface`], [`TrafficError::Down`], [`TrafficError::NoEthernet`], and [`TrafficError::Read`] if /sys does not show this namespace.
    pub fn look(name: &str) -> Result<Self, TrafficError> {
        let index = interface::index(name)?;
        let unread = |what| move |source| TrafficError::Read { path: format!("the {what} of {name}"), source };
        let mac = sys::link::mac(name).map_err(unread("MAC address"))?.map(Mac);
        let mac = mac.ok_or_else(|| TrafficError::NoEthernet { interface: name.to_owned() })?;
        let flags = sys::link::flags(name).map_err(unread("flags"))?;
        if !flags.up {
            return Err(TrafficError::Down { interface: name.to_owned() });
        }
        if !flags.running {
            return Err(TrafficError::NoCarrier { interface: name.to_owned() });
        }
        Ok(Self {
            name: name.to_owned(),
            index,
            mac,
            mtu: sys::link::mtu(name).map_err(unread("MTU"))?,
            default_route: has_default_route(name),
            in_lab: in_lab(),
        })
    }

    /// True if it is still there, the same one, and up.
    pub fn is_alive(&self) -> bool {
        interface::index(&self.name) == Ok(self.index) && sys::link::flags(&self.name).is_ok_and(|flags| flags.up)
    }

    /// Its transmit counters now.
    ///
    /// # Errors
    /// [`TrafficError::NoInterface`] once it is gone.
    pub fn counters(&self) -> Result<TxCounters, TrafficError> {
        let table =
            fs::read_to_string(COUNTERS).map_err(|source| TrafficError::Read { path: COUNTERS.into(), source })?;
        Ok(tx_counters(&table, &self.name).ok_or_else(|| NoInterface::here(&self.name))?)
    }
}

/// The counters of this thread's network namespace, where /sys/class/net may show another one.
const COUNTERS: &str = "/proc/thread-self/net/dev";

/// Columns behind the name: 8 of the receiving side, then bytes, packets, errors and drops of the sending side.
fn tx_counters(table: &str, interface: &str) -> Option<TxCounters> {
    let (_, numbers) = table.lines().filter_map(|l| l.split_once(':')).find(|(name, _)| name.trim() == interface)?;
    let mut numbers = numbers.split_whitespace().skip(9);
    let packets = numbers.next()?.parse().ok()?;
    let dropped = numbers.nth(1)?.parse().ok()?;
    Some(TxCounters { packets, dropped })
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

/// True if this thread is in a namespace with a name such as `lab` and the benchmarks give.
fn in_lab() -> bool {
    host::namespace::own_name().is_some_and(|name| is_of_a_lab(&name))
}

/// `ek-PID-START-…` of a lab and `ekb-PID-…` of the benchmarks. A name that only begins alike is somebody else's.
fn is_of_a_lab(name: &str) -> bool {
    let number = |part: Option<&str>| part.is_some_and(|p| !p.is_empty() && p.bytes().all(|b| b.is_ascii_digit()));
    let mut parts = name.split('-');
    let of_maker = match parts.next() {
        Some("ek") => number(parts.next()) && number(parts.next()),
        Some("ekb") => number(parts.next()),
        _ => false,
    };
    of_maker && parts.next().is_some()
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
    fn only_a_name_with_its_maker_in_it_is_of_a_lab() {
        for name in ["ek-812-99120-demo-client", "ekb-812-a"] {
            assert!(is_of_a_lab(name), "{name}");
        }
        for name in [
            "ekaterinburg",
            "ek",
            "ek-",
            "ek-812",
            "ek-812-99120",
            "ek-but-not-ours",
            "ek-812-x-y",
            "ekb",
            "ekb-",
            "ekb-812",
            "ekb-x-1",
        ] {
            assert!(!is_of_a_lab(name), "{name}");
        }
    }

    #[test]
    fn transmit_counters_are_found_by_the_whole_name() {
        let table = "Inter-|   Receive                                                |  Transmit\n \
                     face |bytes    packets errs drop fifo frame compressed multicast|bytes    packets errs drop fifo colls carrier compressed\n\
                     \x20eth1: 1 2 3 4 5 6 7 8 9 10 11 12 13 14 15 16\n\x20 eth0:3564900 14466 0 0 0 0 0 0 3566026 14482 0 7 0 0 0 0\n";
        assert_eq!(tx_counters(table, "eth0"), Some(TxCounters { packets: 14_482, dropped: 7 }));
        assert_eq!(tx_counters(table, "eth"), None);
    }

    #[test]
    fn an_unknown_interface_is_named() {
        let error = Interface::look("ek-none").unwrap_err().to_string();
        let beginning = "there is no interface `ek-none` in this network namespace; there are: ";
        assert!(error.starts_with(beginning) && error.contains("lo"), "{error}");
    }
}
