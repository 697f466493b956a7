//! What has failed elsewhere, in virtual time; each script with 1,000 seeds (EK_SEEDS).

mod hostile;
mod network;

use network::{Dice, Harm, SLOTS, World, frame};
use transport::{Flags, Header, Kind, PEER_TIMEOUT, Reason, Serial, State, TIME_WAIT};

const MS: u64 = 1_000_000;
const SECOND: u64 = 1_000 * MS;

fn seeds() -> std::ops::Range<u64> {
    0..std::env::var("EK_SEEDS").ok().and_then(|seeds| seeds.parse().ok()).unwrap_or(1000)
}

/// Both ends send, all arrives once and in order, both close, and both rest.
fn all_arrives(harm: Harm, count: usize) -> impl Fn(u64) -> World {
    move |seed| {
        let mut world = World::new(seed, harm);
        world.wants(0, count);
        world.wants(1, count);
        let wanted = world.to_send.clone();
        world.closes = [true; 2];
        world.run_until(|w| {
            w.ends.iter().all(|e| e.as_ref().is_some_and(|e| e.state() != State::Open && e.is_at_end()))
        });
        for (end, wanted) in wanted.iter().enumerate() {
            assert_eq!(world.came[1 - end], Vec::from(wanted.clone()), "seed {seed}, from {end}");
            assert_eq!(world.end(end).state(), State::TimeWait, "seed {seed}");
        }
        world.harm = Harm::default();
        world.run_to(world.now + 2 * TIME_WAIT);
        assert!((0..2).all(|end| world.end(end).is_finished(world.now)) && world.under_way() == 0, "seed {seed}");
        world
    }
}

#[test]
fn messages_arrive_over_a_good_network_without_a_frame_too_many() {
    let run = all_arrives(Harm::default(), 100);
    for seed in seeds() {
        let world = run(seed);
        for end in 0..2 {
            let counts = world.end(end).counts();
            assert_eq!(
                (counts.resent, counts.duplicates, counts.no_room, counts.unexpected),
                (0, 0, 0, 0),
                "seed {seed}: {counts:?}"
            );
        }
    }
}

#[test]
fn messages_arrive_once_and_in_order_over_a_bad_network() {
    let harms = [
        Harm { lost: 10, ..Harm::default() },
        Harm { lost: 3, ..Harm::default() },
        Harm { doubled: 3, ..Harm::default() },
        Harm { damaged: 10, ..Harm::default() },
        Harm { late: 400_000, ..Harm::default() },
        Harm { lost: 20, doubled: 20, damaged: 20, late: 50_000 },
    ];
    for harm in harms {
        let run = all_arrives(harm, 40);
        for seed in seeds().step_by(harms.len()) {
            let world = run(seed);
            assert!(harm.damaged == 0 || world.broken > 0, "seed {seed}");
        }
    }
}

#[test]
fn a_whole_window_is_lost() {
    for seed in seeds() {
        let mut world = World::sends(seed, 30);
        let wanted = Vec::from(world.to_send[0].clone());
        world.lose(16, |opened, header| opened && header.kind == Kind::Data);
        world.run_until(|w| w.came[1].len() == 30);
        assert_eq!(world.came[1], wanted);
    }
}

#[test]
fn the_last_frame_is_lost_and_sent_again_before_the_time_out() {
    for seed in seeds() {
        let mut world = World::come(seed, 10);
        let begun = world.now;
        world.lose(1, |opened, header| opened && header.kind == Kind::Data);
        world.to_send[0].push_back(vec![1, 2, 3]);
        world.run_until(|w| w.came[1].len() == 11);
        assert!(world.now - begun < MS, "seed {seed}: {} ns", world.now - begun);
    }
}

/// More frames follow the lost one than an acknowledgement can name, all sent at one moment.
#[test]
fn one_frame_of_a_long_batch_is_lost_and_sent_again_at_once() {
    for seed in seeds() {
        let mut world = World::come(seed, 200);
        let (begun, batch) = (world.now, SLOTS as usize);
        let mut left = seed % u64::from(SLOTS - 1);
        world.loses = Box::new(move |_, opened, header| {
            let loses = opened && header.kind == Kind::Data && left == 0;
            left = if opened && header.kind == Kind::Data { left.wrapping_sub(1) } else { left };
            loses
        });
        world.to_send[0].extend((0..batch).map(|number| vec![number as u8; 10]));
        world.run_until(|w| w.came[1].len() == 200 + batch);
        assert!(world.now - begun < MS / 4, "seed {seed}: {} ns", world.now - begun);
        assert_eq!(world.end(0).counts().resent, 1, "seed {seed}: {:?}", world.end(0).counts());
    }
}

#[test]
fn acknowledgements_alone_are_lost() {
    for seed in seeds() {
        let mut world = World::sends(seed, 100);
        let wanted = Vec::from(world.to_send[0].clone());
        let mut dice = Dice(seed);
        world.loses = Box::new(move |_, _, header| header.kind == Kind::Ack && dice.one_in(2));
        world.closes[0] = true;
        world.run_until(|w| w.came[1].len() == 100);
        assert_eq!(world.came[1], wanted);
    }
}

#[test]
fn a_receiver_that_does_not_read_for_thirty_seconds_is_not_overrun_and_not_given_up() {
    for seed in seeds().step_by(5) {
        let mut world = World::new(seed, Harm { lost: seed % 2 * 10, ..Harm::default() });
        world.wants(0, 200);
        let wanted = Vec::from(world.to_send[0].clone());
        world.reads[1] = false;
        world.run_to(world.now + 30 * SECOND);
        assert_eq!(world.end(0).state(), State::Open, "seed {seed}");
        let counts = world.end(1).counts();
        assert!(counts.no_room == 0 && counts.received == u64::from(SLOTS), "seed {seed}: {counts:?}");
        assert!(world.frames[0] < 2000, "seed {seed}: {} frames to one that does not read", world.frames[0]);
        world.reads[1] = true;
        world.run_until(|w| w.came[1].len() == 200);
        assert_eq!(world.came[1], wanted, "seed {seed}");
    }
}

#[test]
fn the_word_that_there_is_room_again_is_lost() {
    for seed in seeds().step_by(5) {
        let mut world = World::sends(seed, 200);
        world.reads[1] = false;
        world.run_to(world.now + SECOND);
        world.lose(1, |opened, header| !opened && header.credit > 0);
        let begun = world.now;
        world.reads[1] = true;
        world.run_until(|w| w.came[1].len() == 200);
        assert!(world.now - begun < 3 * SECOND, "seed {seed}: {} ns", world.now - begun);
    }
}

#[test]
fn a_peer_that_is_killed_is_given_up_after_ten_seconds_and_the_sender_notified() {
    for seed in seeds().step_by(5) {
        let mut world = World::come(seed, 5);
        world.run_to(world.now + SECOND);
        world.gone[1] = true;
        let begun = world.now;
        world.wants(0, 1);
        world.run_until(|w| w.end(0).state() != State::Open);
        assert_eq!(world.end(0).state(), State::Failed(Reason::TimedOut));
        let took = world.now - begun;
        assert!((PEER_TIMEOUT..PEER_TIMEOUT + SECOND).contains(&took), "seed {seed}: {took} ns");
        assert!(world.frames[0] < 200, "seed {seed}: {} frames to one that is gone", world.frames[0]);
    }
}

#[test]
fn nobody_is_there() {
    let mut world = World::new(1, Harm::default());
    world.gone[1] = true;
    world.run_until(|w| w.end(0).state() != State::Opening);
    assert_eq!(world.end(0).state(), State::Failed(Reason::TimedOut));
}

#[test]
fn a_peer_that_stands_still_for_some_seconds_goes_on() {
    for seed in seeds().step_by(5) {
        let mut world = World::sends(seed, 50);
        let wanted = Vec::from(world.to_send[0].clone());
        world.run_until(|w| w.came[1].len() >= 3);
        let until = world.now + 5 * SECOND;
        world.loses = Box::new(move |now, _, _| now < until);
        world.run_until(|w| w.came[1].len() == 50);
        assert_eq!(world.came[1], wanted);
        assert!(world.now < until + 2 * SECOND, "seed {seed}");
    }
}

#[test]
fn a_connection_that_nobody_uses_sends_nothing() {
    let mut world = World::come(1, 1);
    world.run_to(world.now + SECOND);
    let before = world.frames;
    world.run_to(world.now + 3600 * SECOND / 10);
    assert_eq!(world.frames, before);
}

/// A frame that end 0 would send now, as a stranger would forge it.
fn forged(kind: Kind, change: impl Fn(&mut Header)) -> Vec<u8> {
    let mut header = Header {
        kind,
        flags: Flags::default(),
        from_port: 7,
        to_port: 8,
        connection: 1001,
        epoch: 100,
        sequence: Serial(0),
        acknowledged: Serial(0),
        received: u32::MAX,
        credit: u16::MAX,
    };
    change(&mut header);
    let payload: &[u8] = if kind == Kind::Reset { &[2] } else { b"forged" };
    frame(&header, payload)
}

#[test]
fn forged_frames_end_nothing_and_give_nothing_to_read() {
    for seed in seeds() {
        let mut world = World::come(seed, 10);
        let dice = &mut Dice(seed ^ 0xf0f0);
        for _ in 0..50 {
            let (epoch, sequence, acknowledged) = (dice.next() as u32, dice.next() as u32, dice.next() as u32);
            let kind = [Kind::Data, Kind::Ack, Kind::Probe, Kind::Open, Kind::OpenAck, Kind::Busy, Kind::Hello];
            let kind = kind[dice.below(7) as usize];
            let made = forged(kind, |h| {
                (h.epoch, h.sequence, h.acknowledged) = (epoch, Serial(sequence), Serial(acknowledged));
            });
            world.inject(1, &made);
            // Whoever knows the epoch still has to hit one of the few numbers that a reset may name.
            world.inject(1, &forged(Kind::Reset, |h| h.sequence = Serial(sequence)));
        }
        world.wants(0, 10);
        world.run_until(|w| w.came[1].len() == 20);
        assert!(world.came[1].iter().all(|message| message != b"forged"), "seed {seed}");
    }
}

#[test]
fn a_reset_that_answers_a_frame_ends_the_connection_and_one_end_notifies_the_other() {
    let mut world = World::come(3, 3);
    let now = world.now;
    if let Some(end) = &mut world.ends[1] {
        end.abort(now, Reason::Aborted);
    }
    world.run_until(|w| w.end(0).state() != State::Open);
    assert_eq!(world.end(0).state(), State::Failed(Reason::Aborted));
    assert_eq!(world.end(1).state(), State::Failed(Reason::Aborted));
}

#[test]
fn a_full_receiver_says_that_it_is_congested_and_the_sender_slows_down() {
    let mut world = World::sends(4, 300);
    world.reads[1] = false;
    world.run_to(world.now + 10 * MS);
    assert!(world.end(0).counts().echoes > 0);
}

/// Networks and neighbours that mean harm, with drawn bytes; the fuzz target `link_nodes` looks for better ones.
#[test]
fn whatever_the_network_does_nothing_comes_twice_and_no_stranger_ends_anything() {
    for seed in seeds() {
        let mut dice = Dice(seed);
        let len = 100 + dice.below(1500);
        let bytes: Vec<u8> = (0..len).map(|_| dice.next() as u8).collect();
        hostile::play(&bytes);
    }
}
