//! The nodes of link, each with a connection of messages to each other one.

use std::{
    sync::atomic::{AtomicU32, Ordering},
    time::{Duration, Instant},
};

use bpf::XdpMode;

use wire::Mac;

use super::{
    MessagesError,
    mesh::{CHECK_PERIOD, Halt, MESSAGE_TIMEOUT, Mesh},
};
use link::{Engine, Handle, LinkError, Raw, SendError, State};

use crate::bridged::{Bridged, RING_BYTES, connected};

/// The port that nodes listen on.
const PORT: u16 = 1200;
/// Bytes of the ring of each node, as programs get them of a broker.
/// Time for which an idle node serves the others at once.
const SERVE_PERIOD: Duration = Duration::from_millis(1);
const WHO: &str = "link";

pub(super) struct Native {
    engine: Engine<Raw>,
    /// Connections to each node; none to this one.
    handles: Vec<Option<Handle>>,
    place: Vec<u8>,
}

/// All nodes of a bed, joined, for messages of so many bytes.
pub(super) fn nodes(bed: &Bridged, bytes: u32) -> Result<Vec<Native>, MessagesError> {
    let mut nodes: Vec<Native> = Vec::new();
    for place in &bed.places {
        let mut engine = place.engine()?;
        engine.listen(PORT, false, bed.places.len())?;
        nodes.push(Native { engine, handles: vec![None; bed.places.len()], place: vec![0; bytes as usize] });
    }
    for to in 1..nodes.len() {
        let (before, after) = nodes.split_at_mut(to);
        for (from, node) in before.iter_mut().enumerate() {
            let [ours, theirs] = connected(&mut node.engine, &mut after[0].engine, PORT, false)?;
            (node.handles[to], after[0].handles[from]) = (Some(ours), Some(theirs));
        }
    }
    Ok(nodes)
}

/// A node on a machine of its own, before it is joined to the others.
pub(super) struct Waiting(Native);

/// Such a node, and the port that it listens on.
pub(super) fn listen(interface: &str, name: &str, nodes: usize, bytes: u32) -> Result<(Waiting, u16), MessagesError> {
    let mut engine = Engine::new(Raw::open_ring(interface, XdpMode::Native, RING_BYTES)?, name)?;
    engine.listen(PORT, false, nodes)?;
    Ok((Waiting(Native { engine, handles: vec![None; nodes], place: vec![0; bytes as usize] }), PORT))
}

impl Waiting {
    /// Connects to the nodes before this one, and waits for those behind it; all have their addresses here, in their order.
    pub(super) fn join(self, me: usize, others: &[Mac], ports: &[u16]) -> Result<Native, MessagesError> {
        let Self(mut node) = self;
        for to in 0..me {
            node.handles[to] = Some(node.engine.connect(others[to], ports[to], false)?);
        }
        let began = Instant::now();
        loop {
            node.engine.wait(Duration::ZERO, CHECK_PERIOD)?;
            while let Some(handle) = node.engine.accept(PORT) {
                let from = node.engine.peer_of(handle);
                if let Some(at) = others.iter().position(|other| Some(*other) == from) {
                    node.handles[at] = Some(handle);
                }
            }
            let is_open = |&to: &usize| node.handles[to].is_some_and(|h| node.engine.state(h) == Some(State::Open));
            if (0..others.len()).filter(|&to| to != me).all(|to| is_open(&to)) {
                return Ok(node);
            }
            if began.elapsed() > MESSAGE_TIMEOUT {
                return Err(MessagesError::Silent(WHO));
            }
        }
    }
}

impl Native {
    fn handle(&self, peer: usize) -> Result<Handle, MessagesError> {
        self.handles.get(peer).copied().flatten().ok_or(MessagesError::Closed(WHO))
    }
}

impl Mesh for Native {
    fn pause(&mut self, until: Instant) -> Result<(), MessagesError> {
        while let left = until.saturating_duration_since(Instant::now())
            && !left.is_zero()
        {
            self.engine.wait(Duration::ZERO, left)?;
        }
        Ok(())
    }

    fn exchange(
        &mut self,
        peers: &[usize],
        ours: &[u8],
        halt: Halt<'_>,
        on: &mut dyn FnMut(&[u8]),
    ) -> Result<(), MessagesError> {
        let began = Instant::now();
        let (mut unsent, mut awaited) = (peers.to_vec(), peers.to_vec());
        loop {
            let mut queued = Vec::new();
            for &peer in &unsent {
                match self.engine.queue(self.handle(peer)?, ours) {
                    Ok(()) => queued.push(peer),
                    // Room comes with the acknowledgements.
                    Err(SendError::Full) => {}
                    Err(other) => return Err(LinkError::from(other).into()),
                }
            }
            if !queued.is_empty() {
                unsent.retain(|peer| !queued.contains(peer));
                self.engine.poll()?;
            }
            let mut come = Vec::new();
            for &peer in &awaited {
                let handle = self.handle(peer)?;
                if let Some(len) = self.engine.receive(handle, &mut self.place)? {
                    on(&self.place[..len]);
                    come.push(peer);
                }
            }
            awaited.retain(|peer| !come.contains(peer));
            if unsent.is_empty() && awaited.is_empty() {
                return Ok(());
            }
            if self.engine.wait(Duration::ZERO, CHECK_PERIOD)? == 0 {
                halt.look(began, WHO)?;
            }
        }
    }

    fn settle(&mut self, quiet: &AtomicU32, of: u32, halt: Halt<'_>) -> Result<(), MessagesError> {
        let (began, mut reported) = (Instant::now(), false);
        loop {
            self.engine.wait(Duration::ZERO, SERVE_PERIOD)?;
            if !reported && self.engine.is_quiet() {
                quiet.fetch_add(1, Ordering::Relaxed);
                reported = true;
            }
            if quiet.load(Ordering::Relaxed) >= of {
                return Ok(());
            }
            halt.look(began, WHO)?;
        }
    }
}
