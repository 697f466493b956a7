//! The flows of a direction: addresses out of the networks on both sides, UDP ports.

use std::net::IpAddr;

use lab::boxes::{Network, Target};
use traffic::{FlowSpace, Ports, Prefix};
use wire::FlowKey;

use crate::BenchError;

use super::Traffic;

/// The destination port of all test frames: UDP echo (RFC 2544, appendix C.2.6.4).
pub const ECHO_PORT: u16 = 7;
/// The source port of a single flow (RFC 2544, appendix C.2.6.4).
const SOURCE_PORT: u16 = 0xc020;
/// The source ports of many flows (RFC 4814, section 4.5).
const SOURCE_PORTS: (u16, u16) = (1024, 65_535);
/// The most flows of a direction.
pub const FLOWS_MAX: u32 = 1_000_000;

/// The flows of each direction that is used.
pub(super) fn of(traffic: &Traffic) -> Result<Vec<Vec<FlowKey>>, BenchError> {
    traffic
        .directions()
        .iter()
        .map(|&d| of_target(traffic.target(d), traffic.flows as usize, d.index() as u64))
        .collect()
}

/// The flow of probes: between the first hosts.
pub(super) fn probe(target: &Target) -> Result<FlowKey, BenchError> {
    Ok(FlowKey {
        source: host(&prefix(target.sources)?, 0),
        destination: host(&prefix(target.destinations)?, 0),
        source_port: SOURCE_PORT,
        destination_port: ECHO_PORT,
    })
}

pub(super) fn prefix(network: Network) -> Result<Prefix, BenchError> {
    Prefix::new(network.address, network.prefix_len)
        .ok_or_else(|| BenchError::Setting(format!("{network} is no network: its prefix is too long")))
}

/// The number of hosts of a network: the first address and the last one are the network's own and its broadcast address, if there are more than two.
pub(super) fn hosts(prefix: &Prefix) -> u64 {
    if prefix.count() > 2 { prefix.count() - 2 } else { prefix.count() }
}

/// The `index`-th host, modulo their number.
pub(super) fn host(prefix: &Prefix, index: u64) -> IpAddr {
    prefix.nth(index % hosts(prefix) + u64::from(prefix.count() > 2))
}

fn of_target(target: &Target, n: usize, seed: u64) -> Result<Vec<FlowKey>, BenchError> {
    let (first, last) = if n == 1 { (SOURCE_PORT, SOURCE_PORT) } else { SOURCE_PORTS };
    let (Some(source_ports), Some(destination_ports)) = (Ports::new(first, last), Ports::new(ECHO_PORT, ECHO_PORT))
    else {
        return Err(BenchError::Panicked("table of ports"));
    };
    let (sources, destinations) = (prefix(target.sources)?, prefix(target.destinations)?);
    let space = FlowSpace { sources, destinations, source_ports, destination_ports };
    // A box may take the first and the last address of a network for itself or for all.
    let is_host = |prefix: &Prefix, address| {
        prefix.count() <= 2 || (address != prefix.first() && address != prefix.nth(prefix.count() - 1))
    };
    let mut count = n;
    loop {
        let mut flows = space.flows(count, seed)?;
        flows.retain(|f| is_host(&sources, f.source) && is_host(&destinations, f.destination));
        if flows.len() >= n {
            flows.truncate(n);
            return Ok(flows);
        }
        count += n - flows.len() + n / 64 + 1;
    }
}
