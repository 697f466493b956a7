//! Sender and receiver over real interfaces: every unit that was sent is counted as what it is, for each kind of frame and box.

use std::{thread, time::Duration};

use bench::{
    Cores, Dut, DutKind, DutOptions, RuleOrder,
    frames::{self, Traffic},
};
use bpf::{
    BenchReceiver, BenchRxConfig, BenchRxCounts, Echo, XdpMode,
    bench_tx::{BenchPace, BenchProbe, BenchSender, BenchTxCounts},
};
use lab::{Lab, boxes::Family};
use model::{CpuSet, bench::FrameSpec};
use testbed::privileged;

const TAG: u16 = 0x5a30;

/// A box with a receiver on each port.
struct Stand {
    dut: Dut,
    traffic: Traffic,
    receivers: [BenchReceiver; 2],
    _lab: Lab,
}

impl Stand {
    fn new(kind: DutKind, family: Family, flows: u32, spec: &FrameSpec) -> Self {
        let lab = Lab::new("rx").unwrap();
        let cores = Cores::split(&CpuSet::parse_list("0").unwrap()).unwrap();
        let options = DutOptions { family, rules: 5, order: RuleOrder::Study, cores: &cores, threaded: false };
        let dut = Dut::lab(&lab, kind, &options).unwrap();
        let [first, second] = dut.ports();
        let targets = [first.target, second.target];
        let traffic = Traffic { targets, flows, both_ways: true, mtu: dut.mtu().unwrap() };
        let receivers = [0u16, 1].map(|direction| {
            let port = dut.ports()[1 - usize::from(direction)];
            let echo = Echo { source: port.mac, destination: port.target.mac };
            let config = BenchRxConfig {
                tag: TAG | direction,
                flows,
                fragments: spec.frames_per_unit(),
                echo: Some(echo),
                silence: true,
                ..Default::default()
            };
            port.run(|| BenchReceiver::attach(&port.interface, XdpMode::Native, &config)).unwrap().unwrap()
        });
        Self { dut, traffic, receivers, _lab: lab }
    }

    /// Sends slowly enough for any machine, and waits for what comes late. Without units, probes for as long.
    fn send(&self, spec: &FrameSpec, units: u64) -> (BenchTxCounts, [BenchRxCounts; 2]) {
        let entries = frames::lay_out(spec, &self.traffic).unwrap();
        let entry = frames::probe(&self.traffic, model::bench::Direction::Forward).unwrap();
        let pace = BenchPace {
            tag: TAG,
            steps: vec![if units > 0 {
                (Some(2000.0), Duration::from_secs(30))
            } else {
                (Some(0.0), Duration::from_millis(100))
            }],
            count: (units > 0).then_some(units),
            stamp_every: 1,
            probe: Some(BenchProbe { entry, every: Duration::from_millis(20), after: Duration::ZERO }),
        };
        let mut sender = BenchSender::load(&entries, pace).unwrap();
        let sender = {
            for (direction, port) in self.dut.ports().into_iter().enumerate() {
                port.run(|| sender.set_device(direction, &port.interface)).unwrap().unwrap();
            }
            sender
        };
        sender.run().unwrap();
        let read = || [0, 1].map(|i: usize| self.receivers[i].counts().unwrap());
        let sent = sender.counts();
        // Whatever is still on its way on a busy machine arrives within seconds; then a moment for what should not have come.
        for _ in 0..500 {
            let now = read();
            if now[0].units + now[1].units >= units && now[1].probes_returned >= sent.probes {
                break;
            }
            thread::sleep(Duration::from_millis(10));
        }
        thread::sleep(Duration::from_millis(20));
        (sent, read())
    }
}

fn size(bytes: u32) -> FrameSpec {
    FrameSpec::Size { bytes }
}

#[test]
fn every_unit_is_counted_once_through_every_box() {
    let Some(()) = privileged() else { return };
    let datagram = |payload, family| FrameSpec::Datagram { payload, fragments: frames::fragments(payload, family) };
    let (v4, v6) = (Family::V4, Family::V6);
    for (kind, family, flows, spec) in [
        (DutKind::Wire, v4, 1, size(64)),
        (DutKind::Wire, v6, 7, size(1518)),
        (DutKind::Router, v4, 7, frames::imix(v4)),
        (DutKind::Router, v6, 1, size(84)),
        (DutKind::Router, v4, 3, datagram(4096, v4)),
        (DutKind::Stateful, v4, 3, datagram(8192, v4)),
        (DutKind::Stateless, v6, 2, datagram(4096, v6)),
        (DutKind::Bridge, v4, 100, size(128)),
        (DutKind::XdpFib, v6, 2, datagram(9000, v6)),
    ] {
        let what = format!("{kind:?} {family:?} {flows} {spec}");
        let stand = Stand::new(kind, family, flows, &spec);
        let (sent, seen) = stand.send(&spec, 200);
        assert_eq!(sent.units[0] + sent.units[1], 200, "{what}");
        for (way, c) in seen.into_iter().enumerate() {
            let expected = BenchRxCounts {
                frames: sent.frames[way],
                units: sent.units[way],
                probes_returned: if way == 1 { sent.probes } else { 0 },
                probes_echoed: if way == 0 { sent.probes } else { 0 },
                stray: c.stray,
                longest_silence_ns: c.longest_silence_ns,
                ..Default::default()
            };
            assert_eq!(c, expected, "{what}");
            assert_eq!(stand.receivers[way].delays().unwrap().samples, sent.units[way], "{what}");
            assert!(c.longest_silence_ns.is_some());
        }
        assert!(sent.probes > 1, "{what}: {sent:?}");
        assert_eq!(stand.receivers[1].round_trips().len() as u64, sent.probes, "{what}");
    }
}

/// Nothing else is on its way that could push a probe on.
#[test]
fn probes_alone_come_back() {
    let Some(()) = privileged() else { return };
    for kind in DutKind::ALL {
        let stand = Stand::new(kind, Family::V4, 1, &size(64));
        let (sent, seen) = stand.send(&size(64), 0);
        assert!(sent.units == [0, 0] && sent.probes > 1, "{kind:?}: {sent:?}");
        assert_eq!((seen[0].probes_echoed, seen[1].probes_returned), (sent.probes, sent.probes), "{kind:?}");
        assert_eq!(stand.receivers[1].round_trips().len() as u64, sent.probes, "{kind:?}");
    }
}
