//! Plans on composed machines.

mod common;

use common::{add_nic, cpus, host};
use host::{
    Host,
    knob::{CoalesceField, Knob},
    picture::{Coalescing, FastPath, IrqSource, Napi, QueueRole, Rings},
};
use model::CpuSet;
use proptest::prelude::*;
use spread::{Options, PlanError, SpreadPlan, Steer, plan};

/// The CPUs that the interrupts of `nic` get, in the order of its queues.
fn queue_cpus(host: &Host, plan: &SpreadPlan, nic: &str) -> Vec<u32> {
    let irqs = host.nic(nic).unwrap().irqs.iter().filter(|i| i.role != QueueRole::Control);
    irqs.map(|i| {
        let change = plan.plan.changes.iter().find(|c| c.knob == Knob::IrqAffinity { irq: i.irq }).unwrap();
        let set = CpuSet::parse_mask(&change.new).unwrap();
        assert_eq!(set.len(), 1);
        set.first().unwrap()
    })
    .collect()
}

fn list(text: &str) -> CpuSet {
    CpuSet::parse_list(text).unwrap()
}

fn xeons() -> Host {
    host(cpus(2, 6, 2))
}

fn mask_of(plan: &SpreadPlan, knob: &Knob) -> Option<CpuSet> {
    plan.plan.changes.iter().find(|c| c.knob == *knob).map(|c| CpuSet::parse_mask(&c.new).unwrap())
}

#[test]
fn eight_queues_on_eight_cores() {
    let mut h = host(cpus(1, 8, 1));
    add_nic(&mut h, "eth0", None, 8, false);
    let p = plan(&h, &Options::default()).unwrap();
    assert_eq!(queue_cpus(&h, &p, "eth0"), [0, 1, 2, 3, 4, 5, 6, 7]);
    assert!(p.rows.iter().all(|r| !r.reason.is_empty()));
    let control = h.nics[0].irqs[0].irq;
    assert!(!p.plan.changes.iter().any(|c| c.knob == Knob::IrqAffinity { irq: control }), "control stays");
}

#[test]
fn cores_of_the_near_node_then_siblings_then_the_far_node_then_a_second_round() {
    let mut h = xeons();
    add_nic(&mut h, "eth0", Some(1), 30, false);
    let p = plan(&h, &Options::default()).unwrap();
    let queue_cpus = queue_cpus(&h, &p, "eth0");
    assert_eq!(queue_cpus[..6], [6, 7, 8, 9, 10, 11], "cores of node 1");
    assert_eq!(queue_cpus[6..12], [18, 19, 20, 21, 22, 23], "their siblings");
    assert_eq!(queue_cpus[12..18], [0, 1, 2, 3, 4, 5], "far cores");
    assert_eq!(queue_cpus[18..24], [12, 13, 14, 15, 16, 17], "far siblings");
    assert_eq!(queue_cpus[24..], [6, 7, 8, 9, 10, 11], "second round");
    let why = &p.rows.iter().find(|r| r.what.starts_with("rxtx 29")).unwrap().reason;
    assert!(why.contains("more queues than CPUs"), "{why}");
}

#[test]
fn several_nics_share_the_cores() {
    let mut h = host(cpus(1, 8, 1));
    add_nic(&mut h, "eth0", None, 3, false);
    add_nic(&mut h, "eth1", None, 4, false);
    let p = plan(&h, &Options::default()).unwrap();
    assert_eq!(queue_cpus(&h, &p, "eth0"), [0, 1, 2]);
    assert_eq!(queue_cpus(&h, &p, "eth1"), [3, 4, 5, 6]);
    // Planned one after the other, the pinned queues of the first are seen.
    for (irq, cpu) in h.nics[0].irqs.clone().iter().skip(1).zip(0..) {
        h.irqs.iter_mut().find(|i| i.number == irq.irq).unwrap().affinity = CpuSet::single(cpu);
    }
    let second = plan(&h, &Options { nics: vec!["eth1".into()], ..Options::default() }).unwrap();
    assert_eq!(queue_cpus(&h, &second, "eth1"), [3, 4, 5, 6]);
}

#[test]
fn no_nic_loses_its_near_cores_to_the_overflow_of_another() {
    let on_node = |h: &Host, cpu: u32, node| h.cpus[cpu as usize].node == node;
    // Listed first or last: 36 queues on 24 CPUs stay near, since one or two per CPU is as even as it gets.
    for nics in [[("eth0", 0, 24), ("eth1", 1, 12)], [("eth0", 1, 12), ("eth1", 0, 24)]] {
        let mut h = xeons();
        nics.iter().for_each(|(name, node, queues)| add_nic(&mut h, name, Some(*node), *queues, false));
        let p = plan(&h, &Options::default()).unwrap();
        for (name, node, _) in nics {
            assert!(
                queue_cpus(&h, &p, name).into_iter().all(|c| on_node(&h, c, node)),
                "{name}: {:?}",
                queue_cpus(&h, &p, name)
            );
        }
        assert!(p.nics.iter().all(|n| n.far == 0 && n.cpus.len() == 12), "{:?}", p.nics);
    }
    // Two on a node that holds one of them: each half near.
    let mut h = xeons();
    add_nic(&mut h, "eth0", Some(0), 12, false);
    add_nic(&mut h, "eth1", Some(0), 12, false);
    let p = plan(&h, &Options::default()).unwrap();
    for nic in &p.nics {
        assert_eq!((nic.near_cores + nic.near_siblings, nic.far, nic.queues_per_cpu_max), (6, 6, 1), "{nic}");
    }
    assert_eq!(p.nics[0].to_string(), "eth0: 12 queues on 12 CPUs: 6 cores of its node 0, 6 of the far node");
}

#[test]
fn offline_isolated_and_excepted_cpus_are_left_out() {
    let mut h = host(cpus(1, 8, 1));
    h.cpus[0].online = false;
    h.cpus[3].isolated = true;
    add_nic(&mut h, "eth0", None, 8, false);
    let p = plan(&h, &Options { except: list("6-7"), ..Options::default() }).unwrap();
    let used: CpuSet = queue_cpus(&h, &p, "eth0").into_iter().collect();
    assert_eq!(used, list("1-2,4-5"));
    assert!(p.plan.warnings.iter().any(|w| w.contains("isolated") && w.contains("CPU 3")), "{:?}", p.plan.warnings);
}

#[test]
fn what_a_router_deals_is_left_to_it_and_its_cpus_are_busy() {
    let mut h = host(cpus(1, 4, 1));
    add_nic(&mut h, "eth0", None, 1, false);
    add_nic(&mut h, "eth1", None, 1, false);
    let rps = Knob::RpsCpus { nic: "eth0".into(), queue: 0 };
    let alone = plan(&h, &Options::default()).unwrap();
    assert_eq!((queue_cpus(&h, &alone, "eth0"), mask_of(&alone, &rps)), (vec![0], Some(list("1-3"))));
    let router = FastPath { pid: 7, interfaces: vec!["eth0".into()], cpus: list("0-1") };
    h.fast_path = FastPath::parse(&router.text());
    assert_eq!(h.fast_path, Some(router));
    let p = plan(&h, &Options::default()).unwrap();
    assert_eq!((queue_cpus(&h, &p, "eth0"), queue_cpus(&h, &p, "eth1")), (vec![2], vec![3]));
    assert_eq!(mask_of(&p, &rps), None, "it has none, and gets none");
    assert_eq!(
        mask_of(&p, &Knob::RpsCpus { nic: "eth1".into(), queue: 0 }),
        Some(list("0-2")),
        "no port of the router"
    );
    h.nics[0].rx_queues[0].rps_cpus = list("3");
    let p = plan(&h, &Options { rps: Steer::On, ..Options::default() }).unwrap();
    assert_eq!(mask_of(&p, &rps), Some(CpuSet::new()));
    assert!(p.plan.warnings.iter().any(|w| w.contains("eth0") && w.contains("0-1")), "{:?}", p.plan.warnings);
}

#[test]
fn impossible_cpus_are_named() {
    let mut h = host(cpus(1, 2, 1));
    add_nic(&mut h, "eth0", None, 1, false);
    let with =
        |cpus: &str, except: &str| Options { cpus: Some(list(cpus)), except: list(except), ..Options::default() };
    assert!(matches!(plan(&h, &with("0-7", "")), Err(PlanError::NoSuchCpu { cpu: 2, .. })));
    assert!(matches!(plan(&h, &with("0", "0")), Err(PlanError::NoCpus { .. })));
    let unknown = plan(&h, &Options { nics: vec!["eth9".into()], ..Options::default() }).unwrap_err();
    assert!(unknown.to_string().contains("eth9") && unknown.to_string().contains("eth0"), "{unknown}");
    assert_eq!(plan(&host(cpus(1, 2, 1)), &Options::default()), Err(PlanError::NoPorts { down: vec![] }));
}

#[test]
fn both_directions_of_a_queue_go_together() {
    let mut h = host(cpus(1, 4, 1));
    add_nic(&mut h, "eth0", None, 4, true);
    let p = plan(&h, &Options::default()).unwrap();
    assert_eq!(queue_cpus(&h, &p, "eth0"), [0, 0, 1, 1, 2, 2, 3, 3]);
}

/// A device without interrupts has no core of its own: all cores are not "the others".
#[test]
fn a_single_queue_without_an_interrupt_gets_all_cores_and_it_is_reported() {
    let mut h = host(cpus(1, 2, 1));
    add_nic(&mut h, "ifb0", None, 1, true);
    h.nics[0].irqs.clear();
    let p = plan(&h, &Options { nics: vec!["ifb0".into()], ..Options::default() }).unwrap();
    assert_eq!(mask_of(&p, &Knob::RpsCpus { nic: "ifb0".into(), queue: 0 }), Some(list("0-1")));
    let row = p.rows.iter().find(|row| row.what == "rx 0 RPS").unwrap();
    assert!(row.reason.contains("all cores"), "{row:?}");
}

#[test]
fn a_single_queue_gets_rps_over_the_other_cores_and_no_xps() {
    let mut h = host(cpus(1, 4, 1));
    add_nic(&mut h, "eth0", None, 1, true);
    let p = plan(&h, &Options { rfs: Some(30_000), ..Options::default() }).unwrap();
    let rps = Knob::RpsCpus { nic: "eth0".into(), queue: 0 };
    assert_eq!(mask_of(&p, &rps), Some(list("1-3")));
    assert!(!p.plan.changes.iter().any(|c| matches!(c.knob, Knob::XpsCpus { .. })));
    let value = |knob: Knob| p.plan.changes.iter().find(|c| c.knob == knob).unwrap().new.clone();
    assert_eq!(value(Knob::RfsEntries), "32768");
    assert_eq!(value(Knob::RpsFlowCnt { nic: "eth0".into(), queue: 0 }), "32768");
    let off = plan(&h, &Options { rps: Steer::Off, ..Options::default() }).unwrap();
    assert_eq!(mask_of(&off, &rps), None, "it is off already");
}

#[test]
fn one_cpu_gets_everything_and_no_rps() {
    let mut h = host(cpus(1, 1, 1));
    add_nic(&mut h, "eth0", None, 1, true);
    let p = plan(&h, &Options::default()).unwrap();
    assert!(p.plan.changes.is_empty(), "{:?}", p.plan.changes);
    assert_eq!(p.rows.len(), 2);
}

#[test]
fn rps_on_deals_the_free_cores_to_the_queues() {
    let mut h = host(cpus(1, 8, 1));
    add_nic(&mut h, "eth0", None, 2, false);
    assert!(!plan(&h, &Options::default()).unwrap().rows.iter().any(|r| r.what.contains("RPS")));
    let p = plan(&h, &Options { rps: Steer::On, ..Options::default() }).unwrap();
    let rps = |queue| mask_of(&p, &Knob::RpsCpus { nic: "eth0".into(), queue }).unwrap();
    assert_eq!(rps(0), list("0,2,4,6"));
    assert_eq!(rps(1), list("1,3,5,7"));
}

#[test]
fn managed_and_shared_lines() {
    let mut h = host(cpus(1, 4, 1));
    add_nic(&mut h, "eth0", None, 2, false);
    h.irqs[1].managed = true;
    h.irqs[1].effective = Some(CpuSet::single(3));
    h.irqs[2].actions.push("uhci_hcd:usb1".into());
    let p = plan(&h, &Options::default()).unwrap();
    assert!(!p.plan.changes.iter().any(|c| c.knob == Knob::IrqAffinity { irq: h.irqs[1].number }));
    let xps = mask_of(&p, &Knob::XpsCpus { nic: "eth0".into(), queue: 0 }).unwrap();
    assert!(xps.contains(3), "{xps}");
    assert!(p.plan.warnings.iter().any(|w| w.contains("shared") && w.contains("uhci_hcd")));
    assert!(p.plan.warnings.iter().any(|w| w.contains("manages")));
}

#[test]
fn transmit_queues_of_one_shared_interrupt_keep_their_cpus() {
    let mut h = host(cpus(1, 4, 1));
    add_nic(&mut h, "eth0", None, 1, false);
    h.nics[0].rx_queues.resize_with(4, Default::default);
    let queue = h.nics[0].tx_queues[0].clone();
    h.nics[0].tx_queues.resize(4, queue);
    let of_xps = |p: &SpreadPlan| p.plan.changes.iter().filter(|c| matches!(c.knob, Knob::XpsCpus { .. })).count();
    let p = plan(&h, &Options::default()).unwrap();
    assert_eq!(of_xps(&p), 0, "{:?}", p.plan.changes);
    assert!(p.plan.warnings.iter().any(|w| w.contains("eth0") && w.contains("XPS left out")), "{:?}", p.plan.warnings);
    h.nics[0].tx_queues.iter_mut().for_each(|q| q.xps_cpus = Some(list("0-3")));
    assert_eq!(of_xps(&plan(&h, &Options { xps: Steer::Off, ..Options::default() }).unwrap()), 4, "off can be had");
}

#[test]
fn two_nics_on_one_line_move_once() {
    let mut h = host(cpus(1, 4, 1));
    add_nic(&mut h, "eth0", None, 1, false);
    add_nic(&mut h, "eth1", None, 1, false);
    let line = h.nics[0].irqs[1].irq;
    h.nics[1].irqs[1].irq = line;
    let p = plan(&h, &Options { rps: Steer::Off, ..Options::default() }).unwrap();
    assert_eq!(p.plan.changes.len(), 1);
    assert!(p.rows.iter().any(|r| r.nic == "eth1" && r.reason.contains("one line with eth0")), "{:?}", p.rows);
}

#[test]
fn threads_follow_their_queue() {
    let mut h = host(cpus(1, 4, 1));
    add_nic(&mut h, "eth0", None, 2, false);
    h.nics[0].threaded = Some(true);
    let irqs: Vec<u32> = h.nics[0].irqs.iter().skip(1).map(|i| i.irq).collect();
    let napi = |id, irq, pid| Napi { id, irq: Some(irq), pid: Some(pid), cpus: Some(list("0-3")), rx_queue: None };
    h.nics[0].napis = vec![napi(8194, irqs[0], 71), napi(8193, irqs[1], 70)];
    let p = plan(&h, &Options::default()).unwrap();
    let of = |pid, napi| {
        let knob = Knob::NapiThreadAffinity { nic: "eth0".into(), napi, pid };
        p.plan.changes.iter().find(|c| c.knob == knob).unwrap().new.clone()
    };
    assert_eq!((of(71, 8194).as_str(), of(70, 8193).as_str()), ("0", "1"));
    let on = plan(&h, &Options { threaded: Some(false), ..Options::default() }).unwrap();
    assert!(on.plan.changes.iter().any(|c| c.knob == Knob::NapiThreaded { nic: "eth0".into() } && c.new == "0"));
    assert!(!on.plan.warnings.iter().any(|w| w.contains("pinning")), "none is pinned");
    h.nics[0].napis[0].cpus = Some(list("2"));
    let off = plan(&h, &Options { threaded: Some(false), ..Options::default() }).unwrap();
    assert!(off.plan.warnings.iter().any(|w| w.contains("pinning (71 on 2)")), "{:?}", off.plan.warnings);
}

#[test]
fn rings_and_coalescing_come_first_and_only_where_the_driver_has_them() {
    let mut h = host(cpus(1, 2, 1));
    add_nic(&mut h, "eth0", None, 2, false);
    h.nics[0].rings = Some(Rings { rx: 512, rx_max: 4096, tx: 4096, tx_max: 4096 });
    h.nics[0].coalescing = Some(Coalescing { rx_usecs: Some(3), ..Coalescing::default() });
    let coalesce = vec![(CoalesceField::RxUsecs, "50".into()), (CoalesceField::TxFrames, "8".into())];
    let p = plan(&h, &Options { coalesce, max_rings: true, ..Options::default() }).unwrap();
    let shells: Vec<String> = p.plan.changes.iter().map(host::knob::Change::shell).collect();
    assert_eq!(shells[..2], ["ethtool -G eth0 rx 4096", "ethtool -C eth0 rx-usecs 50"]);
    assert!(p.plan.warnings.iter().any(|w| w.contains("tx-frames")));
}

#[test]
fn irqbalance_is_named_with_the_way_to_stop_it() {
    let mut h = host(cpus(1, 2, 1));
    add_nic(&mut h, "eth0", None, 2, false);
    h.irqbalance_pid = Some(812);
    let warnings = plan(&h, &Options::default()).unwrap().plan.warnings;
    assert!(warnings[0].contains("812") && warnings[0].contains("systemctl disable --now irqbalance"));
}

#[test]
fn a_large_machine_is_planned_in_no_time_and_stays_planned() {
    let mut h = host(cpus(2, 32, 2));
    add_nic(&mut h, "eth0", Some(0), 64, false);
    let p = plan(&h, &Options::default()).unwrap();
    assert_eq!(queue_cpus(&h, &p, "eth0").into_iter().collect::<CpuSet>(), list("0-31,64-95"));
    // What the plan wrote is what the next plan wants.
    carry_out(&mut h, &p);
    assert!(plan(&h, &Options::default()).unwrap().plan.changes.is_empty());
}

/// The plan written into the picture.
fn carry_out(h: &mut Host, p: &SpreadPlan) {
    for c in &p.plan.changes {
        let set = c.knob.cpus(&c.new).unwrap();
        match &c.knob {
            Knob::IrqAffinity { irq } => h.irqs.iter_mut().find(|i| i.number == *irq).unwrap().affinity = set,
            Knob::XpsCpus { nic, queue } => {
                let nic = h.nics.iter_mut().find(|n| n.name == *nic).unwrap();
                nic.tx_queues[*queue as usize].xps_cpus = Some(set);
            }
            Knob::RpsCpus { nic, queue } => {
                let nic = h.nics.iter_mut().find(|n| n.name == *nic).unwrap();
                nic.rx_queues[*queue as usize].rps_cpus = set;
            }
            other => panic!("{other}"),
        }
    }
}

#[test]
fn ports_with_more_queues_than_cpus_each_get_all_of_them() {
    let mut h = host(cpus(1, 8, 1));
    for n in 0..4 {
        add_nic(&mut h, &format!("eth{n}"), None, 8, false);
    }
    let p = plan(&h, &Options::default()).unwrap();
    for nic in &p.nics {
        assert_eq!((nic.cpus.len(), nic.queues_per_cpu_max), (8, 1), "{nic}");
    }
    // Three ports of six: 18 queues on 8 CPUs are 2 or 3 each, and no port has two on one.
    let mut h = host(cpus(1, 8, 1));
    for n in 0..3 {
        add_nic(&mut h, &format!("eth{n}"), None, 6, false);
    }
    let p = plan(&h, &Options::default()).unwrap();
    assert!(p.nics.iter().all(|nic| nic.cpus.len() == 6), "{:?}", p.nics);
}

#[test]
fn what_does_not_fit_goes_to_the_nearest_node() {
    // Two sockets of four nodes each; the card sits on node 4.
    let mut h = host(cpus(8, 2, 1));
    for from in 0..8u32 {
        let row = (0..8)
            .map(|to| {
                (
                    to,
                    if from == to {
                        10
                    } else if from / 4 == to / 4 {
                        12
                    } else {
                        32
                    },
                )
            })
            .collect();
        h.distances.insert(from, row);
    }
    add_nic(&mut h, "eth0", Some(4), 8, false);
    let p = plan(&h, &Options::default()).unwrap();
    assert_eq!(p.nics[0].cpus, list("8-15"), "its own socket");
    // A node whose CPUs are all isolated: the others of its socket.
    h.cpus.iter_mut().filter(|c| c.node == 4).for_each(|c| c.isolated = true);
    h.nics[0].irqs.truncate(7);
    let p = plan(&h, &Options::default()).unwrap();
    assert_eq!(p.nics[0].cpus, list("10-15"), "{:?}", p.nics);
    assert!(
        p.rows.iter().filter(|r| r.what.contains("IRQ")).all(|r| !r.reason.contains("no CPU left")),
        "{:?}",
        p.rows
    );
}

#[test]
fn cards_get_the_big_cores_of_a_board() {
    let mut h = host(cpus(1, 6, 1));
    h.cpus.iter_mut().take(4).for_each(|c| c.capacity = 400);
    add_nic(&mut h, "eth0", None, 2, false);
    let p = plan(&h, &Options::default()).unwrap();
    assert_eq!(p.nics[0].cpus, list("4-5"));
}

#[test]
fn another_layout_of_the_same_worth_stays() {
    let mut h = host(cpus(1, 4, 1));
    add_nic(&mut h, "eth0", None, 4, false);
    let p = plan(&h, &Options::default()).unwrap();
    carry_out(&mut h, &p);
    // Turned round: queue 0 on CPU 3 and so on.
    let irqs: Vec<u32> = h.nics[0].irqs.iter().skip(1).map(|i| i.irq).collect();
    for (n, irq) in irqs.iter().enumerate() {
        h.irqs.iter_mut().find(|i| i.number == *irq).unwrap().affinity = CpuSet::single(3 - n as u32);
    }
    h.nics[0].tx_queues.reverse();
    assert!(plan(&h, &Options::default()).unwrap().plan.changes.is_empty());
    h.irqs.iter_mut().find(|i| i.number == irqs[0]).unwrap().affinity = CpuSet::single(0);
    assert!(!plan(&h, &Options::default()).unwrap().plan.changes.is_empty(), "two queues on one CPU");
}

#[test]
fn what_is_not_known_is_reported() {
    let mut h = host(cpus(1, 4, 1));
    add_nic(&mut h, "eth0", None, 2, false);
    add_nic(&mut h, "eth1", None, 2, false);
    add_nic(&mut h, "eth2", None, 2, false);
    add_nic(&mut h, "eth3", None, 2, false);
    h.nics[1].irqs.clear();
    h.nics[1].irq_source = IrqSource::NotFound;
    h.nics[1].bus = Some("0000:05:00.0".into());
    h.nics[2].irq_source = IrqSource::Order;
    h.nics[3].flags = 0x1002;
    h.nics[3].bus = Some("0000:06:00.0".into());
    h.garbled_irqs = 3;
    let p = plan(&h, &Options::default()).unwrap();
    for name in ["eth1", "eth2", "eth3", "3 lines"] {
        assert!(p.plan.warnings.iter().any(|w| w.starts_with(name)), "{name}: {:?}", p.plan.warnings);
    }
    assert!(!p.rows.iter().any(|r| r.nic == "eth3"), "down");
    h.nics.iter_mut().for_each(|n| n.flags = 0x1002);
    assert!(matches!(plan(&h, &Options::default()), Err(PlanError::NoPorts { down }) if down.len() == 2));
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(200))]

    #[test]
    fn every_plan_is_whole_and_even(
        nodes in 1u32..3, cores in 1u32..9, threads in 1u32..3,
        nics in prop::collection::vec((1u32..20, prop::option::of(0u32..2), any::<bool>()), 1..4),
        offline in prop::collection::btree_set(0u32..32, 0..4), except in prop::collection::btree_set(0u32..32, 0..4),
    ) {
        let mut h = host(cpus(nodes, cores, threads));
        let count = h.cpus.len() as u32;
        for cpu in offline.iter().filter(|&&c| c != 0 && c < count) {
            h.cpus[*cpu as usize].online = false;
        }
        for (n, (queues, node, split)) in nics.iter().enumerate() {
            add_nic(&mut h, &format!("eth{n}"), node.filter(|&n| n < nodes), *queues, *split);
        }
        let except: CpuSet = except.into_iter().filter(|&c| c != 0 && c < count).collect();
        let p = plan(&h, &Options { except: except.clone(), ..Options::default() }).unwrap();
        let allowed = h.online().difference(&except);

        let mut load = vec![0u32; count as usize];
        for nic in &h.nics {
            for i in nic.irqs.iter().filter(|i| i.role != QueueRole::Control) {
                let rows = p.rows.iter().filter(|r| r.what.ends_with(&format!("IRQ {}", i.irq))).count();
                prop_assert_eq!(rows, 1, "each interrupt has its line");
                let now = h.irq(i.irq).unwrap().affinity.to_mask();
                let new = p.plan.changes.iter().find(|c| c.knob == Knob::IrqAffinity { irq: i.irq }).map_or(now, |c| c.new.clone());
                let home = CpuSet::parse_mask(&new).unwrap();
                prop_assert_eq!(home.len(), 1);
                prop_assert!(allowed.contains(home.first().unwrap()));
                if !matches!(i.role, QueueRole::Tx(_)) {
                    load[home.first().unwrap() as usize] += 1;
                }
            }
            if nic.tx_queues.len() > 1 {
                let covered: CpuSet = p.plan.changes.iter()
                    .filter(|c| matches!(&c.knob, Knob::XpsCpus { nic: n, .. } if *n == nic.name))
                    .flat_map(|c| CpuSet::parse_mask(&c.new).unwrap().iter().collect::<Vec<_>>()).collect();
                prop_assert_eq!(covered, h.online(), "every online CPU has a transmit queue");
            }
        }
        let used: Vec<u32> = allowed.iter().map(|c| load[c as usize]).collect();
        prop_assert!(used.iter().max().unwrap() - used.iter().min().unwrap() <= 1, "{:?}", used);
    }
}
