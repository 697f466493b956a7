//! Nodes of other versions, of other sizes, of the same name; probes of a node; frames that met congestion.

use transport::{Connection, Flags, HEADER_BYTES, Header, Kind, Reason, Serial, State, VERSION};
use wire::checksum::{self, Sum};

use crate::cluster::{Cluster, MS, PORT, connected, frame, header, named, node, one, sent};

/// The same of another version, which has the same checksum.
fn of_version(version: u8, frame: &[u8]) -> Vec<u8> {
    let mut frame = frame.to_vec();
    let word = |frame: &[u8], at: usize| u16::from_be_bytes([frame[at], frame[at + 1]]);
    let before = word(&frame, 0);
    frame[0] = version << 4 | frame[0] & 15;
    let sum = checksum::update(word(&frame, 30), before, word(&frame, 0));
    frame[30..32].copy_from_slice(&sum.to_be_bytes());
    frame
}

#[test]
fn a_frame_whose_version_was_damaged_is_not_answered() {
    let (mut ours, mut theirs) = (node(0, 1), node(1, 2));
    let handle = ours.connect(1, 1, PORT, false).expect("room");
    let offer = one(&mut ours, 1);
    for first in (0..=255).filter(|first| first >> 4 != VERSION) {
        let mut damaged = offer.clone();
        damaged[0] = first;
        theirs.on_frame(u64::from(first) * 1000 * MS, 0, &damaged);
        assert!(sent(&mut theirs, 1).is_empty(), "{first}");
    }
    let counts = theirs.counts();
    assert_eq!((counts.checksum, counts.version, counts.version_notices_sent), (224, 16, 0), "16 look like notices");
    assert_eq!(ours.connection(handle).map(Connection::state), Some(State::Opening));
}

#[test]
fn a_frame_of_another_version_is_answered_in_the_form_that_all_read_once_a_second() {
    let mut node = node(1, 77);
    let mut strange: Vec<u8> = (0..200).map(|at| if at == 0 { 0x2e } else { at as u8 }).collect();
    strange[4..6].fill(0);
    for now in [5, 6, 7 + MS] {
        node.on_frame(now, 3, &strange);
    }
    let answer = one(&mut node, 7 + MS);
    assert_eq!(answer.len(), HEADER_BYTES + 3);
    assert_eq!(answer[0], 5, "version 0, kind reset");
    assert_eq!(
        (&answer[1..4], &answer[4..8]),
        (&[0, 0, 3][..], &[6, 7, 0, 0][..]),
        "no flags, 3 bytes, ports turned round"
    );
    assert_eq!((&answer[8..16], &answer[16..20]), (&[0, 0, 0, 0, 0, 0, 0, 77][..], &[16, 17, 18, 19][..]));
    assert_eq!((&answer[20..30], &answer[32..]), (&[0; 10][..], &[6, VERSION, VERSION][..]));
    assert_eq!(Sum::new().bytes(&answer).finish(), 0);
    node.on_frame(5 + 1000 * MS, 3, &of_version(9, &strange));
    node.on_frame(5 + 1000 * MS, 4, &strange[..HEADER_BYTES]);
    assert_eq!(sent(&mut node, 5 + 1000 * MS).iter().map(|(to, _)| *to).collect::<Vec<_>>(), [3, 4]);
    let counts = node.counts();
    assert_eq!((counts.version, counts.version_notices_sent, counts.version_notices_received), (5, 3, 0));
    let mut seen: Vec<_> = node.other_versions().map(|(&at, other)| (at, other.version, other.frames)).collect();
    seen.sort_unstable();
    assert_eq!(seen, [(3, 9, 4), (4, 2, 1)]);
    node.on_frame(6 + 1000 * MS, 5, &strange[..HEADER_BYTES - 1]);
    assert_eq!((node.counts().short, node.counts().version), (1, 5));
}

#[test]
fn what_was_offered_to_a_node_of_another_version_fails_by_that_reason() {
    let (mut ours, mut theirs) = (node(0, 1), node(1, 2));
    theirs.listen(PORT, false, 5);
    let handle = ours.connect(1, 1, PORT, false).expect("room");
    let offer = one(&mut ours, 1);
    // The other node, seen from its side: ours is of another version.
    theirs.on_frame(2, 0, &of_version(2, &offer));
    assert!(theirs.accept(PORT).is_none());
    let notice = one(&mut theirs, 2);
    // A forged one, which names what was never sent, ends nothing; nor does one that was changed, or that comes from elsewhere.
    let mut forged = offer.clone();
    forged[16] ^= 1;
    theirs.on_frame(3 + 1000 * MS, 0, &of_version(3, &forged));
    ours.on_frame(3, 1, &one(&mut theirs, 3 + 1000 * MS));
    for at in 0..notice.len() {
        let mut changed = notice.clone();
        changed[at] ^= 0x41;
        ours.on_frame(3, 1, &changed);
    }
    ours.on_frame(3, 2, &notice);
    assert_eq!(ours.connection(handle).map(Connection::state), Some(State::Opening));
    sent(&mut ours, 3);
    ours.on_frame(3, 1, &notice);
    assert_eq!(ours.connection(handle).map(Connection::state), Some(State::Failed(Reason::Version)));
    assert!(sent(&mut ours, 3).is_empty(), "a notice is not answered");
    assert_eq!(ours.counts().version_notices_received, 3);
    assert_eq!(ours.other_versions().count(), 0, "it came from a program's port");
}

#[test]
fn an_open_connection_learns_that_its_peer_came_back_with_another_version() {
    let (mut cluster, handle) = connected();
    cluster.send(0, handle, b"to the old one");
    let now = cluster.now;
    let data = one(&mut cluster.nodes[0], now);
    cluster.nodes[1] = node(1, 9);
    cluster.nodes[1].on_frame(now, 0, &of_version(7, &data));
    cluster.run(MS);
    assert_eq!(cluster.state(0, handle), Some(State::Failed(Reason::Version)));
}

#[test]
fn two_nodes_of_one_name_are_reported_with_both_addresses() {
    let mut cluster = Cluster::new(5);
    cluster.nodes[2] = named("twin", 2, 20, 1400);
    cluster.nodes[3] = named("twin", 3, 30, 1400);
    // One node that is heard at two addresses is one.
    cluster.nodes[4] = named("node1", 4, 1, 1400);
    let hellos = |cluster: &mut Cluster| {
        (1..5).for_each(|at| cluster.nodes[0].hello(at));
        cluster.run(MS);
    };
    hellos(&mut cluster);
    hellos(&mut cluster);
    let names = cluster.nodes[0].duplicate_names();
    assert_eq!(names.len(), 1, "{names:?}");
    let mut addresses = names[0].addresses.clone();
    addresses.sort_unstable();
    assert_eq!((names[0].name.as_str(), addresses, names[0].this_node), ("twin", vec![2, 3], false));
    assert_eq!(cluster.nodes[0].counts().duplicate_names, 1, "once, not with each hello");
    // A node that has this one's name; and one that restarted is still one.
    cluster.nodes[1] = named("node0", 1, 40, 1400);
    cluster.nodes[3] = named("other", 3, 31, 1400);
    cluster.nodes[2] = named("twin", 2, 21, 1400);
    hellos(&mut cluster);
    let names = cluster.nodes[0].duplicate_names();
    assert_eq!(
        names.iter().map(|t| (t.name.as_str(), &t.addresses[..], t.this_node)).collect::<Vec<_>>(),
        [("node0", &[1][..], true)]
    );
    assert_eq!(cluster.nodes[1].duplicate_names().len(), 1, "the other one sees it too");
}

#[test]
fn nodes_with_different_payloads_use_the_shorter_one_both_ways() {
    for (ours, theirs) in [(100, 1400), (1400, 100), (1400, 9000)] {
        let mut cluster = Cluster::new(2);
        cluster.nodes = vec![named("a", 0, 1, ours), named("b", 1, 2, theirs)];
        cluster.nodes[1].listen(PORT, false, 5);
        let handle = cluster.connect(0, 1);
        cluster.run(MS);
        let other = cluster.nodes[1].accept(PORT).expect("opened");
        let message: Vec<u8> = (0..1500).map(|at| (at * 7) as u8).collect();
        for (from, its, to, theirs) in [(0, handle, 1, other), (1, other, 0, handle)] {
            cluster.send(from, its, &message);
            cluster.run(MS);
            assert_eq!(cluster.receive(to, theirs).as_deref(), Some(&message[..]));
        }
        for (at, handle) in [(0, handle), (1, other)] {
            let connection = cluster.nodes[at].connection(handle).expect("open");
            assert_eq!(connection.payload_max(), usize::from(ours.min(theirs)));
            assert_eq!((connection.counts().resent, connection.counts().unexpected), (0, 0));
        }
    }
}

#[test]
fn a_probe_of_a_node_comes_back_as_it_went_with_ports_turned_round() {
    let mut cluster = Cluster::new(2);
    let now = cluster.now;
    cluster.nodes[0].probe(1, 41, b"first");
    cluster.nodes[0].probe(1, u32::MAX, &[]);
    cluster.run(MS);
    let echoes: Vec<_> = cluster.nodes[0].echoes().collect();
    assert_eq!(
        echoes.iter().map(|e| (e.peer, e.sequence, &e.payload[..])).collect::<Vec<_>>(),
        [(1, 41, &b"first"[..]), (1, u32::MAX, &[])]
    );
    assert!(echoes.iter().all(|echo| (now + 100..now + MS).contains(&echo.heard)));
    assert_eq!((cluster.nodes[0].echoes().count(), cluster.nodes[1].counts().probed, cluster.frames), (0, 2, 4));
    // As bytes, whoever asks.
    let numbers =
        Header { sequence: Serial(9), acknowledged: Serial(10), received: 11, credit: 12, ..header(Kind::Probe) };
    let request = Header { flags: Flags(0x31), from_port: 500, to_port: 0, ..numbers };
    let node = &mut cluster.nodes[1];
    node.on_frame(now, 5, &frame(&request, b"ping"));
    let answer = one(node, now);
    let answered = Header { kind: Kind::Ack, from_port: 0, to_port: 500, ..request };
    assert_eq!(Header::read(&answer), Ok((answered, &b"ping"[..])));
    // An answer that nobody waits for, or that comes twice, is counted and not answered.
    for _ in 0..2 {
        node.on_frame(now, 5, &answer);
    }
    assert!(sent(node, now).is_empty() && node.echoes().next().is_none());
    assert_eq!(node.counts().unknown, 2);
    // One to a port, or for a connection, is none of a node.
    for request in [Header { to_port: 1, ..request }, Header { connection: 1, ..request }] {
        node.on_frame(now, 5, &request.write(&[]));
        assert_eq!(Header::read(&one(node, now)).map(|(header, _)| header.kind), Ok(Kind::Reset));
    }
}

#[test]
fn a_sender_hears_that_the_ring_of_its_receiver_is_filled() {
    let (mut cluster, handle) = connected();
    for congested in [false, true] {
        cluster.send(0, handle, b"data");
        let now = cluster.now;
        let data = one(&mut cluster.nodes[0], now);
        if congested {
            cluster.nodes[1].on_frame_congested(now, 0, &data);
        } else {
            cluster.nodes[1].on_frame(now, 0, &data);
        }
        cluster.run(MS);
        let echoes = cluster.nodes[0].connection(handle).expect("open").counts().echoes;
        assert_eq!(echoes, u64::from(congested));
    }
    assert_eq!(cluster.nodes[1].counts().congested, 1);
}

#[test]
fn a_program_does_not_speak_for_its_node() {
    let mut node = node(0, 1);
    let of_program = |kind, payload: &[u8]| {
        frame(&Header { flags: Flags::ASK, to_port: 0, sequence: Serial(5), ..header(kind) }, payload)
    };
    node.on_frame(1, 3, &of_program(Kind::Hello, b"db-master"));
    node.on_frame(1, 3, &of_program(Kind::Probe, b"there?"));
    node.probe(3, 5, b"there?");
    sent(&mut node, 1);
    node.on_frame(1, 3, &of_program(Kind::Ack, b"there?"));
    node.on_frame(1, 3, &of_version(2, &of_program(Kind::Data, b"")));
    let seen = (node.peers().count(), node.echoes().count(), node.other_versions().count());
    assert_eq!(seen, (0, 0, 0), "names, answers and versions that a program told");
    // What no connection has is reset, and a frame of another version has its notice.
    let answers: Vec<u8> = sent(&mut node, 1).iter().map(|(_, frame)| frame[0]).collect();
    assert_eq!(answers, [0x15, 5]);
}
