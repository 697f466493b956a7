//! The addresses of a flood, in either version of IP.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};

const PORT: u16 = 80;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Addresses {
    pub(super) server: SocketAddr,
    /// The router in front of it, as far as the host knows, …
    pub(super) router: IpAddr,
    /// … and the length of the prefix that both are of.
    pub(super) link_len: u8,
    /// Clients come from here (RFC 2544, RFC 5180), …
    pub(super) clients: (IpAddr, u8),
    /// … and the flood claims to come from here (RFC 1918, RFC 4193): from a source drawn anew for each frame.
    pub(super) spoofed: (IpAddr, u8),
    /// The number of bits of it that are drawn; true if they are those of a /64 network.
    pub(super) drawn: (u8, bool),
}

impl Addresses {
    /// The addresses of IPv6 or of IPv4.
    pub(super) fn new(ipv6: bool) -> Self {
        if ipv6 {
            let of = |segments: [u16; 8]| IpAddr::V6(Ipv6Addr::from(segments));
            return Self {
                server: SocketAddr::new(of([0x2001, 2, 0, 1, 0, 0, 0, 2]), PORT),
                router: of([0x2001, 2, 0, 1, 0, 0, 0, 1]),
                link_len: 64,
                clients: (of([0x2001, 2, 0, 0x8000, 0, 0, 0, 0]), 49),
                spoofed: (of([0xfd53, 0x594e, 0, 0, 0, 0, 0, 0]), 32),
                drawn: (32, true),
            };
        }
        Self {
            server: SocketAddr::new(Ipv4Addr::new(198, 18, 0, 2).into(), PORT),
            router: Ipv4Addr::new(198, 18, 0, 1).into(),
            link_len: 24,
            clients: (Ipv4Addr::new(198, 19, 0, 0).into(), 16),
            spoofed: (Ipv4Addr::new(10, 0, 0, 0).into(), 8),
            drawn: (24, false),
        }
    }

    /// An address of its own for each client; of IPv6 each has a /64 of its own, as long as they last.
    pub(super) fn client(&self, number: u32) -> IpAddr {
        // The network's own address is nobody's.
        match self.clients {
            (IpAddr::V4(network), _) => Ipv4Addr::from_bits(network.to_bits() + 1 + number).into(),
            (IpAddr::V6(network), len) => {
                let networks = 1u128 << (64 - len);
                let number = u128::from(number);
                Ipv6Addr::from_bits(network.to_bits() | (number % networks) << 64 | (1 + number)).into()
            }
        }
    }

    /// The first source that the flood may draw, whose other bits all others share.
    pub(super) fn first_spoofed(&self) -> IpAddr {
        match self.spoofed.0 {
            IpAddr::V4(network) => network.into(),
            IpAddr::V6(network) => Ipv6Addr::from_bits(network.to_bits() | 1).into(),
        }
    }

    /// The option of `ip` for this version.
    pub(super) fn ip_option(&self) -> &'static str {
        if self.router.is_ipv6() { "-6" } else { "-4" }
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    #[test]
    fn each_client_has_an_address_of_its_own_within_its_prefix() {
        for ipv6 in [false, true] {
            let addresses = Addresses::new(ipv6);
            let (network, len) = addresses.clients;
            let high = |address: IpAddr| match address {
                IpAddr::V4(a) => u128::from(a.to_bits()) >> (32 - len),
                IpAddr::V6(a) => a.to_bits() >> (128 - len),
            };
            let all: BTreeSet<IpAddr> = (0..60_000).map(|n| addresses.client(n)).collect();
            assert_eq!(all.len(), 60_000);
            assert!(all.iter().all(|a| high(*a) == high(network)) && !all.contains(&network));
        }
        let networks = (0..1000).map(|n| match Addresses::new(true).client(n) {
            IpAddr::V6(a) => a.to_bits() >> 64,
            IpAddr::V4(_) => 0,
        });
        assert_eq!(networks.collect::<BTreeSet<u128>>().len(), 1000);
    }
}
