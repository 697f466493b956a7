//! Boxes under test as the bench builds them: ports, words, cores, resets. Needs root.

mod cores;
mod order;

use std::{collections::BTreeSet, process::Command, sync::atomic::AtomicBool, time::Duration};

use bench::{
    Cores, Dut, DutKind, DutOptions, Load, ResetKind, RuleOrder, TestPort, Tester,
    tester::{RealTester, TesterConfig},
};
use cores::cores;
use lab::{BoxKind, BoxSpec, Lab, TestBox, boxes::Family};
use model::{
    CpuSet,
    bench::{Direction, FrameSpec},
};
use testbed::turn;

fn dut(lab: &Lab, kind: DutKind, family: Family, order: RuleOrder, cores: &Cores) -> Dut {
    Dut::lab(lab, kind, &DutOptions { family, rules: 25, order, cores, threaded: false }).unwrap()
}

/// The CPUs and the nice values of the NAPI threads of `interface`, from /proc.
fn napi_threads(interface: &str) -> (BTreeSet<String>, BTreeSet<i64>) {
    let prefix = format!("napi/{interface}-");
    let (mut cpus, mut nice) = (BTreeSet::new(), BTreeSet::new());
    for entry in std::fs::read_dir("/proc").unwrap().flatten() {
        let read = |file: &str| std::fs::read_to_string(entry.path().join(file)).unwrap_or_default();
        if read("comm").starts_with(&prefix) {
            let allowed = |l: &str| l.strip_prefix("Cpus_allowed_list:").map(|c| c.trim().to_owned());
            cpus.extend(read("status").lines().find_map(allowed));
            let stat = read("stat");
            nice.extend(stat.rsplit_once(')').and_then(|(_, s)| s.split_whitespace().nth(16)?.parse::<i64>().ok()));
        }
    }
    (cpus, nice)
}

#[test]
fn each_kind_has_two_ports_and_says_what_it_is() {
    let Some(_alone) = turn() else { return };
    let lab = Lab::new("dutkinds").unwrap();
    let cores = cores();
    for kind in DutKind::ALL {
        for family in [Family::V4, Family::V6] {
            let made = dut(&lab, kind, family, RuleOrder::Study, &cores);
            let [first, second] = made.ports();
            assert_eq!((made.identity().key.as_str(), made.family(), made.mtu().unwrap()), (kind.key(), family, 1500));
            assert_eq!(
                (first.target.sources, first.target.destinations),
                (second.target.destinations, second.target.sources)
            );
            assert_ne!(first.target.mac, second.target.mac);
            assert_eq!(made.sender(Direction::Backward).interface, made.receiver(Direction::Forward).interface);
            for port in [first, second] {
                let up = || Command::new("ip").args(["-o", "link", "show", &port.interface]).output();
                let listing = String::from_utf8(port.run(up).unwrap().unwrap().stdout).unwrap();
                assert!(listing.contains(&port.mac.to_string()) && listing.contains("LOWER_UP"), "{listing}");
            }
            assert!(!made.identity().settings.is_empty() && !made.identity().what.is_empty());
        }
    }
}

#[test]
fn the_box_has_rings_and_the_ends_have_threads_on_their_cores() {
    let Some(_alone) = turn() else { return };
    let lab = Lab::new("dutcores").unwrap();
    if cores::cores().of_box == [0] {
        eprintln!("skipped: one CPU has no core for the box");
        return;
    }
    let cores = Cores { sender: 0, of_box: vec![1], receiver: vec![0], hands_over: false };
    let router = dut(&lab, DutKind::Router, Family::V4, RuleOrder::Study, &cores);
    let inside = router.lab_box().unwrap().inside().unwrap();
    for interface in [&inside.entry.name, &inside.exit.as_ref().unwrap().name] {
        assert_eq!(napi_threads(interface), Default::default(), "{interface}: a ring's thread does its work");
    }
    assert_eq!(router.rings(&cores).map(|r| r.cpus), Some([1, 1]));
    assert_eq!(router.rings(&Cores { of_box: vec![0], ..cores.clone() }), None, "one core throttles itself");
    let first = (BTreeSet::from(["0".to_owned()]), BTreeSet::from([-20]));
    let wire = dut(&lab, DutKind::Wire, Family::V4, RuleOrder::Study, &cores);
    for port in wire.ports() {
        assert_eq!(napi_threads(&port.interface), first);
    }
    // They come back with the link.
    wire.reset(ResetKind::Link, Duration::from_millis(20)).unwrap();
    assert_eq!(napi_threads(&wire.ports()[1].interface), first);
}

#[test]
fn rules_are_in_the_order_requested() {
    let Some(_alone) = turn() else { return };
    let lab = Lab::new("dutrules").unwrap();
    let cores = cores();
    for (order, per_side) in [(RuleOrder::Study, 12), (RuleOrder::Rfc2544, 0)] {
        let made = dut(&lab, DutKind::Stateful, Family::V4, order, &cores);
        let inside = made.lab_box().unwrap().inside().unwrap();
        let list = || Command::new("nft").args(["list", "ruleset"]).output();
        let listing = String::from_utf8(inside.namespace.run(list).unwrap().unwrap().stdout).unwrap();
        let of = |interface: &str| listing.matches(&format!("iifname \"{interface}\"")).count();
        assert_eq!(of(&inside.entry.name), per_side, "{listing}");
        assert_eq!(of(&inside.exit.as_ref().unwrap().name), per_side, "{listing}");
        assert_eq!((listing.matches("drop\n").count(), listing.matches(" accept\n").count()), (24, 1), "{listing}");
        assert!(made.identity().settings.iter().any(|s| s.starts_with("net.netfilter.nf_conntrack_max = ")));
    }
}

#[test]
fn what_cannot_be_benched_or_reset_is_refused() {
    let Some(_alone) = turn() else { return };
    let lab = Lab::new("dutbad").unwrap();
    let cores = cores();
    let ends = TestBox::build(&lab, &BoxSpec::new(BoxKind::Capture)).unwrap();
    assert!(Dut::from_box(ends).unwrap_err().to_string().contains("no second port"));
    let none = DutOptions { family: Family::V4, rules: 0, order: RuleOrder::Study, cores: &cores, threaded: false };
    assert!(Dut::lab(&lab, DutKind::Stateless, &none).unwrap_err().to_string().contains("at least one rule"));
    let wire = dut(&lab, DutKind::Wire, Family::V4, RuleOrder::Study, &cores);
    assert_eq!(wire.resets(), [ResetKind::Link]);
    assert!(wire.reset(ResetKind::Forwarding, Duration::ZERO).is_err());
    let port = wire.ports()[0];
    let gone = TestPort::here("ekgone", port.mac, port.target);
    assert!(gone.mtu().unwrap_err().to_string().contains("ekgone") && gone.counters().is_err());
}

/// A field of CPU `cpu` in /proc/net/softnet_stat, which is the machine's whatever the namespace.
fn softnet(cpu: usize, field: usize) -> u64 {
    let all = std::fs::read_to_string("/proc/net/softnet_stat").unwrap();
    let line = all.lines().nth(cpu).unwrap_or_default();
    line.split_whitespace().nth(field).map_or(0, |hex| u64::from_str_radix(hex, 16).unwrap())
}

#[test]
fn a_box_of_one_queue_hands_over_to_its_second_core() {
    let Some(_alone) = turn() else { return };
    let online = std::fs::read_to_string("/sys/devices/system/cpu/online").unwrap();
    let online: Vec<u32> = CpuSet::parse_list(online.trim()).unwrap().iter().collect();
    let [first, second, ..] = online[..] else {
        eprintln!("skipped: one CPU alone cannot hand over");
        return;
    };
    let lab = Lab::new("duthand").unwrap();
    // The sender is on the first core, too: what is asked is who forwards, not how fast.
    let cores = Cores { sender: first, of_box: vec![first, second], receiver: vec![first], hands_over: true };
    for kind in [DutKind::Router, DutKind::RouteStandard, DutKind::Route, DutKind::RouteStateful] {
        let made = dut(&lab, kind, Family::V4, RuleOrder::Study, &cores);
        let by_kernel = matches!(kind, DutKind::Router | DutKind::RouteStandard);
        let set = if by_kernel { format!("rps_cpus = CPU {second}") } else { format!("evenkeel route cpus {second}") };
        assert!(made.identity().settings.iter().any(|s| s.contains(&set)), "{kind}: {:?}", made.identity().settings);
        let mut tester = RealTester::new(&made, &cores, TesterConfig { flows: 16, both_ways: false }, None).unwrap();
        let order = order::order(FrameSpec::Size { bytes: 64 }, Load::Pps(5_000.0), Duration::from_millis(400));
        let steered = softnet(second as usize, 9);
        let trial = tester.trial(&order, &AtomicBool::new(false)).unwrap();
        let sent = trial.counts[0].sent;
        assert!(sent > 500 && trial.counts[0].received == sent, "{kind}: {:?}", trial.counts);
        let steered = softnet(second as usize, 9) - steered;
        // Interrupts that RPS sent to the second core: one can bring several frames.
        assert_eq!(steered > 20, by_kernel, "{kind}: {steered}");
    }
}
