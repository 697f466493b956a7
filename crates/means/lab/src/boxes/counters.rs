//! The counters of a box's wires, from the interfaces themselves.

use std::{fs, time::Instant};

use crate::{LabError, Namespace};

use super::TestBox;

/// Counters of an interface (/proc/net/dev), and the time of the reading.
///
/// On a veth, frames that were refused because the peer's receive queue was full count as `tx_dropped` if they came by XDP (drivers/net/veth.c,
/// `veth_get_stats64`).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct PortCounters {
    /// The time of the reading.
    pub at: Instant,
    pub rx_packets: u64,
    /// Frames that were dropped on the way in.
    pub rx_dropped: u64,
    pub tx_packets: u64,
    /// Frames that were not sent.
    pub tx_dropped: u64,
}

impl PortCounters {
    /// Reads those of an interface of the calling thread's namespace.
    pub fn read(interface: &str) -> Result<Self, LabError> {
        const PATH: &str = "/proc/thread-self/net/dev";
        let failed = |source| LabError::Link { what: "read the counters of", object: interface.to_owned(), source };
        let (table, at) = (fs::read_to_string(PATH).map_err(failed)?, Instant::now());
        parse(&table, interface, at).ok_or_else(|| failed(std::io::Error::other(format!("{PATH} does not list it"))))
    }
}

/// The counters along the way through a box.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct BoxCounters {
    pub sender: PortCounters,
    /// The interface at its other end.
    pub entry: PortCounters,
    /// The box's interface towards the receiver.
    pub exit: Option<PortCounters>,
    pub receiver: Option<PortCounters>,
}

impl BoxCounters {
    /// Frames that the sender has offered: those on the wire and those that the wire refused.
    pub fn offered(&self) -> u64 {
        self.sender.tx_packets + self.sender.tx_dropped
    }

    /// Frames that the wire into the box refused, because its receive queue was full.
    pub fn refused(&self) -> u64 {
        self.sender.tx_dropped
    }

    /// Frames that came out of the box; for a box that ends them, those that it took.
    pub fn forwarded(&self) -> u64 {
        self.receiver.map_or(self.entry.rx_packets, |r| r.rx_packets)
    }
}

pub(super) fn read(of: &TestBox) -> Result<BoxCounters, LabError> {
    let (entry, end) = of.entry();
    let exit = match &of.inside {
        Some(inside) => inside.exit.as_ref().map(|exit| port(&inside.namespace, &exit.name)).transpose()?,
        None => None,
    };
    Ok(BoxCounters {
        sender: port(&of.sender.namespace, &of.sender.end.name)?,
        entry: port(entry, &end.name)?,
        exit,
        receiver: of.receiver.as_ref().map(|r| port(&r.namespace, &r.end.name)).transpose()?,
    })
}

fn port(namespace: &Namespace, interface: &str) -> Result<PortCounters, LabError> {
    namespace.run(|| PortCounters::read(interface))?
}

/// Columns behind the name: bytes, packets, errors, drops and four more of the receiving side, then the same of the sending one.
fn parse(table: &str, interface: &str, at: Instant) -> Option<PortCounters> {
    let (_, numbers) = table.lines().filter_map(|l| l.split_once(':')).find(|(name, _)| name.trim() == interface)?;
    let n: Vec<u64> = numbers.split_whitespace().map_while(|n| n.parse().ok()).collect();
    (n.len() >= 12).then(|| PortCounters {
        at,
        rx_packets: n[1],
        rx_dropped: n[3],
        tx_packets: n[9],
        tx_dropped: n[11],
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn both_sides_are_distinguished() {
        let table = "Inter-| Receive\n face |bytes\n  eki1: 10 20 0 3 0 0 0 0 100 200 0 30 0 0 0 0\n";
        let seen = parse(table, "eki1", Instant::now()).unwrap();
        assert_eq!((seen.rx_packets, seen.rx_dropped, seen.tx_packets, seen.tx_dropped), (20, 3, 200, 30));
        assert_eq!(parse(table, "eki", Instant::now()), None);
    }
}
