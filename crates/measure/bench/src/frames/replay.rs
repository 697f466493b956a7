//! The packets of a capture file as units: order, sizes, protocols, ports and traffic classes are the file's, the addresses are the test's.
//!
//! The side that speaks first in a connection sits at the first port, the other at the second, so that answers of the file go the other way (in a trial of
//! one direction they go along). Each host of the file has an address of its own in the networks of its side. The data are the tester's.

use std::{
    collections::{HashMap, HashSet},
    net::IpAddr,
    path::{Path, PathBuf},
};

use bpf::bench_tx::BenchEntry;
use lab::boxes::Family;
use model::bench::{Direction, FrameSpec};
use traffic::{Prefix, Recording};
use wire::{
    Ethernet, FlowKey, Ip, Transport,
    ethernet::{FCS_LEN, HEADER_LEN, ether_type},
};

use crate::BenchError;

use super::{
    SIGNATURE_BYTES, Traffic, flows, room_for,
    unit::{Carrier, Unit, ip_header_len},
};

/// A capture file laid out for the sender.
#[derive(Debug, Clone)]
pub struct Replay {
    pub path: PathBuf,
    /// An entry for each packet that is sent.
    pub entries: Vec<BenchEntry>,
    /// Different flows of each direction.
    pub flows: [u32; 2],
    /// Packets of the file that are not sent, and why.
    pub left_out: LeftOut,
    /// Packets that are sent longer than in the file, as the signature needs room.
    pub grown: u64,
    /// Packets that are sent shorter than in the file, as the MTU would not let them pass (captured before the card had cut them).
    pub cut: u64,
}

/// Packets of a file that are not sent.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct LeftOut {
    /// Not IP, or damaged.
    pub not_ip: u64,
    /// Frames of the other IP version.
    pub other_version: u64,
    pub fragments: u64,
    /// Neither UDP nor TCP.
    pub other_protocol: u64,
}

/// A packet of the file, parsed.
struct Packet {
    key: FlowKey,
    carrier: Carrier,
    traffic_class: u8,
    /// Length of the IP packet in bytes.
    ip_len: usize,
}

impl Replay {
    /// Reads `path` and lays it out for `traffic`, whose number of flows does not matter here: the file has its own.
    ///
    /// # Errors
    /// [`BenchError::Traffic`] for a file that cannot be read or is no capture of Ethernet, [`BenchError::Setting`] for one without packets that can be sent, or
    /// with too many.
    pub fn read(path: &Path, traffic: &Traffic) -> Result<Self, BenchError> {
        traffic.check()?;
        let recording = Recording::read(path)?;
        room_for(recording.frames.len(), || format!("the packets of {}", path.display()))?;
        let mut left_out = LeftOut::default();
        let packets: Vec<Packet> =
            recording.frames.iter().filter_map(|(_, bytes)| look(bytes, traffic.family(), &mut left_out)).collect();
        if packets.is_empty() {
            return Err(BenchError::Setting(format!(
                "{} has no packet that can be sent: UDP or TCP over IPv{}, not in fragments ({})",
                path.display(),
                if traffic.family() == Family::V6 { 6 } else { 4 },
                left_out.words().join(", ")
            )));
        }
        let mut sides = Sides::new(traffic)?;
        let (mut grown, mut cut) = (0, 0);
        let mut flows: [HashMap<(FlowKey, bool), (u32, u32)>; 2] = Default::default();
        let mut units = Vec::with_capacity(packets.len());
        for packet in &packets {
            let (direction, key) = sides.place(packet);
            let headers = ip_header_len(traffic.family()) + packet.carrier.header_len();
            let most = (traffic.mtu as usize).min(bpf::r#gen::LIVE_FRAME_MAX - HEADER_LEN);
            let ip_len = packet.ip_len.clamp(headers + SIGNATURE_BYTES, most);
            grown += u64::from(ip_len > packet.ip_len);
            cut += u64::from(ip_len < packet.ip_len);
            let of_direction = &mut flows[direction.index()];
            let next = of_direction.len() as u32;
            let (flow, times) = of_direction.entry((key, packet.carrier == Carrier::Udp)).or_insert((next, 0));
            let seq = *times;
            *times += 1;
            let unit = Unit {
                carrier: packet.carrier,
                traffic_class: packet.traffic_class,
                ..traffic.unit(direction, *flow, key, ip_len - headers)
            };
            units.push((unit, seq));
        }
        let times: [HashMap<u32, u32>; 2] = [0, 1].map(|d: usize| flows[d].values().copied().collect());
        let mut entries = Vec::with_capacity(units.len());
        for (unit, seq) in units {
            let step = times[usize::from(unit.direction)].get(&unit.flow).copied().unwrap_or(1);
            unit.push((seq, step), &mut entries);
        }
        let flows = [0, 1].map(|d: usize| flows[d].len() as u32);
        Ok(Self { path: path.to_owned(), entries, flows, left_out, grown, cut })
    }

    /// The frames in the words of a run.
    pub fn spec(&self) -> FrameSpec {
        FrameSpec::Replay { file: self.path.display().to_string(), packets: self.packets(), bytes: self.bytes() }
    }

    pub fn packets(&self) -> u32 {
        self.entries.len() as u32
    }

    /// All their bytes with FCS.
    pub fn bytes(&self) -> u64 {
        self.entries.iter().map(|e| u64::from(e.frame_len) + FCS_LEN as u64).sum()
    }

    /// The differences from the file, for people.
    pub fn notes(&self) -> Vec<String> {
        let all = self.entries.len();
        let mut notes = self.left_out.words();
        if self.grown > 0 {
            notes.push(format!(
                "{} of {all} packets are sent longer than they were: the tester's signature takes {SIGNATURE_BYTES} bytes of data",
                self.grown
            ));
        }
        if self.cut > 0 {
            notes.push(format!(
                "{} of {all} packets are sent shorter than they were: they do not fit the MTU",
                self.cut
            ));
        }
        notes
    }
}

impl LeftOut {
    pub fn total(&self) -> u64 {
        self.not_ip + self.other_version + self.fragments + self.other_protocol
    }

    fn words(&self) -> Vec<String> {
        [
            (self.not_ip, "not IP, or damaged"),
            (self.other_version, "of the other IP version"),
            (self.fragments, "fragments"),
            (self.other_protocol, "neither UDP nor TCP"),
        ]
        .into_iter()
        .filter(|(n, _)| *n > 0)
        .map(|(n, why)| format!("{n} packets of the file are not sent: {why}"))
        .collect()
    }
}

/// Reads a packet of the file; counts it in `left_out` if it cannot be sent.
fn look(bytes: &[u8], family: Family, left_out: &mut LeftOut) -> Option<Packet> {
    let ip_bytes = Ethernet::parse(bytes)
        .ok()
        .and_then(|e| matches!(e.ether_type(), ether_type::IPV4 | ether_type::IPV6).then(|| e.payload()));
    let Some((ip_bytes, ip)) = ip_bytes.and_then(|b| Some((b, Ip::parse(b).ok()?))) else {
        left_out.not_ip += 1;
        return None;
    };
    if ip.source().is_ipv6() != (family == Family::V6) {
        left_out.other_version += 1;
        return None;
    }
    if ip.fragment().is_some() {
        left_out.fragments += 1;
        return None;
    }
    let transport = Transport::parse(&ip).ok();
    let Some((transport, (source_port, destination_port))) = transport.and_then(|t| Some((t, t.ports()?))) else {
        left_out.other_protocol += 1;
        return None;
    };
    let carrier = match transport {
        Transport::Tcp(h, ..) => Carrier::Tcp {
            sequence: h.sequence.get(),
            acknowledgement: h.acknowledgement.get(),
            flags: h.offset_flags.get() & 0x1ff,
            window: h.window.get(),
        },
        _ => Carrier::Udp,
    };
    // What the packet states of itself holds where the capture has cut it short, too. Its header was read: these bytes are there.
    let word = |at: usize| u16::from_be_bytes([ip_bytes[at], ip_bytes[at + 1]]);
    let (traffic_class, ip_len) = match family {
        Family::V4 => (ip_bytes[1], usize::from(word(2))),
        Family::V6 => ((word(0) >> 4) as u8, usize::from(word(4)) + wire::ip::IPV6_LEN),
    };
    let key = FlowKey { source: ip.source(), destination: ip.destination(), source_port, destination_port };
    Some(Packet { key, carrier, traffic_class, ip_len })
}

/// The side of each host of the file, and its address in the test.
struct Sides {
    /// The networks at the first and at the second port.
    networks: [Prefix; 2],
    /// Addresses given out so far.
    hosts: [HashMap<IpAddr, IpAddr>; 2],
    /// The connections so far, as their first packets had them.
    connections: HashSet<(FlowKey, bool)>,
    both_ways: bool,
}

impl Sides {
    fn new(traffic: &Traffic) -> Result<Self, BenchError> {
        let forward = &traffic.targets[0];
        Ok(Self {
            networks: [flows::prefix(forward.sources)?, flows::prefix(forward.destinations)?],
            hosts: Default::default(),
            connections: HashSet::new(),
            both_ways: traffic.both_ways,
        })
    }

    /// The way of a packet, and its flow in the test's addresses.
    fn place(&mut self, packet: &Packet) -> (Direction, FlowKey) {
        let (key, udp) = (packet.key, packet.carrier == Carrier::Udp);
        let answer = FlowKey {
            source: key.destination,
            destination: key.source,
            source_port: key.destination_port,
            destination_port: key.source_port,
        };
        let backward = self.both_ways && self.connections.contains(&(answer, udp));
        let direction = if backward { Direction::Backward } else { Direction::Forward };
        if !backward {
            self.connections.insert((key, udp));
        }
        let (from, to) = if backward { (1, 0) } else { (0, 1) };
        let mapped =
            FlowKey { source: self.host(from, key.source), destination: self.host(to, key.destination), ..key };
        (direction, mapped)
    }

    fn host(&mut self, side: usize, address: IpAddr) -> IpAddr {
        let (hosts, network) = (&mut self.hosts[side], &self.networks[side]);
        // The first host is the probes'.
        let next = hosts.len() as u64 + 1;
        *hosts.entry(address).or_insert_with(|| flows::host(network, next))
    }
}
