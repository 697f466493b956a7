//! Many send to one: through the queue of a switch, which drops what it has no room for, and a receiving ring of limited size, which the receiver
//! says is filled beyond a half.

use std::collections::{BTreeMap, VecDeque};

use transport::{FREE_PORTS, HEADER_BYTES, Handle, Nanos, Node, NodeSettings, State};

const PORT: u16 = 7;
const PAYLOAD: usize = 1400;
/// A frame on a link of 10 Gbit/s.
const FRAME_NS: Nanos = 1_150;
/// Through cables and the switch, one way.
const TRIP_NS: Nanos = 10_000;
const MS: Nanos = 1_000_000;

/// Where the frames of all meet.
#[derive(Debug, Clone, Copy)]
struct Bottleneck {
    /// Frames that the switch keeps for the receiver's port, and those of the receiver's ring.
    queue: usize,
    ring: usize,
    /// What the receiver needs for a frame.
    work: Nanos,
}

enum Happens {
    /// A frame of this sender reaches the switch.
    AtSwitch(usize, Vec<u8>),
    /// The switch has sent the first of its queue.
    Forwarded,
    /// The receiver has taken the first of its ring.
    Taken,
    /// A frame of the receiver reaches this sender.
    Back(usize, Vec<u8>),
}

struct World {
    now: Nanos,
    nodes: Vec<Node<usize>>,
    handles: Vec<Handle>,
    accepted: BTreeMap<Handle, usize>,
    events: BTreeMap<(Nanos, u64), Happens>,
    order: u64,
    /// Until when each sender's link is busy.
    busy: Vec<Nanos>,
    queue: VecDeque<(usize, Vec<u8>)>,
    ring: VecDeque<(usize, Vec<u8>)>,
    bottleneck: Bottleneck,
    dropped: [u64; 2],
    marked: u64,
    /// Messages that came, by sender.
    came: Vec<u64>,
}

impl World {
    fn new(senders: usize, bottleneck: Bottleneck) -> Self {
        let node = |at: usize| {
            let name = format!("node{at}");
            Node::new(NodeSettings {
                name,
                epoch: 1 + at as u32,
                payload_max: PAYLOAD as u16,
                slots: 256,
                secret: at as u128,
                ports: FREE_PORTS,
            })
        };
        let mut nodes: Vec<Node<usize>> = (0..=senders).map(node).collect();
        nodes[0].listen(PORT, false, senders);
        let handles = (1..=senders).map(|at| nodes[at].connect(1, 0, PORT, false).expect("room")).collect();
        let (busy, came) = (vec![0; senders + 1], vec![0; senders + 1]);
        Self {
            now: 1,
            nodes,
            handles,
            accepted: BTreeMap::new(),
            events: BTreeMap::new(),
            order: 0,
            busy,
            queue: VecDeque::new(),
            ring: VecDeque::new(),
            bottleneck,
            dropped: [0; 2],
            marked: 0,
            came,
        }
    }

    fn later(&mut self, at: Nanos, what: Happens) {
        self.order += 1;
        self.events.insert((at, self.order), what);
    }

    /// Applications send all they can, and read all that is there.
    fn act(&mut self, at: usize) {
        let now = self.now;
        self.nodes[at].on_time(now);
        if at == 0 {
            while let Some(handle) = self.nodes[0].accept(PORT) {
                let from = self.nodes[0].peer_of(handle).expect("it has a peer");
                self.accepted.insert(handle, from);
            }
        } else {
            self.nodes[at].with(now, self.handles[at - 1], |c| while c.send(now, &[at as u8; PAYLOAD]).is_ok() {});
        }
        while let Some((to, head, payload)) = self.nodes[at].poll(now) {
            let frame = [&head[..], payload].concat();
            if at == 0 {
                self.later(now + TRIP_NS, Happens::Back(to, frame));
            } else {
                self.busy[at] =
                    self.busy[at].max(now) + FRAME_NS * frame.len() as u64 / (PAYLOAD + HEADER_BYTES) as u64;
                self.later(self.busy[at] + TRIP_NS, Happens::AtSwitch(at, frame));
            }
        }
    }

    fn read(&mut self, from: usize) {
        let (now, mut room) = (self.now, [0; PAYLOAD]);
        let Some(&handle) = self.accepted.iter().find(|&(_, &peer)| peer == from).map(|(handle, _)| handle) else {
            return;
        };
        let read = self.nodes[0].with(now, handle, |c| {
            let mut count = 0;
            while let Ok(Some(len)) = c.receive(now, &mut room) {
                assert!(len == PAYLOAD && room.iter().all(|&byte| byte == from as u8));
                count += 1;
            }
            count
        });
        self.came[from] += read.unwrap_or(0);
    }

    fn happens(&mut self, what: Happens) {
        match what {
            Happens::AtSwitch(from, frame) => {
                if self.queue.len() >= self.bottleneck.queue {
                    self.dropped[0] += 1;
                    return;
                }
                self.queue.push_back((from, frame));
                if self.queue.len() == 1 {
                    self.later(self.now + FRAME_NS, Happens::Forwarded);
                }
            }
            Happens::Forwarded => {
                let Some(frame) = self.queue.pop_front() else { return };
                if !self.queue.is_empty() {
                    self.later(self.now + FRAME_NS, Happens::Forwarded);
                }
                if self.ring.len() >= self.bottleneck.ring {
                    self.dropped[1] += 1;
                    return;
                }
                self.ring.push_back(frame);
                if self.ring.len() == 1 {
                    self.later(self.now + self.bottleneck.work, Happens::Taken);
                }
            }
            Happens::Taken => {
                let filled = self.ring.len() > self.bottleneck.ring / 2;
                let Some((from, frame)) = self.ring.pop_front() else { return };
                if !self.ring.is_empty() {
                    self.later(self.now + self.bottleneck.work, Happens::Taken);
                }
                self.marked += u64::from(filled);
                if filled {
                    self.nodes[0].on_frame_congested(self.now, from, &frame);
                } else {
                    self.nodes[0].on_frame(self.now, from, &frame);
                }
                self.act(0);
                self.read(from);
                self.act(0);
            }
            Happens::Back(to, frame) => {
                self.nodes[to].on_frame(self.now, 0, &frame);
                self.act(to);
            }
        }
    }

    fn run(&mut self, time: Nanos) {
        let end = self.now + time;
        loop {
            let due = (0..self.nodes.len()).filter_map(|at| Some((self.nodes[at].due()?, at))).min();
            let event = self.events.keys().next().map(|key| key.0);
            let next = due.map(|(at, _)| at).into_iter().chain(event).min().unwrap_or(end);
            if next >= end {
                break;
            }
            self.now = self.now.max(next);
            match (self.events.first_entry().filter(|entry| entry.key().0 <= self.now), due) {
                (Some(entry), _) => {
                    let what = entry.remove();
                    self.happens(what);
                }
                (None, Some((_, at))) => self.act(at),
                (None, None) => {}
            }
        }
        self.now = end;
    }

    /// Messages of each sender within 50 ms, once all had 20 ms to begin.
    fn goodput(senders: usize, bottleneck: Bottleneck) -> (Self, Vec<u64>) {
        let mut world = Self::new(senders, bottleneck);
        (1..=senders).for_each(|at| world.act(at));
        world.run(20 * MS);
        let before = world.came.clone();
        world.run(50 * MS);
        for (at, &handle) in world.handles.iter().enumerate() {
            let state = world.nodes[at + 1].connection(handle).map(transport::Connection::state);
            assert_eq!(state, Some(State::Open));
        }
        let came = world.came.iter().zip(before).skip(1).map(|(now, before)| now - before).collect();
        (world, came)
    }
}

/// Eight have at least 0.9 of what one alone has, and each at least a half of its share.
fn eight_to_one(bottleneck: Bottleneck) -> World {
    let (_, alone) = World::goodput(1, bottleneck);
    let (world, each) = World::goodput(8, bottleneck);
    let (sum, least) = (each.iter().sum::<u64>(), each.iter().min().copied().unwrap_or(0));
    let result = format!("alone {}, {sum} of {each:?}, dropped {:?}, marked {}", alone[0], world.dropped, world.marked);
    eprintln!("{bottleneck:?}: {result}");
    assert!(10 * sum >= 9 * alone[0], "{result}");
    assert!(2 * 8 * least >= sum, "{result}");
    world
}

#[test]
fn eight_senders_share_the_link_of_one_receiver_through_a_queue_that_drops() {
    let world = eight_to_one(Bottleneck { queue: 100, ring: 256, work: 500 });
    assert!(world.dropped[0] > 0 && world.marked == 0, "the link was what held them up");
}

#[test]
fn eight_senders_share_a_slow_receiver_whose_ring_distinguishes_them() {
    let world = eight_to_one(Bottleneck { queue: 100, ring: 256, work: 2_000 });
    assert!(world.marked > 0);
    assert_eq!(world.dropped[1], 0, "once it is told that it is filled, the ring has room");
}

#[test]
fn a_small_ring_and_a_small_queue_are_shared_as_well() {
    eight_to_one(Bottleneck { queue: 32, ring: 256, work: 500 });
    eight_to_one(Bottleneck { queue: 100, ring: 64, work: 2_000 });
}
