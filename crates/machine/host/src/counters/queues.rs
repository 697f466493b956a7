//! The queue and the quantity of each ethtool statistic: the naming habits of the drivers.

use std::collections::BTreeMap;

/// Packets, bytes and losses of one queue pair; none for what the driver does not count.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct QueueCounters {
    pub rx_packets: Option<u64>,
    pub rx_bytes: Option<u64>,
    pub tx_packets: Option<u64>,
    pub tx_bytes: Option<u64>,
    /// Packets lost in either direction.
    pub drops: Option<u64>,
}

impl QueueCounters {
    /// True if nothing is counted.
    pub fn is_empty(&self) -> bool {
        *self == Self::default()
    }

    fn slot(&mut self, what: Statistic) -> &mut Option<u64> {
        match what {
            Statistic::Packets(Direction::Rx) | Statistic::XdpPackets(Direction::Rx) => &mut self.rx_packets,
            Statistic::Packets(Direction::Tx) | Statistic::XdpPackets(Direction::Tx) => &mut self.tx_packets,
            Statistic::Bytes(Direction::Rx) | Statistic::XdpBytes(Direction::Rx) => &mut self.rx_bytes,
            Statistic::Bytes(Direction::Tx) | Statistic::XdpBytes(Direction::Tx) => &mut self.tx_bytes,
            Statistic::Drops => &mut self.drops,
        }
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Direction {
    Rx,
    Tx,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Statistic {
    Packets(Direction),
    Bytes(Direction),
    /// Counted by the XDP path alone (veth); where a driver counts all packets too, these are among them.
    XdpPackets(Direction),
    XdpBytes(Direction),
    Drops,
}

impl Statistic {
    fn parse(direction: Direction, words: &str) -> Option<Self> {
        Some(match words {
            "packets" | "pkts" | "cnt" | "ucast_packets" | "mcast_packets" | "bcast_packets" => {
                Self::Packets(direction)
            }
            "bytes" | "ucast_bytes" | "mcast_bytes" | "bcast_bytes" => Self::Bytes(direction),
            "xdp_packets" => Self::XdpPackets(direction),
            "xdp_bytes" => Self::XdpBytes(direction),
            "drops" | "dropped" | "drop" | "discards" | "discard_packets" | "error_packets" => Self::Drops,
            _ => return None,
        })
    }

    fn parse_vmxnet3(direction: Direction, words: &str) -> Option<Self> {
        Some(match (words, direction) {
            ("ucast pkts rx" | "mcast pkts rx" | "bcast pkts rx", Direction::Rx)
            | ("ucast pkts tx" | "mcast pkts tx" | "bcast pkts tx", Direction::Tx) => Self::Packets(direction),
            ("ucast bytes rx" | "mcast bytes rx" | "bcast bytes rx", Direction::Rx)
            | ("ucast bytes tx" | "mcast bytes tx" | "bcast bytes tx", Direction::Tx) => Self::Bytes(direction),
            ("pkts rx OOB" | "drv dropped rx total", Direction::Rx) | ("drv dropped tx total", Direction::Tx) => {
                Self::Drops
            }
            _ => return None,
        })
    }
}

/// The statistics of one interface that count a queue, by their place in the list of names.
///
/// The list of names changes only when the driver changes its queues, so it is looked at once.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct QueueNames {
    /// (place in the list, queue, what)
    columns: Vec<(usize, u32, Statistic)>,
    names: usize,
}

impl QueueNames {
    /// Finds the columns. Knows the habits of ixgbe, igb, igc, ice, i40e, iavf, mlx4, mlx5, ena, bnxt, gve, sfc, hv_netvsc,
    /// virtio_net, vmxnet3 and veth; a driver with none of them gives no columns.
    pub fn find<S: AsRef<str>>(names: &[S]) -> Self {
        let mut columns = Vec::new();
        // vmxnet3 prints a heading, then lines without a number.
        let mut section: Option<(Direction, u32)> = None;
        let (mut rx_sections, mut tx_sections) = (0, 0);
        for (i, name) in names.iter().enumerate() {
            let name = name.as_ref().trim();
            match name {
                "Rx Queue#" => {
                    section = Some((Direction::Rx, rx_sections));
                    rx_sections += 1;
                }
                "Tx Queue#" => {
                    section = Some((Direction::Tx, tx_sections));
                    tx_sections += 1;
                }
                _ => {
                    let found = match section {
                        Some((direction, n)) => Statistic::parse_vmxnet3(direction, name).map(|what| (n, what)),
                        None => classify(name),
                    };
                    columns.extend(found.map(|(n, what)| (i, n, what)));
                }
            }
        }
        // Where all packets are counted, those of XDP must not count twice.
        let all: Vec<(u32, Statistic)> = columns.iter().map(|&(_, n, what)| (n, what)).collect();
        columns.retain(|&(_, n, what)| match what {
            Statistic::XdpPackets(d) => !all.contains(&(n, Statistic::Packets(d))),
            Statistic::XdpBytes(d) => !all.contains(&(n, Statistic::Bytes(d))),
            _ => true,
        });
        Self { columns, names: names.len() }
    }

    /// True if no statistic counts a queue.
    pub fn is_empty(&self) -> bool {
        self.columns.is_empty()
    }

    /// The number of names: the values must be as many.
    pub fn len(&self) -> usize {
        self.names
    }

    /// The counters by queue. `values` are in the order of the names; missing ones count as not there.
    pub fn gather(&self, values: &[u64]) -> BTreeMap<u32, QueueCounters> {
        let mut queues: BTreeMap<u32, QueueCounters> = BTreeMap::new();
        for &(i, n, what) in &self.columns {
            if let Some(&value) = values.get(i) {
                let slot = queues.entry(n).or_default().slot(what);
                *slot = Some(slot.unwrap_or(0).saturating_add(value));
            }
        }
        queues
    }
}

/// `rx_queue_3_packets`, `rx3_packets`, `rx-3.packets`, `queue_3_rx_cnt`, `[3]: rx_ucast_packets`, `rx_packets[3]`.
fn classify(name: &str) -> Option<(u32, Statistic)> {
    if let Some(rest) = name.strip_prefix("queue_") {
        let (n, rest) = number(rest)?;
        let (direction, what) = direction(rest.strip_prefix('_')?)?;
        return Some((n, Statistic::parse(direction, what.strip_prefix('_')?)?));
    }
    if let Some(rest) = name.strip_prefix('[') {
        let (n, rest) = number(rest)?;
        let (direction, what) = direction(rest.strip_prefix("]: ")?)?;
        return Some((n, Statistic::parse(direction, what.strip_prefix('_')?)?));
    }
    let (direction, rest) = direction(name)?;
    if let Some((what, n)) = rest.strip_suffix(']').and_then(|r| r.split_once('[')) {
        return Some((number(n)?.0, Statistic::parse(direction, what.strip_prefix('_')?)?));
    }
    let rest = rest.strip_prefix("_queue_").or_else(|| rest.strip_prefix(['-', '_'])).unwrap_or(rest);
    let (n, rest) = number(rest)?;
    let what = rest.strip_prefix(['_', '.', ':'])?.trim_start();
    let what = what.strip_prefix("rx_").or_else(|| what.strip_prefix("tx_")).unwrap_or(what);
    Some((n, Statistic::parse(direction, what)?))
}

fn direction(text: &str) -> Option<(Direction, &str)> {
    text.strip_prefix("rx").map(|r| (Direction::Rx, r)).or_else(|| text.strip_prefix("tx").map(|r| (Direction::Tx, r)))
}

fn number(text: &str) -> Option<(u32, &str)> {
    let end = text.find(|c: char| !c.is_ascii_digit()).unwrap_or(text.len());
    Some((text[..end].parse().ok().filter(|&n| n < 65_536)?, &text[end..]))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn one(name: &str) -> QueueCounters {
        let names = QueueNames::find(&[name]);
        names.gather(&[7]).remove(&3).unwrap_or_default()
    }

    #[test]
    fn the_habits_of_the_drivers() {
        let rx = QueueCounters { rx_packets: Some(7), ..QueueCounters::default() };
        for name in [
            "rx_queue_3_packets",
            "rx3_packets",
            "rx-3.packets",
            "rx-3.rx_packets",
            "queue_3_rx_cnt",
            "[3]: rx_ucast_packets",
            "rx_packets[3]",
            "rx_queue_3_xdp_packets",
        ] {
            assert_eq!(one(name), rx, "{name}");
        }
        let tx = QueueCounters { tx_bytes: Some(7), ..QueueCounters::default() };
        for name in ["tx_queue_3_bytes", "tx3_bytes", "tx-3.bytes", "queue_3_tx_bytes", "[3]: tx_ucast_bytes"] {
            assert_eq!(one(name), tx, "{name}");
        }
        for name in ["rx_queue_3_drops", "rx3_drops", "tx3_dropped", "[3]: rx_discard_packets"] {
            assert_eq!(one(name).drops, Some(7), "{name}");
        }
    }

    #[test]
    fn what_counts_no_queue() {
        for name in
            ["rx_packets", "rx_64_byte_packets", "rx3_kicks", "rx_prio3_packets", "peer_ifindex", "rx3_xdp_drops"]
        {
            assert!(QueueNames::find(&[name]).is_empty(), "{name}");
        }
    }

    #[test]
    fn xdp_packets_are_not_counted_twice() {
        let names = QueueNames::find(&["rx3_packets", "rx3_xdp_packets", "rx3_drops"]);
        let queues = names.gather(&[10, 4, 1]);
        assert_eq!((queues[&3].rx_packets, queues[&3].drops), (Some(10), Some(1)));
    }

    #[test]
    fn cast_kinds_add_up() {
        let names = QueueNames::find(&["[0]: rx_ucast_packets", "[0]: rx_mcast_packets", "[0]: rx_bcast_packets"]);
        assert_eq!(names.gather(&[5, 2, 1])[&0].rx_packets, Some(8));
    }

    #[test]
    fn vmxnet3_sections() {
        let names = [
            "Tx Queue#",
            "  ucast pkts tx",
            "Rx Queue#",
            "  ucast pkts rx",
            "  pkts rx OOB",
            "Rx Queue#",
            "  ucast pkts rx",
        ];
        let queues = QueueNames::find(&names).gather(&[0, 11, 0, 22, 3, 1, 44]);
        assert_eq!((queues[&0].tx_packets, queues[&0].rx_packets, queues[&0].drops), (Some(11), Some(22), Some(3)));
        assert_eq!(queues[&1].rx_packets, Some(44));
    }

    proptest! {
        #[test]
        fn no_name_makes_it_panic(name in "\\PC*|(rx|tx|queue|\\[)?[-_]?[0-9]{0,12}[\\]_.:]?(packets|[a-z_]*)") {
            let _ = QueueNames::find(&[name]).gather(&[u64::MAX]);
        }
    }
}
