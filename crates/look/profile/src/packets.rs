//! The packets that a cost is divided by: pure.

use std::collections::BTreeSet;

use host::counters::{Counters, LinkCounters};
use model::profile::PacketBase;

/// Below this many packets per second a cost per packet says nothing about packets.
const TRAFFIC_PPS: f64 = 1000.0;
/// Ratio of packets in the machine's stack to those on the interfaces of this namespace from which the traffic is in another one.
const FOREIGN_RATIO: u64 = 3;

/// The packets that a cost is divided by.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub enum PerPacket {
    /// Packets of the lowest interfaces of this network namespace, or those that entered the stack if they are many more.
    #[default]
    Auto,
    /// Packets of these interfaces.
    Interfaces(Vec<String>),
}

/// The packets between two readings; none without traffic to speak of. `uppers` are interfaces that stand on others (bridges, bonds, VLANs) and
/// count the same packets again.
pub fn base(per: &PerPacket, uppers: &BTreeSet<String>, begin: &Counters, end: &Counters) -> Option<PacketBase> {
    let seconds = end.at.saturating_sub(begin.at).as_secs_f64();
    let wanted = |name: &str| match per {
        PerPacket::Auto => name != "lo" && !uppers.contains(name),
        PerPacket::Interfaces(names) => names.iter().any(|n| n == name),
    };
    let (mut received, mut sent, mut names) = (0, 0, Vec::new());
    for (index, link) in end.links.iter().filter(|(_, l)| wanted(&l.name)) {
        let (rx, tx) = packets(begin.links.get(index), link);
        if rx + tx > 0 {
            names.push(link.name.as_str());
        }
        received += rx;
        sent += tx;
    }
    let entered: u64 = end
        .softnet
        .iter()
        .map(|(cpu, s)| {
            u64::from(s.processed.wrapping_sub(begin.softnet.get(cpu).map_or(s.processed, |b| b.processed)))
        })
        .sum();
    let (what, packets) = if *per == PerPacket::Auto && entered > FOREIGN_RATIO * received.max(sent) {
        ("that entered the stack of the machine, of all network namespaces".to_owned(), entered)
    } else if received >= sent {
        (format!("received by {}", listed(&names)), received)
    } else {
        (format!("sent by {}", listed(&names)), sent)
    };
    let pps = packets as f64 / seconds.max(1e-9);
    (pps >= TRAFFIC_PPS).then_some(PacketBase { what, packets, pps })
}

fn packets(begin: Option<&LinkCounters>, end: &LinkCounters) -> (u64, u64) {
    let begin = begin.map(|l| l.stats).unwrap_or_default();
    (end.stats.rx_packets.saturating_sub(begin.rx_packets), end.stats.tx_packets.saturating_sub(begin.tx_packets))
}

fn listed(names: &[&str]) -> String {
    match names {
        [] => "no interface".into(),
        [one] => (*one).into(),
        [some @ .., last] if names.len() <= 4 => format!("{} and {last}", some.join(", ")),
        _ => format!("{} interfaces", names.len()),
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use host::counters::{LinkStats, Softnet};

    use super::*;

    fn counters(at_s: u64, links: &[(&str, u64, u64)], processed: u32) -> Counters {
        let link = |(i, &(name, rx_packets, tx_packets)): (usize, &(&str, u64, u64))| {
            let stats = LinkStats { rx_packets, tx_packets, ..LinkStats::default() };
            (i as u32, LinkCounters { name: name.into(), stats, ..LinkCounters::default() })
        };
        Counters {
            at: Duration::from_secs(at_s),
            links: links.iter().enumerate().map(link).collect(),
            softnet: [(0, Softnet { processed, ..Softnet::default() })].into(),
            ..Counters::default()
        }
    }

    fn auto(end: &Counters) -> Option<PacketBase> {
        base(&PerPacket::Auto, &["br0".to_owned()].into(), &counters(0, &[("eth0", 0, 0), ("eth1", 0, 0)], 0), end)
    }

    #[test]
    fn the_busier_direction_of_the_lowest_interfaces_counts() {
        let links = [("eth0", 9000, 10), ("eth1", 1000, 8000), ("br0", 9000, 0), ("lo", 99_999, 0)];
        let got = auto(&counters(2, &links, 9000)).unwrap();
        assert_eq!((got.what.as_str(), got.packets, got.pps), ("received by eth0 and eth1", 10_000, 5000.0));
        let got = auto(&counters(1, &[("eth0", 1, 7000), ("eth1", 0, 0)], 5)).unwrap();
        assert_eq!((got.what.as_str(), got.packets), ("sent by eth0", 7000));
    }

    #[test]
    fn traffic_of_another_namespace_is_seen_in_the_stack() {
        let got = auto(&counters(1, &[("eth0", 50, 60)], 200_000)).unwrap();
        assert!(got.what.contains("all network namespaces") && got.packets == 200_000);
    }

    #[test]
    fn without_traffic_there_is_none_and_named_interfaces_are_taken_at_their_word() {
        assert_eq!(auto(&counters(1, &[("eth0", 500, 0)], 500)), None);
        let end = counters(1, &[("eth0", 5000, 0), ("eth1", 0, 2000)], 90_000);
        let only = PerPacket::Interfaces(vec!["eth1".into()]);
        let got = base(&only, &BTreeSet::new(), &counters(0, &[], 0), &end).unwrap();
        assert_eq!((got.what.as_str(), got.packets), ("sent by eth1", 2000));
    }
}
