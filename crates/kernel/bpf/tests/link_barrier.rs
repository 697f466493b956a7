//! A second protocol on the hooks of the first: rounds of a cluster, added up where frames arrive.

use bpf::{BarrierCounts, BarrierDone, LinkBarrier, LinkPort, LinkRing, LinkSettings, XdpMode};
use sys::tun::Tap;
use testbed::{
    messages::{FAR, PORT, data, frame, read},
    privileged,
};

const XDP_DROP: u32 = 1;
const XDP_PASS: u32 = 2;
const ALL: [u8; 6] = [0xff; 6];

/// A frame to all nodes.
fn comes(group: u16, node: u8, epoch: u32, round: u32, value: u32) -> Vec<u8> {
    let mut frame = frame(ALL, &[], &LinkBarrier::frame(group, node, epoch, round, value));
    frame[12..14].copy_from_slice(&LinkBarrier::ETHERTYPE.to_be_bytes());
    frame
}

fn rounds_of(ring: &mut LinkRing) -> Vec<BarrierDone> {
    let done = |(from, vlan, payload): ([u8; 6], Option<u16>, Vec<u8>)| {
        assert_eq!((from, vlan), (FAR, None));
        BarrierDone::read(&payload).expect("a round")
    };
    read(ring).into_iter().map(done).collect()
}

#[test]
fn a_round_is_reported_once_when_the_last_node_has_come() {
    let Some(()) = privileged() else { return };
    let tap = Tap::create("ekbar%d").unwrap();
    let mut barrier = LinkBarrier::attach(tap.name(), XdpMode::Native).unwrap();
    let mut ring = barrier.begin(3, 77, 0b1011, 4096).unwrap();
    let give = |barrier: &LinkBarrier, frame: &[u8]| assert_eq!(barrier.try_frame(frame, 1).unwrap().0, XDP_DROP);
    for round in 1..=100 {
        let values = [u32::MAX, round, 5 * round];
        assert_eq!(barrier.sum(3, round), None);
        // Not of this group, epoch or node, or of a round that is over: nothing is counted.
        for frame in [
            comes(4, 0, 77, round, 1),
            comes(3, 0, 78, round, 1),
            comes(3, 2, 77, round, 1),
            comes(3, 40, 77, round, 1),
            comes(99, 0, 77, round, 1),
        ] {
            give(&barrier, &frame);
        }
        if round > 2 {
            give(&barrier, &comes(3, 1, 77, round - 2, 9));
        }
        // Each comes twice; the last one of the three differs from round to round.
        for turn in 0..3 {
            let which = (turn + round as usize) % 3;
            let frame = comes(3, [0, 1, 3][which], 77, round, values[which]);
            assert_eq!(rounds_of(&mut ring), []);
            give(&barrier, &frame);
            if turn < 2 {
                give(&barrier, &frame);
            }
        }
        let sum = values.map(u64::from).iter().sum();
        assert_eq!(rounds_of(&mut ring), [BarrierDone { epoch: 77, round, sum }]);
        assert_eq!(barrier.sum(3, round), Some(sum));
        // A node that has heard all goes on while others repeat this round.
        give(&barrier, &comes(3, 0, 77, round, values[0]));
    }
    let counts = barrier.counts().unwrap();
    let expected =
        BarrierCounts { foreign: 500, again: 98 + 300, counted: 200, complete: 100, ..BarrierCounts::default() };
    assert_eq!(counts, expected);
    // Another epoch begins at 1 again, and the one before is nobody's.
    let mut anew = barrier.begin(3, 78, 0b1, 4096).unwrap();
    give(&barrier, &comes(3, 0, 77, 101, 4));
    give(&barrier, &comes(3, 0, 78, 1, 4));
    assert_eq!(rounds_of(&mut anew), [BarrierDone { epoch: 78, round: 1, sum: 4 }]);
    assert_eq!(rounds_of(&mut ring), []);
    // Numbers of rounds wrap: half of them away is later.
    for round in [1 << 30, (1 << 30) + 1, 1 << 31, (1 << 31) + 1, 3 << 30, (3 << 30) + 1, u32::MAX, 0, 1] {
        give(&barrier, &comes(3, 0, 78, round, 4));
        let rounds: Vec<u32> = rounds_of(&mut anew).iter().map(|done| done.round).collect();
        assert_eq!(rounds, [round]);
    }
}

#[test]
fn two_protocols_share_a_place() {
    let Some(()) = privileged() else { return };
    let tap = Tap::create("ekbar%d").unwrap();
    let mut port = LinkPort::attach(tap.name(), XdpMode::Native, LinkSettings::default()).unwrap();
    let mac = sys::link::mac(tap.name()).unwrap().unwrap();
    let mut ring = port.endpoint(PORT..=PORT, 1 << 16).unwrap();
    let give = |port: &LinkPort, frame: &[u8]| port.try_frame(frame, frame.len(), 1).unwrap().0;
    assert_eq!(give(&port, &comes(0, 0, 1, 1, 6)), XDP_PASS);
    let mut barrier = LinkBarrier::behind(&port).unwrap();
    assert!(LinkBarrier::behind(&port).is_err(), "one is there");
    let mut rounds = barrier.begin(0, 1, 1, 4096).unwrap();
    assert_eq!(give(&port, &comes(0, 0, 1, 1, 6)), XDP_DROP);
    assert_eq!(give(&port, &frame(mac, &[], &data(&[1]))), XDP_DROP);
    assert_eq!(rounds_of(&mut rounds), [BarrierDone { epoch: 1, round: 1, sum: 6 }]);
    assert_eq!(read(&mut ring), [(FAR, None, data(&[1]))]);
    drop(barrier);
    assert_eq!(give(&port, &comes(0, 0, 1, 2, 6)), XDP_PASS);
    assert!(LinkBarrier::attach(tap.name(), XdpMode::Native).is_err(), "the place is taken");
    drop(port);
    assert!(LinkBarrier::attach(tap.name(), XdpMode::Native).is_ok());
}
