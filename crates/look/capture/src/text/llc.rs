//! Frames of 802.2 (LLC): SNAP, spanning tree, and the names of others.

use std::io::{self, Write};

use wire::Mac;

/// The header of SNAP, without organisation and protocol.
const SNAP: [u8; 3] = [0xaa, 0xaa, 3];
/// The header of a spanning tree's messages.
const STP: [u8; 3] = [0x42, 0x42, 3];
/// Cisco's organisation.
const CISCO: u32 = 0x0c;
/// Its spanning tree per VLAN.
const PVST: u16 = 0x010b;

/// An 802.2 frame: what is there of it, and its length on the wire.
pub(super) struct Llc<'a> {
    bytes: &'a [u8],
    length: u32,
}

/// The name of a service access point.
fn sap(number: u8) -> &'static str {
    match number & 0xfe {
        0x00 => "Null",
        0x06 => "IP",
        0x42 => "STP",
        0xaa => "SNAP",
        0xe0 => "IPX",
        0xf0 => "NetBeui",
        0xfe => "OSI",
        _ => "Unknown",
    }
}

/// Organisation and protocol of a SNAP frame, and what follows.
fn snap(bytes: &[u8]) -> Option<(u32, u16, &[u8])> {
    let ([h0, h1, h2, o0, o1, o2, p0, p1], payload) = bytes.split_first_chunk::<8>()?;
    let organisation = u32::from_be_bytes([0, *o0, *o1, *o2]);
    ([*h0, *h1, *h2] == SNAP).then_some((organisation, u16::from_be_bytes([*p0, *p1]), payload))
}

fn snap_name(organisation: u32, protocol: u16) -> &'static str {
    match (organisation, protocol) {
        (CISCO, 0x0111) => "UDLD",
        (CISCO, 0x2000) => "CDP",
        (CISCO, 0x2003) => "VTP",
        (CISCO, 0x2004) => "DTP",
        (CISCO, PVST) => "PVST",
        _ => "Unknown",
    }
}

/// An unnumbered command or response, whatever its poll bit.
fn unnumbered(control: u8) -> &'static str {
    match control & !0x10 {
        0x03 => "ui",
        0x0f => "dm",
        0x43 => "disc",
        0x63 => "ua",
        0x6f => "sabme",
        0x87 => "frmr",
        0xaf => "xid",
        0xe3 => "test",
        _ => "unknown",
    }
}

impl<'a> Llc<'a> {
    pub(super) fn new(bytes: &'a [u8], length: u32) -> Self {
        Self { bytes, length }
    }

    /// Bytes on the wire behind its header.
    pub(super) fn rest(&self) -> u32 {
        let header = match (snap(self.bytes), self.bytes) {
            (Some(_), _) => 8,
            (None, [_, _, control, ..]) if control & 3 != 3 => 4,
            _ => 3,
        };
        self.length.saturating_sub(header)
    }

    /// The EtherType that SNAP carries, and what follows.
    pub(super) fn ether_type(&self) -> Option<(u16, &'a [u8])> {
        snap(self.bytes).filter(|(organisation, ..)| *organisation == 0).map(|(_, kind, payload)| (kind, payload))
    }

    /// True of a frame that its addresses alone tell from others.
    fn is_unnamed(&self) -> bool {
        snap(self.bytes).is_none() && !self.bytes.starts_with(&STP)
    }

    /// Writes the header of 802.2, as `-e` shows it.
    pub(super) fn header(&self, out: &mut Vec<u8>) -> io::Result<()> {
        let [to, from, control, ..] = self.bytes else { return Ok(()) };
        let whom = if to & 1 == 0 { "Individual" } else { "Group" };
        let what = if from & 1 == 0 { "Command" } else { "Response" };
        let (dsap, ssap) = (to & 0xfe, from & 0xfe);
        write!(out, "LLC, dsap {} (0x{dsap:02x}) {whom}, ssap {} (0x{ssap:02x}) {what}, ctrl ", sap(*to), sap(*from))?;
        match (control & 3, self.bytes.get(3)) {
            (3, _) | (_, None) => write!(out, "0x{control:02x}: ")?,
            (_, Some(more)) => write!(out, "0x{:04x}: ", u16::from_le_bytes([*control, *more]))?,
        }
        let rest = self.rest();
        match snap(self.bytes) {
            Some((0, kind, _)) => {
                let name = super::link::ether_type(kind);
                write!(out, "oui Ethernet (0x000000), ethertype {name} (0x{kind:04x}), length {rest}: ")
            }
            Some((organisation, protocol, _)) => {
                let whose = if organisation == CISCO { "Cisco" } else { "Unknown" };
                let name = snap_name(organisation, protocol);
                write!(out, "oui {whose} (0x{organisation:06x}), pid {name} (0x{protocol:04x}), length {rest}: ")
            }
            None => Ok(()),
        }
    }

    /// Writes what the frame carries; one that nothing else tells from others behind its addresses and its kind, where these were not written yet.
    pub(super) fn write(&self, out: &mut Vec<u8>, has_header: bool, ends: Option<(Mac, Mac)>) -> io::Result<()> {
        if let ([to, from, _, ..], false, true) = (self.bytes, has_header, self.is_unnamed()) {
            if let Some((from, to)) = ends {
                write!(out, "{from} > {to} ")?;
            }
            write!(out, "{} ", if to & 0xfe == from & 0xfe { sap(*to) } else { "LLC" })?;
        }
        let (rest, length) = (self.rest(), self.length);
        match (self.bytes, snap(self.bytes)) {
            (_, Some((CISCO, PVST, payload))) => stp(out, payload, rest),
            (_, Some((organisation, protocol, _))) => match snap_name(organisation, protocol) {
                "Unknown" => write!(out, "SNAP, oui 0x{organisation:06x}, pid 0x{protocol:04x}, length {rest}"),
                name => write!(out, "{name}, length {rest}"),
            },
            ([0x42, 0x42, 3, payload @ ..], None) => stp(out, payload, rest),
            ([_, _, control, ..], None) => match control & 3 {
                3 => write!(out, "Unnumbered, {}, length {length}", unnumbered(*control)),
                1 => write!(out, "Supervisory, length {length}"),
                _ => write!(out, "Information, length {length}"),
            },
            _ => write!(out, "[|llc], length {length}"),
        }
    }
}

/// Writes a message of a spanning tree (802.1D, 802.1w).
fn stp(out: &mut Vec<u8>, bytes: &[u8], length: u32) -> io::Result<()> {
    const FLAGS: [(u8, &str); 6] = [
        (0x01, "Topology change"),
        (0x02, "Proposal"),
        (0x10, "Learn"),
        (0x20, "Forward"),
        (0x40, "Agreement"),
        (0x80, "Topology change ACK"),
    ];
    let [0, 0, version, kind, message @ ..] = bytes else { return write!(out, "STP, length {length}") };
    let version = match version {
        0 => "802.1d",
        2 => "802.1w",
        3 => "802.1s",
        4 => "802.1aq",
        _ => "unknown version",
    };
    let kind = match kind {
        0 => "Config",
        2 => "Rapid STP",
        0x80 => return write!(out, "STP {version}, Topology Change, length {length}"),
        _ => return write!(out, "STP {version}, unknown type, length {length}"),
    };
    // Flags, root (8 bytes), cost (4), bridge (8), port (2).
    let Some([flags, .., p0, p1, a, b, c, d, e, f, q0, q1]) = message.first_chunk::<23>() else {
        return write!(out, "STP {version}, {kind}, cut, length {length}");
    };
    let set: Vec<&str> = FLAGS.iter().filter(|(bit, _)| flags & bit != 0).map(|(_, name)| *name).collect();
    let set = if set.is_empty() { "none".to_owned() } else { set.join(", ") };
    let (priority, port) = (u16::from_be_bytes([*p0, *p1]), u16::from_be_bytes([*q0, *q1]));
    let bridge = Mac([*a, *b, *c, *d, *e, *f]);
    write!(out, "STP {version}, {kind}, Flags [{set}], bridge-id {priority:04x}.{bridge}.{port:04x}, length {length}")
}
