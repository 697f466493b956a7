//! Says by the counters of the lab where the flood's frames ended, and what of the clients' was lost before the protection saw it.

use model::{bench::Drop as Dropped, flood::FloodPoint};

use super::{bed::Bed, counters::Counters, protection::Counter};
use crate::BenchError;

/// Of a veth: frames that were put into its peer's queue by XDP and found no place there (veth_xdp_xmit in drivers/net/veth.c).
const FULL: &str = "tx_queue_0_xdp_xmit_errors";
/// Of an interface: packets that its peer did not take. Those of XDP_TX and redirects are among them (veth_get_stats64).
const NOT_TAKEN: &str = "tx_dropped";

/// All counters at one moment.
pub(super) struct Snapshot {
    /// Counters of the clients' and the flood's end.
    net: Counters,
    host: Counters,
    /// Counters of a gateway's two interfaces, the outer one first.
    gate: Option<(Counters, Counters)>,
    /// Of the interface where the flood begins its way to a gateway of rings.
    relay: Option<Counters>,
    syn_acks: u64,
}

impl Snapshot {
    /// Answers to the flood so far, as the far end has counted them.
    pub(super) fn syn_acks(&self) -> u64 {
        self.syn_acks
    }

    pub(super) fn take(bed: &Bed) -> Result<Self, BenchError> {
        let of_gate = bed.gate.as_ref().map(|gate| {
            let read = |name: &str| Counters::read(&gate.ns, name);
            Ok::<_, BenchError>((read(&gate.outer.name)?, read(&gate.inner.name)?))
        });
        Ok(Self {
            net: Counters::read(&bed.net, &bed.near.name)?,
            host: Counters::read(&bed.host, &bed.far.name)?,
            gate: of_gate.transpose()?,
            relay: bed.relay.as_ref().map(|relay| Counters::read(&bed.net, &relay.entry.name)).transpose()?,
            syn_acks: bed.end.syn_acks()?,
        })
    }
}

/// Counters less what they were.
pub(super) fn since(before: &[Counter], after: Vec<Counter>) -> Vec<Counter> {
    let was = |what: &str| before.iter().find(|c| c.what == what).map_or(0, |c| c.packets);
    after.into_iter().map(|c| Counter { packets: c.packets.saturating_sub(was(&c.what)), ..c }).collect()
}

/// Completes a point of which is known what was sent, and how the clients fared.
pub(super) fn account(
    mut point: FloodPoint,
    before: &Snapshot,
    after: &Snapshot,
    counters: Vec<Counter>,
) -> FloodPoint {
    let of_net = |name: &str| after.net.grown(&before.net, name);
    let of_host = |name: &str| after.host.grown(&before.host, name);
    let gate = after.gate.as_ref().zip(before.gate.as_ref());
    let of_outer = |name: &str| gate.map_or(0, |(after, before)| after.0.grown(&before.0, name));
    let of_inner = |name: &str| gate.map_or(0, |(after, before)| after.1.grown(&before.1, name));
    let no_memory = if gate.is_some() { of_outer("rx_queue_0_drops") } else { of_host("rx_queue_0_drops") };
    let lost_before = match after.relay.as_ref().zip(before.relay.as_ref()) {
        Some((after, before)) => {
            // What its own link did not take the generator has never sent.
            point.offered = point.offered.saturating_sub(after.grown(before, FULL));
            // Whose packets these were nobody tells.
            ("backlog of the gateway's core, before its rings", of_net(NOT_TAKEN))
        }
        None => {
            point.clients.lost_in_queue = Some(of_net(NOT_TAKEN).saturating_sub(of_net(FULL)));
            ("queue of the interface, before XDP", of_net(FULL))
        }
    };
    point.clients.syn_retransmits = of_net("TcpExt:TCPSynRetrans");
    point.clients.segment_retransmits = of_net("Tcp:RetransSegs");
    // The kernel sends SYN-ACKs again to whom it has not forgotten.
    let again = of_host("Tcp:RetransSegs");
    point.arrived = point.offered.saturating_sub(lost_before.1);
    point.answered = after.syn_acks.saturating_sub(before.syn_acks).saturating_sub(again);
    point.answered_late = point.answered_late.min(point.answered);
    let (ended, beside): (Vec<Counter>, Vec<Counter>) = counters.into_iter().partition(|c| c.ended);
    let mut losses = vec![
        (lost_before.0.to_owned(), lost_before.1),
        ("receive path before the stack (no memory)".to_owned(), no_memory),
    ];
    losses.extend(ended.into_iter().map(|c| (c.what, c.packets)));
    losses.extend([
        ("way from the gateway to the host: full queue".to_owned(), of_inner(NOT_TAKEN)),
        ("listener (TcpExt ListenDrops)".to_owned(), of_host("TcpExt:ListenDrops")),
        ("way back: full queue at the far end".to_owned(), of_host(NOT_TAKEN) + of_outer(NOT_TAKEN)),
    ]);
    point.losses =
        losses.into_iter().filter(|(_, n)| *n > 0).map(|(place, packets)| Dropped { place, packets }).collect();
    point.counters = beside.into_iter().map(|c| Dropped { place: c.what, packets: c.packets }).collect();
    let lost: u64 = point.losses.iter().map(|l| l.packets).sum();
    point.unexplained = point.offered.cast_signed() - point.answered.cast_signed() - lost.cast_signed();
    point
}
