//! Nodes on one wire, in virtual time.

use std::collections::VecDeque;

use transport::{FREE_PORTS, Flags, Handle, Header, Kind, Nanos, Node, NodeSettings, Serial, State};

pub(crate) const PORT: u16 = 7;
pub(crate) const MS: Nanos = 1_000_000;

/// Nodes on one wire, without harm.
pub(crate) struct Cluster {
    pub(crate) now: Nanos,
    pub(crate) nodes: Vec<Node<usize>>,
    wire: VecDeque<(usize, usize, Vec<u8>)>,
    pub(crate) frames: usize,
}

pub(crate) fn named(name: &str, at: usize, epoch: u32, payload_max: u16) -> Node<usize> {
    let secret = u128::from(epoch) << 8 | at as u128;
    Node::new(NodeSettings { name: name.to_owned(), epoch, payload_max, slots: 16, secret, ports: FREE_PORTS })
}

pub(crate) fn node(at: usize, epoch: u32) -> Node<usize> {
    named(&format!("node{at}"), at, epoch, 1400)
}

/// A header of a program's frame, for what no connection sends.
pub(crate) fn header(kind: Kind) -> Header {
    Header {
        kind,
        flags: Flags::default(),
        from_port: 50_000,
        to_port: PORT,
        connection: 0,
        epoch: 9,
        sequence: Serial(0),
        acknowledged: Serial(0),
        received: 0,
        credit: 256,
    }
}

/// The frame.
pub(crate) fn frame(header: &Header, payload: &[u8]) -> Vec<u8> {
    [&header.write(payload)[..], payload].concat()
}

/// All frames that a node has to send.
pub(crate) fn sent(node: &mut Node<usize>, now: Nanos) -> Vec<(usize, Vec<u8>)> {
    let mut frames = Vec::new();
    while let Some((to, head, payload)) = node.poll(now) {
        frames.push((to, [&head[..], payload].concat()));
    }
    frames
}

/// The one frame that it has to send.
pub(crate) fn one(node: &mut Node<usize>, now: Nanos) -> Vec<u8> {
    let mut frames = sent(node, now);
    assert_eq!(frames.len(), 1, "{frames:?}");
    frames.remove(0).1
}

/// Two nodes, of which the second listens, and a connection of the first to it.
pub(crate) fn connected() -> (Cluster, Handle) {
    let mut cluster = Cluster::new(2);
    cluster.nodes[1].listen(PORT, false, 5);
    let handle = cluster.connect(0, 1);
    cluster.run(MS);
    (cluster, handle)
}

impl Cluster {
    pub(crate) fn new(count: usize) -> Self {
        Self { now: 1, nodes: (0..count).map(|at| node(at, 1)).collect(), wire: VecDeque::new(), frames: 0 }
    }

    /// All that happens within `time`.
    pub(crate) fn run(&mut self, time: Nanos) {
        let end = self.now + time;
        loop {
            for (at, node) in self.nodes.iter_mut().enumerate() {
                node.on_time(self.now);
                self.wire.extend(sent(node, self.now).into_iter().map(|(to, frame)| (at, to, frame)));
            }
            if let Some((from, to, frame)) = self.wire.pop_front() {
                self.now += 100;
                self.frames += 1;
                self.nodes[to].on_frame(self.now, from, &frame);
                continue;
            }
            let due = self.nodes.iter().filter_map(Node::due).min();
            match due.filter(|&due| due <= end) {
                Some(due) => self.now = self.now.max(due),
                None => break,
            }
        }
        self.now = end;
    }

    pub(crate) fn state(&self, at: usize, handle: Handle) -> Option<State> {
        self.nodes[at].connection(handle).map(transport::Connection::state)
    }

    pub(crate) fn connect(&mut self, from: usize, to: usize) -> Handle {
        self.nodes[from].connect(self.now, to, PORT, false).expect("there is room")
    }

    pub(crate) fn send(&mut self, at: usize, handle: Handle, message: &[u8]) {
        let now = self.now;
        self.nodes[at].with(now, handle, |c| c.send(now, message)).expect("it is there").expect("there is room");
    }

    pub(crate) fn receive(&mut self, at: usize, handle: Handle) -> Option<Vec<u8>> {
        let (now, mut room) = (self.now, [0; 2000]);
        let len = self.nodes[at].with(now, handle, |c| c.receive(now, &mut room))?.expect("it fits")?;
        Some(room[..len].to_vec())
    }
}
