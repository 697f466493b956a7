//! Received frames.

use std::hash::Hash;

use super::{Handle, Node, half_open::Room};
use crate::{Connection, Flags, Header, Kind, Nanos, Offer, Reason, Settings, State};

impl<P: Copy + Eq + Hash> Node<P> {
    /// Processes a frame from `peer`.
    pub fn on_frame(&mut self, now: Nanos, peer: P, frame: &[u8]) {
        self.receive(now, peer, frame, false);
    }

    /// Processes a frame from a ring that is more than half full, as if it was marked for congestion.
    pub fn on_frame_congested(&mut self, now: Nanos, peer: P, frame: &[u8]) {
        self.counts.congested += 1;
        self.receive(now, peer, frame, true);
    }

    fn receive(&mut self, now: Nanos, peer: P, frame: &[u8], congested: bool) {
        let (mut header, payload) = match Header::read(frame) {
            Ok(read) => read,
            Err(bad) => return self.on_bad(now, peer, frame, bad),
        };
        header.flags = header.flags.with_if(congested, Flags::CONGESTED);
        let connection = match header.connection {
            0 if header.kind == Kind::Reset => {
                self.by_ports.get(&(peer, header.to_port, header.from_port)).and_then(|h| self.at(h.0))
            }
            0 => None,
            number => self.at(number),
        };
        // The programs of a node share an address, and each sends from its own ports.
        let connection = connection.filter(|&at| {
            let Some(entry) = &self.entries[at as usize] else { return false };
            let &Settings { port, peer_port, .. } = entry.connection.settings();
            (entry.peer, port, peer_port) == (peer, header.to_port, header.from_port)
        });
        match (header.kind, connection) {
            (Kind::Open, _) => self.on_open(now, peer, &header, payload),
            // Only a node's broker, on port 0, sends hellos.
            (Kind::Hello, _) if header.from_port == 0 => self.on_hello(now, peer, &header, payload),
            (_, Some(at)) => self.on_connection(now, at, &header, payload),
            (Kind::Probe, None) if header.connection == 0 && header.to_port == 0 => {
                self.on_probe(peer, &header, payload);
            }
            // An answer to a probe comes from port 0, too.
            (Kind::Ack, None) if header.connection == 0 && header.from_port == 0 => {
                self.on_echo(now, peer, &header, payload);
            }
            (Kind::Reset | Kind::Busy | Kind::Hello, None) => self.counts.unknown += 1,
            (Kind::Data | Kind::Probe | Kind::Ack | Kind::OpenAck, None) => {
                self.counts.unknown += 1;
                self.refuse(peer, &header, Reason::Unknown);
            }
        }
    }

    fn on_connection(&mut self, now: Nanos, at: u32, header: &Header, payload: &[u8]) {
        let was_half_open = self.with_pool(at, |connection| {
            let was_half_open = connection.is_half_open();
            connection.on_frame(now, header, payload);
            was_half_open && !connection.is_half_open()
        });
        if was_half_open == Some(true) {
            self.on_answer_acked(now, at);
        }
        if header.kind == Kind::OpenAck {
            self.mark_slot_changed(at);
        }
        self.mark_changed(at);
        self.schedule(now, at);
    }

    /// Puts a connection into its listener's backlog, or resets it.
    fn on_answer_acked(&mut self, now: Nanos, at: u32) {
        let Some(entry) = &self.entries[at as usize] else { return };
        let Settings { port, number, .. } = *entry.connection.settings();
        self.half_open.remove(Handle(number));
        if entry.connection.state() != State::Open {
            return;
        }
        match self.listeners.get_mut(&port) {
            Some(listener) => {
                listener.waiting.push_back(Handle(number));
                self.mark_slot_changed(at);
            }
            None => drop(self.with_pool(at, |connection| connection.abort(now, Reason::Refused))),
        }
    }

    fn on_open(&mut self, now: Nanos, peer: P, header: &Header, payload: &[u8]) {
        let Some(offer) = Offer::read(payload) else {
            self.counts.kind += 1;
            return;
        };
        let offered = (header.epoch, offer.connection);
        if let Some(at) = self.offers.get(&(peer, offered.0, offered.1)).and_then(|h| self.at(h.0)) {
            self.with_pool(at, |connection| connection.on_frame(now, header, payload));
            return self.schedule(now, at);
        }
        match self.listeners.get(&header.to_port) {
            None => {
                self.counts.refused += 1;
                return self.refuse(peer, header, Reason::Refused);
            }
            Some(listener) if listener.stream != offer.stream => {
                return self.refuse(peer, header, Reason::Mismatch);
            }
            Some(listener) if listener.waiting.len() >= listener.room => {
                self.counts.busy += 1;
                let busy = Header { connection: offer.connection, ..self.reply(Kind::Busy, header) };
                self.answer(peer, busy, &[]);
                return;
            }
            Some(_) => {}
        }
        match self.half_open.room(now, peer) {
            Room::Free => {}
            Room::Evict(oldest) => {
                self.counts.half_open += 1;
                self.at(oldest.0).into_iter().for_each(|at| self.remove(at));
            }
            Room::Full => {
                self.counts.busy += 1;
                return;
            }
        }
        let Some(settings) = self.new_settings(header.to_port, header.from_port, offer.stream) else {
            self.counts.busy += 1;
            return;
        };
        let mut connection = Connection::accept(now, settings, header, &offer);
        if self.half_open.is_crowded() {
            connection.disable_answer_retries();
        }
        let handle = self.add(now, peer, offered, connection);
        self.half_open.add(now, peer, handle);
        self.offers.insert((peer, offered.0, offered.1), handle);
    }
}
