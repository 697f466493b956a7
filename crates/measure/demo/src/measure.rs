//! Every place on the lab's wire that can lose a frame.

use model::{Ledger, Loss};
use sys::ethtool::{Ethtool, EthtoolError};

/// Frames that a veth end took out of its queues, the lost ones included (drivers/net/veth.c, `rx_queue_N_xdp_packets`).
pub(crate) const TAKEN: &str = "_xdp_packets";
/// Frames that a veth end took into its queues and then lost: no memory for a socket buffer, a damaged frame (`rx_queue_N_drops`).
pub(crate) const LOST: &str = "_drops";

/// Sum of an ethtool statistic over the receive queues of a veth end. Read in the namespace of the calling thread.
pub(crate) fn of_queues(interface: &str, statistic: &str) -> Result<u64, EthtoolError> {
    let mut ethtool = Ethtool::open()?;
    let names = ethtool.stat_names(interface)?.unwrap_or_default();
    let mut values = Vec::new();
    ethtool.stat_values(interface, &mut values)?;
    let of_queue =
        |name: &str| name.strip_prefix("rx_queue_").and_then(|n| n.strip_suffix(statistic)).is_some_and(is_number);
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
