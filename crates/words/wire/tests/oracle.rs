//! Packets that this crate builds and parses, against etherparse.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use etherparse::{NetSlice, PacketBuilder, SlicedPacket, TransportSlice};
use proptest::prelude::*;
use wire::{Ethernet, FlowKey, FrameSize, Ip, Kind, Mac, Tag, Template, Transport};

fn flow() -> impl Strategy<Value = FlowKey> {
    let v4 = (any::<u32>(), any::<u32>()).prop_map(|(a, b)| (Ipv4Addr::from(a).into(), Ipv4Addr::from(b).into()));
    let v6 = (any::<u128>(), any::<u128>()).prop_map(|(a, b)| (Ipv6Addr::from(a).into(), Ipv6Addr::from(b).into()));
    let addresses: BoxedStrategy<(IpAddr, IpAddr)> = prop_oneof![v4, v6].boxed();
    (addresses, any::<u16>(), any::<u16>()).prop_map(|((source, destination), source_port, destination_port)| FlowKey {
        source,
        destination,
        source_port,
        destination_port,
    })
}

fn template() -> impl Strategy<Value = Template> {
    let kind = prop_oneof![Just(Kind::Udp), Just(Kind::TcpSyn), Just(Kind::TcpData)];
    let inner = proptest::option::of(any::<u16>().prop_map(|control| Tag { protocol: 0x8100, control }));
    (any::<[u8; 6]>(), any::<[u8; 6]>(), kind, inner, any::<bool>()).prop_map(|(d, s, kind, inner, outer)| Template {
        destination: Mac(d),
        source: Mac(s),
        tags: [(outer && inner.is_some()).then_some(Tag { protocol: 0x88a8, control: 7 }), inner],
        kind,
    })
}

proptest! {
    #[test]
    fn a_built_frame_reads_back_here_and_there(t in template(), f in flow(), more in 0usize..1400, seq: u32) {
        let size = FrameSize::with_fcs(t.min_size(f.source.is_ipv6()).bytes_with_fcs() + more);
        let bytes = t.build(&f, size, seq).unwrap();
        prop_assert_eq!(bytes.len(), size.bytes_in_memory());

        let ethernet = Ethernet::parse(&bytes).unwrap();
        prop_assert_eq!((ethernet.destination(), ethernet.source()), (t.destination, t.source));
        prop_assert!(ethernet.tags().eq(t.tags.iter().flatten().copied()));
        let ip = Ip::parse(ethernet.payload()).unwrap();
        prop_assert!(ip.is_checksum_right() && ip.is_payload_checksum_right() == Some(true));
        prop_assert_eq!((ip.source(), ip.destination()), (f.source, f.destination));
        let transport = Transport::parse(&ip).unwrap();
        prop_assert_eq!(transport.ports(), Some((f.source_port, f.destination_port)));

        let oracle = SlicedPacket::from_ethernet(&bytes).unwrap();
        prop_assert_eq!(oracle.link_exts.len(), t.tags.iter().flatten().count());
        match (oracle.transport.unwrap(), oracle.net.unwrap()) {
            (TransportSlice::Udp(udp), net) => {
                let sum = match &net {
                    NetSlice::Ipv4(ip) => udp.to_header().calc_checksum_ipv4(&ip.header().to_header(), udp.payload()),
                    NetSlice::Ipv6(ip) => udp.to_header().calc_checksum_ipv6(&ip.header().to_header(), udp.payload()),
                    NetSlice::Arp(_) => unreachable!("no ARP was built"),
                }.unwrap();
                prop_assert_eq!(udp.checksum(), sum);
                prop_assert_eq!(udp.destination_port(), f.destination_port);
            }
            (TransportSlice::Tcp(tcp), net) => {
                let sum = match &net {
                    NetSlice::Ipv4(ip) => {
                        prop_assert_eq!(ip.header().header_checksum(), ip.header().to_header().calc_header_checksum());
                        tcp.to_header().calc_checksum_ipv4(&ip.header().to_header(), tcp.payload())
                    }
                    NetSlice::Ipv6(ip) => tcp.to_header().calc_checksum_ipv6(&ip.header().to_header(), tcp.payload()),
                    NetSlice::Arp(_) => unreachable!("no ARP was built"),
                }.unwrap();
                prop_assert_eq!(tcp.checksum(), sum);
                prop_assert_eq!((tcp.sequence_number(), tcp.syn()), (seq, t.kind == Kind::TcpSyn));
            }
            other => prop_assert!(false, "{:?}", other),
        }
    }

    #[test]
    fn what_etherparse_builds_is_read_alike(source: [u8; 4], destination: [u8; 4], id: u16, seq: u16, data in proptest::collection::vec(any::<u8>(), 0..200)) {
        let builder = PacketBuilder::ethernet2([1; 6], [2; 6]).double_vlan(5.try_into().unwrap(), 6.try_into().unwrap());
        let mut bytes = Vec::new();
        builder.ipv4(source, destination, 20).icmpv4_echo_request(id, seq).write(&mut bytes, &data).unwrap();
        let ethernet = Ethernet::parse(&bytes).unwrap();
        prop_assert!(ethernet.tags().map(Tag::vlan).eq([5, 6]));
        let ip = Ip::parse(ethernet.payload()).unwrap();
        prop_assert_eq!((ip.hop_limit(), ip.is_checksum_right(), ip.is_payload_checksum_right()), (20, true, Some(true)));
        let Transport::Icmp(icmp, rest) = Transport::parse(&ip).unwrap() else { panic!("not ICMP") };
        prop_assert_eq!((icmp.kind, rest), (8, &data[..]));
        bytes[40] ^= 1;
        let broken = Ip::parse(Ethernet::parse(&bytes).unwrap().payload()).unwrap();
        prop_assert!(!broken.is_checksum_right() || broken.is_payload_checksum_right() != Some(true));
    }

    #[test]
    fn no_bytes_panic(bytes in proptest::collection::vec(any::<u8>(), 0..200), version in prop_oneof![Just(0x45u8), Just(0x46), Just(0x60), any::<u8>()],
                      next in prop_oneof![Just(0u8), Just(6), Just(17), Just(43), Just(44), Just(51), Just(58), Just(60)]) {
        if let Ok(ethernet) = Ethernet::parse(&bytes) {
            let _ = ethernet.tags().count();
        }
        let mut bytes = bytes;
        if bytes.len() > 10 {
            bytes[0] = version;
            bytes[if version >> 4 == 6 { 6 } else { 9 }] = next;
        }
        if let Ok(ip) = Ip::parse(&bytes) {
            let _ = (ip.is_checksum_right(), ip.is_payload_checksum_right(), Transport::parse(&ip).map(|t| t.ports()));
        }
    }

    #[test]
    fn whole_frames_cut_anywhere_or_changed_never_panic(t in template(), f in flow(), cut in 0usize..200, at in 0usize..200, to: u8) {
        let mut bytes = t.build(&f, FrameSize::with_fcs(200), 0).unwrap();
        let at = at % bytes.len();
        bytes[at] = to;
        bytes.truncate(cut);
        if let Ok(ip) = Ethernet::parse(&bytes).and_then(|e| Ip::parse(e.payload())) {
            let _ = (ip.is_payload_checksum_right(), Transport::parse(&ip).is_ok());
        }
    }
}

#[test]
fn ipv6_extension_headers_and_fragments_are_walked() {
    let mut bytes = vec![0x60, 0, 0, 0, 0, 32, 0, 64];
    bytes.extend_from_slice(&[0; 32]);
    bytes.extend_from_slice(&[44, 0, 1, 4, 0, 0, 0, 0]); // hop-by-hop, then a fragment header
    bytes.extend_from_slice(&[17, 0, 0x00, 0x01, 0, 0, 0, 9]); // first fragment, more follow
    bytes.extend_from_slice(&[0, 53, 0, 54, 0, 16, 0, 0, 1, 2, 3, 4, 5, 6, 7, 8]);
    let ip = Ip::parse(&bytes).unwrap();
    assert_eq!((ip.protocol(), ip.header_len(), ip.payload().len()), (17, 56, 16));
    assert_eq!(ip.fragment(), Some(wire::ip::Fragment { id: 9, offset: 0, more: true }));
    assert_eq!(Transport::parse(&ip).unwrap().ports(), Some((53, 54)));
    bytes[50] = 0x01;
    let ip = Ip::parse(&bytes).unwrap();
    assert!(matches!(Transport::parse(&ip), Ok(Transport::Other(data)) if data.len() == 16));
}

/// Frame size with FCS and UDP payload over IPv4: the figures of FW-1 (frame - 18 Ethernet - 20 IPv4 - 8 UDP).
const RFC2544_UDP: [(usize, usize); 7] =
    [(64, 18), (128, 82), (256, 210), (512, 466), (1024, 978), (1280, 1234), (1518, 1472)];

#[test]
fn frame_sizes_have_the_udp_payloads_of_rfc_2544() {
    let t = Template { destination: Mac([2; 6]), source: Mac([4; 6]), tags: [None; 2], kind: Kind::Udp };
    let f = FlowKey {
        source: Ipv4Addr::new(198, 18, 0, 1).into(),
        destination: Ipv4Addr::new(198, 19, 0, 1).into(),
        source_port: 1024,
        destination_port: 9,
    };
    assert!(FrameSize::RFC2544.map(FrameSize::bytes_with_fcs).iter().eq(RFC2544_UDP.map(|(frame, _)| frame).iter()));
    for (frame, payload) in RFC2544_UDP {
        let bytes = t.build(&f, FrameSize::with_fcs(frame), 0).unwrap();
        let ip = Ip::parse(Ethernet::parse(&bytes).unwrap().payload()).unwrap();
        let Transport::Udp(_, data) = Transport::parse(&ip).unwrap() else { panic!("not UDP") };
        assert_eq!(data.len(), payload, "frame of {frame}");
    }
    let too_small = t.build(&f, FrameSize::with_fcs(63), 0).unwrap_err().to_string();
    assert_eq!(too_small, "a frame of 63 bytes with FCS cannot be built: with these headers it has 64 to 65553");
}
