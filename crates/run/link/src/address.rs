//! Addresses of nodes.

use std::{
    fmt,
    net::{IpAddr, SocketAddr},
    str::FromStr,
};

use wire::Mac;

/// The port of UDP of the protocol. It is one of those that root alone sends from.
pub const UDP_PORT: u16 = 885;

/// Address of a node: an Ethernet address, or an IP address and UDP port.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Address {
    Ethernet(Mac),
    Udp(SocketAddr),
}

impl fmt::Display for Address {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Ethernet(mac) => mac.fmt(f),
            Self::Udp(at) => at.fmt(f),
        }
    }
}

/// The text is no address of a node.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("no Ethernet or IP address")]
pub struct NoAddress;

impl FromStr for Address {
    type Err = NoAddress;

    fn from_str(text: &str) -> Result<Self, NoAddress> {
        let mac = || text.parse().ok().map(Self::Ethernet);
        let at = || text.parse().ok().map(Self::Udp);
        let ip = || text.parse::<IpAddr>().ok().map(|ip| Self::Udp(SocketAddr::new(ip, UDP_PORT)));
        mac().or_else(at).or_else(ip).ok_or(NoAddress)
    }
}

impl From<Mac> for Address {
    fn from(mac: Mac) -> Self {
        Self::Ethernet(mac)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_are_read_as_they_are_shown() {
        for text in ["02:00:00:00:00:01", "10.0.0.1:885", "[fd00::1]:885", "[fe80::1%2]:885"] {
            assert_eq!(text.parse::<Address>().unwrap().to_string(), text);
        }
        assert_eq!("10.0.0.1".parse::<Address>().unwrap().to_string(), "10.0.0.1:885");
        assert_eq!("fd00::1".parse::<Address>().unwrap().to_string(), "[fd00::1]:885");
        assert_eq!("db1".parse::<Address>(), Err(NoAddress));
    }
}
