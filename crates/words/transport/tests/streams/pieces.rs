//! A stream is read in pieces of any size, whatever its frames.

use transport::{Reason, Serial, State};

use crate::carry;

fn joined() -> (transport::Connection, transport::Connection) {
    crate::joined(1, [7, 9].map(Serial))
}

#[test]
fn pieces_of_any_size_are_the_stream() {
    let bytes: Vec<u8> = (0..1050u32).map(|i| (i * 7 + i / 256) as u8).collect();
    for piece in [1, 7, 99, 100, 101, 250, 5000] {
        let (mut a, mut b) = joined();
        assert_eq!(a.write(0, &bytes), Ok(bytes.len()));
        a.close(0).unwrap();
        carry(0, &mut a, &mut b);
        let (mut came, mut place) = (Vec::new(), vec![0; piece]);
        while !b.is_at_end() {
            let read = b.read(0, &mut place);
            came.extend_from_slice(&place[..read]);
        }
        assert_eq!(came, bytes, "in pieces of {piece}");
        assert_eq!(b.read(0, &mut place), 0);
    }
}

#[test]
fn the_rest_of_a_piece_is_the_next_one() {
    let (mut a, mut b) = joined();
    a.write(0, b"abcdef").unwrap();
    carry(0, &mut a, &mut b);
    assert_eq!(b.read(0, &mut [0; 2]), 2);
    assert_eq!(b.bytes(0), b"cdef");
    b.consume(0);
    a.write(0, b"ghi").unwrap();
    carry(0, &mut a, &mut b);
    carry(0, &mut b, &mut a);
    carry(0, &mut a, &mut b);
    assert_eq!(b.bytes(0), b"ghi");
}

#[test]
fn what_both_closed_stays_until_it_has_been_read_or_is_given_up() {
    let long = 60_000_000_000;
    for gives_up in [false, true] {
        let (mut a, mut b) = joined();
        a.write(0, &[5; 250]).unwrap();
        a.close(0).unwrap();
        b.close(0).unwrap();
        for now in 0..4 {
            carry(now, &mut a, &mut b);
            carry(now, &mut b, &mut a);
        }
        assert_eq!((a.state(), b.state()), (State::TimeWait, State::TimeWait));
        for end in [&mut a, &mut b] {
            end.on_time(long);
        }
        assert!(a.is_finished(long), "nothing came for it");
        assert!(!b.is_finished(long));
        if gives_up {
            b.abort(long, Reason::Aborted);
            assert!(b.poll(long).is_none(), "the other end is done, and hears nothing");
        } else {
            let mut place = [0; 1000];
            assert_eq!(b.read(long, &mut place), 250);
        }
        assert!(b.is_finished(long));
    }
}

#[test]
fn one_that_failed_while_it_owed_an_acknowledgement_is_not_due_before_its_rest_is_over() {
    let (mut a, mut b) = joined();
    a.write(0, b"owed").unwrap();
    carry(0, &mut a, &mut b);
    assert!(b.due().is_some_and(|at| at < 1_000_000), "the acknowledgement");
    b.abort(0, Reason::Aborted);
    while b.poll(1_000_000).is_some() {}
    let due = b.due().expect("it is forgotten some time");
    assert!(due > 1_000_000_000, "whoever waits for it would spin until then: {due}");
    b.on_time(due);
    assert_eq!(b.due(), None);
}
