//! The connection table of netfilter: how full it is, how long its chains are, and what did not fit.

use super::{Missing, number, text};
use crate::root::Root;

const SYSCTL: &str = "proc/sys/net/netfilter";
const STATISTICS: &str = "proc/net/stat/nf_conntrack";

/// The connection table of this network namespace.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Conntrack {
    pub count: u64,
    pub max: u64,
    /// Chains of the hash table; none when the kernel does not say.
    pub buckets: Option<u64>,
    /// Connections that could not be entered (two CPUs raced, or the table is full).
    pub insert_failed: u64,
    /// Packets dropped because no connection could be made for them.
    pub drop: u64,
    /// Connections thrown out early to make room.
    pub early_drop: u64,
}

/// Reads the connection table; none where connections are not tracked.
pub fn read(root: &Root) -> Result<Option<Conntrack>, Missing> {
    let max = number(root, &format!("{SYSCTL}/nf_conntrack_max"))?;
    let count = number(root, &format!("{SYSCTL}/nf_conntrack_count"))?;
    let (Some(max), Some(count)) = (max, count) else { return Ok(None) };
    let statistics = text(root, STATISTICS)?.unwrap_or_default();
    let column = |name| hex_column(&statistics, name).unwrap_or(0);
    Ok(Some(Conntrack {
        count,
        max,
        buckets: number(root, &format!("{SYSCTL}/nf_conntrack_buckets"))?,
        insert_failed: column("insert_failed"),
        drop: column("drop"),
        early_drop: column("early_drop"),
    }))
}

/// The sum over all CPUs of one column of a table of /proc/net/stat; none when there is no such column.
pub(super) fn hex_column(table: &str, name: &str) -> Option<u64> {
    let mut lines = table.lines();
    let at = lines.next()?.split_whitespace().position(|word| word == name)?;
    Some(lines.filter_map(|l| u64::from_str_radix(l.split_whitespace().nth(at)?, 16).ok()).fold(0, u64::saturating_add))
}

pub(super) fn record(root: &Root) {
    let _ = read(root);
}

#[cfg(test)]
mod tests {
    use super::{super::tests::machine, *};

    const TABLE: &str = "\
entries  clashres found new invalid ignore delete chainlength insert insert_failed drop early_drop icmp_error  expect_new
0000fa00  00000000 00000000 00000000 0000001c 00000000 00000000 00000000 00000000 00000003 0000000a 00000010 00000000  00000000
0000fa00  00000000 00000000 00000000 00000002 00000000 00000000 00000000 00000000 00000001 00000000 00000001 00000000  00000000
";

    #[test]
    fn columns_are_summed_by_name() {
        let root = machine(&[
            ("proc/sys/net/netfilter/nf_conntrack_max", "65536\n"),
            ("proc/sys/net/netfilter/nf_conntrack_count", "64000\n"),
            ("proc/sys/net/netfilter/nf_conntrack_buckets", "16384\n"),
            (STATISTICS, TABLE),
        ]);
        let table = read(&root).unwrap().unwrap();
        assert_eq!((table.insert_failed, table.drop, table.early_drop), (4, 10, 17));
        assert_eq!((table.count, table.max, table.buckets), (64_000, 65_536, Some(16_384)));
        assert_eq!(read(&machine(&[])), Ok(None));
        assert_eq!(hex_column(TABLE, "search_restart"), None);
        assert_eq!(hex_column("", "drop"), None);
    }
}
