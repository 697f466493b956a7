//! Nodes that meet: who is refused, who restarts, who is many.

mod cluster;
mod half_open;
mod strangers;

use cluster::{Cluster, MS, PORT, connected, frame, header, node, one, sent};
use transport::{Flags, Handle, Header, Kind, Reason, State};

#[test]
fn many_connections_to_many_nodes_carry_their_own_messages() {
    let mut cluster = Cluster::new(8);
    assert!((1..8).all(|at| cluster.nodes[at].listen(PORT, false, 200)) && !cluster.nodes[1].listen(PORT, false, 1));
    let opened: Vec<(usize, Handle)> = (0..1000).map(|i| (1 + i % 7, cluster.connect(0, 1 + i % 7))).collect();
    cluster.run(5 * MS);
    for (number, &(_, handle)) in opened.iter().enumerate() {
        assert_eq!(cluster.state(0, handle), Some(State::Open));
        cluster.send(0, handle, &(number as u32).to_be_bytes());
    }
    cluster.run(5 * MS);
    let mut came = Vec::new();
    for at in 1..8 {
        while let Some(handle) = cluster.nodes[at].accept(PORT) {
            let message = cluster.receive(at, handle).expect("its message");
            cluster.send(at, handle, &message);
            came.push(u32::from_be_bytes(message.try_into().expect("four bytes")));
            assert_eq!(cluster.receive(at, handle), None);
        }
    }
    came.sort_unstable();
    assert_eq!(came, (0..1000).collect::<Vec<_>>());
    cluster.run(5 * MS);
    for (number, (_, handle)) in opened.into_iter().enumerate() {
        assert_eq!(cluster.receive(0, handle), Some((number as u32).to_be_bytes().to_vec()));
    }
    // What nobody uses costs nothing.
    cluster.run(20 * MS);
    let before = cluster.frames;
    cluster.run(3_600_000 * MS);
    assert_eq!(cluster.frames, before);
    assert!(cluster.nodes.iter().all(|n| n.due().is_none()));
}

#[test]
fn where_nobody_listens_or_wants_something_else_an_offer_is_refused() {
    let mut cluster = Cluster::new(2);
    let handle = cluster.connect(0, 1);
    cluster.run(MS);
    assert_eq!(cluster.state(0, handle), Some(State::Failed(Reason::Refused)));
    assert_eq!(cluster.nodes[1].counts().refused, 1);
    cluster.nodes[1].listen(PORT, true, 1);
    let handle = cluster.connect(0, 1);
    cluster.run(MS);
    assert_eq!(cluster.state(0, handle), Some(State::Failed(Reason::Mismatch)));
    cluster.run(3000 * MS);
    assert_eq!(cluster.state(0, handle), None, "it has rested");
}

#[test]
fn a_listener_without_room_is_busy_until_somebody_accepts() {
    let mut cluster = Cluster::new(2);
    cluster.nodes[1].listen(PORT, false, 1);
    let first = cluster.connect(0, 1);
    cluster.run(MS);
    let both = [first, cluster.connect(0, 1)];
    cluster.run(10 * MS);
    assert_eq!(both.map(|h| cluster.state(0, h)), [Some(State::Open), Some(State::Opening)]);
    assert!(cluster.nodes[1].counts().busy > 0);
    assert!(cluster.nodes[1].accept(PORT).is_some() && cluster.nodes[1].accept(PORT).is_none());
    cluster.run(1000 * MS);
    assert_eq!(cluster.state(0, both[1]), Some(State::Open));
    let now = cluster.now;
    cluster.nodes[1].stop_listening(now, PORT);
    cluster.run(MS);
    assert_eq!(cluster.state(0, both[1]), Some(State::Failed(Reason::Refused)), "nobody will ever accept it");
}

#[test]
fn a_node_that_restarts_says_that_it_knows_nothing_of_old_connections() {
    let (mut cluster, handle) = connected();
    cluster.nodes[1] = node(1, 2);
    cluster.nodes[1].listen(PORT, false, 5);
    cluster.send(0, handle, b"to the old one");
    cluster.run(MS);
    assert_eq!(cluster.state(0, handle), Some(State::Failed(Reason::Unknown)));
    assert!(cluster.nodes[1].accept(PORT).is_none());
    let handle = cluster.connect(0, 1);
    cluster.run(MS);
    assert_eq!(cluster.state(0, handle), Some(State::Open));
}

#[test]
fn an_offer_that_comes_twice_makes_one_connection() {
    let mut cluster = Cluster::new(2);
    cluster.nodes[1].listen(PORT, false, 5);
    let handle = cluster.connect(0, 1);
    let now = cluster.now;
    let offer = one(&mut cluster.nodes[0], now);
    let read = Header::read(&offer).expect("whole").0;
    assert_eq!(read.kind, Kind::Open);
    for _ in 0..3 {
        cluster.nodes[1].on_frame(now, 0, &offer);
    }
    cluster.run(MS);
    assert_eq!(cluster.state(0, handle), Some(State::Open));
    assert!(cluster.nodes[1].accept(PORT).is_some() && cluster.nodes[1].accept(PORT).is_none());
    // From somebody else it is another one, and frames of strangers do not reach this one.
    cluster.nodes[1].on_frame(now, 5, &frame(&Header { kind: Kind::Data, ..read }, b"x"));
    assert_eq!(cluster.nodes[1].counts().unknown, 1);
}

#[test]
fn nodes_show_their_names() {
    let mut cluster = Cluster::new(3);
    cluster.nodes[0].hello(1);
    cluster.nodes[0].hello(2);
    cluster.run(MS);
    let mut names: Vec<&str> = cluster.nodes[0].peers().map(|(_, peer)| peer.name.as_str()).collect();
    names.sort_unstable();
    assert_eq!(names, ["node1", "node2"]);
    assert_eq!(cluster.nodes[1].peers().next().map(|(_, peer)| peer.name.as_str()), Some("node0"));
}

#[test]
fn a_flood_of_strange_frames_takes_no_memory_beyond_a_bound() {
    let mut node = node(0, 1);
    for number in 0..100_000 {
        node.on_frame(1, 1, &frame(&Header { connection: number, ..header(Kind::Data) }, &[]));
    }
    let answers = sent(&mut node, 1).len();
    assert!(answers <= 1024, "{answers}");
    assert_eq!(node.counts().unknown, 100_000);
}

#[test]
fn a_timer_that_moves_earlier_is_heard_earlier() {
    let (mut cluster, handle) = connected();
    let other = cluster.nodes[1].accept(PORT).expect("opened");
    // Nobody reads: node 0 asks ever less often whether there is room.
    (0..16).for_each(|_| cluster.send(0, handle, b"x"));
    cluster.run(MS);
    cluster.send(0, handle, b"without room");
    cluster.run(5000 * MS);
    let due = cluster.nodes[0].due().expect("it asks again");
    assert!(due > cluster.now + MS, "it waits");
    cluster.send(1, other, b"a word back");
    let now = cluster.now;
    let word = one(&mut cluster.nodes[1], now);
    assert!(!Header::read(&word).expect("whole").0.flags.has(Flags::ASK));
    cluster.nodes[0].on_frame(now, 1, &word);
    assert!(cluster.nodes[0].poll(now).is_none(), "the acknowledgement may wait");
    assert_eq!(cluster.nodes[0].due(), Some(now + 100_000));
    cluster.nodes[0].on_time(now + 100_000);
    let ack = one(&mut cluster.nodes[0], now + 100_000);
    assert_eq!(Header::read(&ack).expect("whole").0.kind, Kind::Ack);
}

#[test]
fn the_time_while_a_node_is_down_does_not_count() {
    for is_down in [true, false] {
        let (mut cluster, handle) = connected();
        let other = cluster.nodes[1].accept(PORT).expect("opened");
        cluster.nodes[0].set_down(is_down);
        cluster.send(0, handle, b"x");
        let until = cluster.now + 6 * transport::PEER_TIMEOUT;
        while cluster.now < until {
            let (now, node) = (cluster.now, &mut cluster.nodes[0]);
            while node.poll(now).is_some() {}
            cluster.now = node.due().map_or(until, |due| due.clamp(now, until));
            node.on_time(cluster.now);
        }
        cluster.nodes[0].set_down(false);
        cluster.run(2000 * MS);
        assert_eq!(cluster.receive(1, other).is_some(), is_down);
    }
}
