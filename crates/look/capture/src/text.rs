//! A packet as text, in tcpdump's form: what its users search for is found here too.
//!
//! Names are never looked up, and TCP's numbers are always those of the packet (`tcpdump -n -S`).

mod dump;
mod ip;
mod link;
mod llc;
mod time;

use std::io::Write;

use etherparse::{LaxNetSlice, LaxSlicedPacket};
use port::Frame;
use wire::{LinkType, link::Direction};

use time::Clock;

/// The time in front of a line.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Time {
    /// The local time of day.
    #[default]
    OfDay,
    None,
    /// Seconds since the epoch.
    Epoch,
    /// The time since the packet before.
    SincePrevious,
    /// The local date and time of day.
    Date,
    /// The time since the first packet.
    SinceFirst,
}

/// The bytes below a line.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Bytes {
    pub hex: bool,
    pub ascii: bool,
    /// The link header too.
    pub link: bool,
}

/// Parts of each packet that are shown.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Shown {
    pub time: Time,
    pub link: bool,
    /// The fields of the IP header.
    pub verbose: bool,
    pub quick: bool,
    pub bytes: Option<Bytes>,
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

impl Writer {
    /// A writer for packets of that link type (LINKTYPE_…). Packets of a type that [`LinkType`] does not have are not looked into.
    pub fn new(shown: Shown, link_type: u16, interface: Option<String>) -> Self {
        Self { shown, link_type, interface, clock: Clock::new(shown.time) }
    }

    /// Appends a packet: one line, and those that `Shown` asks for below it.
    pub fn packet(&mut self, out: &mut Vec<u8>, frame: &Frame<'_>) {
        // Writing to a Vec cannot fail.
        if frame.lost_before != 0 {
            let _ = writeln!(out, "-- {} packets lost here --", frame.lost_before);
        }
        let _ = self.clock.write(out, frame.timestamp_ns);
        if let Some(interface) = &self.interface {
            let _ = write!(out, "{interface:<5} {:<3} ", frame.direction.map_or("?", Direction::name));
        }
        let begin = match LinkType::of(self.link_type) {
            Some(link) => self.framed(out, frame, link),
            None => {
                let _ = write!(out, "link type {}, not looked into, length {}", self.link_type, frame.wire_len);
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

    /// Writes what a packet carries; `rest` is its length on the wire without the link header.
    fn inside(&self, out: &mut Vec<u8>, packet: &LaxSlicedPacket<'_>, rest: u32) {
        let begin = out.len();
        let _ = match &packet.net {
            Some(LaxNetSlice::Arp(arp)) => ip::arp(out, arp, rest),
            Some(LaxNetSlice::Ipv4(ip)) => ip::v4(out, ip, packet.transport.as_ref(), rest, self.shown),
            Some(LaxNetSlice::Ipv6(ip)) => ip::v6(out, ip, packet.transport.as_ref(), rest, self.shown),
            None => write!(out, "[|ip], length {rest}"),
        };
        // The link header has told the protocol.
        let protocol = ["IP ", "IP6 ", "ARP, "].into_iter().find(|word| out[begin..].starts_with(word.as_bytes()));
        if let Some(word) = protocol.filter(|_| self.shown.link) {
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
            direction: None,
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
    fn what_cannot_be_read_is_reported() {
        assert!(plain(&syn()[..20], 1).contains("(0x0800), cut or malformed"), "{}", plain(&syn()[..20], 1));
        assert!(plain(&syn(), 105).contains("link type 105, not looked into"));
    }

    #[test]
    fn headers_and_bytes_are_shown_when_requested() {
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
        fn any_bytes_make_one_line(data in prop::collection::vec(any::<u8>(), 0..120), link_type in prop::sample::select(vec![0u16, 1, 9, 50, 101, 105, 108, 113, 228, 229, 276]), link: bool) {
            let text = shown(Shown { link, ..Shown::default() }, &data, link_type);
            prop_assert_eq!(text.matches('\n').count(), 1);
            prop_assert!(!text.trim_end().contains(char::is_control));
        }
    }
}
