//! What the protocol costs: nanoseconds for each frame, and memory for each connection.
//!
//!     cargo run --release -p transport --example measure

use std::{collections::VecDeque, fs, hint::black_box, time::Instant};

use transport::{FREE_PORTS, Handle, Nanos, Node, NodeSettings, State};
use wire::checksum::Sum;

const PORT: u16 = 7;
/// One way, in virtual time.
const TRIP: Nanos = 20_000;

fn node(at: u64, payload_max: u16) -> Node<usize> {
    Node::new(NodeSettings {
        name: format!("node{at}"),
        epoch: at as u32,
        payload_max,
        slots: 256,
        secret: u128::from(at),
        ports: FREE_PORTS,
    })
}

/// The least of five runs, each of `count` times `work`.
fn least(count: u32, mut work: impl FnMut()) -> f64 {
    let run = |work: &mut dyn FnMut()| {
        let begun = Instant::now();
        (0..count).for_each(|_| work());
        begun.elapsed().as_nanos() as f64 / f64::from(count)
    };
    (0..5).map(|_| run(&mut work)).fold(f64::INFINITY, f64::min)
}

fn checksums() {
    println!("checksum, ns, and with a copy ahead of it:");
    for len in [64usize, 1400, 9000] {
        let data: Vec<u8> = (0..len).map(|at| (at * 7) as u8).collect();
        let mut to = vec![0; len];
        let count = 40_000_000 / (len as u32 + 100);
        let sum = least(count, || {
            black_box(Sum::new().bytes(black_box(&data)).finish());
        });
        let copied = least(count, || {
            to.copy_from_slice(black_box(&data));
            black_box(Sum::new().bytes(black_box(&to)).finish());
        });
        println!("{len:6} bytes {sum:8.1} {copied:8.1}");
    }
}

/// Two nodes and what is under way between them, in virtual time.
struct Pair {
    now: Nanos,
    nodes: [Node<usize>; 2],
    wire: VecDeque<(Nanos, usize, Vec<u8>)>,
    spare: Vec<Vec<u8>>,
    frames: u64,
    /// One frame in so many is lost; 0: none.
    lost: u64,
}

impl Pair {
    fn new(payload_max: u16, lost: u64) -> Self {
        let nodes = [node(1, payload_max), node(2, payload_max)];
        Self { now: 1, nodes, wire: VecDeque::new(), spare: Vec::new(), frames: 0, lost }
    }

    fn emit(&mut self) {
        for at in 0..2 {
            while let Some((_, head, payload)) = self.nodes[at].poll(self.now) {
                self.frames += 1;
                if self.lost > 0 && self.frames.is_multiple_of(self.lost) {
                    continue;
                }
                let mut frame = self.spare.pop().unwrap_or_default();
                frame.clear();
                frame.extend_from_slice(&head);
                frame.extend_from_slice(payload);
                self.wire.push_back((self.now + TRIP, 1 - at, frame));
            }
        }
    }

    /// The next thing that happens; false: nothing does.
    fn step(&mut self) -> bool {
        self.emit();
        let due = self.nodes.iter().filter_map(Node::due).min();
        let arrives = self.wire.front().map(|&(at, ..)| at);
        let Some(next) = [due, arrives].into_iter().flatten().min() else { return false };
        self.now = self.now.max(next);
        while self.wire.front().is_some_and(|&(at, ..)| at <= self.now) {
            let Some((_, to, frame)) = self.wire.pop_front() else { break };
            self.nodes[to].on_frame(self.now, 1 - to, &frame);
            self.spare.push(frame);
        }
        self.nodes.iter_mut().for_each(|node| node.on_time(self.now));
        true
    }

    fn connect(&mut self, count: usize) -> Vec<(Handle, Handle)> {
        self.nodes[1].listen(PORT, false, count);
        let ours: Vec<Handle> =
            (0..count).map(|_| self.nodes[0].connect(self.now, 1, PORT, false).expect("room")).collect();
        let open = |p: &Self, h: Handle| p.nodes[0].connection(h).is_some_and(|c| c.state() == State::Open);
        while !ours.iter().all(|&h| open(self, h)) {
            self.step();
        }
        ours.into_iter().map(|ours| (ours, self.nodes[1].accept(PORT).expect("opened"))).collect()
    }
}

/// Nanoseconds of this CPU for each frame of a stream of full frames that fills the window of `count` connections.
fn streams(count: usize, payload: u16, lost: u64, frames: u64) -> f64 {
    let mut pair = Pair::new(payload, lost);
    let ends = pair.connect(count);
    let (message, mut room) = (vec![7; usize::from(payload)], vec![0; usize::from(payload)]);
    let (mut received, mut took) = (0u64, f64::INFINITY);
    for _ in 0..3 {
        let until = received + frames;
        let (begun, before) = (Instant::now(), pair.frames);
        while received < until {
            let now = pair.now;
            for &(ours, theirs) in &ends {
                pair.nodes[0].with(now, ours, |c| while c.send(now, &message).is_ok() {});
                pair.nodes[1].with(now, theirs, |c| {
                    while let Ok(Some(_)) = c.receive(now, &mut room) {
                        received += 1;
                    }
                });
            }
            pair.step();
        }
        took = took.min(begun.elapsed().as_nanos() as f64 / (pair.frames - before) as f64);
    }
    took
}

/// Nanoseconds for a message there and an answer back, on each of `count` connections in turn.
fn there_and_back(count: usize, rounds: u32) -> f64 {
    let mut pair = Pair::new(1468, 0);
    let ends = pair.connect(count);
    let mut room = vec![0; 1468];
    let mut turn = 0;
    least(rounds, || {
        let (ours, theirs) = ends[turn % count];
        turn += 1;
        let now = pair.now;
        pair.nodes[0].with(now, ours, |c| c.send(now, &[1; 64])).expect("there").expect("room");
        for (at, handle) in [(1, theirs), (0, ours)] {
            loop {
                pair.step();
                let now = pair.now;
                let came = pair.nodes[at].with(now, handle, |c| c.receive(now, &mut room)).expect("there");
                if came.expect("it fits").is_some() {
                    break;
                }
            }
            let now = pair.now;
            if at == 1 {
                pair.nodes[1].with(now, theirs, |c| c.send(now, &[1; 64])).expect("there").expect("room");
            }
        }
    })
}

/// KiB of memory that this process has.
fn resident() -> i64 {
    let statm = fs::read_to_string("/proc/self/statm").expect("a Linux");
    statm.split(' ').nth(1).and_then(|pages| pages.parse::<i64>().ok()).expect("pages") * 4
}

/// Bytes for each of 1,000 open connections (both ends in this process): new, and after each has carried `frames` full frames.
fn memory() {
    let before = resident();
    let mut pair = Pair::new(1468, 0);
    let ends = pair.connect(1000);
    pair.frames = 0;
    let each = |now: i64| (now - before) * 1024 / 2000;
    println!("memory of an end of a connection, bytes: idle {}", each(resident()));
    let (message, mut room) = (vec![7; 1468], vec![0; 1468]);
    for frames in [1, 200] {
        for &(ours, theirs) in &ends {
            let mut left = frames;
            let mut waits = frames;
            while waits > 0 {
                let now = pair.now;
                pair.nodes[0].with(now, ours, |c| {
                    while left > 0 && c.send(now, &message).is_ok() {
                        left -= 1;
                    }
                });
                pair.step();
                let now = pair.now;
                pair.nodes[1].with(now, theirs, |c| {
                    while let Ok(Some(_)) = c.receive(now, &mut room) {
                        waits -= 1;
                    }
                });
            }
            while pair.step() {}
        }
        println!("… after {frames} frames each, one connection after the other: {}", each(resident()));
    }
}

fn main() {
    memory();
    checksums();
    println!(
        "a frame of a stream, ns of CPU (sending, carrying and receiving ends, acknowledgements counted as frames):"
    );
    for (count, payload, lost) in
        [(1, 64, 0), (1, 1400, 0), (1, 1400, 100), (1, 1400, 10), (100, 64, 0), (100, 1400, 0), (1000, 64, 0)]
    {
        println!(
            "{count:5} connections, {payload:5} bytes, lost 1/{lost:<4} {:8.1}",
            streams(count, payload, lost, 300_000)
        );
    }
    println!("there and back, ns of CPU (4 frames):");
    for count in [1, 1000] {
        println!("{count:5} connections {:8.1}", there_and_back(count, 100_000));
    }
}
