use super::*;

/// Ethernet, IPv4, TCP SYN from 198.18.0.1:1000 to 198.18.0.2:80.
fn tcp4() -> Vec<u8> {
    let mut f = vec![2; 12];
    f.extend([0x08, 0x00]);
    f.extend([0x45, 0xb8, 0, 40, 0, 0, 0, 0, 64, 6, 0, 0, 198, 18, 0, 1, 198, 18, 0, 2]);
    f.extend([3, 232, 0, 80, 0, 0, 0, 1, 0, 0, 0, 0, 0x50, 0x02, 1, 0, 0, 0, 0, 0]);
    f
}

/// IPv6 with these extension headers (their bytes, the first's number) and a UDP header.
fn udp6(first: u8, extensions: &[u8]) -> Vec<u8> {
    let mut f = vec![2; 12];
    f.extend([0x86, 0xdd, 0x6b, 0x80, 0, 0, 0, u8::try_from(extensions.len() + 8).unwrap(), first, 64]);
    f.extend([0x20; 16]);
    f.extend([0x30; 16]);
    f.extend(extensions);
    f.extend([0, 53, 0, 99, 0, 8, 0, 0]);
    f
}

fn ip(frame: &[u8]) -> Packet {
    match Packet::parse(frame) {
        Parsed::Ip(packet) => packet,
        other => panic!("{other:?}"),
    }
}

#[test]
fn tcp_over_ipv4() {
    let packet = ip(&tcp4());
    assert_eq!(packet.ports, Some((1000, 80)));
    assert_eq!((packet.tcp_flags, packet.icmp_type, packet.vlan), (Some(2), None, None));
    assert_eq!((packet.len, packet.dscp, packet.part), (40, 46, Part::Whole));
    assert_eq!((packet.ip_at, packet.transport_at, packet.family()), (14, 34, 4));
}

#[test]
fn padding_changes_nothing_and_every_cut_is_malformed() {
    let whole = tcp4();
    let mut padded = whole.clone();
    padded.resize(60, 0xee);
    assert_eq!(ip(&padded), ip(&whole));
    for len in 0..whole.len() {
        assert!(matches!(Packet::parse(&whole[..len]), Parsed::Malformed(_)), "cut at {len}");
    }
}

#[test]
fn tags() {
    let tagged = |tags: &[[u8; 4]]| {
        let mut f = tcp4();
        for tag in tags.iter().rev() {
            f.splice(12..12, *tag);
        }
        f
    };
    let outer = [0x88, 0xa8, 0xe0, 100];
    let inner = [0x81, 0, 0, 7];
    assert_eq!(ip(&tagged(&[inner])).vlan, Some(7));
    assert_eq!(ip(&tagged(&[outer, inner])).vlan, Some(100));
    let many = Parsed::Malformed("more than two VLAN tags");
    assert_eq!(Packet::parse(&tagged(&[[0x81, 0, 0, 0]; 3])), many);
    assert_eq!(Packet::parse(&tagged(&[outer, inner, [0x81, 0, 0xe0, 0]])), many);
    assert_eq!(Packet::parse(&tagged(&[outer, inner, inner])), many);
    assert_eq!(Packet::parse(&tagged(&[outer, inner, inner])[..25]), many);
    assert!(matches!(Packet::parse(&tagged(&[outer, inner])[..20]), Parsed::Malformed(_)));
}

#[test]
fn fragments_have_what_they_carry() {
    let mut first = tcp4();
    first[20] = 0x20;
    assert_eq!((ip(&first).part, ip(&first).ports), (Part::First, Some((1000, 80))));
    let mut later = tcp4();
    later[21] = 1;
    let packet = ip(&later);
    assert_eq!((packet.part, packet.ports, packet.tcp_flags, packet.protocol), (Part::Later, None, None, 6));
}

#[test]
fn contradictions_are_malformed() {
    for (at, byte) in [(14, 0x44), (14, 0x65), (17, 19), (17, 41), (46, 0x40), (46, 0x60)] {
        let mut frame = tcp4();
        frame[at] = byte;
        assert!(matches!(Packet::parse(&frame), Parsed::Malformed(_)), "{at} = {byte:#x}");
    }
}

#[test]
fn extension_headers_are_walked() {
    let plain = ip(&udp6(17, &[]));
    assert_eq!((plain.protocol, plain.ports, plain.dscp, plain.len), (17, Some((53, 99)), 46, 48));
    // Hop-by-hop of 16 bytes, authentication of 12 (a third of the chain's lengths is counted in words), fragment.
    let mut chain = vec![51, 1];
    chain.extend([0; 14]);
    chain.extend([44, 1, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0]);
    chain.extend([17, 0, 0, 1, 0, 0, 0, 9]);
    let packet = ip(&udp6(0, &chain));
    assert_eq!((packet.protocol, packet.ports, packet.part), (17, Some((53, 99)), Part::First));
    assert_eq!(packet.transport_at, 14 + 40 + chain.len());
    for len in 0..udp6(0, &chain).len() {
        assert!(matches!(Packet::parse(&udp6(0, &chain)[..len]), Parsed::Malformed(_)), "cut at {len}");
    }
    let later = ip(&udp6(44, &[17, 0, 0, 8, 0, 0, 0, 9]));
    assert_eq!((later.protocol, later.ports, later.part), (17, None, Part::Later));
}

#[test]
fn long_chains_are_malformed() {
    let options = |n: usize| {
        let mut chain = Vec::new();
        for i in 0..n {
            chain.extend([if i + 1 == n { 17 } else { 60 }, 0, 1, 4, 0, 0, 0, 0]);
        }
        udp6(60, &chain)
    };
    assert_eq!(ip(&options(EXTENSIONS_MAX)).ports, Some((53, 99)));
    assert!(matches!(Packet::parse(&options(EXTENSIONS_MAX + 1)), Parsed::Malformed(_)));
    // A header that claims more than there is.
    assert!(matches!(Packet::parse(&udp6(60, &[17, 5, 0, 0, 0, 0, 0, 0])), Parsed::Malformed(_)));
}

#[test]
fn what_is_not_ip() {
    let mut arp = tcp4();
    arp[13] = 6;
    assert_eq!(Packet::parse(&arp), Parsed::NotIp);
    assert_eq!(Packet::parse_ip(&tcp4()[14..]), Parsed::Ip(Packet { ip_at: 0, transport_at: 20, ..ip(&tcp4()) }));
}
