//! Sources asked whether they exist, outside the kernel: what `filter/cookie/gateway.h` does, over again.
//!
//! The SYN of a source that is not known is answered by a SYN-ACK that acknowledges a number which the client never sent: a cookie of its
//! addresses and ports. A client answers with a RST of just that number (RFC 9293, 3.10.7.3) and goes on waiting; a source that sent such a RST
//! is known, and its packets pass. The SYN is sent on in place of that RST, from a small memory of the last ones. The challenge is never longer than the SYN.

use std::{hash::Hasher, io, net::IpAddr};

use siphasher::sip::SipHasher13;
use wire::Sum;

mod overload;
mod syns;

pub use overload::Overload;

use super::known::Known;
use rules::packet::Packet;

const TCP: u8 = 6;
const FIN: u8 = 0x01;
const SYN: u8 = 0x02;
const RST: u8 = 0x04;
const ACK: u8 = 0x10;
const TCP_LEN: usize = 20;
/// Ethernet, two tags, IPv6, TCP and its options.
const REPLY_MAX: usize = 14 + 2 * 4 + 40 + TCP_LEN + 40;
/// A frame on the wire is no shorter, less its FCS.
const FRAME_MIN: usize = 60;
/// As bare as it is it makes no connection, so that any will do: that of the kernel program.
const WINDOW: u16 = 64_240;
/// A cookie is right in the minute in which it was made and in the next one.
const COOKIE_PERIOD_S: u32 = 60;

/// The verdict on a packet that a rule challenges.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Challenged {
    /// Passes: its source is known, or it is neither a SYN nor a RST that answers.
    Pass,
    /// Dropped: a RST that showed that its source exists, a packet that no client sends, or a SYN that is to be retransmitted ([`Overload`]).
    Drop,
    /// Answered by a frame to its sender.
    SynAck(ReplyFrame),
    /// Replaced by its SYN, as it showed that its source exists.
    Resumed(ReplyFrame),
}

/// A frame without FCS.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ReplyFrame {
    bytes: [u8; REPLY_MAX],
    len: usize,
}

impl ReplyFrame {
    pub const MAX: usize = REPLY_MAX;

    /// The frame, from the Ethernet header on.
    pub fn bytes(&self) -> &[u8] {
        &self.bytes[..self.len]
    }
}

/// Asks, and knows who answered. All threads share one.
#[derive(Debug)]
pub struct SynProof {
    known: Known,
    hasher: SipHasher13,
    /// Keys of the sources, and of the cookies.
    keys: [[u8; 16]; 2],
}

/// Version header of the saved sources.
const FILE_HEADER: &[u8; 16] = b"evenkeel sources";

impl SynProof {
    /// A proof without known sources.
    pub fn new() -> io::Result<Self> {
        let mut keys = [[0; 16]; 2];
        for key in &mut keys {
            getrandom::fill(key).map_err(io::Error::from)?;
        }
        Ok(Self::with(keys))
    }

    fn with(keys: [[u8; 16]; 2]) -> Self {
        Self { known: Known::new(&keys[0]), hasher: SipHasher13::new_with_key(&keys[1]), keys }
    }

    /// The sources that are known and the keys, to be kept for [`SynProof::read`] by a process of this boot; none: as they were when this was last asked.
    pub fn written(&self) -> Option<Vec<u8>> {
        self.known.has_changed().then(|| [&FILE_HEADER[..], &self.keys[0], &self.keys[1], &self.known.write()].concat())
    }

    /// Reads what another process has written; none: it is another file.
    pub fn read(bytes: &[u8]) -> Option<Self> {
        let (of_sources, rest) = bytes.strip_prefix(FILE_HEADER)?.split_first_chunk()?;
        let (of_cookies, known) = rest.split_first_chunk()?;
        if known.len() != Known::BYTES {
            return None;
        }
        let proof = Self::with([*of_sources, *of_cookies]);
        proof.known.read(known);
        Some(proof)
    }

    /// Judges `packet`, read from `frame`, at `now_ns` of a clock that runs forward.
    pub fn judge(&self, packet: &Packet, frame: &[u8], now_ns: u64, overload: &mut Overload) -> Challenged {
        let (Some(all), Some(ports)) = (packet.tcp_flags.filter(|_| packet.protocol == TCP), packet.ports) else {
            return Challenged::Pass;
        };
        // A group of hosts: TCP is not for them, and stacks ignore it.
        if frame.first().is_none_or(|first| first & 1 == 1) {
            return Challenged::Pass;
        }
        // Nor is it from them: an answer would go to all.
        if frame.get(6).is_none_or(|first| first & 1 == 1) {
            return Challenged::Drop;
        }
        let flags = all & (FIN | SYN | RST | ACK);
        // Never 0.
        let now_s = (now_ns / 1_000_000_000) as u32 | 1 << 31;
        if self.known.contains(packet.source, now_s, flags == SYN) {
            return Challenged::Pass;
        }
        if is_no_source(packet.source) || (flags & SYN != 0 && flags & (RST | FIN) != 0) {
            return Challenged::Drop;
        }
        let Some(sent) = number(frame, packet.transport_at).filter(|_| flags == SYN || flags == RST) else {
            return Challenged::Pass;
        };
        let minute = now_s / COOKIE_PERIOD_S;
        if flags == SYN {
            if !overload.answers(|| self.hash(packet, ports, 0)) {
                return Challenged::Drop;
            }
            overload.syns.keep(
                self.hash(packet, ports, 0),
                frame.get(packet.transport_at..).unwrap_or_default(),
                now_s,
            );
            let ack = less_than_sent(self.cookie(packet, ports, minute), sent);
            let syn_ack = Segment { seq: sent, ack, flags: SYN | ACK, window: WINDOW, options: &[] };
            return write(packet, ports, frame, &syn_ack, true).map_or(Challenged::Drop, Challenged::SynAck);
        }
        let is_right = |minute| [0, 1 << 31].contains(&(sent ^ self.cookie(packet, ports, minute)));
        if is_right(minute) || is_right(minute - 1) {
            self.known.learn(packet.source, now_s);
            let Some(syn) = overload.syns.take(self.hash(packet, ports, 0), now_s) else { return Challenged::Drop };
            let again = Segment { seq: syn.seq, ack: 0, flags: syn.flags, window: syn.window, options: syn.options() };
            return write(packet, ports, frame, &again, false).map_or(Challenged::Drop, Challenged::Resumed);
        }
        Challenged::Pass
    }

    fn cookie(&self, packet: &Packet, ports: (u16, u16), minute: u32) -> u32 {
        self.hash(packet, ports, minute) as u32
    }

    fn hash(&self, packet: &Packet, ports: (u16, u16), minute: u32) -> u64 {
        let mut hasher = self.hasher;
        for address in [packet.source, packet.destination] {
            match address {
                IpAddr::V4(address) => hasher.write(&address.octets()),
                IpAddr::V6(address) => hasher.write(&address.octets()),
            }
        }
        hasher.write_u64(u64::from(ports.0) << 48 | u64::from(ports.1) << 32 | u64::from(minute));
        hasher.finish()
    }
}

/// The cookie, or the number half the circle away, whichever acknowledges less than a SYN of this number: no client takes it for right, and
/// connection tracking on the way lets it through as a late one.
fn less_than_sent(cookie: u32, sent: u32) -> u32 {
    if cookie.wrapping_sub(sent).cast_signed() > 0 { cookie ^ 1 << 31 } else { cookie }
}

/// An address that nobody may send from: multicast, none, loopback, IPv4's broadcast, IPv4 within IPv6.
fn is_no_source(source: IpAddr) -> bool {
    match source {
        IpAddr::V4(a) => a.is_multicast() || matches!(a.octets()[0], 0 | 127) || a.is_broadcast(),
        IpAddr::V6(a) => a.is_multicast() || matches!(a.segments(), [0, 0, 0, 0, 0, 0 | 0xffff, ..]),
    }
}

/// The sequence number of the TCP header at `at`.
fn number(frame: &[u8], at: usize) -> Option<u32> {
    Some(u32::from_be_bytes(frame.get(at + 4..at + 8)?.try_into().ok()?))
}

/// A TCP segment without data.
struct Segment<'a> {
    seq: u32,
    ack: u32,
    flags: u8,
    window: u16,
    options: &'a [u8],
}

/// A frame as an answer to `frame` (`back`: MAC addresses, addresses and ports change places) or in its place: tags stay, IP options, extension headers and data
/// go.
fn write(packet: &Packet, ports: (u16, u16), frame: &[u8], segment: &Segment<'_>, back: bool) -> Option<ReplyFrame> {
    let mut bytes = [0; REPLY_MAX];
    let ip_at = packet.ip_at;
    let ethernet = frame.get(..ip_at)?;
    bytes.get_mut(..ip_at)?.copy_from_slice(ethernet);
    let (mut from, mut to) = ((packet.source, ports.0), (packet.destination, ports.1));
    if back {
        bytes[..6].copy_from_slice(&ethernet[6..12]);
        bytes[6..12].copy_from_slice(&ethernet[..6]);
        std::mem::swap(&mut from, &mut to);
    }
    let tcp_len = TCP_LEN + segment.options.len();
    let ip = &mut bytes[ip_at..];
    let ip_len = match (from.0, to.0) {
        (IpAddr::V4(from), IpAddr::V4(to)) => {
            ip[..10].copy_from_slice(&[0x45, 0, 0, 20 + tcp_len as u8, 0, 0, 0x40, 0, 64, TCP]);
            ip[12..16].copy_from_slice(&from.octets());
            ip[16..20].copy_from_slice(&to.octets());
            let sum = Sum::new().bytes(&ip[..20]).finish();
            ip[10..12].copy_from_slice(&sum.to_be_bytes());
            20
        }
        (IpAddr::V6(from), IpAddr::V6(to)) => {
            ip[..8].copy_from_slice(&[0x60, 0, 0, 0, 0, tcp_len as u8, TCP, 64]);
            ip[8..24].copy_from_slice(&from.octets());
            ip[24..40].copy_from_slice(&to.octets());
            40
        }
        _ => return None,
    };
    let tcp = ip.get_mut(ip_len..ip_len + tcp_len)?;
    tcp[..2].copy_from_slice(&from.1.to_be_bytes());
    tcp[2..4].copy_from_slice(&to.1.to_be_bytes());
    tcp[4..8].copy_from_slice(&segment.seq.to_be_bytes());
    tcp[8..12].copy_from_slice(&segment.ack.to_be_bytes());
    (tcp[12], tcp[13]) = ((tcp_len as u8 / 4) << 4, segment.flags);
    tcp[14..16].copy_from_slice(&segment.window.to_be_bytes());
    tcp[TCP_LEN..].copy_from_slice(segment.options);
    let sum = Sum::new().pseudo_header(from.0, to.0, TCP, tcp_len as u32).bytes(tcp).finish();
    tcp[16..18].copy_from_slice(&sum.to_be_bytes());
    let len = ip_at + ip_len + tcp_len;
    Some(ReplyFrame { bytes, len: len.max(FRAME_MIN.min(frame.len())) })
}

#[cfg(test)]
mod tests;
