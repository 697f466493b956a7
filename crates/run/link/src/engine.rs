//! A node on a carrier.

mod sleep;

use std::{
    ops::RangeInclusive,
    sync::Arc,
    time::{Duration, Instant},
};

use transport::{
    Budget, Connection, Counts, DuplicateName, Echo, Endpoints, FREE_PORTS, Handle, Nanos, Node, NodeCounts,
    NodeSettings, OtherVersion, Peer, Reason, SendError, State,
};

use self::sleep::Sleep;
use crate::{Carrier, LinkError};

/// Frames that each connection keeps each way, unless another number is asked for.
pub(crate) const SLOT_COUNT: u32 = 256;

/// A node: its connections, and what carries them. Nothing happens but in its calls.
#[derive(Debug)]
pub struct Engine<C: Carrier> {
    node: Node<C::Address>,
    carrier: C,
    began: Instant,
    /// The descriptor for other loops, once it was asked for.
    sleep: Option<Sleep>,
    /// A frame that comes wakes whoever waits for that.
    asleep: bool,
}

impl<C: Carrier> Engine<C> {
    /// A node of that name, with no connection yet.
    pub fn new(carrier: C, name: &str) -> Result<Self, LinkError> {
        Self::with_slots(carrier, name, SLOT_COUNT)
    }

    /// [`Engine::new`] with room for `slots` frames each way in each connection.
    pub fn with_slots(carrier: C, name: &str, slots: u32) -> Result<Self, LinkError> {
        Self::with_ports(carrier, name, slots, FREE_PORTS)
    }

    /// [`Engine::with_slots`] with `ports` for connections that name none.
    pub(crate) fn with_ports(
        carrier: C,
        name: &str,
        slots: u32,
        ports: RangeInclusive<u16>,
    ) -> Result<Self, LinkError> {
        let mut drawn = [0; 20];
        getrandom::fill(&mut drawn)
            .map_err(|e| LinkError::System { operation: "draw random numbers", source: e.into() })?;
        let [a, b, c, d, secret @ ..] = drawn;
        let settings = NodeSettings {
            name: name.to_owned(),
            epoch: u32::from_ne_bytes([a, b, c, d]),
            payload_max: carrier.payload_max(),
            slots,
            secret: u128::from_ne_bytes(secret),
            ports,
        };
        let mut node = Node::new(settings);
        // From the first connection on.
        node.next_changed_slot();
        Ok(Self { node, carrier, began: Instant::now(), sleep: None, asleep: false })
    }

    pub fn carrier(&self) -> &C {
        &self.carrier
    }

    fn now(&self) -> Nanos {
        self.began.elapsed().as_nanos() as Nanos
    }

    /// Receives frames, runs due timers, sends frames, and does not block; returns the number of frames received.
    #[inline]
    pub fn poll(&mut self) -> Result<usize, LinkError> {
        let now = self.now();
        if self.asleep {
            self.asleep = false;
            self.carrier.awake();
        }
        let node = &mut self.node;
        let arrived = self.carrier.receive(|from, frame, congested| match congested {
            true => node.on_frame_congested(now, from, frame),
            false => node.on_frame(now, from, frame),
        })?;
        if node.due().is_some_and(|due| due <= now) {
            node.set_down(self.carrier.is_down());
            node.on_time(now);
        }
        self.emit(now)?;
        Ok(arrived)
    }

    /// True if nothing is in flight and no timer runs: no poll is needed until a frame arrives or is sent.
    pub fn is_quiet(&self) -> bool {
        self.node.due().is_none()
    }

    #[inline]
    fn emit(&mut self, now: Nanos) -> Result<(), LinkError> {
        while let Some((slot, endpoints)) = self.node.next_changed_slot() {
            self.carrier.set_connection(slot, endpoints);
        }
        while let Some((to, head, payload)) = self.node.poll(now) {
            self.carrier.send(to, &head, payload)?;
        }
        self.carrier.flush()
    }

    /// Listens on a port; at most `room` connections wait to be accepted.
    pub fn listen(&mut self, port: u16, stream: bool, room: usize) -> Result<(), LinkError> {
        if self.node.listen(port, stream, room) { Ok(()) } else { Err(LinkError::Listens(port)) }
    }

    /// Listens for streams on a port that no other program has, and that needs nobody's leave.
    pub(crate) fn listen_free(&mut self, room: usize) -> Result<u16, LinkError> {
        self.node.listen_free(true, room).ok_or(LinkError::Full)
    }

    /// Listens there no longer.
    pub fn stop_listening(&mut self, port: u16) {
        let now = self.now();
        self.node.stop_listening(now, port);
    }

    /// The next connection to a port; none: nobody has connected.
    pub fn accept(&mut self, port: u16) -> Option<Handle> {
        self.node.accept(port)
    }

    /// Offers a connection to a port of a node: a stream of bytes, or messages. [`Engine::state`] says when it is open.
    pub fn connect(&mut self, to: C::Address, port: u16, stream: bool) -> Result<Handle, LinkError> {
        let now = self.now();
        let handle = self.node.connect(now, to, port, stream).ok_or(LinkError::Full)?;
        self.emit(now)?;
        Ok(handle)
    }

    /// State of a connection; none once it has ended and rested.
    pub fn state(&self, handle: Handle) -> Option<State> {
        self.node.connection(handle).map(Connection::state)
    }

    pub fn counts(&self, handle: Handle) -> Option<Counts> {
        self.node.connection(handle).map(Connection::counts)
    }

    /// The connection's smoothed round trip.
    pub fn round_trip(&self, handle: Handle) -> Option<Duration> {
        self.node.connection(handle).and_then(Connection::round_trip).map(Duration::from_nanos)
    }

    /// The node at its other end; none once it has ended and rested.
    pub fn peer_of(&self, handle: Handle) -> Option<C::Address> {
        self.node.peer_of(handle)
    }

    /// The port at its other end; none once it has ended and rested.
    pub fn peer_port_of(&self, handle: Handle) -> Option<u16> {
        self.node.connection(handle).map(|connection| connection.settings().peer_port)
    }

    /// Counts the memory of an open connection in a budget from now on, or in none.
    pub(crate) fn charge_to(&mut self, handle: Handle, budget: Option<&Arc<Budget>>) {
        let now = self.now();
        self.node.with(now, handle, |connection| connection.charge_to(budget));
    }

    /// Bytes that a stream takes now.
    pub(crate) fn room(&self, handle: Handle) -> usize {
        self.node.connection(handle).map_or(0, Connection::room)
    }

    /// True if the connection's bytes are a stream, false if they are messages.
    pub fn is_stream(&self, handle: Handle) -> Option<bool> {
        self.node.connection(handle).map(|connection| connection.settings().stream)
    }

    /// Puts a message, whole, behind those that wait; it leaves with the next [`Engine::flush`], [`Engine::poll`] or [`Engine::send`].
    ///
    /// # Errors
    /// Why not; [`SendError::Full`] passes.
    pub fn queue(&mut self, handle: Handle, message: &[u8]) -> Result<(), SendError> {
        let now = self.now();
        self.node.with(now, handle, |connection| connection.send(now, message)).unwrap_or(Err(SendError::Closed))
    }

    pub fn flush(&mut self) -> Result<(), LinkError> {
        let now = self.now();
        self.emit(now)
    }

    /// Sends a message at once, whole.
    ///
    /// # Errors
    /// [`LinkError::Send`] if there is no room ([`SendError::Full`] passes) or the connection has ended; the carrier fails.
    pub fn send(&mut self, handle: Handle, message: &[u8]) -> Result<(), LinkError> {
        self.queue(handle, message)?;
        let now = self.now();
        self.emit(now)
    }

    /// Reads the next message into `to`, whole; none: it is not there yet, or nothing follows ([`Engine::is_at_end`]).
    ///
    /// # Errors
    /// [`LinkError::Short`] if `to` is shorter than the message, which stays; [`LinkError::Ended`].
    pub fn receive(&mut self, handle: Handle, to: &mut [u8]) -> Result<Option<usize>, LinkError> {
        let now = self.now();
        match self.node.with(now, handle, |connection| connection.receive(now, to)) {
            Some(Ok(None)) => self.still_open(handle).map(|()| None),
            Some(Ok(Some(len))) => Ok(Some(len)),
            Some(Err(len)) => Err(LinkError::Short(len)),
            None => Ok(None),
        }
    }

    /// Puts as many bytes of a stream behind those that wait as there is room for; how many, 0 if there is none now.
    ///
    /// # Errors
    /// This end is closed, or the connection has ended.
    pub fn write(&mut self, handle: Handle, bytes: &[u8]) -> Result<usize, LinkError> {
        let now = self.now();
        match self.node.with(now, handle, |connection| connection.write(now, bytes)).unwrap_or(Err(SendError::Closed)) {
            Err(SendError::Full) => Ok(0),
            Err(error) => self.still_open(handle).and(Err(error.into())),
            Ok(written) => Ok(written),
        }
    }

    /// Hands over a stream's bytes that are there, piece by piece; how many in all. 0: none yet, or the end ([`Engine::is_at_end`]).
    ///
    /// # Errors
    /// [`LinkError::Ended`].
    pub fn read(&mut self, handle: Handle, mut on: impl FnMut(&[u8])) -> Result<usize, LinkError> {
        let now = self.now();
        let read = self.node.with(now, handle, |connection| {
            let mut read = 0;
            loop {
                let piece = connection.bytes(now);
                if piece.is_empty() {
                    return read;
                }
                on(piece);
                read += piece.len();
                connection.consume(now);
            }
        });
        match read {
            Some(0) => self.still_open(handle).map(|()| 0),
            read => Ok(read.unwrap_or(0)),
        }
    }

    /// Copies a stream's bytes into `to`: as many as are there and it has room for; how many. 0: none yet, or the end ([`Engine::is_at_end`]).
    ///
    /// # Errors
    /// [`LinkError::Ended`].
    pub fn read_into(&mut self, handle: Handle, to: &mut [u8]) -> Result<usize, LinkError> {
        let now = self.now();
        match self.node.with(now, handle, |connection| connection.read(now, to)) {
            Some(0) => self.still_open(handle).map(|()| 0),
            read => Ok(read.unwrap_or(0)),
        }
    }

    fn still_open(&self, handle: Handle) -> Result<(), LinkError> {
        match self.state(handle) {
            Some(State::Failed(reason)) => Err(LinkError::Ended(reason)),
            _ => Ok(()),
        }
    }

    /// All has been read and the other end sends nothing more, or it is no connection any more.
    pub fn is_at_end(&self, handle: Handle) -> bool {
        self.node.connection(handle).is_none_or(Connection::is_at_end)
    }

    /// A read of this stream has something to say: bytes, the end, or that it broke.
    pub fn is_readable(&mut self, handle: Handle) -> bool {
        let now = self.now();
        let has_bytes = self.node.with(now, handle, |connection| !connection.bytes(now).is_empty());
        has_bytes.unwrap_or(true) || self.is_at_end(handle) || self.still_open(handle).is_err()
    }

    /// Says that nothing follows; what the other end sends is still read.
    ///
    /// # Errors
    /// [`SendError::Full`]: once more when there is room.
    pub fn close(&mut self, handle: Handle) -> Result<(), SendError> {
        let now = self.now();
        self.node.with(now, handle, |connection| connection.close(now)).unwrap_or(Ok(()))
    }

    /// Ends it at once: what has not arrived yet is lost, and the other end is told.
    pub fn abort(&mut self, handle: Handle) -> Result<(), LinkError> {
        let now = self.now();
        self.node.with(now, handle, |connection| connection.abort(now, Reason::Aborted));
        self.emit(now)
    }

    /// Asks all nodes for their names; they are among [`Engine::peers`] when they have answered.
    pub fn hello(&mut self) -> Result<(), LinkError> {
        for &to in self.carrier.everyone() {
            self.node.hello(to);
        }
        let now = self.now();
        self.emit(now)
    }

    /// Asks a node for an answer; [`Engine::echoes`] has it when it is there.
    pub fn probe(&mut self, to: C::Address, sequence: u32, payload: &[u8]) -> Result<Nanos, LinkError> {
        self.node.probe(to, sequence, payload);
        let now = self.now();
        self.emit(now)?;
        Ok(now)
    }

    /// Makes the other end of a connection learn that its peer, which is not of this node, is dead.
    pub(crate) fn probe_orphan(&mut self, ends: &Endpoints<C::Address>) -> Result<(), LinkError> {
        self.node.probe_orphan(ends);
        let now = self.now();
        self.emit(now)
    }

    /// Answers to probes since the last call, each once.
    pub fn echoes(&mut self) -> impl Iterator<Item = Echo<C::Address>> {
        self.node.echoes()
    }

    /// Names that several nodes have.
    pub fn duplicate_names(&self) -> Vec<DuplicateName<C::Address>> {
        self.node.duplicate_names()
    }

    /// Nodes that speak another version of the protocol.
    pub fn other_versions(&self) -> impl Iterator<Item = (&C::Address, &OtherVersion)> {
        self.node.other_versions()
    }

    /// The nodes that said hello.
    pub fn peers(&self) -> impl Iterator<Item = (&C::Address, &Peer)> {
        self.node.peers()
    }

    /// Counts changes of them but for the time that they were heard.
    pub fn peer_changes(&self) -> u64 {
        self.node.peer_changes()
    }

    /// The next connection that a frame, or time, has changed since it was last named here. The first call begins it.
    pub fn next_changed(&mut self) -> Option<Handle> {
        self.node.next_changed()
    }

    /// The time since a moment of this engine, such as [`Peer::heard`].
    pub fn since(&self, moment: Nanos) -> Duration {
        Duration::from_nanos(self.now().saturating_sub(moment))
    }

    /// Counts of frames without a connection.
    pub fn node_counts(&self) -> NodeCounts {
        self.node.counts()
    }

    /// All connections: where to, and their states.
    pub fn connections(&self) -> impl Iterator<Item = (Handle, C::Address, State)> + '_ {
        self.node.handles()
    }
}

impl<C: Carrier> Drop for Engine<C> {
    /// The other ends are told that this one is gone.
    fn drop(&mut self) {
        let now = self.now();
        let open: Vec<Handle> =
            self.node.handles().filter(|(_, _, state)| *state == State::Open).map(|(handle, ..)| handle).collect();
        for handle in open {
            self.node.with(now, handle, |connection| connection.abort(now, Reason::Aborted));
        }
        // Without the interface nobody can be told.
        let _ = self.emit(now);
        self.carrier.clear_connections();
    }
}
