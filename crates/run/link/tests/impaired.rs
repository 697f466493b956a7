//! Nodes on packets, and a program on the wire between them that loses, doubles, changes and holds back frames.

use std::{
    collections::VecDeque,
    sync::atomic::{AtomicBool, Ordering},
    thread,
    time::{Duration, Instant},
};

use link::{Engine, Handle, LinkError, Raw, SendError, State};
use sys::{
    packet::{Batch, PacketSocket},
    packet_batch::PacketBatch,
};
use testbed::{Bed, Dice, End, Ends, poll};

const PORT: u16 = 1000;
const ETHERTYPE: u16 = 0x88B5;
const FRAME_MAX: usize = 1514;
const MESSAGE_COUNT: u32 = 150;
const STREAM_BYTES: usize = 300_000;

/// What the wire does to frames, each in percent of them.
#[derive(Debug, Clone, Copy, Default)]
struct Harm {
    lost: u64,
    doubled: u64,
    changed: u64,
    /// Held back until up to twenty others have passed, or 5 ms.
    late: u64,
}

/// One direction of the wire.
struct Way {
    from: PacketSocket,
    batch: Batch,
    to: PacketBatch,
    held: VecDeque<(u64, Instant, Vec<u8>)>,
    passed: u64,
}

impl Way {
    fn new(from: &End, to: &End) -> Self {
        let socket = PacketSocket::open().unwrap();
        socket.set_ignore_outgoing().unwrap();
        socket.bind_for(from.link.index, ETHERTYPE).unwrap();
        let sends = PacketBatch::open(to.link.index, FRAME_MAX, 8 << 20).unwrap();
        Self { from: socket, batch: Batch::new(32, FRAME_MAX), to: sends, held: VecDeque::new(), passed: 0 }
    }

    fn pass(&mut self, frame: &[u8]) {
        self.passed += 1;
        if !self.to.push(frame) {
            self.to.flush().unwrap();
            self.to.push(frame);
        }
    }

    fn turn(&mut self, harm: Harm, dice: &mut Dice) -> usize {
        let count = self.batch.receive(&self.from).unwrap();
        let frames: Vec<Vec<u8>> = self.batch.packets(count).map(|packet| packet.data.to_vec()).collect();
        for mut frame in frames {
            if dice.below(100) < harm.lost {
                continue;
            }
            if dice.below(100) < harm.changed {
                let at = 14 + dice.below(frame.len() as u64 - 14) as usize;
                frame[at] ^= 1 << dice.below(8);
            }
            if dice.below(100) < harm.doubled {
                self.pass(&frame);
            }
            match dice.below(100) < harm.late {
                true => self.held.push_back((self.passed + 1 + dice.below(20), Instant::now(), frame)),
                false => self.pass(&frame),
            }
        }
        let is_due = |held: &(u64, Instant, Vec<u8>), passed| held.0 <= passed || held.1.elapsed().as_millis() >= 5;
        while let Some(at) = self.held.iter().position(|held| is_due(held, self.passed)) {
            let (_, _, frame) = self.held.remove(at).unwrap();
            self.pass(&frame);
        }
        self.to.flush().unwrap();
        count
    }
}

fn until(ends: &mut [Engine<Raw>; 2], mut done: impl FnMut(&mut [Engine<Raw>; 2]) -> bool) {
    poll("what both are turned for", || {
        if ends.iter_mut().map(|end| end.poll().unwrap()).sum::<usize>() == 0 {
            thread::sleep(Duration::from_micros(50));
        }
        done(ends)
    });
}

fn joined(ends: &mut [Engine<Raw>; 2], port: u16, stream: bool) -> [Handle; 2] {
    let to = ends[1].carrier().address();
    ends[1].listen(port, stream, 4).unwrap();
    let ours = ends[0].connect(to, port, stream).unwrap();
    let mut theirs = None;
    until(ends, |[a, b]| {
        theirs = theirs.or_else(|| b.accept(port));
        a.state(ours) == Some(State::Open) && theirs.is_some()
    });
    [ours, theirs.unwrap()]
}

/// The message of that number of one end: its length and bytes follow from both.
fn message(end: usize, number: u32) -> Vec<u8> {
    let mut dice = Dice::new(u64::from(number) * 2 + end as u64);
    let len = dice.below([10, 1400, 5000][number as usize % 3]);
    (0..len).map(|_| dice.below(256) as u8).collect()
}

/// Messages both ways at once: each comes once, whole and in its turn.
fn messages(ends: &mut [Engine<Raw>; 2]) {
    let handles = joined(ends, PORT, false);
    let (mut sent, mut come, mut place) = ([0; 2], [0; 2], vec![0; 1 << 16]);
    until(ends, |ends| {
        for end in 0..2 {
            while sent[end] < MESSAGE_COUNT {
                match ends[end].send(handles[end], &message(end, sent[end])) {
                    Ok(()) => sent[end] += 1,
                    Err(LinkError::Send(SendError::Full)) => break,
                    Err(error) => panic!("{error}"),
                }
            }
            while let Some(len) = ends[end].receive(handles[end], &mut place).unwrap() {
                assert_eq!(place[..len], message(1 - end, come[end])[..], "message {} of the other end", come[end]);
                come[end] += 1;
            }
        }
        come == [MESSAGE_COUNT; 2]
    });
}

/// A stream one way: its bytes come in their order, then its end.
fn stream(ends: &mut [Engine<Raw>; 2]) {
    let [ours, theirs] = joined(ends, PORT + 1, true);
    let byte = |at: usize| (at / 251 + at) as u8;
    let (mut sent, mut come, mut is_closed) = (0, 0, false);
    until(ends, |[a, b]| {
        let piece: Vec<u8> = (sent..STREAM_BYTES.min(sent + 20_000)).map(byte).collect();
        if !piece.is_empty() {
            sent += a.write(ours, &piece).unwrap();
        } else if !is_closed {
            is_closed = a.close(ours).is_ok();
        }
        b.read(theirs, |piece| {
            for &got in piece {
                assert_eq!(got, byte(come), "byte {come}");
                come += 1;
            }
        })
        .unwrap();
        b.is_at_end(theirs)
    });
    assert_eq!(come, STREAM_BYTES);
}

#[test]
fn a_wire_that_harms_frames_changes_nothing_of_what_arrives() {
    let seeds = std::env::var("EK_SEEDS").ok().and_then(|seeds| seeds.parse().ok()).unwrap_or(3);
    let Some(bed) = Bed::new("linki", &["left", "wire", "right"]) else { return };
    let [left, near] = bed.join(["left", "wire"], 1);
    let [right, far] = bed.join(["right", "wire"], 1);
    // The nodes' neighbour is the wire, which hears all.
    let promiscuous = |end: &End| bed.space("wire").output(&format!("ip link set {} promisc on", end.interface()));
    promiscuous(&near);
    promiscuous(&far);
    let harms = [
        Harm { lost: 10, ..Harm::default() },
        Harm { doubled: 30, ..Harm::default() },
        Harm { changed: 10, ..Harm::default() },
        Harm { late: 30, ..Harm::default() },
        Harm { lost: 5, doubled: 10, changed: 5, late: 10 },
    ];
    for seed in 0..seeds {
        for harm in harms {
            let over = AtomicBool::new(false);
            let mut ways = near.run(|| [Way::new(&near, &far), Way::new(&far, &near)]);
            let open = |end: &End, name| end.run(|| Engine::new(Raw::open(end.interface()).unwrap(), name).unwrap());
            let mut ends = [open(&left, "alpha"), open(&right, "beta")];
            println!("seed {seed}, {harm:?}");
            thread::scope(|scope| {
                scope.spawn(|| {
                    let mut dice = Dice::new(seed);
                    while !over.load(Ordering::Relaxed) {
                        if ways.iter_mut().map(|way| way.turn(harm, &mut dice)).sum::<usize>() == 0 {
                            thread::sleep(Duration::from_micros(50));
                        }
                    }
                });
                let _ends = Ends(&over);
                messages(&mut ends);
                stream(&mut ends);
            });
        }
    }
}
