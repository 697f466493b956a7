//! Nodes of other versions, and the notice that all versions read.

use std::{collections::HashMap, hash::Hash};

use wire::checksum::Sum;

use crate::{HEADER_BYTES, Header, Kind, Nanos, Reason, Serial, VERSION, header::NOTICE};

/// Time between two notices to one node of another version.
const NOTICE_PERIOD: Nanos = 1_000_000_000;
/// Size of the table; further nodes get no notice.
const VERSIONS_MAX: usize = 256;

/// A node that uses another version.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct OtherVersion {
    /// Version of its last frame, or the highest one that its notice names.
    pub version: u8,
    /// Frames and notices received.
    pub frames: u64,
    /// Time of the last one.
    pub heard: Nanos,
}

/// Nodes of other versions.
#[derive(Debug)]
pub(crate) struct Versions<P> {
    nodes: HashMap<P, Node>,
}

#[derive(Debug)]
struct Node {
    /// None: only programs of the node were heard.
    version: Option<OtherVersion>,
    heard: Nanos,
    notified: Option<Nanos>,
}

impl<P: Copy + Eq + Hash> Versions<P> {
    pub(crate) fn new() -> Self {
        Self { nodes: HashMap::new() }
    }

    pub(crate) fn iter(&self) -> impl Iterator<Item = (&P, &OtherVersion)> {
        self.nodes.iter().filter_map(|(peer, node)| Some((peer, node.version.as_ref()?)))
    }

    /// Records a frame of another version, of the node or of one of its programs. True: a notice is due.
    pub(crate) fn heard(&mut self, now: Nanos, peer: P, version: u8, of_node: bool, may_notify: bool) -> bool {
        if self.nodes.len() >= VERSIONS_MAX && !self.nodes.contains_key(&peer) {
            let oldest = self.nodes.iter().min_by_key(|(_, node)| node.heard);
            let Some((&oldest, _)) = oldest.filter(|(_, node)| node.heard + NOTICE_PERIOD <= now) else {
                return false;
            };
            self.nodes.remove(&oldest);
        }
        let node = self.nodes.entry(peer).or_insert(Node { version: None, heard: now, notified: None });
        node.heard = now;
        if of_node {
            let frames = 1 + node.version.map_or(0, |version| version.frames);
            node.version = Some(OtherVersion { version, frames, heard: now });
        }
        let notify = may_notify && node.notified.is_none_or(|at| now >= at + NOTICE_PERIOD);
        if notify {
            node.notified = Some(now);
        }
        notify
    }
}

/// True for a frame of this version whose version byte is damaged.
pub(crate) fn is_damaged(frame: &[u8]) -> bool {
    let Some((head, rest)) = frame.split_first_chunk::<HEADER_BYTES>() else { return false };
    let Some(payload) = rest.get(..usize::from(u16::from_be_bytes([head[2], head[3]]))) else { return false };
    let mut head = *head;
    head[0] = 0;
    let [first, low] = Sum::new().bytes(&head).bytes(payload).finish().to_be_bytes();
    low == 0 && first >> 4 == VERSION
}

/// The source port of a frame of any version.
pub(crate) fn from_port(frame: &[u8]) -> Option<u16> {
    let head = frame.first_chunk::<HEADER_BYTES>()?;
    Some(u16::from_be_bytes([head[4], head[5]]))
}

/// The notice that answers a frame of another version.
pub(crate) fn notice(epoch: u32, frame: &[u8]) -> Option<([u8; HEADER_BYTES], [u8; 3])> {
    let head = frame.first_chunk::<HEADER_BYTES>()?;
    let half = |at: usize| u16::from_be_bytes([head[at], head[at + 1]]);
    let header = Header {
        kind: Kind::Reset,
        flags: Default::default(),
        from_port: half(6),
        to_port: half(4),
        connection: 0,
        epoch,
        sequence: Serial(u32::from_be_bytes([head[16], head[17], head[18], head[19]])),
        acknowledged: Serial(0),
        received: 0,
        credit: 0,
    };
    let [reason] = Reason::Version.bytes();
    let payload = [reason, VERSION, VERSION];
    Some((header.write_as(NOTICE, &payload), payload))
}

/// Parses a notice: its header and the sender's highest version; none: that is this version, which contradicts itself.
pub(crate) fn read_notice(frame: &[u8]) -> Option<(Header, Option<u8>)> {
    let (header, payload) = Header::read_as(NOTICE, frame).ok()?;
    let &[reason, lowest, highest, ..] = payload else { return None };
    let is_notice = header.kind == Kind::Reset && [reason] == Reason::Version.bytes();
    let is_other = !(lowest..=highest).contains(&VERSION);
    is_notice.then_some((header, is_other.then_some(highest)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_notice_of_this_version_shows_no_other() {
        let notice = |lowest, highest| {
            let [reason] = Reason::Version.bytes();
            let payload = [reason, lowest, highest];
            let header = Header { kind: Kind::Reset, ..crate::node::EMPTY };
            [&header.write_as(NOTICE, &payload)[..], &payload].concat()
        };
        let read = |lowest, highest| read_notice(&notice(lowest, highest)).and_then(|(_, highest)| highest);
        assert_eq!([read(0, 0), read(2, 3)], [Some(0), Some(3)]);
        assert_eq!([read(VERSION, VERSION), read(0, 2)], [None; 2]);
    }

    #[test]
    fn more_strangers_than_are_kept_get_no_answer_until_others_were_silent() {
        let mut versions = Versions::new();
        for peer in 0..VERSIONS_MAX {
            assert!(versions.heard(1, peer, 2, true, true) && !versions.heard(2, peer, 3, true, true));
        }
        assert!(!versions.heard(3, VERSIONS_MAX, 2, true, true) && versions.iter().count() == VERSIONS_MAX);
        assert!(
            versions.heard(NOTICE_PERIOD + 2, VERSIONS_MAX, 2, true, true) && versions.iter().count() == VERSIONS_MAX
        );
        assert!(versions.iter().any(|(&peer, node)| peer == VERSIONS_MAX && node.frames == 1));
    }
}
