use std::{net::IpAddr, ops::RangeInclusive};

use rules::{Fragment, Match, Place, Prefix, Rules, packet::Part};

use super::{DSCP, FLAGS, ICMP_TYPES, LENGTHS, PORTS, PROTOCOLS, Random, Spec, VLANS, address};

/// A frame for these rules: a proper packet, three times of four made to fulfil one of them.
pub fn frame(random: &mut Random, rules: &Rules) -> Vec<u8> {
    spec(random, rules).bytes()
}

/// As [`frame`], in words.
pub fn spec(random: &mut Random, rules: &Rules) -> Spec {
    let v4 = random.percent(50);
    let mut spec = Spec {
        // Three are one too many; the upper bits are priority and drop eligibility.
        tags: (0..random.pick(&[0, 0, 0, 0, 0, 0, 0, 0, 1, 1, 2, 2, 3]))
            .map(|n| (if n == 0 { 0x88a8 } else { 0x8100 }, random.pick(VLANS) | random.pick(&[0, 0, 0x1000, 0xe000])))
            .collect(),
        source: address(random, v4),
        destination: address(random, v4),
        protocol: random.pick(PROTOCOLS),
        ports: (random.pick(PORTS), random.pick(PORTS)),
        tcp_flags: random.pick(FLAGS),
        icmp_type: random.pick(ICMP_TYPES),
        part: random.pick(&[Part::Whole, Part::Whole, Part::Whole, Part::Whole, Part::First, Part::Later]),
        dscp: random.pick(DSCP),
        option_words: random.pick(&[0, 0, 0, 1, 10]),
        extensions: if random.percent(25) { random.some(&[0, 43, 51, 60]) } else { Vec::new() },
        payload: 0,
        padding: random.pick(&[0, 0, 6, 20]),
    };
    // Hop-by-hop options are the first header or none (RFC 8200 section 4.1).
    spec.extensions.sort_by_key(|number| *number != 0);
    let hop_by_hop = spec.extensions.iter().filter(|number| **number == 0).count();
    spec.extensions.drain(1.min(hop_by_hop)..hop_by_hop);
    if let [tag] = spec.tags[..] {
        spec.tags = vec![(random.pick(&[0x8100, 0x88a8]), tag.1)];
    }
    let mut len = random.pick(LENGTHS);
    if !rules.rules.is_empty() && random.percent(75) {
        let when = &rules.rules[random.below(rules.rules.len())].when;
        aim(random, &mut spec, rules, when);
        len = within(random, &when.length).unwrap_or(len);
    }
    // What is too long for a frame or too short for the headers is not aimed at.
    spec.payload = usize::from(len.min(1500)).saturating_sub(spec.headers_len());
    spec
}

/// Makes the packet fulfil these conditions, as far as they can be fulfilled together.
fn aim(random: &mut Random, spec: &mut Spec, rules: &Rules, when: &Match) {
    let places: Vec<Prefix> = [&when.source, &when.destination]
        .into_iter()
        .map(|places| prefixes(rules, places))
        .filter(|prefixes| !prefixes.is_empty())
        .map(|prefixes| random.pick(&prefixes))
        .collect();
    let family = when.family.or(places.first().map(|prefix| if prefix.address.is_ipv4() { 4 } else { 6 }));
    let v4 = family.map_or(spec.source.is_ipv4(), |family| family == 4);
    for (places, to) in [(&when.source, &mut spec.source), (&when.destination, &mut spec.destination)] {
        let fitting: Vec<Prefix> = prefixes(rules, places).into_iter().filter(|p| p.address.is_ipv4() == v4).collect();
        if !fitting.is_empty() {
            let prefix = random.pick(&fitting);
            *to = inside(random, prefix);
        } else if to.is_ipv4() != v4 {
            *to = address(random, v4);
        }
    }
    if !when.protocol.is_empty() {
        spec.protocol = random.pick(&when.protocol);
    } else if when.tcp_flags.is_some() {
        spec.protocol = 6;
    } else if !when.icmp_type.is_empty() {
        spec.protocol = if v4 { 1 } else { 58 };
    } else if !when.source_port.is_empty() || !when.destination_port.is_empty() {
        spec.protocol = random.pick(&[6, 17, 132]);
    }
    spec.ports.0 = within(random, &when.source_port).unwrap_or(spec.ports.0);
    spec.ports.1 = within(random, &when.destination_port).unwrap_or(spec.ports.1);
    if let Some(flags) = when.tcp_flags {
        spec.tcp_flags = spec.tcp_flags & !flags.mask | flags.value;
    }
    if !when.icmp_type.is_empty() {
        spec.icmp_type = random.pick(&when.icmp_type);
    }
    if !when.dscp.is_empty() {
        spec.dscp = random.pick(&when.dscp);
    }
    if !when.vlan.is_empty() {
        spec.tags = vec![(0x8100, random.pick(&when.vlan))];
    }
    let needs_header = when.tcp_flags.is_some() || !when.icmp_type.is_empty() || !when.source_port.is_empty();
    spec.part = match when.fragment {
        Some(Fragment::No) => Part::Whole,
        Some(Fragment::Any) => random.pick(&[Part::First, Part::Later]),
        Some(Fragment::First) => Part::First,
        Some(Fragment::Later) => Part::Later,
        None if needs_header => Part::Whole,
        None => spec.part,
    };
}

fn prefixes(rules: &Rules, places: &[Place]) -> Vec<Prefix> {
    let of = |place: &Place| match place {
        Place::Prefix(prefix) => vec![*prefix],
        Place::Set(name) => rules.sets.get(name).map(|set| set.prefixes.clone()).unwrap_or_default(),
    };
    places.iter().flat_map(of).collect()
}

/// An end of one of the ranges, something within, or just outside.
fn within(random: &mut Random, ranges: &[RangeInclusive<u16>]) -> Option<u16> {
    let range = ranges.get(random.below(ranges.len().max(1)))?;
    let (start, end) = (*range.start(), *range.end());
    let inside = start + (random.draw() % (u64::from(end - start) + 1)) as u16;
    Some(random.pick(&[start, end, inside, inside, start.saturating_sub(1), end.saturating_add(1)]))
}

/// The first or last address of the prefix, one of the pool's if it is within, or any within.
fn inside(random: &mut Random, prefix: Prefix) -> IpAddr {
    let bits = u128::from(random.draw()) << 64 | u128::from(random.draw());
    let host = random.pick(&[0, u128::MAX, bits, bits]);
    match prefix.address {
        IpAddr::V4(first) => {
            let mask = u32::MAX.checked_shr(prefix.len.into()).unwrap_or(0);
            IpAddr::V4((first.to_bits() | host as u32 & mask).into())
        }
        IpAddr::V6(first) => {
            let mask = u128::MAX.checked_shr(prefix.len.into()).unwrap_or(0);
            IpAddr::V6((first.to_bits() | host & mask).into())
        }
    }
}

/// The frame cut somewhere, or with a few bytes (of its headers, mostly) changed.
pub fn hurt(random: &mut Random, frame: &mut Vec<u8>) {
    if random.percent(30) {
        frame.truncate(random.below(frame.len() + 1));
    }
    if frame.is_empty() || random.percent(20) {
        return;
    }
    for _ in 0..=random.below(4) {
        let end = if random.percent(80) { frame.len().min(80) } else { frame.len() };
        let at = random.below(end);
        let (flipped, any) = (frame[at] ^ 1 << random.below(8), random.draw() as u8);
        frame[at] = random.pick(&[0, 1, 4, 0xff, flipped, flipped, any]);
    }
}
