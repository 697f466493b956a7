//! The words of a rule's conditions, as files and flags write them.

use std::{net::IpAddr, ops::RangeInclusive};

use super::{
    prefixes::unmapped,
    rule::{Fragment, Place, Prefix, TcpFlags},
};

/// A wrong word, and the way to write it instead.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Wrong {
    pub what: String,
    /// The way to write it instead.
    pub instead: Option<String>,
}

impl Wrong {
    /// Wrong, with a word about what to write instead.
    pub fn new(what: impl Into<String>, instead: impl Into<String>) -> Self {
        Self { what: what.into(), instead: Some(instead.into()) }
    }
}

/// IP protocols by the names that /etc/protocols and nftables have for them.
pub const PROTOCOLS: &[(&str, u8)] = &[
    ("icmp", 1),
    ("igmp", 2),
    ("ipip", 4),
    ("tcp", 6),
    ("udp", 17),
    ("dccp", 33),
    ("ipv6", 41),
    ("gre", 47),
    ("esp", 50),
    ("ah", 51),
    ("icmpv6", 58),
    ("ospf", 89),
    ("pim", 103),
    ("vrrp", 112),
    ("l2tp", 115),
    ("sctp", 132),
    ("udplite", 136),
];
/// Other names for some of them, as /etc/protocols, nftables and routers write them.
const PROTOCOLS_TOO: &[(&str, u8)] = &[
    ("ipencap", 4),
    ("rsvp", 46),
    ("icmp6", 58),
    ("ipv6-icmp", 58),
    ("eigrp", 88),
    ("ospfigp", 89),
    ("udp-lite", 136),
];
/// TCP flags and their bits.
pub const TCP_FLAGS: &[(&str, u8)] =
    &[("fin", 1), ("syn", 2), ("rst", 4), ("psh", 8), ("ack", 16), ("urg", 32), ("ece", 64), ("cwr", 128)];
/// Names of ICMP types (RFC 792 and followers).
pub const ICMP_TYPES: &[(&str, u8)] = &[
    ("echo-reply", 0),
    ("destination-unreachable", 3),
    ("source-quench", 4),
    ("redirect", 5),
    ("echo-request", 8),
    ("router-advertisement", 9),
    ("router-solicitation", 10),
    ("time-exceeded", 11),
    ("parameter-problem", 12),
    ("timestamp-request", 13),
    ("timestamp-reply", 14),
];
/// Names of ICMPv6 types (RFC 4443, RFC 4861, RFC 2710).
pub const ICMPV6_TYPES: &[(&str, u8)] = &[
    ("destination-unreachable", 1),
    ("packet-too-big", 2),
    ("time-exceeded", 3),
    ("parameter-problem", 4),
    ("echo-request", 128),
    ("echo-reply", 129),
    ("mld-listener-query", 130),
    ("mld-listener-report", 131),
    ("mld-listener-done", 132),
    ("nd-router-solicit", 133),
    ("nd-router-advert", 134),
    ("nd-neighbor-solicit", 135),
    ("nd-neighbor-advert", 136),
    ("nd-redirect", 137),
    ("mld2-listener-report", 143),
];
/// Names of code points (RFC 2474, 2597, 3246, 5865, 8622).
pub const DSCP: &[(&str, u8)] = &[
    ("cs0", 0),
    ("le", 1),
    ("cs1", 8),
    ("af11", 10),
    ("af12", 12),
    ("af13", 14),
    ("cs2", 16),
    ("af21", 18),
    ("af22", 20),
    ("af23", 22),
    ("cs3", 24),
    ("af31", 26),
    ("af32", 28),
    ("af33", 30),
    ("cs4", 32),
    ("af41", 34),
    ("af42", 36),
    ("af43", 38),
    ("cs5", 40),
    ("va", 44),
    ("ef", 46),
    ("cs6", 48),
    ("cs7", 56),
];

/// The one of `known` that `word` was probably meant to be.
pub fn nearest<'a>(word: &str, known: impl IntoIterator<Item = &'a str>) -> Option<&'a str> {
    let near = known.into_iter().map(|name| (strsim::osa_distance(word, name), name)).min()?;
    // Of a short word, half may be wrong: `upd` is `udp`, and `foo` is not `hook`.
    let far = if word.len() < 4 { 1 } else { 2.max(word.len() / 3) };
    (near.0 <= far).then_some(near.1)
}

/// `instead` for a word that is none of `known`: the nearest, or all of them.
pub fn one_of(word: &str, known: &[&str]) -> String {
    match nearest(word, known.iter().copied()) {
        Some(near) => format!("did you mean `{near}`?"),
        None => format!("write one of {}", known.join(", ")),
    }
}

/// The first address of the prefix of `len` bits that `address` is in.
pub fn masked(address: IpAddr, len: u8) -> IpAddr {
    match address {
        IpAddr::V4(v4) => {
            let keep = u32::MAX.checked_shl(32 - u32::from(len)).unwrap_or(0);
            IpAddr::V4((v4.to_bits() & keep).into())
        }
        IpAddr::V6(v6) => {
            let keep = u128::MAX.checked_shl(128 - u32::from(len)).unwrap_or(0);
            IpAddr::V6((v6.to_bits() & keep).into())
        }
    }
}

/// `192.0.2.0/24`, `192.0.2.1`, `2001:db8::/32`.
pub fn prefix(word: &str) -> Result<Prefix, Wrong> {
    let (address, len) = word.split_once('/').map_or((word, None), |(address, len)| (address, Some(len)));
    let parsed: IpAddr = address.parse().map_err(|_| {
        Wrong::new(
            format!("`{word}` is not an address or prefix"),
            "write one such as 192.0.2.1, 192.0.2.0/24 or 2001:db8::/32; a set is written @NAME",
        )
    })?;
    let whole = if parsed.is_ipv4() { 32 } else { 128 };
    let len = match len.map(str::parse::<u8>) {
        None => whole,
        Some(Ok(len)) if len <= whole => len,
        Some(_) => {
            let family = if parsed.is_ipv4() { "IPv4" } else { "IPv6" };
            return Err(Wrong::new(
                format!("invalid {family} prefix length /{}", len.unwrap_or_default()),
                format!("use /0 to /{whole}"),
            ));
        }
    };
    let first = masked(parsed, len);
    if first != parsed {
        return Err(Wrong::new(
            format!("`{word}` has bits set after /{len}"),
            format!("write {first}/{len}, or {parsed} for one address"),
        ));
    }
    Ok(unmapped(parsed, len))
}

/// A prefix, or `@name` of a set.
pub fn place(word: &str) -> Result<Place, Wrong> {
    match word.strip_prefix('@') {
        Some("") => Err(Wrong::new("`@` without a name", "write the set's name after it, such as @blocked")),
        Some(name) => Ok(Place::Set(name.to_owned())),
        None if word.starts_with('!') => Err(Wrong::new(
            format!("`{word}`: conditions cannot be negated"),
            "put a rule with action = \"pass\" for the exception before this one",
        )),
        None => prefix(word).map(Place::Prefix),
    }
}

/// A number, or `FROM-TO`, within `low` to `high`.
pub fn range(word: &str, noun: &str, low: u16, high: u16) -> Result<RangeInclusive<u16>, Wrong> {
    let bad = |what: String| {
        Wrong::new(
            what,
            format!("write a number from {low} to {high}, or a range such as \"{low}-{}\"", high.min(1023)),
        )
    };
    let number = |text: &str| match text.trim().parse::<u64>() {
        Ok(n) if (u64::from(low)..=u64::from(high)).contains(&n) => {
            u16::try_from(n).map_err(|_| bad(format!("{noun} `{word}` is out of bounds")))
        }
        Ok(n) => Err(bad(format!("{noun} {n} is out of bounds"))),
        Err(_) => Err(bad(format!("`{word}` is not a {noun}"))),
    };
    let (from, to) = match word.split_once(['-', ':']) {
        Some((from, to)) => (number(from)?, number(to)?),
        None => (number(word)?, number(word)?),
    };
    if from > to {
        return Err(Wrong::new(format!("the range {word} is reversed"), format!("write {to}-{from}")));
    }
    Ok(from..=to)
}

/// A number or a name out of `known`.
fn named(word: &str, noun: &str, known: &[(&str, u8)], high: u8) -> Result<u8, Wrong> {
    let lower = word.to_ascii_lowercase();
    if let Some((_, number)) = known.iter().find(|(name, _)| *name == lower) {
        return Ok(*number);
    }
    if let Ok(number) = word.parse::<u64>() {
        return u8::try_from(number).ok().filter(|number| *number <= high).ok_or_else(|| {
            Wrong::new(format!("{noun} {number} is out of bounds"), format!("write 0 to {high}, or a name"))
        });
    }
    let names: Vec<_> = known.iter().map(|(name, _)| *name).collect();
    let instead = match nearest(&lower, names.iter().copied()) {
        Some(near) => format!("did you mean `{near}`?"),
        None => format!("write a number from 0 to {high}, or one of {}", names.join(", ")),
    };
    Err(Wrong::new(format!("`{word}` is not a {noun}"), instead))
}

/// A protocol by name or number.
pub fn protocol(word: &str) -> Result<u8, Wrong> {
    // Beside the names that are shown: of `icmp6` the nearest would be another protocol.
    match PROTOCOLS_TOO.iter().find(|(name, _)| name.eq_ignore_ascii_case(word)) {
        Some((_, number)) => Ok(*number),
        None => named(word, "protocol", PROTOCOLS, 255),
    }
}

/// A differentiated services code point by name or number.
pub fn dscp(word: &str) -> Result<u8, Wrong> {
    named(word, "DSCP", DSCP, 63)
}

/// An ICMP type. Names mean different numbers over IPv4 and IPv6, so that `protocols` has to say which.
pub fn icmp_type(word: &str, protocols: &[u8]) -> Result<u8, Wrong> {
    match (protocols, word.parse::<u64>()) {
        ([1], _) => named(word, "ICMP type", ICMP_TYPES, 255),
        ([58], _) => named(word, "ICMPv6 type", ICMPV6_TYPES, 255),
        (_, Ok(_)) => named(word, "ICMP type", &[], 255),
        _ => Err(Wrong::new(
            format!("the name `{word}` has different numbers over IPv4 and IPv6"),
            "write protocol = \"icmp\" or protocol = \"icmpv6\" beside it, or the number",
        )),
    }
}

/// `syn !ack`: flags that are set and, with an exclamation mark, that are not; others may be either.
pub fn tcp_flags(text: &str) -> Result<TcpFlags, Wrong> {
    let mut flags = TcpFlags { mask: 0, value: 0 };
    for word in text.split([' ', ',', '+']).filter(|word| !word.is_empty()) {
        let (name, set) = word.strip_prefix('!').map_or((word, true), |name| (name, false));
        let lower = name.to_ascii_lowercase();
        let Some((_, bit)) = TCP_FLAGS.iter().find(|(known, _)| *known == lower) else {
            let names: Vec<_> = TCP_FLAGS.iter().map(|(name, _)| *name).collect();
            return Err(Wrong::new(
                format!("`{name}` is not a TCP flag"),
                format!("{}; \"syn !ack\" is: SYN set and ACK not", one_of(&lower, &names)),
            ));
        };
        if flags.mask & bit != 0 {
            return Err(Wrong::new(format!("the TCP flag {name} is named twice"), "name each flag once"));
        }
        flags.mask |= bit;
        flags.value |= if set { *bit } else { 0 };
    }
    if flags.mask == 0 {
        return Err(Wrong::new("no TCP flag is named", "write flags such as \"syn !ack\": SYN set and ACK not"));
    }
    Ok(flags)
}

/// `no`, `any`, `first`, `later`; `true` is any, `false` is no.
pub fn fragment(word: &str) -> Result<Fragment, Wrong> {
    match word {
        "no" | "false" => Ok(Fragment::No),
        "any" | "true" => Ok(Fragment::Any),
        "first" => Ok(Fragment::First),
        "later" => Ok(Fragment::Later),
        _ => Err(Wrong::new(
            format!("`{word}` is not a kind of fragment"),
            "write \"no\" (whole packets), \"any\", \"first\" or \"later\"",
        )),
    }
}

/// `known` or `none`: whether the packet belongs to a connection.
pub fn connection(word: &str) -> Result<bool, Wrong> {
    one_of_two(word, "no state of a connection", [("known", true), ("none", false)])
}

/// `yes` or `no`: whether a socket of this machine listens for it.
pub fn listener(word: &str) -> Result<bool, Wrong> {
    one_of_two(word, "neither yes nor no", [("yes", true), ("no", false)])
}

/// `before` or `never`: whether its source was seen before.
pub fn source_seen(word: &str) -> Result<bool, Wrong> {
    one_of_two(word, "no time at which a source was seen", [("before", true), ("never", false)])
}

fn one_of_two(word: &str, what: &str, known: [(&str, bool); 2]) -> Result<bool, Wrong> {
    let found = known.iter().find(|(name, _)| *name == word).map(|(_, value)| *value);
    found.ok_or_else(|| {
        Wrong::new(format!("`{word}` is {what}"), format!("write \"{}\" or \"{}\"", known[0].0, known[1].0))
    })
}

/// `ipv4` or `ipv6`.
pub fn family(word: &str) -> Result<u8, Wrong> {
    match word {
        "4" | "ipv4" | "ip" => Ok(4),
        "6" | "ipv6" | "ip6" => Ok(6),
        _ => Err(Wrong::new(format!("`{word}` is not a family"), "write \"ipv4\" or \"ipv6\"")),
    }
}

/// No rate is above this, in packets per second.
pub const RATE_MAX: f64 = 1e12;

/// Packets per second: `5000`, `5000/s`, `5k/s`, `1.5M/s`.
pub fn rate(word: &str) -> Result<u64, Wrong> {
    let bad = || {
        Wrong::new(
            format!("`{word}` is not a rate"),
            "write packets per second, such as 5000, \"5k/s\" or \"1.5M/s\" (1 at least, 1000G at most)",
        )
    };
    let number = ["packets/s", "pps", "/s"].iter().find_map(|unit| word.strip_suffix(unit)).unwrap_or(word).trim();
    let (number, factor) = match number.char_indices().next_back() {
        Some((at, 'k' | 'K')) => (&number[..at], 1e3),
        Some((at, 'M')) => (&number[..at], 1e6),
        Some((at, 'G')) => (&number[..at], 1e9),
        _ => (number, 1.0),
    };
    let pps = number.trim().parse::<f64>().map_err(|_| bad())? * factor;
    if !(1.0..=RATE_MAX).contains(&pps) || pps.fract() > 1e-6 {
        return Err(bad());
    }
    Ok(pps as u64)
}

/// `ipv4/24` or `ipv6/56` words into lengths; a family that is not named is told apart by whole addresses (IPv4) or /64 (IPv6).
pub fn per_source(words: &[&str]) -> Result<Option<(u8, u8)>, Wrong> {
    let (mut lens, mut named) = ((32, 64), Vec::new());
    for word in words {
        let family = word.split_once('/').map(|(family, _)| family);
        if let Some(family) = family.filter(|family| named.contains(family)) {
            return Err(Wrong::new(format!("`{family}` has two lengths"), "write one length for each family"));
        }
        named.extend(family);
        match *word {
            "true" | "address" => continue,
            "false" => return Ok(None),
            _ => {}
        }
        let len = |text: &str, high: u8| text.parse::<u8>().ok().filter(|len| (1..=high).contains(len));
        let parsed = match word.split_once('/') {
            Some(("ipv4", text)) => len(text, 32).map(|len| lens.0 = len),
            Some(("ipv6", text)) => len(text, 128).map(|len| lens.1 = len),
            _ => None,
        };
        parsed.ok_or_else(|| {
            Wrong::new(
                format!("`{word}` does not say how sources are told apart"),
                "write true (each IPv4 address, each IPv6 /64), or lengths such as [\"ipv4/24\", \"ipv6/56\"]",
            )
        })?;
    }
    Ok(Some(lens))
}

/// A moment: RFC 3339 with an offset.
pub fn moment(word: &str) -> Result<jiff::Timestamp, Wrong> {
    word.parse().map_err(|_| {
        let zoned = format!("{}Z", word.replacen(' ', "T", 1));
        let instead = match zoned.parse::<jiff::Timestamp>() {
            Ok(_) => format!("add the offset from UTC, such as {zoned}"),
            Err(_) => "write a time such as 2027-01-31T18:00:00Z".to_owned(),
        };
        Wrong::new(format!("`{word}` is not a time"), instead)
    })
}
