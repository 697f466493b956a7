//! Nodes on a real wire of two namespaces.

use std::time::{Duration, Instant};

use link::{Carrier, Engine, Handle, Raw, State};
use testbed::{Bed, End, poll};

const PORT: u16 = 1000;
const BUSY_POLL_TIME: Duration = Duration::from_micros(50);
const WAIT_TIME: Duration = Duration::from_millis(20);

fn node(end: &End, name: &str) -> Engine<Raw> {
    end.run(|| Engine::new(Raw::open(end.interface()).unwrap(), name).unwrap())
}

/// Turns both in one thread until `done` says so.
fn until(a: &mut Engine<Raw>, b: &mut Engine<Raw>, mut done: impl FnMut(&mut Engine<Raw>, &mut Engine<Raw>) -> bool) {
    poll("what both are turned for", || {
        a.poll().unwrap();
        b.poll().unwrap();
        done(a, b)
    });
}

/// Has one wait for frames until `done` says so.
fn wait_until(engine: &mut Engine<Raw>, mut done: impl FnMut(&mut Engine<Raw>) -> bool) {
    poll("what it waits for", || {
        engine.wait(BUSY_POLL_TIME, WAIT_TIME).unwrap();
        done(engine)
    });
}

fn joined(a: &mut Engine<Raw>, b: &mut Engine<Raw>, stream: bool) -> (Handle, Handle) {
    let to = b.carrier().address();
    b.listen(PORT, stream, 8).unwrap();
    let ours = a.connect(to, PORT, stream).unwrap();
    let mut theirs = None;
    until(a, b, |a, b| {
        theirs = theirs.or_else(|| b.accept(PORT));
        a.state(ours) == Some(State::Open) && theirs.is_some()
    });
    (ours, theirs.unwrap())
}

#[test]
fn nodes_find_each_other_by_name() {
    let Some((_bed, [left, right])) = Bed::pair("linkn") else { return };
    let (mut a, mut b) = (node(&left, "alpha"), node(&right, "beta"));
    a.hello().unwrap();
    until(&mut a, &mut b, |a, b| a.peers().count() == 1 && b.peers().count() == 1);
    let (address, peer) = a.peers().next().unwrap();
    assert_eq!((*address, peer.name.as_str()), (b.carrier().address(), "beta"));
    assert_eq!(b.peers().next().unwrap().1.name, "alpha");
}

#[test]
fn messages_of_every_length_come_in_order_and_whole() {
    let Some((_bed, [left, right])) = Bed::pair("linkm") else { return };
    let (mut a, mut b) = (node(&left, "alpha"), node(&right, "beta"));
    let (ours, theirs) = joined(&mut a, &mut b, false);
    let mut place = vec![0; 1 << 18];
    for len in [0, 1, 63, 64, 1467, 1468, 1469, 5000, 65_536, 200_000] {
        let message: Vec<u8> = (0..len).map(|i| (i * 7 + len) as u8).collect();
        a.send(ours, &message).unwrap();
        let mut got = None;
        until(&mut a, &mut b, |_, b| {
            got = got.or_else(|| b.receive(theirs, &mut place).unwrap());
            got.is_some()
        });
        assert_eq!(&place[..got.unwrap()], &message[..], "{len} bytes");
    }
    assert!(matches!(a.send(ours, &vec![0; 400_000]), Err(link::LinkError::Send(link::SendError::TooLong))));
}

#[test]
fn a_stream_between_two_threads_arrives_whole_and_ends() {
    const BYTES: usize = 20_000_000;
    let Some((_bed, [left, right])) = Bed::pair("links") else { return };
    let (mut a, mut b) = (node(&left, "alpha"), node(&right, "beta"));
    let (ours, theirs) = joined(&mut a, &mut b, true);
    let byte = |at: usize| (at / 251 + at) as u8;
    let read = std::thread::spawn(move || {
        let mut at = 0;
        wait_until(&mut b, |b| {
            b.read(theirs, |piece| {
                let wrong = piece.iter().enumerate().find(|&(i, &got)| got != byte(at + i));
                assert_eq!(wrong, None, "at {at}");
                at += piece.len();
            })
            .unwrap();
            b.is_at_end(theirs)
        });
        b.close(theirs).unwrap();
        wait_until(&mut b, |b| b.state(theirs) != Some(State::Open));
        at
    });
    let bytes: Vec<u8> = (0..BYTES).map(byte).collect();
    let mut sent = 0;
    poll("all is written", || {
        let written = a.write(ours, &bytes[sent..]).unwrap();
        sent += written;
        if written > 0 {
            a.poll().unwrap();
        } else {
            a.wait(BUSY_POLL_TIME, WAIT_TIME).unwrap();
        }
        sent == BYTES
    });
    wait_until(&mut a, |a| a.close(ours).is_ok() && a.state(ours) != Some(State::Open));
    assert_eq!(read.join().unwrap(), BYTES);
}

#[test]
fn a_program_that_ends_notifies_the_other_end() {
    let Some((_bed, [left, right])) = Bed::pair("linke") else { return };
    let (mut a, mut b) = (node(&left, "alpha"), node(&right, "beta"));
    let (_ours, theirs) = joined(&mut a, &mut b, false);
    drop(a);
    wait_until(&mut b, |b| b.state(theirs) != Some(State::Open));
    assert_eq!(b.state(theirs), Some(State::Failed(link::Reason::Aborted)));
}

#[test]
fn a_connection_goes_on_when_the_interface_was_down() {
    let Some((_bed, [left, right])) = Bed::pair("linkud") else { return };
    let (mut a, mut b) = (node(&left, "alpha"), node(&right, "beta"));
    let (ours, theirs) = joined(&mut a, &mut b, false);
    let mut place = [0; 100];
    for at in 0..2 {
        left.link_set("down");
        a.send(ours, b"while it was down").unwrap();
        b.send(theirs, b"and back").unwrap();
        until(&mut a, &mut b, |a, b| {
            a.wait(Duration::ZERO, WAIT_TIME).unwrap();
            b.wait(Duration::ZERO, WAIT_TIME).unwrap();
            a.counts(ours).is_some_and(|counts| counts.resent > 2 * (at + 1)) && a.carrier().is_down()
        });
        left.link_set("up");
        let mut came = [false; 2];
        until(&mut a, &mut b, |a, b| {
            came[0] |= b.receive(theirs, &mut place).unwrap() == Some(17);
            came[1] |= a.receive(ours, &mut place).unwrap() == Some(8);
            came == [true; 2]
        });
        assert!(!a.carrier().is_down());
    }
}

#[test]
fn what_was_sent_while_the_interface_was_down_for_longer_than_connections_wait_arrives() {
    let Some((_bed, [left, right])) = Bed::pair("linkul") else { return };
    let (mut a, mut b) = (node(&left, "alpha"), node(&right, "beta"));
    let (ours, theirs) = joined(&mut a, &mut b, false);
    left.link_set("down");
    a.send(ours, b"while it was down").unwrap();
    let began = Instant::now();
    while began.elapsed() < Duration::from_nanos(transport::PEER_TIMEOUT) + Duration::from_secs(2) {
        a.wait(Duration::ZERO, WAIT_TIME).unwrap();
        b.wait(Duration::ZERO, WAIT_TIME).unwrap();
    }
    assert_eq!(a.state(ours), Some(State::Open));
    left.link_set("up");
    until(&mut a, &mut b, |_, b| b.receive(theirs, &mut [0; 100]).unwrap() == Some(17));
}
