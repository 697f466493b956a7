//! Frames without a connection: of other versions, hellos, and probes of a node.

use std::hash::Hash;

use super::{EMPTY, Node};
use crate::{
    BadFrame, DuplicateName, Echo, Endpoints, Flags, HEADER_BYTES, Header, Kind, Nanos, OtherVersion, Reason, Serial,
    header::NOTICE, version,
};

/// Queued answers. A flood of unmatched frames gets no more memory.
const ANSWERS_MAX: usize = 1024;

impl<P: Copy + Eq + Hash> Node<P> {
    /// Names that several nodes have.
    pub fn duplicate_names(&self) -> Vec<DuplicateName<P>> {
        self.peers.duplicate_names((&self.settings.name, self.settings.epoch))
    }

    /// Nodes that use another version of the protocol. Each gets at most one notice a second.
    pub fn other_versions(&self) -> impl Iterator<Item = (&P, &OtherVersion)> {
        self.versions.iter()
    }

    pub(super) fn on_bad(&mut self, now: Nanos, peer: P, frame: &[u8], bad: BadFrame) {
        match bad {
            BadFrame::Short | BadFrame::Length => self.counts.short += 1,
            BadFrame::Version { theirs: NOTICE } => self.on_notice(now, peer, frame),
            // A flipped bit must not end a connection.
            BadFrame::Version { .. } if version::is_damaged(frame) => self.counts.checksum += 1,
            BadFrame::Version { theirs } => {
                self.counts.version += 1;
                if self.versions.heard(now, peer, theirs, version::from_port(frame) == Some(0), true)
                    && let Some((head, payload)) = version::notice(self.settings.epoch, frame)
                {
                    self.counts.version_notices_sent += u64::from(self.answer_with(peer, head, &payload));
                }
            }
            BadFrame::Kind { .. } => self.counts.kind += 1,
            BadFrame::Checksum => self.counts.checksum += 1,
        }
    }

    /// Processes a version notice, which is never answered.
    fn on_notice(&mut self, now: Nanos, peer: P, frame: &[u8]) {
        let Some((header, highest)) = version::read_notice(frame) else {
            self.counts.version += 1;
            return;
        };
        self.counts.version_notices_received += 1;
        if let Some(highest) = highest {
            self.versions.heard(now, peer, highest, header.from_port == 0, false);
        }
        let at = self.by_ports.get(&(peer, header.to_port, header.from_port)).and_then(|h| self.at(h.0));
        if let Some(at) = at {
            self.with_pool(at, |connection| connection.on_frame(now, &header, &Reason::Version.bytes()));
            self.schedule(now, at);
        }
    }

    /// Answers a probe by the same frame with swapped ports.
    pub(super) fn on_probe(&mut self, peer: P, header: &Header, payload: &[u8]) {
        let answer = Header { kind: Kind::Ack, from_port: header.to_port, to_port: header.from_port, ..*header };
        self.counts.probed += u64::from(self.answer(peer, answer, payload));
    }

    /// Processes an answer to a probe, which is never answered.
    pub(super) fn on_echo(&mut self, now: Nanos, peer: P, header: &Header, payload: &[u8]) {
        self.counts.unknown += u64::from(!self.echoes.on_reply(now, peer, header.sequence, payload));
    }

    /// Sends a probe to `peer`, with a payload of at most a frame. [`Node::echoes`] returns the answer.
    pub fn probe(&mut self, peer: P, sequence: u32, payload: &[u8]) {
        self.echoes.add(peer, sequence);
        let header = Header { epoch: self.settings.epoch, kind: Kind::Probe, sequence: Serial(sequence), ..EMPTY };
        self.answer(peer, header, payload);
    }

    /// Probes the peer of a connection whose own end is dead. The peer's acknowledgement is refused as unknown, which resets it.
    pub fn probe_orphan(&mut self, ends: &Endpoints<P>) {
        let &Endpoints { peer, port, peer_port, peer_number, epoch } = ends;
        let kind = Kind::Probe;
        let flags = Flags::ASK;
        self.answer(
            peer,
            Header { kind, flags, from_port: port, to_port: peer_port, connection: peer_number, epoch, ..EMPTY },
            &[],
        );
    }

    /// Answers to probes since the last call.
    pub fn echoes(&mut self) -> impl Iterator<Item = Echo<P>> {
        self.echoes.take()
    }

    pub(super) fn on_hello(&mut self, now: Nanos, peer: P, header: &Header, payload: &[u8]) {
        let this = (self.settings.name.as_str(), self.settings.epoch);
        // A hello without a name only requests one.
        if !payload.is_empty() {
            let again = self.peers.heard(now, peer, payload, header.epoch, this);
            self.counts.duplicate_names += u64::from(again);
        }
        if header.flags.has(Flags::ASK) {
            let name = self.settings.name.clone();
            self.answer(peer, self.reply(Kind::Hello, header), name.as_bytes());
        }
    }

    /// Sends a hello to `peer`, which answers.
    pub fn hello(&mut self, peer: P) {
        let name = self.settings.name.clone();
        let nobody = Header { from_port: 0, to_port: 0, ..self.reply(Kind::Hello, &EMPTY) };
        self.answer(peer, Header { flags: Flags::ASK, ..nobody }, name.as_bytes());
    }

    pub(super) fn refuse(&mut self, peer: P, header: &Header, reason: Reason) {
        self.answer(peer, self.reply(Kind::Reset, header), &reason.bytes());
    }

    /// The header of an answer without a connection.
    pub(super) fn reply(&self, kind: Kind, header: &Header) -> Header {
        Header {
            kind,
            from_port: header.to_port,
            to_port: header.from_port,
            epoch: self.settings.epoch,
            sequence: header.sequence,
            ..EMPTY
        }
    }

    pub(super) fn answer(&mut self, peer: P, header: Header, payload: &[u8]) -> bool {
        self.answer_with(peer, header.write(payload), payload)
    }

    /// Queues an answer; false: the queue is full.
    fn answer_with(&mut self, peer: P, head: [u8; HEADER_BYTES], payload: &[u8]) -> bool {
        let room = self.answers.len() < ANSWERS_MAX;
        if room {
            self.answers.push_back((peer, head, payload.to_vec()));
        }
        room
    }
}
