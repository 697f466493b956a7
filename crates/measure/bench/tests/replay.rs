//! A capture file of voice and data, sent through a stateful filter by the tester.

mod order;

use std::{path::Path, sync::atomic::AtomicBool, time::Duration};

use bench::{
    Cores, Dut, DutKind, DutOptions, Load, RuleOrder, Tester,
    frames::{Replay, Traffic},
    tester::{RealTester, TesterConfig},
};
use lab::{Lab, boxes::Family};
use model::CpuSet;
use testbed::{privileged, write_pcap};
use wire::{FlowKey, FrameSize, Kind, Mac, Template};

/// Calls of both sides and a download with its acknowledgements, one packet of each in turn.
fn voice_and_data(path: &Path) {
    let key = |source: [u8; 4], destination: [u8; 4], source_port, destination_port| FlowKey {
        source: source.into(),
        destination: destination.into(),
        source_port,
        destination_port,
    };
    let t = |kind| Template { destination: Mac([2; 6]), source: Mac([4; 6]), tags: [None; 2], kind };
    let mut frames = Vec::new();
    for i in 0..20u32 {
        for call in 0..3u8 {
            let (a, b, port) = ([10, 1, 1, call], [10, 2, 2, call], 16_384 + 2 * u16::from(call));
            frames.push(t(Kind::Udp).build(&key(a, b, port, port), FrameSize::with_fcs(218), 0).unwrap());
            frames.push(t(Kind::Udp).build(&key(b, a, port, port), FrameSize::with_fcs(218), 0).unwrap());
        }
        let (client, server) = ([10, 1, 1, 9], [192, 0, 2, 1]);
        frames.push(t(Kind::TcpData).build(&key(client, server, 40_000, 443), FrameSize::MIN, 1).unwrap());
        frames.push(
            t(Kind::TcpData).build(&key(server, client, 443, 40_000), FrameSize::MAX_STANDARD, 1 + i * 1460).unwrap(),
        );
    }
    write_pcap(path, frames);
}

#[test]
fn voice_and_data_pass_a_stateful_filter_both_ways() {
    let Some(()) = privileged() else { return };
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("mixed.pcap");
    voice_and_data(&path);
    let lab = Lab::new("replay").unwrap();
    let cores = Cores::split(&CpuSet::parse_list("0").unwrap()).unwrap();
    let options = DutOptions { family: Family::V4, rules: 5, order: RuleOrder::Study, cores: &cores, threaded: false };
    let dut = Dut::lab(&lab, DutKind::Stateful, &options).unwrap();
    let targets = dut.ports().map(|p| p.target);
    let traffic = Traffic { targets, flows: 1, both_ways: true, mtu: dut.mtu().unwrap() };
    let replay = Replay::read(&path, &traffic).unwrap();
    assert_eq!((replay.entries.len(), replay.flows), (160, [4, 4]));
    let mut tester = RealTester::new(&dut, &cores, TesterConfig { flows: 1, both_ways: true }, None).unwrap();
    let order = order::order(replay.spec(), Load::Pps(2000.0), Duration::from_millis(500));
    let trial = tester.trial(&order, &AtomicBool::new(false)).unwrap();
    let [forward, backward] = trial.counts;
    assert!(forward.sent > 80 && forward.sent.abs_diff(backward.sent) <= 1, "more than one round: {trial:?}");
    for counts in [forward, backward] {
        assert_eq!(
            (counts.received, counts.duplicated, counts.reordered, counts.stray),
            (counts.sent, 0, 0, 0),
            "{trial:?}"
        );
    }
}
