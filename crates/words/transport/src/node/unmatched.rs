//! Frames that match no connection: of other versions, hellos, probes of a node, and the answers to them.

use std::hash::Hash;

use super::{EMPTY, Node};
use crate::{
    BadFrame, Echo, Ends, Flags, HEADER_BYTES, Header, Kind, Namesakes, Nanos, OtherVersion, Reason, Serial,
    header::NOTICE, version,
};

/// Answers that wait to be sent. A flood of unmatched frames gets no more memory.
const ANSWERS_MAX: usize = 1024;

impl<P: Copy + Eq + Hash> Node<P> {
    /// Names that several nodes have: whoever connects by name may reach either.
    pub fn namesakes(&self) -> Vec<Namesakes<P>> {
        self.peers.namesakes((&self.settings.name, self.settings.epoch))
    }

    /// Nodes that speak another version of the protocol. Each is told so once a second at the most.
    pub fn other_versions(&self) -> impl Iterator<Item = (&P, &OtherVersion)> {
        self.versions.iter()
    }

    pub(super) fn on_bad(&mut self, now: Nanos, peer: P, frame: &[u8], bad: BadFrame) {
        match bad {
            BadFrame::Short | BadFrame::Length => self.counts.short += 1,
            BadFrame::Version { theirs: NOTICE } => self.on_notice(now, peer, frame),
            // Nobody may end a connection by a bit that fell over.
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

    /// The other node speaks another version, and answers a frame of this one. It is not answered.
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
            self.work(at, |connection| connection.on_frame(now, &header, &Reason::Version.bytes()));
            self.touched(now, at);
        }
    }

    /// Answers a probe at once: the same frame, its ports swapped.
    pub(super) fn on_probe(&mut self, peer: P, header: &Header, payload: &[u8]) {
        let answer = Header { kind: Kind::Ack, from_port: header.to_port, to_port: header.from_port, ..*header };
        self.counts.probed += u64::from(self.answer(peer, answer, payload));
    }

    /// An answer to a probe is never answered.
    pub(super) fn on_echo(&mut self, now: Nanos, peer: P, header: &Header, payload: &[u8]) {
        self.counts.unknown += u64::from(!self.echoes.came(now, peer, header.sequence, payload));
    }

    /// Asks the node at `peer` for `payload` back, which is at most as long as that of a frame; [`Node::echoes`] has the answer.
    pub fn probe(&mut self, peer: P, sequence: u32, payload: &[u8]) {
        self.echoes.add(peer, sequence);
        let header = Header { epoch: self.settings.epoch, kind: Kind::Probe, sequence: Serial(sequence), ..EMPTY };
        self.answer(peer, header, payload);
    }

    /// Asks the other end of a connection whose own end is dead for an acknowledgement. It is answered with *unknown*, by which the other end is told.
    pub fn ask_for(&mut self, ends: &Ends<P>) {
        let &Ends { peer, port, peer_port, peer_number, epoch } = ends;
        let kind = Kind::Probe;
        let flags = Flags::ASK;
        self.answer(
            peer,
            Header { kind, flags, from_port: port, to_port: peer_port, connection: peer_number, epoch, ..EMPTY },
            &[],
        );
    }

    /// Answers to probes since the last call, each once.
    pub fn echoes(&mut self) -> impl Iterator<Item = Echo<P>> {
        self.echoes.take()
    }

    pub(super) fn on_hello(&mut self, now: Nanos, peer: P, header: &Header, payload: &[u8]) {
        let this = (self.settings.name.as_str(), self.settings.epoch);
        // Without a name it only asks.
        if !payload.is_empty() {
            let again = self.peers.heard(now, peer, payload, header.epoch, this);
            self.counts.namesakes += u64::from(again);
        }
        if header.flags.has(Flags::ASK) {
            let name = self.settings.name.clone();
            self.answer(peer, self.reply(Kind::Hello, header), name.as_bytes());
        }
    }

    /// Says hello to `peer`, which answers.
    pub fn hello(&mut self, peer: P) {
        let name = self.settings.name.clone();
        let nobody = Header { from_port: 0, to_port: 0, ..self.reply(Kind::Hello, &EMPTY) };
        self.answer(peer, Header { flags: Flags::ASK, ..nobody }, name.as_bytes());
    }

    pub(super) fn refuse(&mut self, peer: P, header: &Header, reason: Reason) {
        self.answer(peer, self.reply(Kind::Reset, header), &reason.bytes());
    }

    /// A header that answers `header` where there is no connection.
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

    /// False: too many wait.
    fn answer_with(&mut self, peer: P, head: [u8; HEADER_BYTES], payload: &[u8]) -> bool {
        let room = self.answers.len() < ANSWERS_MAX;
        if room {
            self.answers.push_back((peer, head, payload.to_vec()));
        }
        room
    }
}
