//! The counters of the link's two ends and of the host's TCP.

use std::{collections::BTreeMap, fs};

use lab::NamespaceHandle;
use sys::ethtool::Ethtool;

use crate::BenchError;

/// All counters of one namespace and its interface, by name.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct Counters(BTreeMap<String, u64>);

impl Counters {
    /// Reads the driver's counters of `interface` and those of TCP inside `ns`.
    pub(super) fn read(ns: &NamespaceHandle, interface: &str) -> Result<Self, BenchError> {
        let read = || -> Result<Self, String> {
            let mut all = BTreeMap::new();
            let mut ethtool = Ethtool::open().map_err(|e| e.to_string())?;
            let names = ethtool.stat_names(interface).map_err(|e| e.to_string())?.unwrap_or_default();
            let mut values = Vec::new();
            ethtool.stat_values(interface, &mut values).map_err(|e| e.to_string())?;
            all.extend(names.into_iter().zip(values));
            for path in ["/proc/thread-self/net/snmp", "/proc/thread-self/net/netstat"] {
                all.extend(pairs(&fs::read_to_string(path).map_err(|e| format!("cannot read {path}: {e}"))?));
            }
            for name in ["tx_dropped", "rx_dropped"] {
                let path = format!("/sys/class/net/{interface}/statistics/{name}");
                let text = fs::read_to_string(&path).map_err(|e| format!("cannot read {path}: {e}"))?;
                all.insert(name.to_owned(), text.trim().parse().unwrap_or(0));
            }
            Ok(Self(all))
        };
        ns.run(read)?.map_err(BenchError::Observer)
    }

    /// The growth of a counter since `earlier`; 0 if there is none of that name.
    pub(super) fn grown(&self, earlier: &Self, name: &str) -> u64 {
        let of = |all: &Self| all.0.get(name).copied().unwrap_or(0);
        of(self).saturating_sub(of(earlier))
    }
}

/// The counters of /proc/net/snmp and netstat, as `Tcp:RetransSegs`: a line of names, then one of values.
fn pairs(text: &str) -> Vec<(String, u64)> {
    let lines: Vec<&str> = text.lines().collect();
    let both = lines.chunks_exact(2).map(|pair| (pair[0].split_whitespace(), pair[1].split_whitespace()));
    both.flat_map(|(mut names, values)| {
        let group = names.next().unwrap_or_default().to_owned();
        // Some are signed (Tcp:MaxConn), and of no use here.
        names.zip(values.skip(1)).filter_map(move |(name, value)| Some((format!("{group}{name}"), value.parse().ok()?)))
    })
    .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_and_values_come_in_two_lines() {
        let text = "Tcp: MaxConn RetransSegs\nTcp: -1 17\nTcpExt: ListenDrops\nTcpExt: 3\n";
        assert_eq!(pairs(text), [("Tcp:RetransSegs".to_owned(), 17), ("TcpExt:ListenDrops".to_owned(), 3)]);
        let later = Counters(pairs(text).into_iter().collect());
        assert_eq!(later.grown(&Counters::default(), "Tcp:RetransSegs"), 17);
        assert_eq!(Counters::default().grown(&later, "Tcp:RetransSegs"), 0);
    }
}
