//! SYNs and ACKs of all kinds, whole and hurt, against a shield that challenges, and what may come back: an answer that a client can read and
//! that is no larger than the question, or nothing.

use bpf::filter::{CookieCounts, Tested};
use rules::packet::{Packet, Parsed};
use wire::{Ethernet, Ip, Transport};

use super::{
    CLIENT, CookieBed, SERVER,
    frames::{ACK, FIN, Frame, LINUX, RST, SYN, WINDOWS},
};
use crate::random::{self, Random};

const DROP: u32 = 1;
const PASS: u32 = 2;
/// XDP_TX, and by redirect for a veth.
const BACK: [u32; 2] = [3, 4];
/// A frame on the wire is no shorter, less its FCS.
const FRAME_MIN: usize = 60;
/// The option of every SYN-ACK: the MSS.
const MSS_LEN: usize = 4;
/// Marks of a valid ACK, before the frame.
const MARK_LEN: usize = 16;

/// The attempts.
#[derive(Debug, Default)]
pub struct Tried {
    pub frames: u64,
    pub answered: u64,
    /// ACKs with a right cookie.
    pub finished: u64,
    /// Answers longer than their questions, never by more than [`MSS_LEN`].
    pub longer: u64,
}

/// Sends `frames` frames; what is wrong with the first answer that is wrong. `splits`: also in several buffers.
pub fn attack(
    bed: &CookieBed,
    random: &mut Random,
    frames: u64,
    splits: bool,
    tried: &mut Tried,
) -> Result<(), String> {
    let before = (bed.counts(), tried.answered, tried.finished);
    let run = || (0..frames).try_for_each(|_| one(bed, random, splits, tried));
    bed.server.run(run)?;
    let CookieCounts { answered, right, .. } = bed.counts();
    let counted = (answered - before.0.answered, right - before.0.right);
    let seen = (tried.answered - before.1, tried.finished - before.2);
    if counted == seen { Ok(()) } else { Err(format!("answered and right: counted {counted:?}, seen {seen:?}")) }
}

fn one(bed: &CookieBed, random: &mut Random, splits: bool, tried: &mut Tried) -> Result<(), String> {
    let syn = question(bed, random);
    let mut bytes = syn.bytes();
    if random.percent(30) {
        bytes.resize(bytes.len().max(FRAME_MIN), 0);
    }
    let hurt = random.percent(50);
    if hurt {
        random::hurt(random, &mut bytes);
    }
    let Some(answer) = send(bed, random, splits, &bytes, tried)? else { return Ok(()) };
    // In a gateway's cookie there is nothing to acknowledge.
    if hurt || bed.ack.is_none() || random.percent(60) {
        return Ok(());
    }
    let mut ack = Frame { extra: vec![], ..syn.finish(&Frame::read(&answer)) };
    ack.data = vec![7; random.pick(&[0, 0, 10])];
    let mut bytes = ack.bytes();
    if random.percent(30) {
        random::hurt(random, &mut bytes);
        return send(bed, random, splits, &bytes, tried).map(drop);
    }
    let before = tried.finished;
    send(bed, random, false, &bytes, tried)?;
    if tried.finished == before { Err(format!("a right ACK does not pass: {bytes:02x?}")) } else { Ok(()) }
}

/// A segment for the server: a SYN nine times of ten, with options that clients send or random ones.
fn question(bed: &CookieBed, random: &mut Random) -> Frame {
    let family = random.below(2);
    let mut frame = Frame::new(bed.server.link.mac, bed.client.link.mac, CLIENT[family], SERVER[family]);
    frame.tags = (0..random.pick(&[0, 0, 0, 1, 1, 2])).map(|_| random.draw() as u16).collect();
    frame.ports.0 = random.draw() as u16;
    (frame.seq, frame.ack) = (random.draw() as u32 & 0x7fff_ffff, random.draw() as u32);
    if random.percent(10) {
        frame.flags = random.pick(&[ACK, RST, FIN, SYN | ACK, SYN | RST, SYN | FIN, 0, 0xff]);
    } else {
        frame.flags = SYN | random.pick(&[0, 0, 0xc0, 0x08, 0x20]);
    }
    frame.options = match random.below(4) {
        0 => LINUX.to_vec(),
        1 => WINDOWS.to_vec(),
        2 => vec![],
        _ => {
            let kind = [0, 1, 1, 2, 3, 4, 5, 8, 30, 255];
            (0..4 * random.below(11))
                .map(|_| if random.percent(60) { random.pick(&kind) } else { random.pick(&[2, 3, 4, 10]) })
                .collect()
        }
    };
    frame.extra = match (family, random.below(10)) {
        (0, 0) => vec![1; 4 * (1 + random.below(10))],
        // Destination options before TCP, filled by a padding option.
        (1, 0) => {
            let units = random.below(4);
            let mut header = vec![0; 8 + 8 * units];
            (header[0], header[1], header[2], header[3]) = (6, units as u8, 1, 4 + 8 * units as u8);
            header
        }
        _ => vec![],
    };
    frame.data = vec![0x5a; random.pick(&[0, 0, 0, 0, 1, 100, 1200, 4000])];
    frame
}

/// Sends it; the answer.
fn send(
    bed: &CookieBed,
    random: &mut Random,
    splits: bool,
    bytes: &[u8],
    tried: &mut Tried,
) -> Result<Option<Vec<u8>>, String> {
    if bytes.len() < 14 {
        return Ok(None);
    }
    let first = if splits && random.percent(10) { 14 + random.below(bytes.len() - 13) } else { bytes.len() };
    let tested = bed.shield.test_split(bytes, first).map_err(|error| error.to_string())?;
    tried.frames += 1;
    let wrong = |why: String| {
        format!("{why}\n{first} of {} bytes in the first buffer: {bytes:02x?}\n{tested:02x?}", bytes.len())
    };
    match tested.action {
        DROP => Ok(None),
        PASS if tested.frame == bytes => Ok(None),
        PASS if tested.frame.len() == bytes.len() + MARK_LEN && tested.frame.ends_with(bytes) => {
            tried.finished += 1;
            Ok(None)
        }
        PASS => Err(wrong("passed, but not as it came".to_owned())),
        action if BACK.contains(&action) => {
            well_formed(bytes, &tested, bed.ack.is_some()).map_err(wrong)?;
            tried.answered += 1;
            tried.longer += u64::from(tested.frame.len() > bytes.len().max(FRAME_MIN));
            Ok(Some(tested.frame))
        }
        action => Err(wrong(format!("the program's answer is {action}"))),
    }
}

/// Checks that the answer matches this question.
fn well_formed(question: &[u8], tested: &Tested, host: bool) -> Result<(), String> {
    let answer = &tested.frame[..];
    let Parsed::Ip(syn) = Packet::parse(question) else { return Err("what is no packet is answered".into()) };
    if syn.tcp_flags.is_none_or(|flags| flags & (SYN | ACK | RST | FIN) != SYN) {
        return Err(format!("what is no SYN is answered: {syn:?}"));
    }
    let allowed = question.len() + if host { MSS_LEN } else { 0 };
    if answer.len() > allowed.max(FRAME_MIN) {
        return Err(format!("{} bytes are answered by {}", question.len(), answer.len()));
    }
    let unread = |error: wire::WireError| error.to_string();
    let (ethernet, to) = (Ethernet::parse(answer).map_err(unread)?, Ethernet::parse(question).map_err(unread)?);
    let ip = Ip::parse(ethernet.payload()).map_err(unread)?;
    let Transport::Tcp(tcp, options, data) = Transport::parse(&ip).map_err(unread)? else {
        return Err("the answer is no TCP".into());
    };
    let same = [
        ("MAC addresses", (ethernet.source(), ethernet.destination()) == (to.destination(), to.source())),
        ("tags", ethernet.tags().map(|t| (t.protocol, t.control)).eq(to.tags().map(|t| (t.protocol, t.control)))),
        ("addresses", (ip.source(), ip.destination()) == (syn.destination, syn.source)),
        ("ports", Some((tcp.destination.get(), tcp.source.get())) == syn.ports),
        ("the IP header's length", ip.header_len() == if syn.family() == 4 { 20 } else { 40 }),
        ("the IP checksum", ip.is_checksum_right()),
        ("the TCP checksum", ip.is_payload_checksum_right() == Some(true)),
        ("the length", !ip.is_cut_short() && ip.fragment().is_none() && data.is_empty()),
        ("the flags", tcp.offset_flags.get() as u8 & !0x40 == SYN | ACK),
        ("the hop limit", ip.hop_limit() == 64),
    ];
    if let Some((what, _)) = same.iter().find(|(_, right)| !right) {
        return Err(format!("{what} of the answer"));
    }
    let number = |at: usize| u32::from_be_bytes(question[syn.transport_at + at..][..4].try_into().unwrap_or_default());
    if host && tcp.acknowledgement.get() != number(4).wrapping_add(1) {
        return Err("the acknowledgment of the answer".into());
    }
    // The gateway asks by a number that the client cannot have meant.
    if !host && tcp.acknowledgement.get().wrapping_sub(number(4)).wrapping_sub(1) < 0x1_0000 {
        return Err("the gateway's question looks like a right answer".into());
    }
    kinds(options)
}

/// Each option has its length, and they fill the header: MSS, SACK, timestamps, window scale, each once.
fn kinds(mut options: &[u8]) -> Result<(), String> {
    let mut seen = Vec::new();
    while let [kind, rest @ ..] = options {
        if *kind == 1 {
            options = rest;
            continue;
        }
        let len = match kind {
            2 => 4,
            3 => 3,
            4 => 2,
            8 => 10,
            _ => return Err(format!("option {kind} of the answer")),
        };
        if rest.first() != Some(&len) || options.len() < usize::from(len) || seen.contains(kind) {
            return Err(format!("option {kind} of the answer, its length"));
        }
        seen.push(*kind);
        options = &options[usize::from(len)..];
    }
    Ok(())
}
