//! A loop of others waits for an engine by one descriptor: no frame and no timer is missed, and nothing wakes without either.

use std::{os::fd::AsFd, thread};

use bpf::XdpMode;
use link::{Carrier, Engine, Handle, Raw, State};
use nix::{
    poll::{PollFd, PollFlags, PollTimeout},
    sys::epoll::{Epoll, EpollCreateFlags, EpollEvent, EpollFlags, EpollTimeout},
};
use testbed::{Bed, End, poll};

const PORT: u16 = 1000;
const RING_BYTES: usize = 1 << 20;
/// What has not come after so long was missed.
const MISSED_MS: u16 = 20_000;

fn node(end: &End, ring: bool) -> Engine<Raw> {
    let carrier = || match ring {
        true => Raw::open_ring(end.interface(), XdpMode::Native, RING_BYTES).unwrap(),
        false => Raw::open(end.interface()).unwrap(),
    };
    end.run(|| Engine::new(carrier(), end.interface()).unwrap())
}

fn is_readable(engine: &mut Engine<Raw>, timeout_ms: u16) -> bool {
    let mut waits = [PollFd::new(engine.descriptor().unwrap(), PollFlags::POLLIN)];
    nix::poll::poll(&mut waits, PollTimeout::from(timeout_ms)).unwrap() == 1
}

/// One round of a loop that does nothing else.
fn sleep_and_turn(engine: &mut Engine<Raw>) {
    if engine.arm().unwrap() {
        assert!(is_readable(engine, MISSED_MS), "a wake-up was missed");
    }
    engine.poll().unwrap();
}

fn accepted(engine: &mut Engine<Raw>) -> Handle {
    let mut peer = None;
    poll("somebody connects", || {
        sleep_and_turn(engine);
        peer = engine.accept(PORT);
        peer.is_some()
    });
    peer.unwrap()
}

/// Messages there and back, both ends asleep by the descriptor between any two.
fn goes_there_and_back(tag: &str, ring: bool) {
    const COUNT: u32 = 2000;
    let Some((_bed, [left, right])) = Bed::pair(tag) else { return };
    let (mut a, mut b) = (node(&left, ring), node(&right, ring));
    let to = b.carrier().address();
    b.listen(PORT, false, 1).unwrap();
    let echo = thread::spawn(move || {
        let theirs = accepted(&mut b);
        let mut place = [0; 64];
        while b.state(theirs) == Some(State::Open) && !b.is_at_end(theirs) {
            sleep_and_turn(&mut b);
            while let Ok(Some(len)) = b.receive(theirs, &mut place) {
                b.queue(theirs, &place[..len]).unwrap();
            }
        }
    });
    let ours = a.connect(to, PORT, false).unwrap();
    while a.state(ours) == Some(State::Opening) {
        sleep_and_turn(&mut a);
    }
    let mut place = [0; 64];
    for at in 0..COUNT {
        a.queue(ours, &at.to_be_bytes()).unwrap();
        let mut came = None;
        poll("it comes back", || {
            sleep_and_turn(&mut a);
            came = a.receive(ours, &mut place).unwrap();
            came.is_some()
        });
        assert_eq!(&place[..came.unwrap()], at.to_be_bytes());
    }
    drop(a);
    echo.join().unwrap();
}

#[test]
fn no_frame_of_a_socket_is_missed() {
    goes_there_and_back("linkfs", false);
}

#[test]
fn no_frame_of_a_ring_is_missed() {
    goes_there_and_back("linkfr", true);
}

#[test]
fn a_timer_wakes_and_silence_does_not() {
    let Some((_bed, [left, _right])) = Bed::pair("linkft") else { return };
    for ring in [false, true] {
        let mut a = node(&left, ring);
        assert!(a.arm().unwrap() && !is_readable(&mut a, 50), "nothing is due");
        let nobody = "02:00:00:00:00:01".parse().unwrap();
        let ours = a.connect(nobody, PORT, false).unwrap();
        // The offer is made again and again: nothing but the timer wakes.
        for _ in 0..5 {
            sleep_and_turn(&mut a);
        }
        assert_eq!(a.state(ours), Some(State::Opening));
        a.close(ours).unwrap();
    }
}

#[test]
fn an_epoll_of_others_holds_the_descriptor() {
    let Some((_bed, [left, right])) = Bed::pair("linkfe") else { return };
    let (mut a, mut b) = (node(&left, true), node(&right, true));
    let epoll = Epoll::new(EpollCreateFlags::EPOLL_CLOEXEC).unwrap();
    epoll.add(a.descriptor().unwrap().as_fd(), EpollEvent::new(EpollFlags::EPOLLIN, 7)).unwrap();
    let wait = |time: u16| {
        let mut events = [EpollEvent::empty()];
        let count = epoll.wait(&mut events, EpollTimeout::from(time)).unwrap();
        (count == 1).then(|| events[0].data())
    };
    assert!(a.arm().unwrap());
    assert_eq!(wait(0), None);
    b.hello().unwrap();
    assert_eq!(wait(MISSED_MS), Some(7), "the hello wakes");
    assert_eq!(a.poll().unwrap(), 1);
    while !a.arm().unwrap() {
        a.poll().unwrap();
    }
    assert_eq!(wait(50), None, "what was taken in does not wake again");
}

#[test]
fn an_interface_that_goes_down_wakes_and_is_reported() {
    for (tag, ring) in [("linkfd", false), ("linkfg", true)] {
        let Some((_bed, [left, _right])) = Bed::pair(tag) else { return };
        let mut a = node(&left, ring);
        assert!(a.arm().unwrap());
        left.link_set("down");
        assert!(is_readable(&mut a, MISSED_MS));
        // It may come up again.
        a.poll().unwrap();
        assert!(a.carrier().is_down());
        left.link_set("up");
        while !a.arm().unwrap() {
            a.poll().unwrap();
        }
        left.output(&format!("ip link delete {}", left.interface()));
        assert!(is_readable(&mut a, MISSED_MS));
        let error = a.poll().unwrap_err();
        assert!(error.to_string().contains("down"), "{error}");
    }
}
