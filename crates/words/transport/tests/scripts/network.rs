//! Two ends and an unreliable network between them, in virtual time.

use std::collections::{BTreeMap, VecDeque};

use transport::{Connection, Header, Kind, Nanos, Offer, Serial, Settings, State};

/// Payload of a frame in these tests.
pub(crate) const PAYLOAD: u16 = 100;
/// Frames of each end.
pub(crate) const SLOTS: u32 = 64;
/// One way.
const TRIP_NS: Nanos = 5_000;
/// No test takes so long.
const END_NS: Nanos = 600_000_000_000;

/// Numbers that look drawn (SplitMix64).
#[derive(Debug, Clone)]
pub(crate) struct Dice(pub(crate) u64);

impl Dice {
    pub(crate) fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    pub(crate) fn below(&mut self, count: u64) -> u64 {
        self.next() % count
    }

    pub(crate) fn one_in(&mut self, count: u64) -> bool {
        count > 0 && self.below(count) == 0
    }
}

/// What the network does to frames. One in so many, 0: none.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Harm {
    pub(crate) lost: u64,
    pub(crate) doubled: u64,
    pub(crate) damaged: u64,
    /// So many nanoseconds later, drawn for each frame.
    pub(crate) late: Nanos,
}

/// Whether a frame is to be lost: the time, whether it is from the end that opened, the header.
pub(crate) type Loses = Box<dyn FnMut(Nanos, bool, &Header) -> bool>;

/// Both ends: `[0]` opened, `[1]` accepted.
pub(crate) struct World {
    pub(crate) now: Nanos,
    pub(crate) dice: Dice,
    pub(crate) harm: Harm,
    pub(crate) loses: Loses,
    pub(crate) ends: [Option<Connection>; 2],
    /// The other end is gone: nobody takes its frames.
    pub(crate) gone: [bool; 2],
    /// Frames under way, by arrival.
    wire: BTreeMap<(Nanos, u64), (usize, Vec<u8>)>,
    sent: u64,
    steps: u64,
    /// Messages that are still to be sent, by end, and those that came.
    pub(crate) to_send: [VecDeque<Vec<u8>>; 2],
    pub(crate) came: [Vec<Vec<u8>>; 2],
    /// The end reads what comes.
    pub(crate) reads: [bool; 2],
    pub(crate) closes: [bool; 2],
    pub(crate) frames: [u64; 2],
    pub(crate) broken: u64,
    first: [Serial; 2],
}

impl World {
    pub(crate) fn new(seed: u64, harm: Harm) -> Self {
        let mut dice = Dice(seed);
        // In half of the runs the numbers wrap.
        let mut first = || match dice.one_in(2) {
            true => Serial(u32::MAX - dice.below(200) as u32),
            false => Serial(dice.next() as u32),
        };
        let first = [first(), first()];
        let mut this = Self {
            now: 1_000_000,
            dice,
            harm,
            loses: Box::new(|_, _, _| false),
            ends: [None, None],
            gone: [false; 2],
            wire: BTreeMap::new(),
            sent: 0,
            steps: 0,
            to_send: Default::default(),
            came: Default::default(),
            reads: [true; 2],
            closes: [false; 2],
            frames: [0; 2],
            broken: 0,
            first,
        };
        this.ends[0] = Some(Connection::open(this.now, this.settings(0)));
        this
    }

    /// End 0 sends so many messages over a good network.
    pub(crate) fn sends(seed: u64, count: usize) -> Self {
        let mut this = Self::new(seed, Harm::default());
        this.wants(0, count);
        this
    }

    /// Likewise, and they have come.
    pub(crate) fn come(seed: u64, count: usize) -> Self {
        let mut this = Self::sends(seed, count);
        this.run_until(|w| w.came[1].len() == count);
        this
    }

    /// Loses the next `count` frames that are such.
    pub(crate) fn lose(&mut self, mut count: u32, is_such: impl Fn(bool, &Header) -> bool + 'static) {
        self.loses = Box::new(move |_, opened, header| {
            let loses = count > 0 && is_such(opened, header);
            count -= u32::from(loses);
            loses
        });
    }

    fn settings(&self, end: usize) -> Settings {
        Settings {
            epoch: 100 + end as u32,
            number: 1000 + end as u32,
            first: self.first[end],
            port: 7 + end as u16,
            peer_port: 8 - end as u16,
            payload_max: PAYLOAD,
            slots: SLOTS,
            stream: false,
        }
    }

    pub(crate) fn end(&self, end: usize) -> &Connection {
        self.ends[end].as_ref().expect("the end is there")
    }

    /// Sends `count` messages of different lengths from `end`.
    pub(crate) fn wants(&mut self, end: usize, count: usize) {
        for number in 0..count {
            let len = self.dice.below(4 * u64::from(PAYLOAD)) as usize;
            self.to_send[end].push_back((0..len + 4).map(|at| (number * 31 + at * 7) as u8).collect());
        }
    }

    fn put(&mut self, from: usize, frame: &[u8]) {
        self.frames[from] += 1;
        let header = Header::read(frame).expect("ends send whole frames").0;
        let mut copies = 1 + u64::from(self.dice.one_in(self.harm.doubled));
        if self.dice.one_in(self.harm.lost) || (self.loses)(self.now, from == 0, &header) {
            copies -= 1;
        }
        for _ in 0..copies {
            let mut frame = frame.to_vec();
            if self.dice.one_in(self.harm.damaged) {
                let at = self.dice.below(frame.len() as u64) as usize;
                frame[at] ^= 1 << self.dice.below(8);
            }
            let late = if self.harm.late > 0 { self.dice.below(self.harm.late) } else { 0 };
            self.sent += 1;
            self.wire.insert((self.now + TRIP_NS + late, self.sent), (1 - from, frame));
        }
    }

    /// Delivers a frame by hand.
    pub(crate) fn inject(&mut self, to: usize, frame: &[u8]) {
        let Ok((header, payload)) = Header::read(frame) else {
            self.broken += 1;
            return;
        };
        if self.gone[to] {
            return;
        }
        if let Some(end) = &mut self.ends[to] {
            end.on_frame(self.now, &header, payload);
        } else if header.kind == Kind::Open
            && let Some(offer) = Offer::read(payload)
        {
            self.ends[to] = Some(Connection::accept(self.now, self.settings(to), &header, &offer));
        }
    }

    /// What applications and ends do at this moment.
    fn act(&mut self) {
        for at in 0..2 {
            let now = self.now;
            let Some(end) = self.ends[at].as_mut().filter(|_| !self.gone[at]) else { continue };
            end.on_time(now);
            while let Some(message) = self.to_send[at].front() {
                if end.send(now, message).is_err() {
                    break;
                }
                self.to_send[at].pop_front();
            }
            if self.closes[at] && self.to_send[at].is_empty() && end.state() == State::Open {
                let _ = end.close(now);
            }
            let mut room = [0; 8 * PAYLOAD as usize];
            while self.reads[at] {
                match end.receive(now, &mut room).expect("messages fit") {
                    Some(len) => self.came[at].push(room[..len].to_vec()),
                    None => break,
                }
            }
            let mut frames = Vec::new();
            while let Some(out) = end.poll(now) {
                frames.push([&out.head[..], out.payload].concat());
                assert!(frames.len() < 1000, "an end that never stops");
            }
            frames.into_iter().for_each(|frame| self.put(at, &frame));
        }
    }

    /// Goes on to the next moment at which something happens; false: there is none.
    pub(crate) fn step(&mut self) -> bool {
        self.act();
        let due = (0..2).filter(|&at| !self.gone[at]).filter_map(|at| self.ends[at].as_ref()?.due()).min();
        let arrives = self.wire.keys().next().map(|key| key.0);
        let Some(next) = [due, arrives].into_iter().flatten().min() else { return false };
        // What is due and does nothing would stand still for ever.
        self.now = self.now.max(next) + u64::from(due == Some(self.now));
        self.steps += 1;
        assert!(self.steps < 1_000_000, "it stands still: {:?}", self.ends);
        assert!(self.now < END_NS, "it does not end: {:?}", self.ends);
        while let Some(entry) = self.wire.first_entry().filter(|entry| entry.key().0 <= self.now) {
            let (to, frame) = entry.remove();
            self.inject(to, &frame);
        }
        true
    }

    pub(crate) fn run_until(&mut self, done: impl Fn(&Self) -> bool) {
        while !done(self) {
            assert!(self.step(), "nothing more happens: {:?}", self.ends);
        }
    }

    /// All that happens until `at`.
    pub(crate) fn run_to(&mut self, at: Nanos) {
        loop {
            self.act();
            let due = (0..2).filter(|&end| !self.gone[end]).filter_map(|end| self.ends[end].as_ref()?.due()).min();
            let next = [due, self.wire.keys().next().map(|key| key.0)].into_iter().flatten().min();
            if next.is_none_or(|next| next > at) {
                self.now = at;
                return;
            }
            self.step();
        }
    }

    /// Frames with this header that are under way.
    pub(crate) fn under_way(&self) -> usize {
        self.wire.len()
    }
}

/// A frame made by hand.
pub(crate) fn frame(header: &Header, payload: &[u8]) -> Vec<u8> {
    [&header.write(payload)[..], payload].concat()
}
