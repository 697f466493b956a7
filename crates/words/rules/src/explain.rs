//! The rule that decides about each packet of a saved capture, and the reason.
//!
//! Limits go by the capture's own times. Rules hold or have expired as of the moment that is asked for, not of the capture.

use std::{fmt, ops::ControlFlow, path::Path};

use serde::Serialize;
use wire::{
    Unread,
    link::{LinkType, Protocol, Stripped},
};

use crate::{
    compile::{self, Counters, Now, lookup},
    error::RulesError,
    limits::Limits,
    packet::{Packet, Parsed, Part},
    reference::{Decision, Outcome},
    rule::{Rules, Verdict},
};

mod text;

/// Bytes of a packet that the capture did not keep are taken for these, at even and odd places: where that makes a difference, nothing is
/// known about the packet. Everything reads as nothing or as much; then what ends a chain of IPv6 extension headers (no next header, the
/// shortest length), then the first byte of an IPv4 and of an IPv6 packet: what is malformed for none of them is not malformed.
const GUESSES: [[u8; 2]; 5] = [[0, 0], [0xff, 0xff], [59, 0], [0x45, 0], [0x60, 0]];
/// The longest frame there may be, whatever a file claims.
const FRAME_MAX: usize = 1 << 18;

/// The findings about one packet.
#[derive(Debug, Clone, PartialEq)]
pub struct Explained {
    /// Number of the packet in the capture, 1 for the first.
    pub number: u64,
    /// Nanoseconds since 1970, as the capture says.
    pub at_ns: i128,
    /// Bytes on the wire, without FCS.
    pub len: u32,
    pub frame: Frame,
    /// True without a length, as a card that cuts TCP leaves it in captures on the sender: the packet is judged by the length that the file says.
    /// Received it would be malformed.
    pub uncut: bool,
    pub decision: Decision,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Frame {
    /// A packet that rules are about.
    Ip(Packet),
    NotIp,
    Malformed(&'static str),
    /// The capture did not keep enough of it.
    Cut,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize)]
pub struct Count {
    pub packets: u64,
    /// Bytes on the wire, without FCS.
    pub bytes: u64,
}

impl Count {
    fn add(&mut self, len: u32) {
        self.packets += 1;
        self.bytes += u64::from(len);
    }
}

#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize)]
pub struct Summary {
    pub all: Count,
    pub passed: Count,
    pub dropped: Count,
    /// Packets that meet a rule that challenges.
    pub challenged: Count,
    pub by_default: Count,
    pub not_ip: Count,
    pub malformed: Count,
    /// Too little of them was captured; in none of the other counts but that of all.
    pub cut: Count,
    /// Judged packets without a length, before the sender's card cut them ([`Explained::uncut`]).
    pub uncut: Count,
    /// Packets that each rule decided, in the order of the rules.
    pub decided: Vec<Count>,
    /// In the order of the rules: what each counted without deciding (shadow rules, limits that were kept).
    pub counted: Vec<Count>,
}

/// A packet of a capture file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Captured<'a> {
    /// Nanoseconds since 1970.
    pub at_ns: i128,
    /// Bytes on the wire, without FCS.
    pub wire_len: u32,
    pub data: &'a [u8],
}

/// An open capture file.
pub trait CaptureReader {
    /// The number of the link type (DLT_… of pcap/dlt.h), and its name.
    fn link_type(&self) -> (i32, String);

    /// The next packet; none at the end of the file.
    ///
    /// # Errors
    /// The file ends within a packet or is damaged; the text is libpcap's message.
    fn next_packet(&mut self) -> Result<Option<Captured<'_>>, String>;
}

/// The error for libpcap's `message` about the file at `path`.
pub fn unreadable(message: &str, path: &Path) -> RulesError {
    RulesError::Capture { path: path.to_owned(), reason: Unread::of(message, path).reason }
}

/// Reads the capture, whose link type must be in [`LinkType`], and calls `each` for each packet, until that breaks. For a damaged file the summary
/// is of the packets before the damage, and the error is returned beside it. Errors name the file `path`.
pub fn explain(
    rules: &Rules,
    capture: &mut impl CaptureReader,
    path: &Path,
    now: Now,
    mut each: impl FnMut(&Explained) -> ControlFlow<()>,
) -> Result<(Summary, Option<RulesError>), RulesError> {
    let tables = compile::tables(rules, &mut Counters::new(), now)?;
    let wrong = |reason: String| RulesError::Capture { path: path.to_owned(), reason };
    let (number, name) = capture.link_type();
    let Some(link) = u16::try_from(number).ok().and_then(LinkType::of) else {
        let only = "only Ethernet (EN10MB), Linux cooked (LINUX_SLL, LINUX_SLL2), PPP, loopback (NULL, LOOP) and bare IP (RAW) can be explained";
        return Err(wrong(format!("its packets are of link type {name}, and {only}")));
    };
    let parse = |data: &[u8]| self::parse(link, data, Packet::parse, Packet::parse_ip);
    let parse_uncut = |data: &[u8]| self::parse(link, data, Packet::parse_uncut, Packet::parse_ip_uncut);
    let mut limits = Limits::new(&rules.rules);
    let mut clock = 0;
    let size = rules.rules.len();
    let mut summary =
        Summary { decided: vec![Count::default(); size], counted: vec![Count::default(); size], ..Summary::default() };
    loop {
        let packet = match capture.next_packet() {
            Ok(Some(packet)) => packet,
            Ok(None) => return Ok((summary, None)),
            Err(message) => {
                let Unread { reason, limit } = Unread::of(&message, path);
                let ends = if limit { "libpcap does not read it beyond" } else { "it breaks off after" };
                let broken = wrong(format!("{ends} packet {}: {reason}", summary.all.packets));
                return Ok((summary, Some(broken)));
            }
        };
        // Time that runs backwards in the file does not for the limits.
        clock = clock.max(u64::try_from(packet.at_ns).unwrap_or(0));
        let Captured { at_ns, wire_len, .. } = packet;
        let len = wire_len as usize;
        let received = frame(parse, packet.data, len);
        let uncut = match &received {
            Frame::Malformed(_) => {
                Some(frame(parse_uncut, packet.data, len)).filter(|uncut| matches!(uncut, Frame::Ip(_)))
            }
            _ => None,
        };
        let (frame, uncut) = (uncut.unwrap_or(received), uncut.is_some());
        let decision = match &frame {
            Frame::Ip(packet) => lookup::decide(&tables, packet, now.monotonic_ns, |rule, packet| {
                limits.exceeds(rule, packet.source, clock)
            }),
            Frame::Malformed(_) => Decision::undecided(rules.malformed.into()),
            Frame::NotIp | Frame::Cut => Decision::undecided(Verdict::Pass.into()),
        };
        let number = summary.all.packets + 1;
        let explained = Explained { number, at_ns, len: wire_len, frame, uncut, decision };
        summary.add(&explained);
        if each(&explained).is_break() {
            return Ok((summary, None));
        }
    }
}

/// The packet behind a header of that link layer, by the parser of frames or of bare IP.
fn parse(link: LinkType, data: &[u8], of_frame: fn(&[u8]) -> Parsed, of_ip: fn(&[u8]) -> Parsed) -> Parsed {
    match link {
        LinkType::Ethernet => return of_frame(data),
        LinkType::Ip | LinkType::Ipv4 | LinkType::Ipv6 => return of_ip(data),
        _ => {}
    }
    match link.strip(data) {
        None => Parsed::Malformed("cut within the link header"),
        // Tags are read behind addresses, which rules do not ask for.
        Some(Stripped { protocol: Protocol::Ether(kind), payload, .. }) => {
            of_frame(&[&[0; 12][..], &kind.to_be_bytes(), payload].concat())
        }
        Some(_) => Parsed::NotIp,
    }
}

/// The packet in the bytes, `len` of them on the wire.
fn frame(parse: impl Fn(&[u8]) -> Parsed, data: &[u8], len: usize) -> Frame {
    let len = len.clamp(data.len(), FRAME_MAX.max(data.len()));
    let kept = parse(data);
    if len == data.len() {
        return of(kept);
    }
    let parsed = GUESSES.map(|guess| {
        let mut whole = data.to_vec();
        whole.extend((data.len()..len).map(|at| guess[at % 2]));
        parse(&whole)
    });
    match parsed[0] {
        first if parsed.iter().any(|other| *other != first) => Frame::Cut,
        // No guess is the number of a protocol that is looked into: the number itself must be there.
        Parsed::NotIp if kept != Parsed::NotIp => Frame::Cut,
        first => of(first),
    }
}

fn of(parsed: Parsed) -> Frame {
    match parsed {
        Parsed::Ip(packet) => Frame::Ip(packet),
        Parsed::NotIp => Frame::NotIp,
        Parsed::Malformed(why) => Frame::Malformed(why),
    }
}

impl Summary {
    fn add(&mut self, explained: &Explained) {
        let len = explained.len;
        self.all.add(len);
        match explained.frame {
            Frame::Cut => return self.cut.add(len),
            Frame::NotIp => self.not_ip.add(len),
            Frame::Malformed(_) => self.malformed.add(len),
            Frame::Ip(_) => {}
        }
        if explained.uncut {
            self.uncut.add(len);
        }
        match explained.decision.outcome {
            Outcome::Pass => self.passed.add(len),
            Outcome::Drop => self.dropped.add(len),
            Outcome::Challenge => self.challenged.add(len),
        }
        match explained.decision.rule {
            Some(rule) => self.decided[rule].add(len),
            None if matches!(explained.frame, Frame::Ip(_)) => self.by_default.add(len),
            None => {}
        }
        let before = explained.decision.counted.iter().filter(|rule| Some(**rule) != explained.decision.rule);
        for rule in before {
            self.counted[*rule].add(len);
        }
    }
}

impl fmt::Display for Frame {
    /// The frame in a line: addresses, ports, flags.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::NotIp => f.write_str("not IP"),
            Self::Malformed(why) => write!(f, "malformed: {why}"),
            Self::Cut => f.write_str("cut short by the capture: its headers are not all there"),
            Self::Ip(packet) => {
                match packet.ports {
                    Some((source, destination)) => {
                        let (from, to) = (packet.source, packet.destination);
                        write!(f, "{} > {}", text::endpoint(from, source), text::endpoint(to, destination))?;
                    }
                    None => write!(f, "{} > {}", packet.source, packet.destination)?,
                }
                write!(f, " {}", text::protocol(packet.protocol))?;
                if let Some(flags) = packet.tcp_flags {
                    write!(f, " {}", text::flags(flags))?;
                }
                if let Some(kind) = packet.icmp_type {
                    write!(f, " {}", text::icmp_type(packet.protocol, kind))?;
                }
                match packet.part {
                    Part::Whole => {}
                    Part::First => f.write_str(" first fragment")?,
                    Part::Later => f.write_str(" later fragment")?,
                }
                if let Some(vlan) = packet.vlan {
                    write!(f, " vlan {vlan}")?;
                }
                if packet.dscp != 0 {
                    write!(f, " dscp {}", packet.dscp)?;
                }
                write!(f, " length {}", packet.len)
            }
        }
    }
}

/// The verdict on a packet and its rule, in words: `drop: rule "amplifiers" (line 12); counted by "ssh"`.
pub fn reason(rules: &Rules, explained: &Explained) -> String {
    text::reason(rules, explained)
}

#[cfg(test)]
mod tests;
