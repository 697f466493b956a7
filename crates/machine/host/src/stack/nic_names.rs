//! The statistics of drivers (`ethtool -S`) that count losses, and those that count verdicts of XDP programs.
//!
//! A single table, by driver. In a pattern `#` stands for the queue's number. Names with a heading instead of a number (vmxnet3) belong to the queue
//! of the last heading.

use self::{
    Counted::{Beyond, InLink, Pressure},
    LossClass::{Error, Missed, NoBuffer, Other},
};

/// The cause of a loss in the driver or the NIC.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum LossClass {
    /// The NIC had no room of its own left: its FIFO overflowed, as the ring or the bus was not emptied in time.
    Missed,
    /// No descriptor or no memory was free to put the packet into: the ring was full.
    NoBuffer,
    /// The packet was damaged, or the device failed.
    Error,
    /// Anything else: a limit of the cloud, a queue that was stopped, a verdict of the driver.
    Other,
}

/// The relation of a statistic to the counters of the interface (`ip -s link`).
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Counted {
    /// Part of another one: adding both would count twice.
    InLink,
    /// Only the driver knows of these losses.
    Beyond,
    /// A sign of want that is no loss by itself: the driver tries again.
    Pressure,
}

/// An act of XDP on a packet.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum XdpCount {
    Packets,
    /// XDP_DROP (some drivers add XDP_ABORTED).
    Drops,
    Pass,
    Redirects,
    RedirectErrors,
    Tx,
    /// A packet sent back by XDP_TX was lost.
    TxErrors,
    /// XDP_ABORTED, or an unknown verdict.
    Aborted,
    /// Packets that other interfaces' programs sent out here.
    Xmit,
    /// Lost among those packets.
    XmitErrors,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Meaning {
    /// A loss: its class, its relation to the interface's counters, and whether on the transmit side.
    Loss(LossClass, Counted, bool),
    Xdp(XdpCount),
}

/// Receive side and transmit side.
const RX: bool = false;
const TX: bool = true;

type LossRow = (&'static str, LossClass, Counted, bool);

/// Losses, by the drivers that have them; `*` is every driver. The first row that fits counts.
const LOSSES: &[(&str, &[LossRow])] = &[
    (
        "ixgbe ixgbevf",
        &[
            ("rx_no_dma_resources", NoBuffer, Beyond, RX),
            ("alloc_rx_page_failed", NoBuffer, Pressure, RX),
            ("alloc_rx_buff_failed", NoBuffer, Pressure, RX),
        ],
    ),
    (
        "igb igc",
        &[
            ("rx_queue_#_drops", NoBuffer, InLink, RX),
            ("rx_queue_#_alloc_failed", NoBuffer, Pressure, RX),
            ("rx_hwtstamp_cleared", Other, Pressure, RX),
        ],
    ),
    ("e1000 e1000e", &[("alloc_rx_buff_failed", NoBuffer, Pressure, RX), ("rx_dma_failed", NoBuffer, Pressure, RX)]),
    (
        "i40e ice iavf",
        &[
            ("rx_dropped", NoBuffer, InLink, RX),
            ("rx_discards", NoBuffer, InLink, RX),
            ("port.rx_dropped", Missed, InLink, RX),
            ("rx_dropped.nic", Missed, InLink, RX),
            ("rx_alloc_fail", NoBuffer, Pressure, RX),
            ("rx_pg_alloc_fail", NoBuffer, Pressure, RX),
            ("port.rx_crc_errors", Error, InLink, RX),
            ("rx_crc_errors.nic", Error, InLink, RX),
            ("port.illegal_bytes", Error, InLink, RX),
            ("illegal_bytes.nic", Error, InLink, RX),
            ("port.rx_length_errors", Error, InLink, RX),
            ("rx_len_errors.nic", Error, InLink, RX),
            ("port.rx_undersize", Error, InLink, RX),
            ("rx_undersize.nic", Error, InLink, RX),
            ("port.rx_oversize", Error, InLink, RX),
            ("rx_oversize.nic", Error, InLink, RX),
            ("port.rx_fragments", Error, InLink, RX),
            ("rx_fragments.nic", Error, InLink, RX),
            ("port.rx_jabber", Error, InLink, RX),
            ("rx_jabber.nic", Error, InLink, RX),
            ("port.tx_dropped_link_down", Other, InLink, TX),
            ("tx_dropped_link_down.nic", Other, InLink, TX),
        ],
    ),
    (
        "mlx5 mlx5_core mlx5e",
        &[
            ("rx_out_of_buffer", NoBuffer, InLink, RX),
            ("rx_discards_phy", Missed, Beyond, RX),
            ("rx_prio#_discards", Missed, Pressure, RX),
            ("rx_crc_errors_phy", Error, InLink, RX),
            ("rx_in_range_len_errors_phy", Error, InLink, RX),
            ("rx_out_of_range_len_phy", Error, InLink, RX),
            ("rx_oversize_pkts_phy", Error, InLink, RX),
            ("rx_undersize_pkts_phy", Error, Beyond, RX),
            ("rx_fragments_phy", Error, Beyond, RX),
            ("rx_jabbers_phy", Error, Beyond, RX),
            ("rx#_wqe_err", Error, Beyond, RX),
            ("rx#_buff_alloc_err", NoBuffer, Pressure, RX),
            ("rx#_oversize_pkts_sw_drop", Error, Beyond, RX),
            ("rx_steer_missed_packets", Other, Beyond, RX),
            ("rx_if_down_packets", Other, Beyond, RX),
            ("tx#_dropped", Other, InLink, TX),
            ("tx#_cqe_err", Error, InLink, TX),
            ("tx_discards_phy", Other, Beyond, TX),
            ("tx_errors_phy", Error, Beyond, TX),
        ],
    ),
    (
        "ena",
        &[
            ("rx_drops", NoBuffer, InLink, RX),
            ("rx_overruns", Missed, InLink, RX),
            ("tx_drops", Other, InLink, TX),
            ("queue_#_rx_bad_desc_num", Error, Beyond, RX),
            ("queue_#_rx_bad_req_id", Error, Beyond, RX),
            ("queue_#_rx_dma_mapping_err", NoBuffer, Pressure, RX),
            ("queue_#_rx_page_alloc_fail", NoBuffer, Pressure, RX),
            ("queue_#_rx_skb_alloc_fail", NoBuffer, Pressure, RX),
            ("queue_#_rx_refil_partial", NoBuffer, Pressure, RX),
            ("queue_#_tx_dma_mapping_err", Error, Beyond, TX),
            ("bw_in_allowance_exceeded", Other, Beyond, RX),
            ("bw_out_allowance_exceeded", Other, Beyond, TX),
            ("pps_allowance_exceeded", Other, Beyond, RX),
            ("conntrack_allowance_exceeded", Other, Beyond, RX),
            ("linklocal_allowance_exceeded", Other, Beyond, RX),
        ],
    ),
    (
        "virtio_net",
        &[
            ("rx#_drops", Other, InLink, RX),
            ("rx_queue_#_drops", Other, InLink, RX),
            ("rx#_hw_drops", NoBuffer, Beyond, RX),
            ("rx#_hw_drop_overruns", NoBuffer, Beyond, RX),
            ("tx#_hw_drops", Other, Beyond, TX),
        ],
    ),
    (
        "vmxnet3",
        &[
            ("pkts rx OOB", NoBuffer, InLink, RX),
            ("pkts rx err", Error, InLink, RX),
            ("drv dropped rx total", Other, InLink, RX),
            ("rx buf alloc fail", NoBuffer, Pressure, RX),
            ("pkts tx err", Error, InLink, TX),
            ("pkts tx discard", Other, InLink, TX),
            ("drv dropped tx total", Other, InLink, TX),
        ],
    ),
    (
        "bnxt_en",
        &[
            ("[#]: rx_discards", NoBuffer, InLink, RX),
            ("[#]: rx_discard_packets", NoBuffer, InLink, RX),
            ("[#]: rx_drops", NoBuffer, InLink, RX),
            ("[#]: rx_errors", Error, InLink, RX),
            ("[#]: rx_error_packets", Error, InLink, RX),
            ("[#]: rx_buf_errors", NoBuffer, Pressure, RX),
            ("[#]: tx_discards", Other, InLink, TX),
            ("[#]: tx_discard_packets", Other, InLink, TX),
            ("[#]: tx_drops", Other, InLink, TX),
            ("[#]: tx_errors", Error, InLink, TX),
            ("[#]: tx_error_packets", Error, InLink, TX),
            ("rx_stat_discard", Missed, Beyond, RX),
            ("rx_total_oom_discards", NoBuffer, InLink, RX),
            ("rx_fcs_err_frames", Error, InLink, RX),
        ],
    ),
    ("veth", &[("rx_queue_#_drops", Other, InLink, RX)]),
    (
        "*",
        &[
            ("rx_missed_errors", Missed, InLink, RX),
            ("rx_missed", Missed, InLink, RX),
            ("rx_fifo_errors", Missed, InLink, RX),
            ("rx_over_errors", Missed, InLink, RX),
            ("rx_no_buffer_count", NoBuffer, Pressure, RX),
            ("rx_crc_errors", Error, InLink, RX),
            ("rx_frame_errors", Error, InLink, RX),
            ("rx_length_errors", Error, InLink, RX),
            ("rx_align_errors", Error, InLink, RX),
            ("tx_aborted_errors", Error, InLink, TX),
            ("tx_carrier_errors", Error, InLink, TX),
            ("tx_fifo_errors", Error, InLink, TX),
            ("tx_window_errors", Error, InLink, TX),
        ],
    ),
];

/// The acts of XDP, by queue; the names of all drivers together, as no two of them contradict each other.
const XDP: &[(&str, XdpCount)] = &[
    // veth, older virtio_net
    ("rx_queue_#_xdp_packets", XdpCount::Packets),
    ("rx_queue_#_xdp_drops", XdpCount::Drops),
    ("rx_queue_#_xdp_redirect", XdpCount::Redirects),
    ("rx_queue_#_xdp_redirects", XdpCount::Redirects),
    ("rx_queue_#_xdp_tx", XdpCount::Tx),
    ("rx_queue_#_xdp_tx_errors", XdpCount::TxErrors),
    ("tx_queue_#_xdp_xmit", XdpCount::Xmit),
    ("tx_queue_#_xdp_xmit_errors", XdpCount::XmitErrors),
    ("tx_queue_#_xdp_tx", XdpCount::Xmit),
    ("tx_queue_#_xdp_tx_drops", XdpCount::XmitErrors),
    // virtio_net
    ("rx#_xdp_packets", XdpCount::Packets),
    ("rx#_xdp_drops", XdpCount::Drops),
    ("rx#_xdp_redirects", XdpCount::Redirects),
    ("rx#_xdp_tx", XdpCount::Tx),
    ("tx#_xdp_tx", XdpCount::Xmit),
    ("tx#_xdp_tx_drops", XdpCount::XmitErrors),
    // mlx5
    ("rx#_xdp_drop", XdpCount::Drops),
    ("rx#_xdp_redirect", XdpCount::Redirects),
    ("rx#_xdp_tx_xmit", XdpCount::Tx),
    ("rx#_xdp_tx_full", XdpCount::TxErrors),
    ("rx#_xdp_tx_err", XdpCount::TxErrors),
    ("tx#_xdp_xmit", XdpCount::Xmit),
    ("tx#_xdp_full", XdpCount::XmitErrors),
    ("tx#_xdp_err", XdpCount::XmitErrors),
    // ena
    ("queue_#_rx_xdp_aborted", XdpCount::Aborted),
    ("queue_#_rx_xdp_drop", XdpCount::Drops),
    ("queue_#_rx_xdp_pass", XdpCount::Pass),
    ("queue_#_rx_xdp_tx", XdpCount::Tx),
    ("queue_#_rx_xdp_invalid", XdpCount::Aborted),
    ("queue_#_rx_xdp_redirect", XdpCount::Redirects),
];

/// The statistics that count something, with their place in the list of names, their queue and their meaning.
pub(super) fn columns<S: AsRef<str>>(driver: &str, names: &[S]) -> Vec<(usize, Option<u32>, Meaning)> {
    let mut found = Vec::new();
    let (mut section, mut rx, mut tx) = (None, 0, 0);
    for (i, name) in names.iter().enumerate() {
        let name = name.as_ref().trim();
        match name {
            "Rx Queue#" => {
                section = Some(rx);
                rx += 1;
            }
            "Tx Queue#" => {
                section = Some(tx);
                tx += 1;
            }
            _ => found.extend(meaning(driver, name).map(|(queue, meaning)| (i, queue.or(section), meaning))),
        }
    }
    found
}

fn meaning(driver: &str, name: &str) -> Option<(Option<u32>, Meaning)> {
    let own = LOSSES.iter().filter(|(drivers, _)| *drivers == "*" || drivers.split(' ').any(|d| d == driver));
    let loss = own.flat_map(|(_, rows)| *rows).find_map(|&(pattern, class, counted, tx)| {
        fits(pattern, name).map(|queue| (queue, Meaning::Loss(class, counted, tx)))
    });
    loss.or_else(|| {
        XDP.iter().find_map(|&(pattern, what)| fits(pattern, name).map(|queue| (queue, Meaning::Xdp(what))))
    })
}

/// True if the name fits, with the number at `#`.
fn fits(pattern: &str, name: &str) -> Option<Option<u32>> {
    let Some((before, after)) = pattern.split_once('#') else { return (pattern == name).then_some(None) };
    let number = name.strip_prefix(before)?.strip_suffix(after)?;
    if !number.bytes().all(|b| b.is_ascii_digit()) {
        return None;
    }
    number.parse().ok().filter(|&n| n < 65_536).map(Some)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn names_by_driver() {
        let loss = |class, counted, tx| Some(Meaning::Loss(class, counted, tx));
        for (driver, name, queue, want) in [
            ("ixgbe", "rx_no_dma_resources", None, loss(NoBuffer, Beyond, RX)),
            ("ixgbe", "rx_missed_errors", None, loss(Missed, InLink, RX)),
            ("igb", "rx_queue_3_drops", Some(3), loss(NoBuffer, InLink, RX)),
            ("veth", "rx_queue_3_drops", Some(3), loss(Other, InLink, RX)),
            ("mlx5_core", "rx_out_of_buffer", None, loss(NoBuffer, InLink, RX)),
            ("mlx5_core", "tx12_dropped", Some(12), loss(Other, InLink, TX)),
            ("mlx5_core", "rx_xdp_drop", None, None), // the sum of the queues
            ("ena", "pps_allowance_exceeded", None, loss(Other, Beyond, RX)),
            ("ena", "queue_2_rx_xdp_drop", Some(2), Some(Meaning::Xdp(XdpCount::Drops))),
            ("bnxt_en", "[7]: rx_discards", Some(7), loss(NoBuffer, InLink, RX)),
            ("ice", "rx_dropped.nic", None, loss(Missed, InLink, RX)),
            ("e1000", "rx_no_buffer_count", None, loss(NoBuffer, Pressure, RX)),
            ("virtio_net", "rx0_drops", Some(0), loss(Other, InLink, RX)),
            ("virtio_net", "rx0_xdp_redirects", Some(0), Some(Meaning::Xdp(XdpCount::Redirects))),
            ("veth", "rx_queue_0_xdp_drops", Some(0), Some(Meaning::Xdp(XdpCount::Drops))),
            ("veth", "tx_queue_1_xdp_xmit_errors", Some(1), Some(Meaning::Xdp(XdpCount::XmitErrors))),
            ("e1000", "rx_packets", None, None),
            ("veth", "rx_queue__drops", None, None),
        ] {
            let found = meaning(driver, name);
            assert_eq!(found.map(|f| f.1), want, "{driver} {name}");
            assert_eq!(found.and_then(|f| f.0), queue, "{driver} {name}");
        }
    }

    #[test]
    fn the_headings_of_vmxnet3() {
        let names = ["Tx Queue#", "  pkts tx err", "Rx Queue#", "  pkts rx OOB", "Rx Queue#", "  pkts rx OOB"];
        let found = columns("vmxnet3", &names);
        let places: Vec<_> = found.iter().map(|(i, queue, _)| (*i, *queue)).collect();
        assert_eq!(places, [(1, Some(0)), (3, Some(0)), (5, Some(1))]);
    }

    proptest! {
        #[test]
        fn no_name_makes_it_panic(driver in "(mlx5_core|veth|\\PC{0,8})", name in "(rx|tx|\\[)?#?_?[0-9]{0,9}\\PC{0,20}") {
            let _ = columns(&driver, &[name]);
        }
    }
}
