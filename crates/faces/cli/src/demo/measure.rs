//! What is counted around a stage: the load of every core, and every place on the lab's wire that can lose a frame.

use host::{
    counters::{Counters, CountersError, Sampler, delta},
    picture::Host,
};
use model::{CoreLoad, Ledger, Loss};
use sys::ethtool::{Ethtool, EthtoolError};

/// The load of every core between two moments.
#[derive(Debug)]
pub(crate) struct LoadMeter<'a> {
    host: &'a Host,
    sampler: Sampler,
    begin: Counters,
}

impl<'a> LoadMeter<'a> {
    /// Opens the counters and takes the first reading.
    pub(crate) fn start(host: &'a Host) -> Result<Self, CountersError> {
        let mut sampler = Sampler::open()?;
        let begin = sampler.read()?;
        Ok(Self { host, sampler, begin })
    }

    /// The loads since the start.
    pub(crate) fn finish(mut self) -> Result<Vec<CoreLoad>, CountersError> {
        let end = self.sampler.read()?;
        Ok(delta(self.host, &self.begin, &end).cores.into_iter().map(|c| c.load).collect())
    }
}

/// Steal time as a share of all cores' time, in percent.
pub(crate) fn steal_percent(cores: &[CoreLoad]) -> f64 {
    cores.iter().map(|c| c.steal_percent).sum::<f64>() / cores.len().max(1) as f64
}

/// Busy nanoseconds of all cores together in a second.
pub(crate) fn busy_ns_per_second(cores: &[CoreLoad]) -> f64 {
    cores.iter().map(CoreLoad::busy_percent).sum::<f64>() * 1e7
}

/// Frames that a veth end took into its queues and then lost: no memory for a socket buffer, a damaged frame (drivers/net/veth.c,
/// ethtool statistic `rx_queue_N_drops`). Read in the namespace of the calling thread.
pub(crate) fn lost_in_queues(interface: &str) -> Result<u64, EthtoolError> {
    let mut ethtool = Ethtool::open()?;
    let names = ethtool.stat_names(interface)?.unwrap_or_default();
    let mut values = Vec::new();
    ethtool.stat_values(interface, &mut values)?;
    let of_queue =
        |name: &str| name.strip_prefix("rx_queue_").and_then(|n| n.strip_suffix("_drops")).is_some_and(is_number);
    Ok(names.iter().zip(&values).filter(|(name, _)| of_queue(name)).map(|(_, value)| value).sum())
}

fn is_number(text: &str) -> bool {
    !text.is_empty() && text.bytes().all(|b| b.is_ascii_digit())
}

/// Everything that one measurement counted.
#[derive(Debug, Clone, Default)]
pub(crate) struct Counted {
    /// Frames that the generator handed to its interface.
    pub offered: u64,
    /// Frames that readers got.
    pub delivered: u64,
    /// Frames that the wire refused, because the receive queue behind it was full.
    pub refused: u64,
    /// Frames that the server's end lost after it had taken them.
    pub lost_in_queues: u64,
    /// Frames lost at the capture point, by place.
    pub capture: Vec<Loss>,
}

impl Counted {
    /// The ledger: every place in the order in which a frame meets it.
    pub(crate) fn ledger(self) -> Ledger {
        let mut losses = vec![
            Loss { place: "receive queue full (the core behind it was too slow)".into(), packets: self.refused },
            Loss { place: "no socket buffer in the driver".into(), packets: self.lost_in_queues },
        ];
        losses.extend(self.capture);
        losses.retain(|l| l.packets > 0);
        Ledger { offered: self.offered, offered_by: "generator".into(), delivered: self.delivered, losses }
    }
}
