//! Losses of each interface's driver and acts of XDP programs there, by its own statistics (`ethtool -S`).

use std::collections::BTreeMap;

use sys::ethtool::{Ethtool, EthtoolError};

use super::nic_names::{Counted, LossClass, Meaning, XdpCount, columns};

/// A statistic of a driver that counts losses.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NicLoss {
    /// The driver's name for it.
    pub name: String,
    /// The queue; none for the whole interface.
    pub queue: Option<u32>,
    pub class: LossClass,
    /// Relation of the count to the counters of the interface.
    pub counted: Counted,
    /// True for the transmit side.
    pub tx: bool,
    pub packets: u64,
}

/// The losses of one interface by its driver.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct NicLosses {
    pub driver: String,
    /// Each statistic that counts losses, in the driver's order.
    pub losses: Vec<NicLoss>,
    /// The acts of XDP, by queue. A driver without such statistics has none; what it does not count is missing.
    pub xdp: BTreeMap<u32, BTreeMap<XdpCount, u64>>,
}

impl NicLosses {
    /// The counts between `earlier` and now. A statistic that went backwards (the driver was restarted) counts
    /// from zero.
    #[must_use]
    pub fn since(&self, earlier: &Self) -> Self {
        let minus = |now: u64, before: u64| if now >= before { now - before } else { now };
        let mut now = self.clone();
        // Names can occur several times (vmxnet3), but each once in a queue and direction.
        let key = |l: &NicLoss| (l.queue, l.tx, l.name.clone());
        let before: BTreeMap<_, u64> = earlier.losses.iter().map(|l| (key(l), l.packets)).collect();
        for loss in &mut now.losses {
            loss.packets = minus(loss.packets, before.get(&key(loss)).copied().unwrap_or(0));
        }
        for (queue, counts) in &mut now.xdp {
            for (what, count) in counts {
                let before = earlier.xdp.get(queue).and_then(|counts| counts.get(what)).copied();
                *count = minus(*count, before.unwrap_or(0));
            }
        }
        now
    }

    /// The count over all queues; none when the driver does not count it.
    pub fn xdp_total(&self, what: XdpCount) -> Option<u64> {
        let mut counts = self.xdp.values().filter_map(|counts| counts.get(&what)).peekable();
        counts.peek()?;
        Some(counts.sum())
    }
}

/// The names that an interface's driver gives its statistics; they are asked for once.
#[derive(Debug)]
struct Names {
    driver: String,
    names: Vec<String>,
    columns: Vec<(usize, Option<u32>, Meaning)>,
}

#[derive(Debug, Default)]
pub(super) struct Nics {
    known: BTreeMap<(u32, String), Names>,
    values: Vec<u64>,
}

impl Nics {
    /// The losses of these interfaces, given by index and name. Those whose driver has no statistics are left out.
    pub(super) fn read<'a>(
        &mut self,
        ethtool: &mut Ethtool,
        interfaces: impl Iterator<Item = (u32, &'a str)>,
        unread: &mut Vec<String>,
    ) -> BTreeMap<u32, NicLosses> {
        let mut all = BTreeMap::new();
        for (index, name) in interfaces {
            match self.one(ethtool, index, name) {
                Ok(Some(losses)) => _ = all.insert(index, losses),
                // None: the driver has none; or the interface went away in between.
                Ok(None) | Err(EthtoolError::NoInterface(_)) => {}
                Err(e) => unread.push(e.to_string()),
            }
        }
        self.known.retain(|(index, _), _| all.contains_key(index));
        all
    }

    fn one(&mut self, ethtool: &mut Ethtool, index: u32, name: &str) -> Result<Option<NicLosses>, EthtoolError> {
        let key = (index, name.to_owned());
        for _ in 0..2 {
            if !self.known.contains_key(&key) {
                let Some(names) = ethtool.stat_names(name)?.filter(|names| !names.is_empty()) else { return Ok(None) };
                let driver = ethtool.driver(name)?.map_or_else(String::new, |d| d.driver);
                let columns = columns(&driver, &names);
                self.known.insert(key.clone(), Names { driver, names, columns });
            }
            if !ethtool.stat_values(name, &mut self.values)? {
                return Ok(None);
            }
            match self.known.get(&key) {
                Some(names) if names.names.len() == self.values.len() => return Ok(Some(gather(names, &self.values))),
                // The driver changed its queues: learn the names anew.
                _ => _ = self.known.remove(&key),
            }
        }
        Ok(None)
    }
}

fn gather(names: &Names, values: &[u64]) -> NicLosses {
    let mut nic = NicLosses { driver: names.driver.clone(), ..NicLosses::default() };
    for &(i, queue, meaning) in &names.columns {
        let (Some(&value), Some(name)) = (values.get(i), names.names.get(i)) else { continue };
        match meaning {
            Meaning::Loss(class, counted, tx) => {
                nic.losses.push(NicLoss { name: name.trim().to_owned(), queue, class, counted, tx, packets: value });
            }
            Meaning::Xdp(what) => {
                let count = nic.xdp.entry(queue.unwrap_or(0)).or_default().entry(what).or_insert(0);
                *count = count.saturating_add(value);
            }
        }
    }
    nic
}

#[cfg(test)]
mod tests {
    use super::*;

    fn nic(driver: &str, statistics: &[(&str, u64)]) -> NicLosses {
        let names: Vec<String> = statistics.iter().map(|(name, _)| (*name).to_owned()).collect();
        let values: Vec<u64> = statistics.iter().map(|(_, value)| *value).collect();
        let columns = columns(driver, &names);
        gather(&Names { driver: driver.to_owned(), names, columns }, &values)
    }

    #[test]
    fn losses_by_queue_and_class() {
        let nic = nic(
            "igb",
            &[
                ("rx_packets", 1000),
                ("rx_missed_errors", 7),
                ("rx_queue_0_drops", 4),
                ("rx_queue_1_drops", 5),
                ("rx_queue_1_alloc_failed", 9),
            ],
        );
        let losses = nic.losses.iter().filter(|l| l.counted != Counted::Pressure);
        let mut seen: Vec<_> = losses.map(|l| (l.queue, l.class, l.tx, l.packets)).collect();
        seen.sort_by_key(|loss| loss.0);
        let of_queue = |queue, packets| (Some(queue), LossClass::NoBuffer, false, packets);
        assert_eq!(seen, [(None, LossClass::Missed, false, 7), of_queue(0, 4), of_queue(1, 5)]);
    }

    #[test]
    fn differences_and_xdp() {
        let of = |drops, xdp| nic("veth", &[("rx_queue_0_drops", drops), ("rx_queue_0_xdp_drops", xdp)]);
        let since = of(9, 100).since(&of(4, 30));
        assert_eq!(since.losses[0].packets, 5);
        assert_eq!((since.xdp_total(XdpCount::Drops), since.xdp_total(XdpCount::Pass)), (Some(70), None));
        assert_eq!(of(3, 1).since(&of(4, 0)).losses[0].packets, 3, "the driver was restarted");
    }
}
