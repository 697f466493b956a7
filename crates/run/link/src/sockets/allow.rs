//! Sources of the cluster that may connect over link, and to which ports: no firewall sees these connections.

use std::{
    fmt,
    net::{IpAddr, SocketAddr},
    ops::RangeInclusive,
    str::FromStr,
};

use ipnet::IpNet;

/// Default ports. Lower ones (ssh, system services) are what firewalls guard, and have to be named.
const PORTS: RangeInclusive<u16> = 1024..=u16::MAX;

/// Sources, and the ports of this node to which they may connect.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Allow {
    sources: IpNet,
    ports: RangeInclusive<u16>,
}

impl Allow {
    /// A prefix with the default ports, from 1024 on.
    pub fn of(sources: IpNet) -> Self {
        Self { sources, ports: PORTS }
    }

    pub fn sources(&self) -> IpNet {
        self.sources
    }

    pub(super) fn lets(&self, from: IpAddr, to: SocketAddr) -> bool {
        self.sources.contains(&from) && self.ports.contains(&to.port())
    }
}

impl fmt::Display for Allow {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(out, "{}:{}", self.sources, self.ports.start())?;
        match self.ports.start() == self.ports.end() {
            true => Ok(()),
            false => write!(out, "-{}", self.ports.end()),
        }
    }
}

/// `10.0.0.0/24`, `10.0.0.0/24:22`, `fd00::/64:7000-7999`.
impl FromStr for Allow {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let wrong =
            |what: &str| format!("{what}: it takes PREFIX, PREFIX:PORT or PREFIX:FIRST-LAST, as 10.0.0.0/24:7000-7999");
        // An IPv6 address has colons, too.
        let length = text.find('/').ok_or_else(|| wrong("no prefix with its length"))?;
        let (sources, ports) = match text[length..].find(':') {
            Some(at) => (&text[..length + at], Some(&text[length + at + 1..])),
            None => (text, None),
        };
        let sources: IpNet = sources.parse().map_err(|_| wrong("no prefix"))?;
        let Some(ports) = ports else { return Ok(Self::of(sources)) };
        let port = |text: &str| text.parse::<u16>().ok().filter(|&port| port > 0).ok_or_else(|| wrong("no port"));
        let (first, last) = ports.split_once('-').unwrap_or((ports, ports));
        let ports = port(first)?..=port(last)?;
        match ports.is_empty() {
            true => Err(wrong("the first port is above the last")),
            false => Ok(Self { sources, ports }),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_written_is_let_in_and_nothing_else() {
        let lets = |allow: &str, from: &str, port: u16| {
            let to = SocketAddr::new("10.0.0.1".parse().unwrap(), port);
            allow.parse::<Allow>().unwrap().lets(from.parse().unwrap(), to)
        };
        assert!(lets("10.0.0.0/24", "10.0.0.7", 1024) && lets("10.0.0.0/24", "10.0.0.7", 65535));
        assert!(!lets("10.0.0.0/24", "10.0.0.7", 22) && !lets("10.0.0.0/24", "10.0.1.7", 7000));
        assert!(lets("10.0.0.7/32:22", "10.0.0.7", 22) && !lets("10.0.0.7/32:22", "10.0.0.7", 23));
        assert!(lets("fd00::/64:7000-7999", "fd00::1", 7999) && !lets("fd00::/64:7000-7999", "fd00::1", 8000));
        assert!(!lets("fd00::/64:7000-7999", "10.0.0.7", 7000));
        for text in ["10.0.0.0/24:1024-65535", "fd00::/64:22"] {
            assert_eq!(text.parse::<Allow>().unwrap().to_string(), text);
        }
        for text in [
            "",
            "10.0.0.1",
            "10.0.0.0/33",
            "10.0.0.0/24:",
            "10.0.0.0/24:0",
            "10.0.0.0/24:9-8",
            "10.0.0.0/24:1-70000",
            "/:1",
        ] {
            assert!(text.parse::<Allow>().unwrap_err().contains("10.0.0.0/24:7000-7999"), "{text}");
        }
    }
}
