//! The neighbour tables (ARP, IPv6 neighbour discovery) and their limits.

use super::{Missing, conntrack::hex_column, number, text};
use crate::root::Root;

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Neighbours {
    /// `ipv4` or `ipv6`.
    pub family: &'static str,
    /// Entries now, of the whole machine.
    pub entries: u64,
    /// Times an entry found no room.
    pub full: u64,
    /// Entries from which on the kernel clears old ones out at once.
    pub soft_limit: u64,
    pub hard_limit: u64,
}

/// Reads both tables; a family that the kernel lacks is left out. The limits are shown in the first network namespace only.
pub fn read(root: &Root) -> Result<Vec<Neighbours>, Missing> {
    let mut tables = Vec::new();
    for (family, table) in [("ipv4", "arp_cache"), ("ipv6", "ndisc_cache")] {
        let limits = format!("proc/sys/net/{family}/neigh/default");
        let soft = number(root, &format!("{limits}/gc_thresh2"))?;
        let hard = number(root, &format!("{limits}/gc_thresh3"))?;
        let statistics = text(root, &format!("proc/net/stat/{table}"))?;
        let (Some(soft_limit), Some(hard_limit), Some(text)) = (soft, hard, statistics) else { continue };
        // Every CPU's line repeats the count of entries.
        let first = text.lines().take(2).collect::<Vec<_>>().join("\n");
        tables.push(Neighbours {
            family,
            entries: hex_column(&first, "entries").unwrap_or(0),
            full: hex_column(&text, "table_fulls").unwrap_or(0),
            soft_limit,
            hard_limit,
        });
    }
    Ok(tables)
}

pub(super) fn record(root: &Root) {
    let _ = read(root);
}

#[cfg(test)]
mod tests {
    use super::{super::tests::machine, *};

    #[test]
    fn entries_once_and_failures_summed() {
        let root = machine(&[
            ("proc/sys/net/ipv4/neigh/default/gc_thresh2", "512"),
            ("proc/sys/net/ipv4/neigh/default/gc_thresh3", "1024"),
            (
                "proc/net/stat/arp_cache",
                "entries  allocs table_fulls\n000003f0 00000094 00000002\n000003f0 1 00000003\n",
            ),
        ]);
        let tables = read(&root).unwrap();
        assert_eq!(tables.len(), 1);
        assert_eq!((tables[0].entries, tables[0].full, tables[0].hard_limit), (1008, 5, 1024));
    }
}
