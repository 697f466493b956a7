//! Offers from addresses that nobody has, numbers that nobody can guess, and frames of other programs of a node.

use std::collections::HashSet;

use transport::{Header, Kind, Nanos, Node, Offer, Reason, Serial, State};

use crate::cluster::{Cluster, MS, PORT, connected, frame, header, node, one, sent};

/// An offer of an end whose number is this one.
fn offer(number: u32) -> Vec<u8> {
    let payload = Offer { connection: number, payload_max: 1400, stream: false }.bytes();
    frame(&header(Kind::Open), &payload)
}

/// The number of a node's end and the first one of its frames, as it answers an offer of that number.
fn answer(node: &mut Node<usize>, number: u32) -> (u32, Serial) {
    node.on_frame(1, 0, &offer(number));
    let answer = one(node, 1);
    let (header, payload) = Header::read(&answer).expect("whole");
    (Offer::read(payload).expect("an offer").connection, header.sequence)
}

/// Frames that a node sends until nothing more is due, or `until`.
fn sends(node: &mut Node<usize>, from: Nanos, until: Nanos) -> usize {
    let (mut now, mut frames) = (from, 0);
    loop {
        node.on_time(now);
        frames += sent(node, now).len();
        match node.due().filter(|&due| due <= until) {
            Some(due) => now = now.max(due),
            None => return frames,
        }
    }
}

#[test]
fn offers_from_addresses_that_nobody_has_are_forgotten() {
    let mut cluster = Cluster::new(2);
    cluster.nodes[1].listen(PORT, false, 5);
    // 70,000 within 12 s.
    let (mut now, mut frames) = (1, 0);
    for at in 0..70_000 {
        cluster.nodes[1].on_frame(now, 100 + at as usize, &offer(at + 1));
        frames += sends(&mut cluster.nodes[1], now, now);
        now += 12_000 * MS / 70_000;
    }
    // One for each, and some again for those that came before they were many.
    assert!((70_000..74_000).contains(&frames), "{frames} frames while they came");
    cluster.now = now;
    let handle = cluster.connect(0, 1);
    cluster.run(MS);
    assert_eq!(cluster.state(0, handle), Some(State::Open), "whoever answers is let in");
    assert!(cluster.nodes[1].accept(PORT).is_some() && cluster.nodes[1].accept(PORT).is_none());
    let after = sends(&mut cluster.nodes[1], cluster.now, now + 60_000 * MS);
    assert!(after < 100, "{after} frames afterwards");
    assert_eq!(cluster.nodes[1].handles().count(), 1, "all others are forgotten");
    assert_eq!(cluster.nodes[1].counts().half_open, 70_000);
}

#[test]
fn one_that_never_acknowledges_gets_five_answers() {
    let mut node = node(1, 1);
    node.listen(PORT, false, 5);
    node.on_frame(1, 0, &offer(1));
    assert_eq!(sends(&mut node, 1, 60_000 * MS), 5);
    assert!(node.accept(PORT).is_none() && node.handles().count() == 0);
}

#[test]
fn what_is_acknowledged_by_a_guess_is_not_open() {
    let mut node = node(1, 1);
    node.listen(PORT, false, 5);
    let (number, first) = answer(&mut node, 1);
    let of = Header { connection: number, acknowledged: first, ..header(Kind::Ack) };
    let guesses = [
        Header { acknowledged: first.plus(1), ..of },
        Header { connection: number ^ 1 << 16, ..of },
        Header { epoch: 8, ..of },
        Header { from_port: 50_001, ..of },
        Header { to_port: PORT + 1, ..of },
    ];
    for guess in guesses {
        node.on_frame(2, 0, &frame(&guess, &[]));
        assert!(node.accept(PORT).is_none(), "{guess:?}");
    }
    node.on_frame(2, 0, &frame(&of, &[]));
    assert!(node.accept(PORT).is_some());
}

#[test]
fn another_program_of_a_node_ends_no_connection() {
    let (mut cluster, handle) = connected();
    let other = cluster.nodes[1].accept(PORT).expect("opened");
    let (mine, theirs) = (cluster.nodes[0].connection(handle).unwrap(), cluster.nodes[1].connection(other).unwrap());
    // All but the port is known: a program has no other.
    let reset = Header {
        kind: Kind::Reset,
        from_port: 60_000,
        to_port: mine.settings().port,
        connection: handle.number(),
        epoch: theirs.settings().epoch,
        sequence: mine.settings().first,
        ..header(Kind::Reset)
    };
    let now = cluster.now;
    let reason = Reason::Aborted.bytes();
    let mut tries = vec![reset, Header { connection: 0, ..reset }];
    // Whoever knows the ports, but not the epoch.
    tries.push(Header { from_port: PORT, epoch: 77, ..reset });
    for forged in tries {
        cluster.nodes[0].on_frame(now, 1, &frame(&forged, &reason));
        assert_eq!(cluster.state(0, handle), Some(State::Open), "{forged:?}");
    }
    let right = Header { from_port: PORT, ..reset };
    cluster.nodes[0].on_frame(now, 1, &frame(&right, &reason));
    assert_eq!(cluster.state(0, handle), Some(State::Failed(Reason::Aborted)));
}

/// The state of splitmix64 that gave `out`.
fn state_of(out: u64) -> u64 {
    let unshift = |o: u64, by: u32| (0..64 / by).fold(o, |r, _| o ^ r >> by);
    let inverse = |a: u64| (0..6).fold(a, |x, _| x.wrapping_mul(2u64.wrapping_sub(a.wrapping_mul(x))));
    let z = unshift(out, 31).wrapping_mul(inverse(0x94d0_49bb_1331_11eb));
    unshift(unshift(z, 27).wrapping_mul(inverse(0xbf58_476d_1ce4_e5b9)), 30)
}

#[test]
fn two_numbers_do_not_determine_the_third() {
    let draw = |node: &mut Node<usize>, number: u32| {
        let (connection, first) = answer(node, number);
        (connection >> 16, first.0)
    };
    let mut node = node(1, 1);
    node.listen(PORT, false, 5);
    let (a, b) = (draw(&mut node, 1), draw(&mut node, 2));
    let next = |state: u64| {
        let mut z = state.wrapping_add(0x9e37_79b9_7f4a_7c15);
        z = (z ^ z >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ z >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ z >> 31
    };
    assert_eq!(next(state_of(next(5)).wrapping_sub(0)), next(5u64.wrapping_add(0x9e37_79b9_7f4a_7c15)));
    let fits = (0..1u64 << 16).filter(|middle| {
        let out = next(state_of(u64::from(a.1) << 32 | middle << 16 | u64::from(a.0)));
        ((out & 0xffff) as u32, (out >> 32) as u32) == b
    });
    assert_eq!(fits.count(), 0, "states of the generator that a neighbour on the wire finds");
    let drawn: HashSet<_> = (3..200).map(|number| draw(&mut node, number).1).collect();
    assert!(drawn.len() > 195);
}
