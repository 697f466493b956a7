//! The shield's parser: frames whole, cut at every length, and contradicting themselves.

use bpf::filter::{Shield, ShieldParsed, ShieldShared};
use rules::tables::{Field, RuleAction};
use testbed::{
    filter::{DROP, Frame, PASS, Tables, counting},
    privileged,
};

fn all_kinds() -> Vec<(&'static str, Frame)> {
    let tags = vec![(0x88a8, 100), (0x8100, 200)];
    // Hop-by-hop options, routing, authentication (of 12 bytes), destination options (of 16 bytes).
    let extensions = vec![
        (0, vec![0; 8]),
        (43, vec![0; 8]),
        (51, vec![0, 1, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0]),
        (60, [&[0, 1][..], &[0; 14]].concat()),
    ];
    let first = vec![(44, vec![0, 0, 0, 1, 0, 0, 0, 9])];
    let later = vec![(44, vec![0, 0, 0, 8, 0, 0, 0, 9])];
    let mut long = Frame::tcp(1, 2, 2);
    long.payload[12] = 0x80;
    long.payload.extend([1; 12]);
    let tcp = || Frame::tcp(1, 2, 2);
    vec![
        ("udp", Frame::udp(1, 2)),
        ("tcp", tcp()),
        ("tcp options", long.clone()),
        ("icmp", Frame::icmp(8)),
        ("tag", Frame { tags: vec![(0x8100, 7)], ..tcp() }),
        ("two tags", Frame { tags: tags.clone(), ..tcp() }),
        ("options", Frame { options: vec![1; 40], ..tcp() }),
        ("first fragment", Frame { fragment: 0x2000, ..tcp() }),
        ("later fragment", Frame { fragment: 0x0001, payload: vec![1, 2, 3], ..tcp() }),
        ("sctp", Frame { protocol: 132, payload: vec![0; 12], ..tcp() }),
        ("other", Frame { protocol: 47, payload: vec![0; 4], ..tcp() }),
        ("v6 tcp", Frame { six: true, ..long }),
        ("v6 icmp", Frame { six: true, protocol: 58, ..Frame::icmp(128) }),
        ("v6 extensions", Frame { six: true, tags, extensions: extensions.clone(), ..tcp() }),
        ("v6 first", Frame { six: true, extensions: [extensions, first].concat(), ..tcp() }),
        ("v6 later", Frame { six: true, extensions: later, payload: vec![9; 3], ..tcp() }),
        ("v6 eight", Frame { six: true, extensions: vec![(60, vec![0; 8]); 8], ..tcp() }),
        ("v6 none", Frame { six: true, protocol: 59, payload: vec![], ..tcp() }),
    ]
}

fn loaded() -> Option<(Shield, ShieldShared)> {
    privileged()?;
    let mut tables = Tables::new(1);
    tables.rule(0, RuleAction::Pass).when(Field::Vlan, &[0]);
    let mut tables = tables.build();
    tables.malformed_drop = true;
    let shared = ShieldShared::create().unwrap();
    Some((Shield::load(&tables, &counting(), &shared).unwrap(), shared))
}

#[test]
fn frames_cut_at_every_length_are_malformed() {
    let Some((shield, shared)) = loaded() else { return };
    let mut malformed = 0;
    for (name, frame) in all_kinds() {
        let whole = frame.bytes();
        for padding in [0, 20] {
            let padded = Frame { padding, ..frame.clone() }.bytes();
            for cut in 14..=padded.len() {
                let tested = shield.test(&padded[..cut]).unwrap();
                let expected = match cut {
                    cut if cut < whole.len() => (DROP, Some(ShieldParsed::Malformed)),
                    _ => (PASS, Some(ShieldParsed::Ip)),
                };
                assert_eq!((tested.action, tested.parsed), expected, "{name}: {cut} of {} bytes", whole.len());
                malformed += u64::from(cut < whole.len());
            }
        }
    }
    assert_eq!(shared.counts().totals.malformed, malformed);
}

/// The whole packet is there, but its own lengths leave too little for what it says it is.
#[test]
fn contradictions_are_malformed() {
    let Some((shield, _shared)) = loaded() else { return };
    let parsed = |frame: &Frame, change: &[(usize, u8)]| {
        let mut bytes = frame.bytes();
        for &(at, value) in change {
            bytes[at] = value;
        }
        shield.test(&bytes).unwrap().parsed.unwrap()
    };
    let tcp = Frame::tcp(1, 2, 2);
    let udp = Frame { padding: 40, ..Frame::udp(1, 2) };
    let six = Frame { six: true, ..Frame::tcp(1, 2, 2) };
    let bad = ShieldParsed::Malformed;
    assert_eq!(parsed(&tcp, &[(14, 0x55)]), bad, "version 5 in IPv4");
    assert_eq!(parsed(&tcp, &[(14, 0x44)]), bad, "a header of 16 bytes");
    assert_eq!(parsed(&tcp, &[(17, 19)]), bad, "shorter than its header");
    assert_eq!(parsed(&tcp, &[(46, 0x40)]), bad, "TCP header of 16 bytes");
    assert_eq!(parsed(&tcp, &[(46, 0x60)]), bad, "TCP header beyond the packet");
    assert_eq!(parsed(&udp, &[(17, 27)]), bad, "7 bytes of UDP, and padding behind");
    assert_eq!(parsed(&udp, &[(17, 20)]), bad, "no UDP, and padding behind");
    assert_eq!(parsed(&udp, &[(17, 24), (23, 132)]), ShieldParsed::Ip, "SCTP's ports are all that is needed");
    assert_eq!(parsed(&udp, &[(17, 23), (23, 132)]), bad, "three bytes of SCTP");
    assert_eq!(parsed(&udp, &[(17, 23), (23, 1)]), bad, "three bytes of ICMP");
    assert_eq!(parsed(&udp, &[(17, 23), (23, 58)]), ShieldParsed::Ip, "ICMPv6 means nothing in IPv4");
    assert_eq!(parsed(&six, &[(14, 0x50)]), bad, "version 5 in IPv6");
    assert_eq!(parsed(&six, &[(19, 19)]), bad, "19 bytes of TCP in IPv6");
    let nine = Frame { extensions: vec![(60, vec![0; 8]); 9], ..six.clone() };
    assert_eq!(parsed(&nine, &[]), bad, "nine extension headers");
    let beyond = Frame { extensions: vec![(60, vec![0, 9, 0, 0, 0, 0, 0, 0])], ..six };
    assert_eq!(parsed(&beyond, &[]), bad, "an extension header beyond the packet");
    for ids in [[0, 0, 0], [5, 0, 0], [5, 6, 0], [0, 5, 6], [5, 6, 7]] {
        for protocol in [0x8100, 0x88a8] {
            let three = Frame { tags: ids.map(|id| (protocol, id)).to_vec(), ..Frame::udp(1, 2) };
            assert_eq!(parsed(&three, &[]), bad, "{ids:?}: more than two tags");
        }
    }
}

/// A packet merged beyond 64 KiB has length 0 in its header (BIG TCP), over IPv6 with or without the option of RFC 2675.
#[test]
fn a_packet_longer_than_its_length_fields_is_as_long_as_its_frame() {
    let Some((shield, shared)) = loaded() else { return };
    let jumbo = vec![(0, vec![0, 0, 0xc2, 4, 0, 1, 2, 0])];
    let kinds = [
        (Frame::tcp(1, 2, 16), 16),
        (Frame { tags: vec![(0x8100, 7)], ..Frame::tcp(1, 2, 16) }, 20),
        (Frame { six: true, ..Frame::tcp(1, 2, 16) }, 18),
        (Frame { six: true, extensions: jumbo, ..Frame::tcp(1, 2, 16) }, 18),
    ];
    let mut bytes = 0;
    for (n, (frame, at)) in kinds.into_iter().enumerate() {
        let of = |len: usize| {
            let mut bytes = Frame { padding: len - frame.bytes().len(), ..frame.clone() }.bytes();
            bytes[at..at + 2].copy_from_slice(&[0, 0]);
            bytes
        };
        let big = shield.test(&of(67_000)).unwrap();
        assert_eq!((big.action, big.parsed), (PASS, Some(ShieldParsed::Ip)), "case {n}");
        bytes += 67_000;
        let small = shield.test(&of(1500)).unwrap();
        assert_eq!((small.action, small.parsed), (DROP, Some(ShieldParsed::Malformed)), "case {n}");
    }
    assert_eq!(shared.counts().totals.passed_bytes, bytes);
}

#[test]
fn what_is_not_ip_passes() {
    let Some((shield, shared)) = loaded() else { return };
    let mut lldp = Frame::udp(1, 2).bytes();
    lldp[12..14].copy_from_slice(&[0x88, 0xcc]);
    let tagged = [&lldp[..12], &[0x81, 0, 0, 5, 0x81, 0, 0, 6], &lldp[12..]].concat();
    for frame in [&tagged, &lldp, &lldp[..14].to_vec()] {
        let tested = shield.test(frame).unwrap();
        assert_eq!((tested.action, tested.parsed, tested.rule), (PASS, Some(ShieldParsed::NotIp), None));
    }
    assert_eq!(shared.counts().totals.not_ip, 3);
}

#[test]
fn no_bytes_stop_the_program() {
    let Some((shield, shared)) = loaded() else { return };
    let mut random = 1u64;
    let mut next = || {
        random = random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (random >> 33) as usize
    };
    let kinds = all_kinds();
    let runs = 20_000;
    for _ in 0..runs {
        let mut bytes = Frame { padding: next() % 60, ..kinds[next() % kinds.len()].1.clone() }.bytes();
        for _ in 0..next() % 6 {
            let at = 12 + next() % (bytes.len() - 12);
            bytes[at] = next() as u8;
        }
        bytes.truncate(14 + next() % (bytes.len() - 13));
        let tested = shield.test(&bytes).unwrap();
        assert_eq!(tested.action == DROP, tested.parsed == Some(ShieldParsed::Malformed), "{bytes:02x?}");
    }
    let totals = shared.counts().totals;
    assert_eq!(totals.passed + totals.dropped, runs);
    assert!(totals.malformed > runs / 10 && totals.by_default > runs / 10, "{totals:?}");
}
