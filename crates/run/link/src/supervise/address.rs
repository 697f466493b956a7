//! Addresses as bytes of a program's memory: struct sockaddr_in and struct sockaddr_in6.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, SocketAddrV6};

use nix::libc::{AF_INET, AF_INET6};

/// Bytes of struct sockaddr_in, and of struct sockaddr_in6 without the scope, which the kernel does not insist on.
const V4: usize = 16;
const V6: usize = 28;
const V6_LEAST: usize = 24;

/// The address of an internet socket; none: it is of another family, or cut short.
pub(super) fn decode(bytes: &[u8]) -> Option<SocketAddr> {
    let family = u16::from_ne_bytes([*bytes.first()?, *bytes.get(1)?]);
    let port = u16::from_be_bytes([*bytes.get(2)?, *bytes.get(3)?]);
    let word = |at: usize| bytes.get(at..at + 4).and_then(|word| <[u8; 4]>::try_from(word).ok());
    match i32::from(family) {
        AF_INET if bytes.len() >= V4 => Some((Ipv4Addr::from(word(4)?), port).into()),
        AF_INET6 if bytes.len() >= V6_LEAST => {
            let ip = <[u8; 16]>::try_from(bytes.get(8..24)?).ok()?;
            let scope = word(24).map_or(0, u32::from_ne_bytes);
            Some(SocketAddrV6::new(Ipv6Addr::from(ip), port, u32::from_ne_bytes(word(4)?), scope).into())
        }
        _ => None,
    }
}

pub(super) fn encode(address: SocketAddr) -> Vec<u8> {
    let mut bytes = Vec::with_capacity(V6);
    let family = if address.is_ipv4() { AF_INET } else { AF_INET6 };
    bytes.extend((family as u16).to_ne_bytes());
    bytes.extend(address.port().to_be_bytes());
    match address {
        SocketAddr::V4(v4) => {
            bytes.extend(v4.ip().octets());
            bytes.resize(V4, 0);
        }
        SocketAddr::V6(v6) => {
            bytes.extend(v6.flowinfo().to_ne_bytes());
            bytes.extend(v6.ip().octets());
            bytes.extend(v6.scope_id().to_ne_bytes());
        }
    }
    bytes
}

/// An address as a socket of a family has it: IPv4 is mapped in an IPv6 socket.
pub(super) fn in_family(address: SocketAddr, v6: bool) -> SocketAddr {
    match (address.ip(), v6) {
        (IpAddr::V4(ip), true) => (ip.to_ipv6_mapped(), address.port()).into(),
        (IpAddr::V6(ip), false) => (ip.to_canonical(), address.port()).into(),
        _ => address,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_come_back_as_they_were() {
        for text in ["192.0.2.1:80", "[2001:db8::1]:443", "[::ffff:192.0.2.1]:1"] {
            let address: SocketAddr = text.parse().unwrap();
            assert_eq!(decode(&encode(address)), Some(address));
        }
        let scoped = SocketAddr::V6(SocketAddrV6::new("fe80::1".parse().unwrap(), 1, 7, 3));
        assert_eq!(decode(&encode(scoped)), Some(scoped));
        // As the kernel takes it without a scope.
        assert_eq!(decode(&encode(scoped)[..24]).map(|it| it.port()), Some(1));
    }

    #[test]
    fn what_is_cut_short_or_of_another_family_is_none() {
        let whole = encode("192.0.2.1:80".parse().unwrap());
        assert_eq!(whole, [&2u16.to_ne_bytes()[..], &[0, 80, 192, 0, 2, 1], &[0; 8]].concat());
        for len in 0..16 {
            assert_eq!(decode(&whole[..len]), None, "{len}");
        }
        let whole = encode("[2001:db8::1]:443".parse().unwrap());
        assert_eq!(decode(&whole[..23]), None);
        assert_eq!(decode(&[&1u16.to_ne_bytes()[..], b"/run/socket\0\0\0\0\0\0"].concat()), None);
    }

    #[test]
    fn an_address_takes_the_form_of_its_socket() {
        let (v4, mapped): (SocketAddr, SocketAddr) =
            ("192.0.2.1:9".parse().unwrap(), "[::ffff:192.0.2.1]:9".parse().unwrap());
        assert_eq!([in_family(v4, true), in_family(v4, false)], [mapped, v4]);
        assert_eq!([in_family(mapped, true), in_family(mapped, false)], [mapped, v4]);
    }
}
