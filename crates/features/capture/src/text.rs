//! A packet as text, in tcpdump's form: what its users search for is found here too.
//!
//! Names are never looked up, and TCP's numbers are always those of the packet (`tcpdump -n -S`).

mod dump;
mod ip;

use std::{fmt, io::Write};

use etherparse::{LaxNetSlice, LaxSlicedPacket};
use port::Frame;

/// LINKTYPE_ETHERNET.
const ETHERNET: u16 = 1;
/// LINKTYPE_RAW: packets begin with their IP header.
const RAW_IP: u16 = 101;
/// The length of an Ethernet header.
const ETHERNET_LEN: usize = 14;

/// The time in front of a line.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Time {
    /// The local time of day.
    #[default]
    OfDay,
    /// None.
    None,
    /// Seconds since the epoch.
    Epoch,
    /// The local date and time of day.
    Date,
}

/// The bytes below a line.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Bytes {
    /// In hexadecimal.
    pub hex: bool,
    /// As ASCII characters.
    pub ascii: bool,
    /// The link header too.
    pub link: bool,
}

/// What is shown of each packet.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Shown {
    /// The time.
    pub time: Time,
    /// The link header.
    pub link: bool,
    /// The fields of the IP header.
    pub verbose: bool,
    /// The packet's bytes.
    pub bytes: Option<Bytes>,
}

/// Local time with a look at the machine's time zone every quarter of an hour of the packets' own time: zones change at its ends.
#[derive(Debug)]
struct Clock {
    zone: jiff::tz::TimeZone,
    quarter: u64,
    offset_s: i64,
}

impl Clock {
    const QUARTER_S: u64 = 900;

    /// Seconds since the epoch as they stand on the wall.
    fn local(&mut self, seconds: u64) -> u64 {
        let quarter = seconds / Self::QUARTER_S;
        if quarter != self.quarter {
            self.quarter = quarter;
            let at = jiff::Timestamp::from_second(i64::try_from(seconds).unwrap_or(0)).unwrap_or_default();
            self.offset_s = i64::from(self.zone.to_offset(at).seconds());
        }
        seconds.saturating_add_signed(self.offset_s)
    }
}

/// Writes packets of one interface as lines.
#[derive(Debug)]
pub struct Writer {
    shown: Shown,
    link_type: u16,
    /// Stands in each line where packets of several interfaces are shown.
    interface: Option<String>,
    clock: Clock,
}

struct Mac<'a>(&'a [u8]);

impl fmt::Display for Mac<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (i, byte) in self.0.iter().enumerate() {
            write!(f, "{}{byte:02x}", if i > 0 { ":" } else { "" })?;
        }
        Ok(())
    }
}

/// What tcpdump calls an EtherType.
fn ether_type(number: u16) -> &'static str {
    match number {
        0x0800 => "IPv4",
        0x0806 => "ARP",
        0x86dd => "IPv6",
        0x8100 => "802.1Q",
        0x88a8 => "802.1Q-QinQ",
        0x88cc => "LLDP",
        0x8847 => "MPLS unicast",
        0x8863 => "PPPoE D",
        0x8864 => "PPPoE S",
        _ => "Unknown",
    }
}

impl Writer {
    /// A writer for packets of that link type (LINKTYPE_…). Packets of other types than Ethernet (1) and raw IP (101) are not looked into.
    pub fn new(shown: Shown, link_type: u16, interface: Option<String>) -> Self {
        let zone = jiff::tz::TimeZone::system();
        Self { shown, link_type, interface, clock: Clock { zone, quarter: u64::MAX, offset_s: 0 } }
    }

    /// Appends a packet: one line, and those that `Shown` asks for below it.
    pub fn packet(&mut self, out: &mut Vec<u8>, frame: &Frame<'_>) {
        // Writing to a Vec cannot fail.
        if frame.lost_before != 0 {
            let _ = writeln!(out, "-- {} packets lost here --", frame.lost_before);
        }
        self.time(out, frame.timestamp_ns);
        if let Some(interface) = &self.interface {
            let _ = write!(out, "{interface} ");
        }
        let begin = match self.link_type {
            ETHERNET => self.ethernet(out, frame),
            RAW_IP => match LaxSlicedPacket::from_ip(frame.data) {
                Ok(packet) => {
                    self.inside(out, &packet, frame.wire_len);
                    0
                }
                Err(_) => {
                    let _ = write!(out, "[|ip], length {}", frame.wire_len);
                    0
                }
            },
            other => {
                let _ = write!(out, "link type {other}, not looked into, length {}", frame.wire_len);
                0
            }
        };
        if let Some(judged) = frame.judged {
            let _ = write!(out, " [{}]", judged.text);
        }
        out.push(b'\n');
        if let Some(bytes) = self.shown.bytes {
            let begin = if bytes.link { 0 } else { begin.min(frame.data.len()) };
            dump::write(out, &frame.data[begin..], bytes);
        }
    }

    fn time(&mut self, out: &mut Vec<u8>, timestamp_ns: u64) {
        let (seconds, micros) = (timestamp_ns / 1_000_000_000, timestamp_ns % 1_000_000_000 / 1000);
        let of_day = |seconds: u64| (seconds / 3600 % 24, seconds / 60 % 60, seconds % 60);
        let _ = match self.shown.time {
            Time::None => Ok(()),
            Time::Epoch => write!(out, "{seconds}.{micros:06} "),
            Time::OfDay => {
                let (h, m, s) = of_day(self.clock.local(seconds));
                write!(out, "{h:02}:{m:02}:{s:02}.{micros:06} ")
            }
            Time::Date => {
                let local = self.clock.local(seconds);
                let (h, m, s) = of_day(local);
                let day = jiff::Timestamp::from_second(i64::try_from(local).unwrap_or(0)).unwrap_or_default();
                let day = day.to_zoned(jiff::tz::TimeZone::UTC).date();
                write!(out, "{day} {h:02}:{m:02}:{s:02}.{micros:06} ")
            }
        };
    }

    /// Writes an Ethernet frame and says where its link header ends.
    fn ethernet(&self, out: &mut Vec<u8>, frame: &Frame<'_>) -> usize {
        let Some(header) = frame.data.get(..ETHERNET_LEN) else {
            let _ = write!(out, "[|ether], length {}", frame.wire_len);
            return 0;
        };
        let kind = |at: usize| frame.data.get(at..at + 2).map_or(0, |b| u16::from_be_bytes([b[0], b[1]]));
        let mut inner = kind(12);
        // Tags that the kernel took out stand beside the frame, others in it.
        let mut tags: Vec<(u16, u16)> = frame.vlan.iter().map(|tag| (tag.tpid, tag.tci)).collect();
        let mut end = ETHERNET_LEN;
        while matches!(inner, 0x8100 | 0x88a8) && frame.data.len() >= end + 4 {
            tags.push((inner, kind(end)));
            inner = kind(end + 2);
            end += 4;
        }
        if self.shown.link {
            let outer = tags.first().map_or(inner, |tag| tag.0);
            let length = frame.wire_len + if frame.vlan.is_some() { 4 } else { 0 };
            let (to, from) = (Mac(&header[..6]), Mac(&header[6..12]));
            let _ = write!(out, "{from} > {to}, ethertype {} (0x{outer:04x}), length {length}: ", ether_type(outer));
        }
        for (at, (_, tci)) in tags.iter().enumerate() {
            let _ = write!(out, "vlan {}, p {}, ", tci & 0xfff, tci >> 13);
            if self.shown.link {
                let next = tags.get(at + 1).map_or(inner, |tag| tag.0);
                let _ = write!(out, "ethertype {} (0x{next:04x}), ", ether_type(next));
            }
        }
        let rest = frame.wire_len.saturating_sub(end as u32);
        match LaxSlicedPacket::from_ethernet(frame.data) {
            Ok(packet) if packet.net.is_some() => self.inside(out, &packet, rest),
            _ if self.shown.link => {
                let _ = write!(out, "length {rest}");
            }
            _ => {
                let (to, from) = (Mac(&header[..6]), Mac(&header[6..12]));
                let cut = if matches!(inner, 0x0800 | 0x0806 | 0x86dd) { ", cut or malformed" } else { "" };
                let _ =
                    write!(out, "{from} > {to}, ethertype {} (0x{inner:04x}){cut}, length {rest}", ether_type(inner));
            }
        }
        end
    }

    /// Writes what a packet carries; `rest` is its length on the wire without the link header.
    fn inside(&self, out: &mut Vec<u8>, packet: &LaxSlicedPacket<'_>, rest: u32) {
        let begin = out.len();
        let _ = match &packet.net {
            Some(LaxNetSlice::Arp(arp)) => ip::arp(out, arp, rest),
            Some(LaxNetSlice::Ipv4(ip)) => ip::v4(out, ip, packet.transport.as_ref(), rest, self.shown.verbose),
            Some(LaxNetSlice::Ipv6(ip)) => ip::v6(out, ip, packet.transport.as_ref(), rest, self.shown.verbose),
            None => write!(out, "[|ip], length {rest}"),
        };
        // The link header has told the protocol.
        let told = ["IP ", "IP6 ", "ARP, "].into_iter().find(|word| out[begin..].starts_with(word.as_bytes()));
        if let Some(word) = told.filter(|_| self.shown.link && self.link_type == ETHERNET) {
            out.drain(begin..begin + word.len());
        }
    }
}

#[cfg(test)]
mod tests {
    use etherparse::PacketBuilder;
    use proptest::prelude::*;

    use super::*;

    fn shown(shown: Shown, data: &[u8], link_type: u16) -> String {
        let frame = Frame {
            timestamp_ns: 3_661_000_001_000,
            wire_len: data.len() as u32,
            data,
            vlan: None,
            unfinished: false,
            judged: None,
            lost_before: 0,
        };
        let mut out = Vec::new();
        Writer::new(Shown { time: Time::Epoch, ..shown }, link_type, None).packet(&mut out, &frame);
        String::from_utf8(out).expect("text")
    }

    fn plain(data: &[u8], link_type: u16) -> String {
        shown(Shown::default(), data, link_type)
    }

    fn syn() -> Vec<u8> {
        let builder = PacketBuilder::ethernet2([1; 6], [2; 6])
            .ipv4([198, 18, 0, 1], [198, 18, 0, 2], 64)
            .tcp(1234, 80, 7, 100)
            .syn();
        let mut packet = Vec::new();
        builder.write(&mut packet, &[]).expect("a packet");
        packet
    }

    #[test]
    fn lengths_are_those_of_the_payload() {
        let mut packet = syn();
        // Padding on the wire is no payload.
        packet.resize(60, 0);
        let line = "3661.000001 IP 198.18.0.1.1234 > 198.18.0.2.80: Flags [S], seq 7, win 100, length 0\n";
        assert_eq!(plain(&packet, 1), line);
        assert_eq!(plain(&packet[14..], 101), line);
        let mut packet = Vec::new();
        let udp = PacketBuilder::ethernet2([1; 6], [2; 6]).ipv6([0xfd; 16], [0xfe; 16], 64).udp(9, 10);
        udp.write(&mut packet, &[0; 200]).expect("a packet");
        assert!(plain(&packet, 1).ends_with(".10: UDP, length 200\n"), "{}", plain(&packet, 1));
        // Of a packet that was cut, too.
        assert!(plain(&packet[..70], 1).ends_with(".10: UDP, length 200\n"), "{}", plain(&packet[..70], 1));
    }

    #[test]
    fn what_cannot_be_read_is_told() {
        assert!(plain(&syn()[..20], 1).contains("(0x0800), cut or malformed"), "{}", plain(&syn()[..20], 1));
        assert!(plain(&syn(), 113).contains("link type 113, not looked into"));
    }

    #[test]
    fn headers_and_bytes_are_shown_when_asked_for() {
        let all = Shown {
            link: true,
            verbose: true,
            bytes: Some(Bytes { hex: true, ascii: true, link: false }),
            ..Shown::default()
        };
        let text = shown(all, &syn(), 1);
        let head = "01:01:01:01:01:01 > 02:02:02:02:02:02, ethertype IPv4 (0x0800), length 54: ";
        assert!(text.contains(head) && text.contains("ttl 64") && text.contains("proto TCP (6), length 40)"), "{text}");
        assert!(text.contains("\t0x0000:  4500 0028") && text.contains("  E..("), "{text}");
    }

    proptest! {
        #[test]
        fn any_bytes_make_one_line(data in prop::collection::vec(any::<u8>(), 0..120), link_type in prop::sample::select(vec![1u16, 101, 113]), link: bool) {
            let text = shown(Shown { link, ..Shown::default() }, &data, link_type);
            prop_assert_eq!(text.matches('\n').count(), 1);
            prop_assert!(!text.trim_end().contains(char::is_control));
        }
    }
}
