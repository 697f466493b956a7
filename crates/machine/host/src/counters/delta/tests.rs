use std::time::Duration;

use model::CpuSet;
use proptest::prelude::*;

use super::*;
use crate::{
    counters::{cpu_times, interrupts, softirqs, softnet},
    picture::{Irq, NicIrq, RxQueue, TxQueue},
};

fn host() -> Host {
    let nic = Nic {
        name: "eth0".into(),
        index: 2,
        mac: None,
        driver: Some("ixgbe".into()),
        bus: Some("0000:03:00.0".into()),
        node: None,
        speed_mbps: Some(10_000),
        mtu: 1500,
        operstate: "up".into(),
        flags: 0,
        rx_queues: vec![RxQueue::default(); 2],
        tx_queues: vec![TxQueue::default(); 2],
        irqs: vec![NicIrq { irq: 40, role: QueueRole::RxTx(0) }, NicIrq { irq: 42, role: QueueRole::Control }],
        napis: Vec::new(),
        threaded: None,
        rings: None,
        channels: None,
        coalescing: None,
        features: BTreeMap::new(),
        rss: None,
        unanswered: Vec::new(),
        irq_source: crate::picture::IrqSource::Names,
    };
    let irq = Irq {
        number: 40,
        chip: String::new(),
        actions: vec!["eth0-TxRx-0".into()],
        affinity: CpuSet::from_iter([0, 1]),
        effective: Some(CpuSet::single(0)),
        managed: false,
        counts: BTreeMap::new(),
    };
    Host {
        hostname: "box".into(),
        kernel: "6.1".into(),
        cpus: Vec::new(),
        nics: vec![nic],
        irqs: vec![irq],
        irqbalance_pid: None,
        distances: BTreeMap::new(),
        garbled_irqs: 0,
        fast_path: None,
    }
}

fn link(name: &str, rx: u64, missed: u64, queue_rx: u64) -> LinkCounters {
    let stats = LinkStats { rx_packets: rx, rx_bytes: 60 * rx, rx_missed_errors: missed, ..LinkStats::default() };
    let queue = QueueCounters { rx_packets: Some(queue_rx), ..QueueCounters::default() };
    LinkCounters { name: name.into(), stats, queues: BTreeMap::from([(0, queue)]) }
}

fn reading(at: u64, links: &[(u32, LinkCounters)]) -> Counters {
    Counters {
        at: Duration::from_secs(at),
        when: format!("2026-01-01T00:00:{at:02}Z"),
        links: links.iter().cloned().collect(),
        ..Counters::default()
    }
}

#[test]
fn a_frame_for_another_host_is_not_lost() {
    let mut later = link("eth0", 5000, 0, 0);
    later.stats.rx_otherhost_dropped = 3000;
    later.stats.rx_nohandler = 20;
    later.stats.rx_dropped = 10;
    let readings = [reading(10, &[(2, link("eth0", 1000, 0, 0))]), reading(12, &[(2, later)])];
    let sample = delta(&host(), &readings[0], &readings[1]);
    let eth0 = &sample.interfaces[0];
    assert_eq!(eth0.drops_pps(), 5.0, "{:?}", eth0.drops);
    let no_loss: Vec<_> = eth0.no_loss.iter().map(|d| (d.counter.as_str(), d.pps)).collect();
    assert_eq!(no_loss, [("rx_otherhost_dropped", 1500.0), ("rx_nohandler", 10.0)]);
}

#[test]
fn rates_of_an_interface_and_its_queues() {
    let mut earlier = reading(10, &[(2, link("eth0", 1000, 10, 600))]);
    let mut later = reading(12, &[(2, link("eth0", 5000, 30, 2600))]);
    earlier.interrupts = interrupts(" CPU0 CPU1\n 40: 100 5 x eth0-TxRx-0\nLOC: 10 10 t\n");
    later.interrupts = interrupts(" CPU0 CPU1\n 40: 100 45 x eth0-TxRx-0\nLOC: 20 10 t\n");
    later.cpus = cpu_times("cpu0 0 0 0 0\ncpu1 0 0 0 0\n");
    earlier.cpus = later.cpus.clone();
    let sample = delta(&host(), &earlier, &later);
    assert_eq!((sample.interval_s, sample.timestamp.as_str()), (2.0, "2026-01-01T00:00:12Z"));
    let eth0 = &sample.interfaces[0];
    assert_eq!((eth0.rx_pps, eth0.rx_bps, eth0.is_virtual), (2000.0, 960_000.0, false));
    let want = DropRate {
        place: "no free descriptor in the ring (rx_missed_errors)".into(),
        counter: "rx_missed_errors".into(),
        pps: 10.0,
    };
    assert_eq!(eth0.drops, [want]);
    let queue = &eth0.queues[0];
    assert_eq!((queue.rx_pps, queue.irq, queue.irq_rate), (Some(1000.0), Some(40), Some(20.0)));
    assert_eq!(queue.cpu, Some(1), "the CPU that handled the interrupts, not the one that was written");
    assert_eq!(eth0.queues.len(), 2, "a queue without counters is there as well");
    assert_eq!((sample.cores[0].irqs_per_s, sample.cores[0].device_irqs_per_s), (5.0, 0.0));
    assert_eq!((sample.cores[1].irqs_per_s, sample.cores[1].device_irqs_per_s), (20.0, 20.0));
}

#[test]
fn a_quiet_interrupt_is_shown_where_the_kernel_would_send_it() {
    let mut earlier = reading(0, &[(2, link("eth0", 0, 0, 0))]);
    earlier.interrupts = interrupts(" CPU0 CPU1\n 40: 100 5 x eth0-TxRx-0\n");
    let later = Counters { at: Duration::from_secs(1), ..earlier.clone() };
    let sample = delta(&host(), &earlier, &later);
    assert_eq!(sample.interfaces[0].queues[0].cpu, Some(0));
    assert!(sample.interfaces[0].is_idle());
}

#[test]
fn a_queue_counter_that_stays_silent_is_no_rate() {
    let earlier = reading(0, &[(2, link("eth0", 0, 0, 50))]);
    let later = reading(1, &[(2, link("eth0", 900, 0, 50))]);
    assert_eq!(delta(&host(), &earlier, &later).interfaces[0].queues[0].rx_pps, None);
    let idle = reading(1, &[(2, link("eth0", 0, 0, 50))]);
    assert_eq!(delta(&host(), &earlier, &idle).interfaces[0].queues[0].rx_pps, Some(0.0));
}

#[test]
fn counters_of_queues_not_in_use_are_no_queues() {
    let with_spare = |at, count| {
        let mut eth0 = link("eth0", count, 0, count);
        eth0.queues.extend((1..64).map(|n| (n, QueueCounters { rx_packets: Some(0), ..QueueCounters::default() })));
        reading(at, &[(2, eth0.clone()), (9, LinkCounters { name: "unknown0".into(), ..eth0 })])
    };
    let sample = delta(&host(), &with_spare(0, 0), &with_spare(1, 7));
    let queues = |name: &str| sample.interfaces.iter().find(|i| i.name == name).unwrap().queues.len();
    assert_eq!(queues("eth0"), 2, "as the picture says");
    assert_eq!(queues("unknown0"), 64, "not in the picture: nothing is known to be out of use");
}

#[test]
fn wraps_and_resets() {
    assert_eq!(grown(10, 15), 5);
    assert_eq!(grown(u64::from(u32::MAX) - 4, 5), 10, "32 bits wrapped");
    assert_eq!(grown(1_000_000, 5), 5, "reset");
    assert_eq!(grown(1 << 40, 5), 5, "too large for 32 bits: reset");
}

#[test]
fn counters_that_cannot_be_read_are_noted() {
    let why = "eth0: cannot read its counters".to_owned();
    let later = Counters { unread: vec![why.clone()], ..reading(1, &[]) };
    assert_eq!(delta(&host(), &reading(0, &[]), &later).notes, [why]);
}

#[test]
fn interfaces_come_and_go() {
    let earlier = reading(0, &[(2, link("eth0", 0, 0, 0)), (3, link("old0", 0, 0, 0))]);
    let later = reading(1, &[(2, link("eth0", 7, 0, 7)), (4, link("new0", 900, 0, 0))]);
    let sample = delta(&host(), &earlier, &later);
    assert_eq!(sample.interfaces.iter().map(|i| i.name.as_str()).collect::<Vec<_>>(), ["eth0"]);
    assert!(sample.notes.iter().any(|n| n.starts_with("new0 appeared")), "{:?}", sample.notes);
    assert!(sample.notes.iter().any(|n| n.starts_with("old0 went away")), "{:?}", sample.notes);
}

#[test]
fn a_cpu_that_goes_offline_has_no_load_and_disturbs_no_other() {
    let (mut earlier, mut later) = (reading(0, &[]), reading(1, &[]));
    earlier.cpus = cpu_times("cpu0 10 0 10 80 0 0 0 0\ncpu1 0 0 0 0\ncpu2 50 0 0 50 0 0 0 0\n");
    later.cpus = cpu_times("cpu0 20 0 10 150 0 0 10 10\ncpu2 150 0 0 50 0 0 0 0\n");
    earlier.interrupts = interrupts(" CPU0 CPU1 CPU2\n 7: 1 2 3 x\n");
    later.interrupts = interrupts(" CPU0 CPU2\n 7: 2 13 x\n");
    earlier.softnet = softnet("10 0 0 0 0 0 0 0 0 0 0 0 2\n", 0..1);
    later.softnet = softnet("30 1 2 0 0 0 0 0 0 0 0 5 2\n", 0..1);
    earlier.softirqs = softirqs(" CPU0 CPU1 CPU2\n NET_RX: 1 1 1\n");
    later.softirqs = softirqs(" CPU0 CPU1 CPU2\n NET_RX: 1 1 8\n");
    let cores = delta(&host(), &earlier, &later).cores;
    assert_eq!(cores.iter().map(|c| c.load.cpu).collect::<Vec<_>>(), [0, 2]);
    assert_eq!(
        (cores[0].load.user_percent, cores[0].load.softirq_percent, cores[0].load.steal_percent),
        (10.0, 10.0, 10.0)
    );
    assert_eq!(cores[0].load.busy_percent(), 20.0);
    assert_eq!((cores[1].load.user_percent, cores[1].device_irqs_per_s, cores[1].net_rx_per_s), (100.0, 10.0, 7.0));
    assert_eq!((cores[1].softnet_processed_pps, cores[1].softnet_squeezed_per_s, cores[1].backlog), (32.0, 2.0, 5));
}

proptest! {
    #[test]
    fn no_two_readings_make_it_panic(a in any::<[u64; 3]>(), b in any::<[u64; 3]>(), at in 0u64..3) {
        let earlier = reading(1, &[(2, link("eth0", a[0] / 64, a[1], a[2]))]);
        let later = reading(at, &[(2, link("eth0", b[0] / 64, b[1], b[2]))]);
        let sample = delta(&host(), &earlier, &later);
        prop_assert!(sample.interfaces.iter().all(|i| i.rx_pps.is_finite() && i.rx_pps >= 0.0));
    }
}
