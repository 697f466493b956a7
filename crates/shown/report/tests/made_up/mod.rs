//! Made-up data to look at: nobody measured any of it.

use model::{
    CoreLoad, CpuSet, Ledger, Loss,
    profile::Class,
    run::{
        Arrangement, CoreRole, Cost, DemoRun, Generator, LockShare, Machine, Repeats, Sharing, Stage, Work, WorkShare,
        keys,
    },
    sources,
    top::{Coalescing, CoreRates, DropRate, InterfaceRates, QueueRates, TopSample},
};

/// CPU time of a stage by class.
fn work(key: &str) -> Work {
    let share = |class, percent| WorkShare { class, percent };
    let (first, locks) = if key == keys::PLAIN { (58.0, 58.0) } else { (41.5, 0.4) };
    let class = if key == keys::PLAIN { Class::Locks } else { Class::Receive };
    let mut classes = vec![share(class, first), share(Class::Memory, 22.4), share(Class::Copying, 9.0)];
    if class != Class::Locks {
        classes.push(share(Class::Locks, locks));
    }
    Work {
        samples: 700,
        classes,
        locks: vec![LockShare {
            caller: "packet_rcv".into(),
            class: Class::Taps,
            percent: locks,
            waiting_percent: 0.9 * locks,
        }],
    }
}

/// A run on a machine with that many CPUs.
pub(crate) fn run(cpus: u32) -> DemoRun {
    let stage = |key: &str, name: &str, what: &str, delivered: f64, losses: &[(&str, f64)]| {
        let packets = |share: f64| (share * 5_500_000.0) as u64;
        let delivered_pps = delivered * 1_100_000.0;
        Stage {
            key: key.into(),
            name: name.into(),
            what: what.into(),
            backend: key.into(),
            arrangement: Arrangement {
                sharing: Sharing::Apart,
                roles: vec![
                    CoreRole { cpus: CpuSet::single(0), role: "generator".into() },
                    CoreRole { cpus: CpuSet::from_iter(1..cpus), role: "receive queues and readers".into() },
                ],
            },
            attached_mode: (key == keys::TAP || key == keys::XDP).then(|| "native".into()),
            repeats: Repeats { count: 3, lowest_pps: 0.9 * delivered_pps, highest_pps: 1.06 * delivered_pps },
            offered_pps: 1_100_000.0,
            delivered_pps,
            ledger: Ledger {
                offered: 5_500_000,
                offered_by: "frames sent by the generator".into(),
                delivered: packets(delivered),
                losses: losses.iter().map(|&(p, n)| Loss { place: p.into(), packets: packets(n) }).collect(),
            },
            cores: (0..cpus)
                .map(|cpu| {
                    let softirq = if cpu == 0 { 12.0 } else { 95.0 / f64::from(cpu) * delivered.max(0.3) };
                    let user = 10.0 * delivered;
                    CoreLoad {
                        cpu,
                        user_percent: user,
                        system_percent: 5.0,
                        irq_percent: 0.0,
                        softirq_percent: softirq.min(84.0),
                        steal_percent: 0.5,
                        idle_percent: (94.5 - user - softirq.min(84.0)).max(0.0),
                    }
                })
                .collect(),
            ns_per_packet: Cost {
                per_delivered_ns: (delivered > 0.0).then(|| 900.0 / delivered),
                per_offered_ns: Some(900.0),
            },
            steal_percent: 0.5,
            work: (key != keys::XDP).then(|| work(key)),
            notes: Vec::new(),
        }
    };
    let full = "socket queue full (tp_drops)";
    let backlog = "backlog of the core full (softnet dropped)";
    let veth = "receive ring of the link full (rx_dropped)";
    let mut stages = vec![
        stage(
            keys::PLAIN,
            "One plain socket",
            "One queue on one core, read by recv().",
            0.07,
            &[(full, 0.41), (veth, 0.52)],
        ),
        stage(
            keys::SPREAD,
            "Queues spread",
            "Every queue on a core of its own.",
            0.09,
            &[(full, 0.7), (backlog, 0.21)],
        ),
        stage(
            keys::FANOUT,
            "+ fanout",
            "One socket for each core in a fanout group.",
            0.31,
            &[(full, 0.6), (backlog, 0.09)],
        ),
        stage(keys::RING, "Ring", "One TPACKET_V3 ring.", 0.58, &[(full, 0.32), (backlog, 0.099)]),
        stage(keys::RING_FANOUT, "Ring + fanout", "A TPACKET_V3 ring for each core.", 0.82, &[(full, 0.18)]),
        stage(keys::TAP, "Tap", "Copied in XDP into memory shared with the reader.", 1.0, &[]),
        stage(
            keys::XDP,
            "AF_XDP",
            "Every queue read through AF_XDP.",
            0.93,
            &[("fill ring empty (rx_fill_ring_empty_descs)", 0.07)],
        ),
    ];
    stages[0].notes.push("The reader had <one> core & shared it.".into());
    DemoRun {
        timestamp: "2026-01-02T03:04:05Z".into(),
        machine: Machine {
            hostname: "made-up".into(),
            kernel: "6.1.0-18-amd64".into(),
            cpu_model: "Imaginary CPU 9000".into(),
            cpus,
            memory_bytes: 8 << 30,
            virtualised: Some("KVM".into()),
        },
        disturbed: None,
        frame_bytes: 60,
        seconds_per_stage: 5.0,
        generator: Generator {
            backend: "XDP live frames".into(),
            cpus: CpuSet::single(0),
            ceiling_pps: 4_600_000.0,
            ceiling_conditions: "into XDP_DROP on the same core, 5 s".into(),
        },
        stages,
        sources: sources::figures(),
        conclusion:
            "Made-up data: with one plain socket this kernel lost 93 of 100 packets of the flood; with the tap it \
                     lost none. The same machine, the same kernel: only the way of receiving changed."
                .into(),
    }
}

/// An interval of a machine with that many CPUs and a queue for each.
pub(crate) fn sample(cpus: u32) -> TopSample {
    let queues = (0..cpus).map(|n| QueueRates {
        n,
        rx_pps: Some(1_200_000.0 / f64::from(n + 1)),
        rx_bps: Some(576e6),
        tx_pps: Some(12.0),
        tx_bps: Some(9e3),
        drops_pps: Some(if n == 0 { 4000.0 } else { 0.0 }),
        irq: Some(40 + n),
        irq_rate: Some(21_300.0),
        cpu: Some(n),
        affinity: Some(CpuSet::single(n)),
    });
    let eth0 = InterfaceRates {
        name: "eth0".into(),
        driver: Some("ixgbe".into()),
        state: Some("up".into()),
        speed_mbps: Some(10_000),
        rx_pps: 3_200_000.0,
        rx_bps: 1.54e9,
        tx_pps: 24.0,
        tx_bps: 18e3,
        drops: vec![
            DropRate {
                place: "no free descriptor in the ring (rx_missed_errors)".into(),
                counter: "rx_missed_errors".into(),
                pps: 56_000.0,
            },
            DropRate { place: "driver or stack (rx_dropped)".into(), counter: "rx_dropped".into(), pps: 13.0 },
        ],
        no_loss: vec![DropRate {
            place: "for another host's MAC (rx_otherhost_dropped)".into(),
            counter: "rx_otherhost_dropped".into(),
            pps: 5000.0,
        }],
        queues: queues.collect(),
        coalescing: Some(Coalescing {
            adaptive_rx: Some(true),
            rx_usecs: Some(8),
            rx_frames: Some(32),
            tx_usecs: Some(16),
            ..Coalescing::default()
        }),
        ..InterfaceRates::default()
    };
    let veth = InterfaceRates {
        name: "veth-a-long-nam".into(),
        driver: Some("veth".into()),
        is_virtual: true,
        rx_pps: 5.0,
        rx_bps: 2400.0,
        tx_pps: 5.0,
        tx_bps: 2400.0,
        ..InterfaceRates::default()
    };
    let lo = InterfaceRates { name: "lo".into(), is_virtual: true, ..InterfaceRates::default() };
    let cores = (0..cpus).map(|cpu| CoreRates {
        load: CoreLoad {
            cpu,
            user_percent: 4.0,
            system_percent: 6.0,
            irq_percent: 1.0,
            softirq_percent: 80.0 / f64::from(cpu + 1),
            steal_percent: if cpu == 1 { 3.0 } else { 0.0 },
            idle_percent: 89.0 - 80.0 / f64::from(cpu + 1) - if cpu == 1 { 3.0 } else { 0.0 },
        },
        net_rx_per_s: 41_000.0,
        net_tx_per_s: 3.0,
        device_irqs_per_s: 21_300.0,
        irqs_per_s: 21_600.0,
        softnet_processed_pps: 1_200_000.0 / f64::from(cpu + 1),
        softnet_dropped_pps: if cpu == 0 { 120.0 } else { 0.0 },
        softnet_squeezed_per_s: 17.0,
        flow_limited_pps: 0.0,
        backlog: 0,
    });
    TopSample {
        timestamp: "2026-01-02T03:04:05.678Z".into(),
        interval_s: 1.0,
        hostname: "made-up".into(),
        interfaces: vec![eth0, veth, lo],
        cores: cores.collect(),
        notes: vec!["veth9 went away during the interval".into()],
    }
}
