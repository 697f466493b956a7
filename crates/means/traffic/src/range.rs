//! Prefixes and port ranges: where packets come from and go to.

use std::{
    fmt,
    net::{IpAddr, Ipv4Addr, Ipv6Addr},
    str::FromStr,
};

use crate::TrafficError;

/// An address with a prefix length; a plain address is a prefix of full length.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Prefix {
    address: IpAddr,
    len: u8,
}

/// At most this many of an IPv6 prefix's host bits are varied.
const VARIED_BITS_MAX: u32 = 32;

impl Prefix {
    /// A prefix; host bits of `address` are cleared. None for a length beyond that of the address.
    pub fn new(address: IpAddr, len: u8) -> Option<Self> {
        let address = match address {
            IpAddr::V4(a) if len <= 32 => {
                Ipv4Addr::from(u32::from(a) & u32::MAX.checked_shl(32 - u32::from(len)).unwrap_or(0)).into()
            }
            IpAddr::V6(a) if len <= 128 => {
                Ipv6Addr::from(u128::from(a) & u128::MAX.checked_shl(128 - u32::from(len)).unwrap_or(0)).into()
            }
            _ => return None,
        };
        Some(Self { address, len })
    }

    /// True if it is of IPv6.
    pub fn is_ipv6(&self) -> bool {
        self.address.is_ipv6()
    }

    pub fn contains(&self, address: IpAddr) -> bool {
        address.is_ipv6() == self.is_ipv6() && Self::new(address, self.len).is_some_and(|p| p.address == self.address)
    }

    /// True if it holds all of `other`.
    pub fn covers(&self, other: &Self) -> bool {
        other.len >= self.len && self.contains(other.address)
    }

    pub fn first(&self) -> IpAddr {
        self.address
    }

    /// The number of varied addresses: all of an IPv4 prefix, up to 2^32 of an IPv6 one.
    pub fn count(&self) -> u64 {
        let bits = if self.is_ipv6() { 128 } else { 32 } - u32::from(self.len);
        1 << bits.min(VARIED_BITS_MAX)
    }

    /// For an IPv6 prefix shorter than /64, the bits of its /64 networks' numbers that vary where sources are drawn, 32 at most.
    pub fn networks(&self) -> Option<u8> {
        (self.is_ipv6() && self.len < 64).then(|| (64 - self.len).min(VARIED_BITS_MAX as u8))
    }

    /// The `index`-th address, modulo [`Prefix::count`].
    pub fn nth(&self, index: u64) -> IpAddr {
        let index = index & (self.count() - 1);
        match self.address {
            IpAddr::V4(a) => Ipv4Addr::from(u32::from(a) | index as u32).into(),
            IpAddr::V6(a) => Ipv6Addr::from(u128::from(a) | u128::from(index)).into(),
        }
    }
}

impl FromStr for Prefix {
    type Err = TrafficError;

    fn from_str(text: &str) -> Result<Self, TrafficError> {
        let bad = || TrafficError::Text {
            text: text.to_owned(),
            what: "address or prefix",
            expected: "write 198.18.0.0/16, 198.19.0.1 or 2001:2::/64",
        };
        let (address, len) = match text.split_once('/') {
            Some((address, len)) => (address, Some(len.parse::<u8>().map_err(|_| bad())?)),
            None => (text, None),
        };
        let address: IpAddr = address.trim().parse().map_err(|_| bad())?;
        Self::new(address, len.unwrap_or(if address.is_ipv6() { 128 } else { 32 })).ok_or_else(bad)
    }
}

impl fmt::Display for Prefix {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.address, self.len)
    }
}

/// An inclusive range of ports.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Ports {
    first: u16,
    last: u16,
}

impl Ports {
    /// `first` to `last`; none if they run backwards.
    pub fn new(first: u16, last: u16) -> Option<Self> {
        (first <= last).then_some(Self { first, last })
    }

    pub fn count(&self) -> u64 {
        u64::from(self.last - self.first) + 1
    }

    /// The `index`-th port, modulo [`Ports::count`].
    pub fn nth(&self, index: u64) -> u16 {
        self.first + (index % self.count()) as u16
    }

    pub fn contains(&self, port: u16) -> bool {
        (self.first..=self.last).contains(&port)
    }
}

impl FromStr for Ports {
    type Err = TrafficError;

    fn from_str(text: &str) -> Result<Self, TrafficError> {
        let bad = || TrafficError::Text {
            text: text.to_owned(),
            what: "port or range of ports",
            expected: "write 80 or 1024-65535",
        };
        let port = |t: &str| t.trim().parse::<u16>().map_err(|_| bad());
        let (first, last) = text.split_once('-').unwrap_or((text, text));
        Self::new(port(first)?, port(last)?).ok_or_else(bad)
    }
}

impl fmt::Display for Ports {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.first == self.last { self.first.fmt(f) } else { write!(f, "{}-{}", self.first, self.last) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn prefix(text: &str) -> Prefix {
        text.parse().unwrap()
    }

    #[test]
    fn prefixes_hold_and_count_their_addresses() {
        let p = prefix("198.18.0.0/15");
        assert_eq!((p.count(), p.nth(65536), p.nth(131_072)), (131_072, prefix("198.19.0.0").first(), p.first()));
        assert!(p.contains("198.19.255.255".parse().unwrap()) && !p.contains("198.20.0.0".parse().unwrap()));
        assert!(
            p.covers(&prefix("198.19.0.0/16")) && !p.covers(&prefix("198.18.0.0/14")) && !p.covers(&prefix("::/0"))
        );
        assert!(prefix("0.0.0.0/0").covers(&p) && prefix("::/0").contains("2001:2::1".parse().unwrap()));
        assert_eq!(prefix("2001:2::/48").count(), 1 << 32);
        let networks = ["2001:2::/48", "2001::/16", "2001:2::/64", "10.0.0.0/8"].map(|p| prefix(p).networks());
        assert_eq!(networks, [Some(16), Some(32), None, None]);
        assert_eq!(prefix("10.1.2.3/8").to_string(), "10.0.0.0/8");
    }

    #[test]
    fn wrong_texts_are_refused() {
        for bad in ["", "10.0.0.0/33", "2001:2::/129", "10.0.0/8", "a/8", "10.0.0.0/-1"] {
            assert!(bad.parse::<Prefix>().is_err(), "{bad}");
        }
        for bad in ["", "5-4", "65536", "1-", "-1", "1-2-3"] {
            assert!(bad.parse::<Ports>().is_err(), "{bad}");
        }
        let all: Ports = "0-65535".parse().unwrap();
        assert_eq!((all.count(), all.nth(65_535)), (65_536, 65_535));
    }
}
