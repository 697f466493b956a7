//! A box at two ports of a namespace: found by ARP and neighbour discovery, and nothing left behind.

mod order;

use std::{sync::atomic::AtomicBool, time::Duration};

use bench::{
    BenchError, Cores, Dut, Load, Tester,
    outside::{Addressing, connect, connect_with},
    tester::{RealTester, TesterConfig},
};
use lab::{Mac, boxes::Family};
use model::bench::{FrameSpec, Trial};
use testbed::{PortsBed, wait};

fn found(bed: &PortsBed, family: Family) -> Result<Dut, BenchError> {
    bed.tester.run(|| connect(bed.names(), family))
}

fn macs(dut: &Dut) -> [Mac; 2] {
    dut.ports().map(|p| p.target.mac)
}

#[test]
fn a_router_is_found_and_its_addresses_are_given_back() {
    let Some(bed) = PortsBed::new("found") else { return };
    bed.send(&Addressing::routed(Family::V4).set_up());
    let dut = found(&bed, Family::V4).expect("a box that answers");
    assert_eq!(macs(&dut), [bed.entries[0].link.mac, bed.entries[1].link.mac]);
    let [first, second] = dut.ports();
    assert_eq!(first.target.source_mac, bed.ports[0].link.mac);
    assert_eq!((first.target.destinations, first.target.sources), (second.target.sources, second.target.destinations));
    assert_eq!((dut.identity().key.as_str(), dut.family()), ("ports", Family::V4));
    assert!(dut.identity().settings[0].contains("gateway 198.18.0.1"), "{:?}", dut.identity());
    // Whoever kills the process leaves addresses that the kernel takes away.
    let lent = bed.addresses();
    assert!(lent.contains("198.18.0.2/16") && lent.contains("valid_lft 1"), "{lent}");
    drop(dut);
    assert_eq!(bed.addresses(), "");
}

/// A slow trial both ways, made again while other work on this machine spoils it.
fn trial(dut: &Dut) -> Result<Trial, BenchError> {
    let cores = Cores::split(&[0].into_iter().collect())?;
    let mut tester = RealTester::new(dut, &cores, TesterConfig { flows: 8, both_ways: true }, None)?;
    let order = order::order(FrameSpec::Size { bytes: 128 }, Load::Pps(2000.0), Duration::from_millis(200));
    let mut last = tester.trial(&order, &AtomicBool::new(false))?;
    for _ in 0..20 {
        if last.invalid.is_none() && last.total().lost() == 0 {
            break;
        }
        last = tester.trial(&order, &AtomicBool::new(false))?;
    }
    Ok(last)
}

#[test]
fn units_come_through_both_ways() {
    let Some(bed) = PortsBed::new("units") else { return };
    bed.send(&Addressing::routed(Family::V4).set_up());
    let made = bed.tester.run(|| connect(bed.names(), Family::V4).and_then(|dut| trial(&dut)));
    let made = made.expect("a trial");
    assert_eq!((made.invalid.as_deref(), made.total().lost()), (None, 0), "{made:?}");
    assert!(made.counts.iter().all(|c| c.received >= 150 && c.looped == 0), "{made:?}");
    assert_eq!(bed.addresses(), "");
}

#[test]
fn an_address_that_was_there_stays() {
    let Some(bed) = PortsBed::new("stays") else { return };
    bed.send(&Addressing::routed(Family::V4).set_up());
    bed.tester.output(&format!("ip addr add 198.18.0.2/16 dev {}", bed.ports[0].interface()));
    drop(found(&bed, Family::V4).expect("a box that answers"));
    let left = bed.addresses();
    assert!(left.contains("198.18.0.2/16") && !left.contains("198.19.0.2"), "{left}");
}

#[test]
fn a_router_of_ipv6_is_found() {
    let Some(bed) = PortsBed::new("six") else { return };
    let off = found(&bed, Family::V6).expect_err("IPv6 is off").to_string();
    assert!(off.contains("IPv6 is off on") && off.contains("disable_ipv6=0"), "{off}");
    bed.send(&Addressing::routed(Family::V6).set_up());
    let dut = found(&bed, Family::V6).expect("a box that answers");
    assert_eq!(macs(&dut), [bed.entries[0].link.mac, bed.entries[1].link.mac]);
    assert_eq!(dut.family(), Family::V6);
    drop(dut);
    assert_eq!(bed.addresses(), "");
}

#[test]
fn a_bridge_is_not_queried() {
    let Some(bed) = PortsBed::new("layer2") else { return };
    let addressing = Addressing::bridged(Family::V4);
    let dut = bed.tester.run(|| connect_with(bed.names(), &addressing)).expect("a box");
    assert_eq!(macs(&dut), [bed.ports[1].link.mac, bed.ports[0].link.mac]);
    assert_eq!(bed.addresses(), "");
}

#[test]
fn what_is_wrong_is_named_and_nothing_stays() {
    let Some(bed) = PortsBed::new("wrong") else { return };
    let wrong = |ports: [&str; 2]| {
        let error = bed.tester.run(|| connect(ports, Family::V4)).expect_err("refused");
        assert_eq!(bed.addresses(), "");
        error.to_string()
    };
    let [a, b] = bed.names();
    let silent = wrong([a, b]);
    assert!(silent.contains("no answer by ARP from 198.18.0.1") && silent.contains("ip route add"), "{silent}");
    assert!(wrong([a, a]).contains("twice"));
    assert!(wrong([a, "ek-none"]).contains("no interface `ek-none`"));
    let loopback = wrong([a, "lo"]);
    assert!(loopback.contains("lo takes no frames"), "{loopback}");

    bed.entries[1].feature("rx-gro", false);
    let idle = wrong([a, b]);
    assert!(idle.contains(b) && idle.contains("NAPI"), "{idle}");
    bed.entries[1].feature("rx-gro", true);

    bed.entries[0].link_set("down");
    // The kernel takes its time to tell.
    wait("no carrier", || !bed.tester.output(&format!("ip -o link show {a}")).contains("LOWER_UP"));
    let cut = wrong([a, b]);
    assert!(cut.contains(a) && cut.contains("carrier"), "{cut}");
    bed.tester.output(&format!("ip link set {b} down"));
    let down = wrong([b, a]);
    assert!(down.contains(b) && down.contains("is down"), "{down}");
}
