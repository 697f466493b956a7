//! Two nodes, and a network between them that some bytes command: it loses, doubles, reorders, cuts, changes, replays and forges frames, and lets time
//! go by. Nothing is delivered twice or in another order, no connection ends by a frame of somebody who does not know its numbers, and what is
//! open gets all through once the network is good again. Shared by the test beside it and the fuzz target.

use std::collections::VecDeque;

use transport::{Flags, Handle, Header, Kind, Nanos, Node, NodeSettings, Offer, PEER_TIMEOUT, Reason, Serial, State};
use wire::checksum;

const PORT: u16 = 7;
const PAYLOAD: u16 = 60;
const SLOTS: u32 = 8;
/// Frames under way, connections and operations at the most.
const WIRE_MAX: usize = 256;
const CONNECTIONS_MAX: usize = 6;
const OPERATIONS_MAX: usize = 600;

/// A connection: of the end that opened it, and of the one that took its first message.
struct Conn {
    opener: usize,
    ends: [Option<Handle>; 2],
    /// Messages by the node that sent them.
    sent: [u32; 2],
    came: [u32; 2],
}

pub(crate) struct Play<'a> {
    bytes: &'a [u8],
    now: Nanos,
    nodes: [Node<usize>; 2],
    wire: VecDeque<(usize, Vec<u8>)>,
    log: Vec<(usize, Vec<u8>)>,
    conns: Vec<Conn>,
    accepted: Vec<(usize, Handle)>,
    /// Numbers that nodes drew: of connections, and first ones of frames.
    numbers: Vec<u32>,
    firsts: Vec<u32>,
}

fn message(id: usize, from: usize, index: u32) -> Vec<u8> {
    let mut message = vec![id as u8, from as u8];
    message.extend(index.to_be_bytes());
    message.extend((0..(index * 37 + id as u32 * 11) % 150).map(|at| (at * 7 + index) as u8));
    message
}

/// What the bytes command.
pub(crate) fn play(bytes: &[u8]) {
    let node = |at: usize| {
        let name = format!("node{at}");
        Node::new(NodeSettings {
            name,
            epoch: 1 + at as u32,
            payload_max: PAYLOAD,
            slots: SLOTS,
            secret: 77 + at as u128,
            ports: transport::FREE_PORTS,
        })
    };
    let mut play = Play {
        bytes,
        now: 1,
        nodes: [node(0), node(1)],
        wire: VecDeque::new(),
        log: Vec::new(),
        conns: Vec::new(),
        accepted: Vec::new(),
        numbers: Vec::new(),
        firsts: Vec::new(),
    };
    play.nodes.iter_mut().for_each(|node| assert!(node.listen(PORT, false, 50)));
    play.connect(0);
    for _ in 0..OPERATIONS_MAX {
        let Some(operation) = play.byte() else { break };
        play.operation(operation);
        play.pump();
        play.check();
    }
    play.settle();
}

impl Play<'_> {
    fn byte(&mut self) -> Option<u8> {
        let (&first, rest) = self.bytes.split_first()?;
        self.bytes = rest;
        Some(first)
    }

    fn number(&mut self) -> u32 {
        (0..4).fold(0, |number, _| number << 8 | u32::from(self.byte().unwrap_or(0)))
    }

    fn below(&mut self, count: usize) -> usize {
        usize::from(self.byte().unwrap_or(0)) * 256 % count.max(1)
            + usize::from(self.byte().unwrap_or(0)) % count.max(1)
    }

    fn operation(&mut self, operation: u8) {
        match operation % 18 {
            0..=2 => self.deliver(),
            3 => (0..self.wire.len()).for_each(|_| self.deliver()),
            4 => drop(self.wire.pop_front()),
            5 => self.wire.extend(self.wire.front().cloned()),
            6 => {
                let by = self.below(self.wire.len());
                self.wire.rotate_left(by % self.wire.len().max(1));
            }
            7 => {
                let Some((to, frame)) = self.wire.front().cloned() else { return };
                let len = self.below(frame.len()) % frame.len();
                assert!(Header::read(&frame[..len]).is_err());
                self.nodes[to].on_frame(self.now, 1 - to, &frame[..len]);
            }
            8 => self.change(),
            9 => {
                let at = self.below(self.log.len());
                let Some((to, frame)) = self.log.get(at).cloned() else { return };
                self.arrives(to, &frame);
            }
            10 | 11 => self.forge(),
            12 => self.now += 5_000 * u64::from(self.byte().unwrap_or(0)),
            13 => self.now += 12_000_000 * u64::from(self.byte().unwrap_or(0)),
            14 | 15 => self.send(),
            16 => self.receive(),
            _ => match self.byte().unwrap_or(0) % 8 {
                0..=2 => self.connect(usize::from(operation & 32 > 0)),
                3 => self.close(),
                4 => self.nodes[0].hello(1),
                5 => self.nodes[1].probe(0, 5, b"there?"),
                _ => self.receive(),
            },
        }
    }

    fn connect(&mut self, opener: usize) {
        if self.conns.len() >= CONNECTIONS_MAX {
            return;
        }
        if let Some(handle) = self.nodes[opener].connect(self.now, 1 - opener, PORT, false) {
            let mut ends = [None, None];
            ends[opener] = Some(handle);
            self.conns.push(Conn { opener, ends, sent: [0; 2], came: [0; 2] });
        }
    }

    /// Out of a ring that is filled when an odd number of frames was sent.
    fn arrives(&mut self, to: usize, frame: &[u8]) {
        if self.log.len().is_multiple_of(2) {
            self.nodes[to].on_frame(self.now, 1 - to, frame);
        } else {
            self.nodes[to].on_frame_congested(self.now, 1 - to, frame);
        }
    }

    fn deliver(&mut self) {
        if let Some((to, frame)) = self.wire.pop_front() {
            self.arrives(to, &frame);
            self.pump();
        }
    }

    /// One byte of a frame that is under way, which comes later as it was.
    fn change(&mut self) {
        let Some((to, mut frame)) = self.wire.front().cloned() else { return };
        let at = self.below(frame.len()) % frame.len();
        frame[at] ^= self.byte().unwrap_or(1).max(1);
        let read = Header::read(&frame).is_ok();
        // A length that names less may leave a checksum right: nobody but the Ethernet's own would know.
        assert!(!read || at == 2 || at == 3, "byte {at} changed, and read");
        if !read {
            self.nodes[to].on_frame(self.now, 1 - to, &frame);
        }
    }

    /// A number that is far from all that a node sends.
    fn far(&self, mut number: u32) -> u32 {
        while self.firsts.iter().any(|&first| number.wrapping_sub(first).wrapping_add(1 << 16) < 1 << 17) {
            number = number.wrapping_add(0x0123_4567);
        }
        number
    }

    /// By somebody who does not see the frames: he knows the number of a connection, or its epoch and ports.
    fn forge(&mut self) {
        let (to, choice) = (usize::from(self.byte().unwrap_or(0) & 1), self.byte().unwrap_or(0));
        let kinds =
            [Kind::Data, Kind::Probe, Kind::Ack, Kind::Open, Kind::OpenAck, Kind::Reset, Kind::Busy, Kind::Hello];
        let kind = kinds[usize::from(choice % 8)];
        let (sequence, acknowledged) = (self.number(), self.number());
        let (sequence, acknowledged) = (Serial(self.far(sequence)), Serial(self.far(acknowledged)));
        let mut header = Header {
            kind,
            flags: Flags(self.byte().unwrap_or(0)),
            from_port: 49_152 + u16::from(self.byte().unwrap_or(0) % 8),
            to_port: PORT,
            connection: 0,
            epoch: 2 - to as u32,
            sequence,
            acknowledged,
            received: self.number(),
            credit: self.number() as u16,
        };
        if choice & 8 > 0 {
            (header.from_port, header.to_port) = (header.to_port, header.from_port);
        }
        let known = self.below(self.numbers.len());
        match (choice >> 4 & 3, self.numbers.get(known)) {
            (0, _) => {}
            (1, Some(&number)) => (header.connection, header.epoch) = (number, self.number() | 4),
            _ => {
                header.connection = self.number();
                while self.numbers.contains(&header.connection) {
                    header.connection ^= 0x0101_0000;
                }
            }
        }
        let offer =
            Offer { connection: self.number() | 1, payload_max: 1 + u16::from(choice), stream: choice & 64 > 0 }
                .bytes();
        let reason = [self.byte().unwrap_or(0), 1, 1];
        let payload: &[u8] = match kind {
            Kind::Open | Kind::OpenAck => &offer,
            Kind::Reset => &reason,
            Kind::Data | Kind::Probe | Kind::Ack | Kind::Busy | Kind::Hello => b"\0\0\0\0\0\0forged",
        };
        let mut head = header.write(payload);
        if choice & 128 > 0 && kind == Kind::Reset {
            // As the notice of another version.
            let before = u16::from_be_bytes([head[0], head[1]]);
            head[0] &= 15;
            let sum = checksum::update(
                u16::from_be_bytes([head[30], head[31]]),
                before,
                u16::from_be_bytes([head[0], head[1]]),
            );
            head[30..].copy_from_slice(&sum.to_be_bytes());
        }
        self.nodes[to].on_frame(self.now, 1 - to, &[&head[..], payload].concat());
    }

    fn send(&mut self) {
        let (id, from) = (self.below(self.conns.len()), usize::from(self.byte().unwrap_or(0) & 1));
        let now = self.now;
        let Some(conn) = self.conns.get_mut(id) else { return };
        let Some(handle) = conn.ends[from] else { return };
        let message = message(id, from, conn.sent[from]);
        if let Some(Ok(())) = self.nodes[from].with(now, handle, |c| c.send(now, &message)) {
            conn.sent[from] += 1;
        }
    }

    fn close(&mut self) {
        let (id, from) = (self.below(self.conns.len()), usize::from(self.byte().unwrap_or(0) & 1));
        let now = self.now;
        if let Some(handle) = self.conns.get(id).and_then(|conn| conn.ends[from]) {
            let _ = self.nodes[from].with(now, handle, |c| c.close(now));
        }
    }

    /// All that is there, in the order in which it was sent, each once.
    fn receive(&mut self) {
        for at in 0..2 {
            while let Some(handle) = self.nodes[at].accept(PORT) {
                self.accepted.push((at, handle));
            }
        }
        let opened = self.conns.iter().filter_map(|conn| Some((conn.opener, conn.ends[conn.opener]?)));
        let all: Vec<(usize, Handle)> = opened.chain(self.accepted.iter().copied()).collect();
        for (at, handle) in all {
            let (now, mut room) = (self.now, [0; 200]);
            while let Some(Ok(Some(len))) = self.nodes[at].with(now, handle, |c| c.receive(now, &mut room)) {
                self.came(at, handle, &room[..len]);
            }
        }
    }

    fn came(&mut self, at: usize, handle: Handle, came: &[u8]) {
        let (id, from) = (usize::from(came[0]), usize::from(came[1]));
        assert_eq!(from, 1 - at, "{came:?}");
        let conn = &mut self.conns[id];
        assert_eq!(*conn.ends[at].get_or_insert(handle), handle, "one connection was delivered as two");
        assert_eq!(came, message(id, from, conn.came[from]), "the next message");
        conn.came[from] += 1;
        assert!(conn.came[from] <= conn.sent[from]);
    }

    /// What is due, and what nodes send.
    fn pump(&mut self) {
        for at in 0..2 {
            if self.nodes[at].due().is_some_and(|due| due <= self.now) {
                self.nodes[at].on_time(self.now);
            }
            let mut sent = 0;
            while let Some((to, head, payload)) = self.nodes[at].poll(self.now) {
                assert_eq!(to, 1 - at);
                let frame = [&head[..], payload].concat();
                if let Ok((Header { kind: Kind::Open | Kind::OpenAck, sequence, .. }, offer)) = Header::read(&frame)
                    && let Some(offer) = Offer::read(offer)
                    && !self.numbers.contains(&offer.connection)
                {
                    self.numbers.push(offer.connection);
                    self.firsts.push(sequence.0);
                }
                self.log.push((to, frame.clone()));
                self.wire.push_back((to, frame));
                sent += 1;
                assert!(sent < 5000, "a node that never stops");
            }
        }
        while self.wire.len() > WIRE_MAX {
            self.wire.pop_front();
        }
    }

    fn failed(&self, at: usize, handle: Handle) -> Option<Reason> {
        match self.nodes[at].connection(handle)?.state() {
            State::Failed(reason) => Some(reason),
            State::Opening | State::Open | State::TimeWait => None,
        }
    }

    /// What failed had waited for too long, or its other end had ended before.
    fn check(&self) {
        for conn in &self.conns {
            for at in 0..2 {
                let Some(handle) = conn.ends[at] else { continue };
                let Some(reason) = self.failed(at, handle).filter(|&reason| reason != Reason::TimedOut) else {
                    continue;
                };
                let ports = self.nodes[at].connection(handle).map(|c| (c.settings().port, c.settings().peer_port));
                // An end that nothing of was read is known by its ports.
                let ended = |other: Handle| match self.nodes[1 - at].connection(other) {
                    None => true,
                    Some(c) => {
                        let same = ports == Some((c.settings().peer_port, c.settings().port));
                        same && !matches!(c.state(), State::Open | State::Opening)
                    }
                };
                let others = self.accepted.iter().filter(|&&(node, _)| node != at).map(|&(_, other)| other);
                let ok = conn.ends[1 - at].map_or_else(|| others.into_iter().any(ended), ended);
                let closes = self.nodes[at].connection(handle).is_some_and(|_| reason == Reason::Aborted);
                // An end whose acknowledgement of the answer never came is forgotten.
                let forgotten = reason == Reason::Unknown && self.nodes[1 - at].counts().half_open > 0;
                assert!(ok || closes || forgotten, "an end of {at} failed: {reason:?}");
            }
        }
    }

    /// The network is good: what is open at both ends gets all through.
    fn settle(&mut self) {
        let until = self.now + 2 * PEER_TIMEOUT;
        for _ in 0..100_000 {
            self.receive();
            self.pump();
            if !self.wire.is_empty() {
                self.now += 1_000;
                self.deliver();
                continue;
            }
            match self.nodes.iter().filter_map(Node::due).min().filter(|&due| due <= until) {
                Some(due) => self.now = self.now.max(due),
                None => break,
            }
        }
        self.receive();
        self.check();
        for (id, conn) in self.conns.iter().enumerate() {
            let open = |at: usize| {
                let connection = conn.ends[at].and_then(|handle| self.nodes[at].connection(handle));
                connection.is_some_and(|c| c.state() == State::Open)
            };
            if open(0) && open(1) {
                assert_eq!(conn.came, conn.sent, "of connection {id} both ends are open and wait for ever");
            }
        }
    }
}
