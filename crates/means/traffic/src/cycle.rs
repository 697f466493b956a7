//! The packets that a stream repeats: which flows, in which order, of which sizes.

use wire::{FlowKey, FrameSize, Template};

use crate::{
    TrafficError,
    range::{Ports, Prefix},
};

/// The most packets in a cycle.
pub const CYCLE_MAX: usize = 1 << 20;

/// The set of addresses and ports that flows are taken from.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct FlowSpace {
    pub sources: Prefix,
    /// Destination addresses, of the same IP version.
    pub destinations: Prefix,
    pub source_ports: Ports,
    pub destination_ports: Ports,
}

impl FlowSpace {
    /// The number of different flows.
    pub fn count(&self) -> u128 {
        u128::from(self.sources.count())
            * u128::from(self.destinations.count())
            * u128::from(self.source_ports.count())
            * u128::from(self.destination_ports.count())
    }

    /// The first `n` flows of the order that `seed` gives: all different, and spread evenly over the whole space.
    ///
    /// The index of the flow runs through the space in steps near its golden section, prime to its size, so that none comes
    /// twice before all were there.
    ///
    /// # Errors
    /// [`TrafficError::Setting`] if the space has fewer than `n`, or for mixed IP versions.
    pub fn flows(&self, n: usize, seed: u64) -> Result<Vec<FlowKey>, TrafficError> {
        if self.sources.is_ipv6() != self.destinations.is_ipv6() {
            return Err(TrafficError::Setting(format!(
                "sources {} and destinations {} are not of one IP version",
                self.sources, self.destinations
            )));
        }
        let space = self.count();
        if space < n as u128 {
            return Err(TrafficError::Setting(format!(
                "{n} flows were asked for, and these addresses and ports make only {space}: widen a range"
            )));
        }
        let mut step = (space as f64 * 0.618_033_988_749_895) as u128 | 1;
        while gcd(step, space) != 1 {
            step += 1;
        }
        let mut index = u128::from(scramble(seed)) % space;
        let mut flows = Vec::with_capacity(n);
        for _ in 0..n {
            flows.push(self.flow(index));
            index = (index + step) % space;
        }
        Ok(flows)
    }

    fn flow(&self, index: u128) -> FlowKey {
        let mut rest = index;
        let mut digit = |count: u64| {
            let digit = rest % u128::from(count);
            rest /= u128::from(count);
            digit as u64
        };
        FlowKey {
            source_port: self.source_ports.nth(digit(self.source_ports.count())),
            source: self.sources.nth(digit(self.sources.count())),
            destination: self.destinations.nth(digit(self.destinations.count())),
            destination_port: self.destination_ports.nth(digit(self.destination_ports.count())),
        }
    }
}

fn gcd(mut a: u128, mut b: u128) -> u128 {
    while b != 0 {
        (a, b) = (b, a % b);
    }
    a
}

/// A well mixed number of `seed` (the finaliser of SplitMix64, Steele and others 2014).
fn scramble(seed: u64) -> u64 {
    let mut z = seed.wrapping_add(0x9e37_79b9_7f4a_7c15);
    z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    z ^ (z >> 31)
}

/// The packets of one sender, in the order in which it repeats them.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Cycle {
    /// Whole frames without FCS.
    pub frames: Vec<Vec<u8>>,
    /// Length of the headers of all frames, in bytes.
    pub headers_len: usize,
    /// Offset of the IP header in bytes.
    pub ip_offset: usize,
    /// Offset of the transport header in bytes.
    pub transport_offset: usize,
    /// Offset of the TCP header in bytes; none for UDP.
    pub tcp_offset: Option<usize>,
}

impl Cycle {
    /// The cycle of sender `sender` of `senders`: it has every `senders`-th flow, and repeats the flows until they meet every one of the sizes, so
    /// that each flow has its share of each.
    ///
    /// # Errors
    /// A frame cannot be built; the cycle is beyond [`CYCLE_MAX`].
    pub fn build(
        template: &Template,
        flows: &[FlowKey],
        sizes: &[FrameSize],
        (sender, senders): (usize, usize),
        seed: u64,
    ) -> Result<Self, TrafficError> {
        let mine: Vec<&FlowKey> = if flows.len() < senders {
            flows.iter().skip(sender % flows.len().max(1)).take(1).collect()
        } else {
            flows.iter().skip(sender).step_by(senders).collect()
        };
        let (Some(first), Some(_)) = (mine.first(), sizes.first()) else {
            return Err(TrafficError::Setting("a stream needs at least one flow and one frame size".into()));
        };
        let len = mine.len() * sizes.len();
        if len > CYCLE_MAX {
            return Err(TrafficError::Setting(format!(
                "{} flows in {} sizes make a cycle of {len} packets for one sender, and {CYCLE_MAX} is the most: take fewer flows or more CPUs",
                mine.len(),
                sizes.len()
            )));
        }
        let frames = (0..len)
            .map(|i| {
                // Each round starts one size later; rounds are as many as sizes, so each flow meets all of them.
                let round = i / mine.len();
                let flow = mine[i % mine.len()];
                // The lower half is left to the live-frame program, which counts there.
                let sequence = (scramble(seed ^ i as u64) as u32) & 0xffff_0000;
                let size = sizes[(i % mine.len() + round) % sizes.len()];
                template.build(flow, size, sequence)
            })
            .collect::<Result<_, _>>()?;
        let ipv6 = first.source.is_ipv6();
        let transport_offset = template.transport_offset(ipv6);
        Ok(Self {
            frames,
            headers_len: template.headers_len(ipv6),
            ip_offset: template.ip_offset(),
            transport_offset,
            tcp_offset: (template.kind != wire::Kind::Udp).then_some(transport_offset),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::collections::{HashMap, HashSet};
    use wire::{Ethernet, IMIX, Ip, Kind, Mac, Transport};

    fn space(sources: &str, destinations: &str, source_ports: &str, destination_ports: &str) -> FlowSpace {
        FlowSpace {
            sources: sources.parse().unwrap(),
            destinations: destinations.parse().unwrap(),
            source_ports: source_ports.parse().unwrap(),
            destination_ports: destination_ports.parse().unwrap(),
        }
    }

    fn template(kind: Kind) -> Template {
        Template { destination: Mac([2; 6]), source: Mac([4; 6]), tags: [None; 2], kind }
    }

    proptest! {
        #[test]
        fn flows_differ_and_stay_in_their_ranges(bits in 24u8..=32, first in 1u16..60000, ports in 0u16..3000, seed: u64, n in 1usize..2000) {
            let s = space(&format!("198.18.0.0/{bits}"), "198.19.0.1", &format!("{first}-{}", first + ports), "80-81");
            match s.flows(n, seed) {
                Ok(flows) => {
                    prop_assert_eq!(flows.iter().collect::<HashSet<_>>().len(), n);
                    prop_assert!(flows.iter().all(|f| s.sources.contains(f.source) && s.destinations.contains(f.destination)
                        && s.source_ports.contains(f.source_port) && s.destination_ports.contains(f.destination_port)));
                    prop_assert_eq!(&flows, &s.flows(n, seed).unwrap());
                }
                Err(e) => prop_assert!(s.count() < n as u128, "{}", e),
            }
        }
    }

    #[test]
    fn many_flows_have_many_addresses_and_ports() {
        let flows = space("198.18.0.0/16", "198.19.0.1", "1024-65535", "80").flows(10_000, 1).unwrap();
        let sources: HashSet<_> = flows.iter().map(|f| f.source).collect();
        let ports: HashSet<_> = flows.iter().map(|f| f.source_port).collect();
        assert!(sources.len() > 8_000 && ports.len() > 8_000, "{} {}", sources.len(), ports.len());
        assert!(space("2001:2::/48", "2001:2::/64", "0-65535", "0-65535").flows(10, 9).is_ok());
        assert!(space("2001:2::/48", "198.18.0.1", "1", "1").flows(1, 0).is_err());
    }

    #[test]
    fn senders_share_the_flows_and_every_flow_meets_every_size() {
        let flows = space("198.18.0.0/24", "198.19.0.1", "1024", "9").flows(12, 3).unwrap();
        let mut seen: HashMap<(FlowKey, usize), u32> = HashMap::new();
        for sender in 0..2 {
            let cycle = Cycle::build(&template(Kind::Udp), &flows, &IMIX, (sender, 2), 0).unwrap();
            assert_eq!((cycle.frames.len(), cycle.tcp_offset, cycle.headers_len), (72, None, 42));
            for frame in &cycle.frames {
                let ip = Ip::parse(Ethernet::parse(frame).unwrap().payload()).unwrap();
                assert_eq!(ip.is_payload_checksum_right(), Some(true));
                let (source_port, destination_port) = Transport::parse(&ip).unwrap().ports().unwrap();
                let flow =
                    FlowKey { source: ip.source(), destination: ip.destination(), source_port, destination_port };
                *seen.entry((flow, frame.len() + 4)).or_default() += 1;
            }
        }
        for flow in flows {
            let times = |size| seen.get(&(flow, size)).copied().unwrap_or(0);
            assert_eq!((times(64), times(594), times(1518)), (7, 4, 1));
        }
    }

    #[test]
    fn more_senders_than_flows_repeat_flows_and_too_many_packets_are_refused() {
        let flows = space("198.18.0.0/24", "198.19.0.1", "1024", "9").flows(2, 3).unwrap();
        let sizes = [FrameSize::MIN];
        let of = |sender| Cycle::build(&template(Kind::TcpSyn), &flows, &sizes, (sender, 3), 0).unwrap().frames;
        assert_eq!(of(0).len(), 1);
        assert_eq!(of(0)[0][26..38], of(2)[0][26..38]);
        assert!(Cycle::build(&template(Kind::Udp), &[], &sizes, (0, 1), 0).is_err());
    }
}
