use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use proptest::prelude::*;

use super::*;
use crate::rule::Prefix;

fn masked(address: IpAddr, len: u8) -> Prefix {
    let address = match address {
        IpAddr::V4(a) => Ipv4Addr::from_bits(a.to_bits() & !u32::MAX.checked_shr(len.into()).unwrap_or(0)).into(),
        IpAddr::V6(a) => Ipv6Addr::from_bits(a.to_bits() & !u128::MAX.checked_shr(len.into()).unwrap_or(0)).into(),
    };
    Prefix { address, len }
}

fn holds(prefix: Prefix, address: IpAddr) -> bool {
    prefix.address.is_ipv4() == address.is_ipv4() && masked(address, prefix.len) == prefix
}

/// Addresses that share their beginnings, so that prefixes nest and tie.
fn v4_address() -> impl Strategy<Value = IpAddr> {
    let byte = prop_oneof![Just(0u8), Just(1), Just(255), any::<u8>()];
    [Just(10).boxed(), byte.clone().boxed(), byte.clone().boxed(), byte.boxed()].prop_map(|b| Ipv4Addr::from(b).into())
}

fn v6_address() -> impl Strategy<Value = IpAddr> {
    let word = prop_oneof![Just(0u16), Just(1), Just(0xffff), any::<u16>()];
    (prop::array::uniform8(word), any::<bool>()).prop_map(|(mut w, same)| {
        w[0] = 0x2001;
        if same {
            (w[1], w[2]) = (0xdb8, 1);
        }
        Ipv6Addr::from(w).into()
    })
}

fn address() -> impl Strategy<Value = IpAddr> {
    prop_oneof![v4_address(), v6_address()]
}

fn prefix() -> impl Strategy<Value = Prefix> {
    prop_oneof![
        (v4_address(), 0..=32u8).prop_map(|(a, len)| masked(a, len)),
        (v6_address(), 0..=128u8).prop_map(|(a, len)| masked(a, len)),
    ]
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(48))]

    #[test]
    fn tables_say_which_lists_hold_an_address(
        lists in prop::collection::vec(prop::collection::vec(prefix(), 0..40), 1..5),
        addresses in prop::collection::vec(address(), 200),
    ) {
        let overlay = overlay(&lists.iter().map(|l| &l[..]).collect::<Vec<_>>());
        let (v4, v6) = (v4(&overlay.classes), v6(&overlay.classes).unwrap());
        // Beside random ones: the first and the last address of every prefix, and their neighbours.
        let edges = lists.iter().flatten().flat_map(|p| match p.address {
            IpAddr::V4(a) => {
                let last = a.to_bits() | u32::MAX.checked_shr(p.len.into()).unwrap_or(0);
                [a.to_bits(), a.to_bits().wrapping_sub(1), last, last.wrapping_add(1)].map(|b| Ipv4Addr::from_bits(b).into())
            }
            IpAddr::V6(a) => {
                let last = a.to_bits() | u128::MAX.checked_shr(p.len.into()).unwrap_or(0);
                [a.to_bits(), a.to_bits().wrapping_sub(1), last, last.wrapping_add(1)].map(|b| Ipv6Addr::from_bits(b).into())
            }
        });
        for address in addresses.iter().copied().chain(edges) {
            let held: Vec<usize> = (0..lists.len()).filter(|&i| lists[i].iter().any(|&p| holds(p, address))).collect();
            let class = match address {
                IpAddr::V4(a) => v4.class(a),
                IpAddr::V6(a) => v6.class(a),
            };
            prop_assert_eq!(&overlay.members[usize::from(class)], &held, "{}", address);
        }
    }

    #[test]
    fn any_bytes_are_a_set_or_named_lines(bytes in prop::collection::vec(prop_oneof![any::<u8>(), prop::sample::select(&b"0123456789abc.:/ \n#"[..])], 0..200)) {
        match parse_set(&bytes, "any", OnBadLine::Refuse) {
            Ok((set, bad)) => {
                prop_assert!(bad.is_empty() && set.prefixes.is_sorted());
                prop_assert!(set.prefixes.iter().all(|&p| masked(p.address, p.len) == p));
            }
            Err(SetError::Lines { lines }) => {
                let (_, skipped) = parse_set(&bytes, "any", OnBadLine::Skip).unwrap();
                prop_assert_eq!(lines, skipped);
            }
            Err(e) => prop_assert!(false, "{}", e),
        }
    }
}

#[test]
fn many_classes_and_long_blocks() {
    // Few and many classes; hosts of one /24 in turn, so that its block has 256 runs.
    for classes in [1u16, 2, 3, 14, 15, 254, 255, 600] {
        let hosts = (0..u32::from(classes))
            .map(|i| (masked(Ipv4Addr::from_bits(0x0a00_0000 + i * 2).into(), 32), i as u16 + 1));
        let nets = (0..u32::from(classes))
            .map(|i| (masked(Ipv4Addr::from_bits(0xc000_0000 + (i << 8)).into(), 24), i as u16 + 1));
        let table = v4(&hosts.chain(nets).collect::<Vec<_>>());
        for i in 0..u32::from(classes) {
            assert_eq!(u32::from(table.class(Ipv4Addr::from_bits(0x0a00_0000 + i * 2))), i + 1);
            assert_eq!(table.class(Ipv4Addr::from_bits(0x0a00_0001 + i * 2)), 0);
            assert_eq!(u32::from(table.class(Ipv4Addr::from_bits(0xc000_0077 + (i << 8)))), i + 1);
        }
        assert_eq!(table.class(Ipv4Addr::BROADCAST), 0);
    }
}

#[test]
fn a_million_prefixes_and_one_bad_line() {
    let mut text = String::from("; a list\n");
    for i in 0..1_000_000u32 {
        text += &format!("{}\n", Ipv4Addr::from_bits(i.wrapping_mul(0x9e37_79b1)));
    }
    let good = parse_set(text.as_bytes(), "good", OnBadLine::Refuse).unwrap().0;
    assert_eq!(good.prefixes.len(), 1_000_000);
    text.insert_str(text.len() / 2, "\n  10.0.0.1/8 # meant as a net?\n");
    let at = text[..text.find("10.0.0.1/8").unwrap()].lines().count();
    let refused = parse_set(text.as_bytes(), "list", OnBadLine::Refuse).unwrap_err().to_string();
    assert!(refused.contains(&format!("list:{at}:3: ")) && refused.contains("write 10.0.0.0/8"), "{refused}");
    let (_, skipped) = parse_set(text.as_bytes(), "list", OnBadLine::Skip).unwrap();
    assert_eq!(skipped.iter().filter(|b| b.line == at).count(), 1);
}

#[test]
fn bad_lines_say_where_and_why() {
    let why = |text: &str| parse_set(text.as_bytes(), "f", OnBadLine::Refuse).unwrap_err().to_string();
    assert!(why("10.0.0.0/33").starts_with("f:1:10: \"33\" is not a prefix length of 0 to 32 bits"));
    assert!(why("\n 10.0.0.0/").starts_with("f:2:11: "));
    assert!(why("10.0.0.0/+8").starts_with("f:1:10: "));
    assert!(why("10.0.0.0 10.0.0.1").starts_with("f:1:9: one prefix a line"));
    assert!(why("example.org").starts_with("f:1:1: \"example.org\" is not an IPv4 or IPv6 address"));
    assert!(why("a\nb\nc\nd\ne\nf\ng").contains("and 2 more bad lines"));
}
