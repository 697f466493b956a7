//! From what a trial is to send to the table of frames that the sender repeats.
//!
//! ```text
//! sizes    `64,udp4096,imix`  ->  FrameSpec
//! flows    addresses and ports of each flow
//! unit     one unit of a flow: a frame, or a datagram in fragments, checksums right for a signature of zeros
//! replay   the packets of a capture file, in the test's addresses
//! ```
//!
//! The sender keeps no state per flow: the `n`-th pass over the table gives each entry the sequence number `n * seq_step + seq_base` of its flow, so that
//! an entry of a flow that occurs three times in the table has a step of three.

mod flows;
pub mod replay;
mod sizes;
#[cfg(test)]
mod tests;
mod unit;

use std::{iter, path::Path};

use bpf::bench_tx::{BenchEntry, PROBE_FLOW};
use lab::boxes::{Family, Target};
use model::bench::{Direction, FrameSpec};
use wire::{FlowKey, ethernet::FCS_LEN};

use crate::BenchError;

pub use bpf::bench_tx::SIGNATURE_BYTES;
pub use flows::{ECHO_PORT, FLOWS_MAX};
pub use replay::Replay;
pub use sizes::{fragmented, fragments, imix, least_bytes, least_note, parse, rfc2544};

use unit::{Carrier, Unit};

/// The MTU that datagrams are cut to, in bytes: that of Ethernet.
pub const FRAGMENT_MTU: u32 = 1500;
/// The most entries of a table: a million flows both ways.
pub const ENTRIES_MAX: usize = 1 << 21;
/// From this many entries on, not every flow meets every size of a mix.
const MIX_ENTRIES: usize = 1 << 16;

/// The targets and flows of units.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Traffic {
    /// The target of the first port, and that of the second.
    pub targets: [Target; 2],
    /// Different flows of each direction, 1 to [`FLOWS_MAX`].
    pub flows: u32,
    /// True if units go both ways at once; otherwise from the first port only.
    pub both_ways: bool,
    /// The least MTU on the way, in bytes.
    pub mtu: u32,
}

/// All flows of both directions, as far as they are used.
pub(crate) fn flows_of(traffic: &Traffic) -> Result<Vec<FlowKey>, BenchError> {
    flows::of(traffic).map(|all| all.concat())
}

impl Traffic {
    pub fn family(&self) -> Family {
        if self.targets[0].destinations.address.is_ipv6() { Family::V6 } else { Family::V4 }
    }

    /// The directions that are used.
    pub fn directions(&self) -> &'static [Direction] {
        if self.both_ways { &Direction::ALL } else { &Direction::ALL[..1] }
    }

    fn target(&self, direction: Direction) -> &Target {
        &self.targets[direction.index()]
    }

    fn check(&self) -> Result<(), BenchError> {
        if self.flows == 0 || self.flows > FLOWS_MAX {
            return Err(BenchError::Setting(format!(
                "{} flows are not possible: a direction has 1 to {FLOWS_MAX}",
                self.flows
            )));
        }
        let [forward, backward] = &self.targets;
        let networks = [forward.sources, forward.destinations, backward.sources, backward.destinations];
        match networks.iter().find(|n| n.address.is_ipv6() != networks[0].address.is_ipv6()) {
            Some(other) => Err(BenchError::Setting(format!(
                "{} and {other} are not of one IP version: give both ports addresses of the same one",
                networks[0]
            ))),
            None => Ok(()),
        }
    }

    fn check_mtu(&self, what: &str, ip_bytes: usize) -> Result<(), BenchError> {
        if ip_bytes > self.mtu as usize {
            return Err(BenchError::Setting(format!(
                "{what} take an MTU of {ip_bytes} bytes, and the least on the way is {}: raise it with `ip link set INTERFACE mtu {ip_bytes}`, or leave them out",
                self.mtu
            )));
        }
        Ok(())
    }

    /// Makes a unit of `key`, with `data_len` bytes behind the transport header.
    fn unit(&self, direction: Direction, flow: u32, key: FlowKey, data_len: usize) -> Unit {
        let target = self.target(direction);
        Unit {
            destination: target.mac,
            source: target.source_mac,
            key,
            carrier: Carrier::Udp,
            traffic_class: 0,
            data_len,
            direction: direction.index() as u8,
            flow,
        }
    }
}

/// The table of frames of `spec`: one pass over it sends every flow of each direction equally often (of a mix with very many flows: once or twice), the directions in turn.
///
/// # Errors
/// [`BenchError::Setting`] for sizes that the headers do not fit in, the MTU does not let pass or live frames cannot hold, for more flows than there
/// are addresses and ports, for a table that is too long; of a replay, what is wrong with the file.
pub fn lay_out(spec: &FrameSpec, traffic: &Traffic) -> Result<Vec<BenchEntry>, BenchError> {
    traffic.check()?;
    let family = traffic.family();
    match spec {
        FrameSpec::Size { bytes } => in_turn(traffic, &[*bytes]),
        FrameSpec::Mix { bytes, .. } => in_turn(traffic, bytes),
        FrameSpec::Datagram { payload, fragments: stated } => {
            let needed = fragments(*payload, family);
            if needed < 2 || needed != *stated {
                return Err(BenchError::Setting(format!(
                    "a datagram of {payload} bytes takes {needed} fragments at an MTU of {FRAGMENT_MTU}, not {stated}"
                )));
            }
            traffic.check_mtu(&format!("fragments of {payload} bytes of payload"), FRAGMENT_MTU as usize)?;
            datagrams(traffic, *payload, needed)
        }
        FrameSpec::Replay { file, packets, bytes } => {
            let replay = Replay::read(Path::new(file), traffic)?;
            let (p, b) = (replay.packets(), replay.bytes());
            if (p, b) != (*packets, *bytes) {
                return Err(BenchError::Setting(format!(
                    "{file} is not what it was: {packets} packets of {bytes} bytes were expected, and it holds {p} of {b}"
                )));
            }
            Ok(replay.entries)
        }
    }
}

/// A probe from the port where `direction` begins: the least frame, which the far port sends back.
///
/// # Errors
/// [`BenchError::Setting`] as of [`lay_out`].
pub fn probe(traffic: &Traffic, direction: Direction) -> Result<BenchEntry, BenchError> {
    traffic.check()?;
    let family = traffic.family();
    let key = flows::probe(traffic.target(direction))?;
    let unit = traffic.unit(direction, PROBE_FLOW, key, data_len(least_bytes(family), family));
    let mut entries = Vec::with_capacity(1);
    unit.push((0, 1), &mut entries);
    entries.pop().ok_or(BenchError::Panicked("builder of probes"))
}

/// UDP payload of a frame of `bytes` with FCS.
fn data_len(bytes: u32, family: Family) -> usize {
    (bytes as usize).saturating_sub(FCS_LEN + unit::udp_headers(family))
}

/// Frames whose sizes take turns.
fn in_turn(traffic: &Traffic, sizes: &[u32]) -> Result<Vec<BenchEntry>, BenchError> {
    let family = traffic.family();
    for &bytes in sizes {
        sizes::check(bytes, family)?;
        let ip_bytes = bytes as usize - FCS_LEN - wire::ethernet::HEADER_LEN;
        traffic.check_mtu(&format!("frames of {bytes} bytes with FCS"), ip_bytes)?;
    }
    let Some(&first) = sizes.first() else {
        return Err(BenchError::Setting("a mix of frames needs at least one size".into()));
    };
    let flows = flows::of(traffic)?;
    let count = traffic.flows as usize;
    let uniform = sizes.iter().all(|&s| s == first);
    let sizes = if uniform { &sizes[..1] } else { sizes };
    // Each flow meets each size; of very many flows each has one or two, so that the mix remains and the table stays small.
    let len =
        if count * sizes.len() <= MIX_ENTRIES { count * sizes.len() } else { count.next_multiple_of(sizes.len()) };
    room_for(len * flows.len(), || format!("{count} flows in {} sizes", sizes.len()))?;
    let mut entries = Vec::with_capacity(len * flows.len());
    for i in 0..len {
        let (round, flow) = (i / count, i % count);
        let times = iter::successors(Some(flow), |at| Some(at + count)).take_while(|&at| at < len).count();
        // Each round begins one size later, so that all flows meet all sizes even where their numbers share a factor.
        let bytes =
            if len == count * sizes.len() { sizes[(flow + round) % sizes.len()] } else { sizes[i % sizes.len()] };
        for (&direction, keys) in traffic.directions().iter().zip(&flows) {
            let unit = traffic.unit(direction, flow as u32, keys[flow], data_len(bytes, family));
            unit.push((round as u32, times as u32), &mut entries);
        }
    }
    Ok(entries)
}

/// Datagrams in fragments: all of one, then all of the next.
fn datagrams(traffic: &Traffic, payload: u32, fragments: u32) -> Result<Vec<BenchEntry>, BenchError> {
    let flows = flows::of(traffic)?;
    let len = traffic.flows as usize * fragments as usize * flows.len();
    room_for(len, || format!("{} flows of datagrams in {fragments} fragments", traffic.flows))?;
    let mut entries = Vec::with_capacity(len);
    for flow in 0..traffic.flows {
        for (&direction, keys) in traffic.directions().iter().zip(&flows) {
            traffic.unit(direction, flow, keys[flow as usize], payload as usize).push_fragments((0, 1), &mut entries);
        }
    }
    Ok(entries)
}

fn room_for(entries: usize, what: impl FnOnce() -> String) -> Result<(), BenchError> {
    if entries > ENTRIES_MAX {
        return Err(BenchError::Setting(format!(
            "{} make a table of {entries} frames, and {ENTRIES_MAX} is the most: take fewer flows, or one direction",
            what()
        )));
    }
    Ok(())
}
