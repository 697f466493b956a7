//! Writing pcapng (draft-ietf-opsawg-pcapng): blocks appended to a buffer, little-endian, padded to 32 bits.

use port::Frame;

/// Section Header Block.
const SHB: u32 = 0x0a0d_0d0a;
/// Interface Description Block.
const IDB: u32 = 1;
/// Enhanced Packet Block.
pub(crate) const EPB: u32 = 6;
/// Interface Statistics Block.
const ISB: u32 = 5;

/// An interface as the head of a file describes it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Captured {
    pub name: String,
    /// Link type of the interface (LINKTYPE_…).
    pub link_type: u16,
}

/// Header of a file.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Section {
    /// The machine's hardware, such as `x86_64`.
    pub hardware: String,
    /// The operating system and its release.
    pub os: String,
    pub application: String,
    /// The interfaces, by their numbers in the file.
    pub interfaces: Vec<Captured>,
    /// The filter in tcpdump syntax; empty: none.
    pub filter: String,
    /// Bytes kept of each packet; 0: no limit.
    pub snaplen: u32,
}

/// Totals at the end of a file.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Totals {
    /// Time of the start, in nanoseconds since the epoch.
    pub start_ns: u64,
    pub end_ns: u64,
    /// Packets that passed the filter: delivered and lost.
    pub received: u64,
    /// Packets lost because the buffer was full.
    pub dropped: u64,
    /// Packets delivered to this file.
    pub delivered: u64,
}

const fn padding(len: usize) -> usize {
    len.wrapping_neg() & 3
}

/// Appends a block: type, length, body, length.
fn block(out: &mut Vec<u8>, kind: u32, body: impl FnOnce(&mut Vec<u8>)) {
    let start = out.len();
    out.extend_from_slice(&kind.to_le_bytes());
    out.extend_from_slice(&[0; 4]);
    body(out);
    let len = (out.len() - start + 4) as u32;
    out[start + 4..start + 8].copy_from_slice(&len.to_le_bytes());
    out.extend_from_slice(&len.to_le_bytes());
}

fn option(out: &mut Vec<u8>, code: u16, value: &[u8]) {
    let value = &value[..value.len().min(usize::from(u16::MAX))];
    out.extend_from_slice(&code.to_le_bytes());
    out.extend_from_slice(&(value.len() as u16).to_le_bytes());
    out.extend_from_slice(value);
    out.extend_from_slice(&[0; 3][..padding(value.len())]);
}

fn end_of_options(out: &mut Vec<u8>) {
    out.extend_from_slice(&[0; 4]);
}

/// Appends the head of a file: section and interfaces, with timestamps in nanoseconds.
pub fn head(out: &mut Vec<u8>, section: &Section) {
    block(out, SHB, |out| {
        out.extend_from_slice(&0x1a2b_3c4d_u32.to_le_bytes());
        out.extend_from_slice(&1u16.to_le_bytes());
        out.extend_from_slice(&0u16.to_le_bytes());
        out.extend_from_slice(&u64::MAX.to_le_bytes());
        option(out, 2, section.hardware.as_bytes());
        option(out, 3, section.os.as_bytes());
        option(out, 4, section.application.as_bytes());
        end_of_options(out);
    });
    for interface in &section.interfaces {
        block(out, IDB, |out| {
            out.extend_from_slice(&interface.link_type.to_le_bytes());
            out.extend_from_slice(&0u16.to_le_bytes());
            out.extend_from_slice(&section.snaplen.to_le_bytes());
            option(out, 2, interface.name.as_bytes());
            option(out, 9, &[9]);
            if !section.filter.is_empty() {
                // if_filter: a 0 says that the text is in libpcap's syntax.
                let mut value = vec![0];
                value.extend_from_slice(section.filter.as_bytes());
                option(out, 11, &value);
            }
            option(out, 12, section.os.as_bytes());
            end_of_options(out);
        });
    }
}

fn split(timestamp_ns: u64) -> [u8; 8] {
    let mut words = [0; 8];
    words[..4].copy_from_slice(&((timestamp_ns >> 32) as u32).to_le_bytes());
    words[4..].copy_from_slice(&(timestamp_ns as u32).to_le_bytes());
    words
}

/// Length of an Enhanced Packet Block without data and options, its last word included.
const EPB_FRAME: usize = 32;

/// Appends a packet of the interface with that number. A VLAN tag that the kernel took out goes back behind the addresses, then the whole is cut to
/// `snaplen`. Losses before the packet and the verdict of a filter are marked on it: epb_dropcount, epb_verdict, and comments that Wireshark shows.
#[inline]
pub fn packet(out: &mut Vec<u8>, frame: &Frame<'_>, interface: u32, snaplen: u32) {
    let snaplen = snaplen as usize;
    let (tag, cut) = match frame.vlan {
        Some(tag) if frame.data.len() >= 12 => {
            let mut bytes = [0; 4];
            bytes[..2].copy_from_slice(&tag.tpid.to_be_bytes());
            bytes[2..].copy_from_slice(&tag.tci.to_be_bytes());
            (Some(bytes), 12)
        }
        _ => (None, 0),
    };
    let tag_len = if tag.is_some() { 4 } else { 0 };
    let kept = (frame.data.len() + tag_len).min(snaplen.max(16));
    let pad = padding(kept);
    let marks = frame.lost_before != 0 || frame.judged.is_some();
    let total = EPB_FRAME + kept + pad;
    out.reserve(total);
    let mut head = [0u8; 28];
    head[..4].copy_from_slice(&EPB.to_le_bytes());
    head[4..8].copy_from_slice(&(total as u32).to_le_bytes());
    head[8..12].copy_from_slice(&interface.to_le_bytes());
    head[12..20].copy_from_slice(&split(frame.timestamp_ns));
    head[20..24].copy_from_slice(&(kept as u32).to_le_bytes());
    head[24..28].copy_from_slice(&(frame.wire_len + tag_len as u32).to_le_bytes());
    let start = out.len();
    out.extend_from_slice(&head);
    match tag {
        None => out.extend_from_slice(&frame.data[..kept]),
        Some(tag) => {
            out.extend_from_slice(&frame.data[..cut]);
            out.extend_from_slice(&tag);
            out.extend_from_slice(&frame.data[cut..kept - 4]);
        }
    }
    out.extend_from_slice(&[0; 3][..pad]);
    if !marks {
        out.extend_from_slice(&(total as u32).to_le_bytes());
        return;
    }
    mark(out, frame);
    let total = (out.len() - start + 4) as u32;
    out[start + 4..start + 8].copy_from_slice(&total.to_le_bytes());
    out.extend_from_slice(&total.to_le_bytes());
}

fn mark(out: &mut Vec<u8>, frame: &Frame<'_>) {
    if frame.lost_before != 0 {
        option(out, 4, &u64::from(frame.lost_before).to_le_bytes());
        option(out, 1, format!("{} packets lost before this one", frame.lost_before).as_bytes());
    }
    if let Some(judged) = frame.judged {
        // Type 2: what an XDP program returned, in 8 bytes.
        let mut value = [0; 9];
        (value[0], value[1]) = (2, judged.verdict.action_number());
        option(out, 7, &value);
        option(out, 1, judged.text.as_bytes());
    }
    end_of_options(out);
}

/// Appends the end of a file: the counters of interface 0.
pub fn tail(out: &mut Vec<u8>, totals: &Totals) {
    block(out, ISB, |out| {
        out.extend_from_slice(&0u32.to_le_bytes());
        out.extend_from_slice(&split(totals.end_ns));
        option(out, 2, &split(totals.start_ns));
        option(out, 3, &split(totals.end_ns));
        option(out, 4, &totals.received.to_le_bytes());
        option(out, 5, &totals.dropped.to_le_bytes());
        option(out, 6, &totals.received.to_le_bytes());
        option(out, 8, &totals.delivered.to_le_bytes());
        end_of_options(out);
    });
}

/// Walks whole blocks: gives the type, the bytes and, of a packet, its timestamp in nanoseconds. Stops at a block that is
/// cut off.
pub(crate) fn blocks(bytes: &[u8]) -> impl Iterator<Item = (u32, &[u8], u64)> {
    let word = |b: &[u8], at: usize| b.get(at..at + 4).map(|w| u32::from_le_bytes([w[0], w[1], w[2], w[3]]));
    let mut rest = bytes;
    std::iter::from_fn(move || {
        let (kind, len) = (word(rest, 0)?, word(rest, 4)? as usize);
        if len < 12 || len > rest.len() {
            return None;
        }
        let (one, after) = rest.split_at(len);
        rest = after;
        let timestamp = match (kind, word(one, 12), word(one, 16)) {
            (EPB, Some(high), Some(low)) => u64::from(high) << 32 | u64::from(low),
            _ => 0,
        };
        Some((kind, one, timestamp))
    })
}

#[cfg(test)]
mod tests {
    use pcap_file::pcapng::{Block, PcapNgReader, blocks::enhanced_packet::EnhancedPacketOption};
    use port::VlanTag;
    use proptest::prelude::*;

    use super::*;

    fn section() -> Section {
        Section {
            hardware: "x86_64".into(),
            os: "Linux 6.1".into(),
            application: "evenkeel".into(),
            interfaces: vec![Captured { name: "eth0".into(), link_type: 1 }],
            filter: "udp".into(),
            snaplen: 262_144,
        }
    }

    fn read(bytes: &[u8]) -> Vec<Block<'static>> {
        let mut reader = PcapNgReader::new(bytes).expect("a valid head");
        let mut blocks = Vec::new();
        while let Some(block) = reader.next_block() {
            blocks.push(block.expect("a valid block").into_owned());
        }
        blocks
    }

    #[test]
    fn a_mark_and_the_counters_are_read_by_others() {
        let mut out = Vec::new();
        head(&mut out, &section());
        let data = [7; 61];
        let frame = Frame {
            timestamp_ns: 1_700_000_000_123_456_789,
            wire_len: 61,
            data: &data,
            vlan: None,
            direction: None,
            unfinished: false,
            judged: None,
            lost_before: 42,
        };
        packet(&mut out, &frame, 0, 262_144);
        tail(&mut out, &Totals { start_ns: 1, end_ns: 2, received: 43, dropped: 42, delivered: 1 });
        let blocks = read(&out);
        let Block::EnhancedPacket(epb) = &blocks[1] else { panic!("no packet: {blocks:?}") };
        assert!(epb.options.iter().any(|o| matches!(o, EnhancedPacketOption::DropCount(42))), "{:?}", epb.options);
        assert!(matches!(blocks[2], Block::InterfaceStatistics(_)), "{blocks:?}");
    }

    proptest! {
        #[test]
        fn packets_come_back_as_they_were(
            data in prop::collection::vec(any::<u8>(), 0..200),
            more in 0u32..2000,
            ts in any::<u64>(),
            lost in prop_oneof![Just(0u32), any::<u32>()],
            tag in prop::option::of((any::<u16>(), any::<u16>())),
            snaplen in 16u32..300,
        ) {
            let mut whole = data.clone();
            let mut wire_len = data.len() as u32 + more;
            let frame = Frame {
                timestamp_ns: ts, wire_len, data: &data, direction: None, unfinished: false, judged: None, lost_before: lost,
                vlan: tag.map(|(tpid, tci)| VlanTag { tpid, tci }),
            };
            if let (Some((tpid, tci)), true) = (tag, data.len() >= 12) {
                let mut bytes = tpid.to_be_bytes().to_vec();
                bytes.extend(tci.to_be_bytes());
                whole.splice(12..12, bytes);
                wire_len += 4;
            }
            whole.truncate(snaplen as usize);
            let mut out = Vec::new();
            head(&mut out, &section());
            let at = out.len();
            packet(&mut out, &frame, 0, snaplen);
            let walked: Vec<_> = blocks(&out).collect();
            prop_assert_eq!(walked.len(), 3);
            prop_assert_eq!((walked[2].0, walked[2].1, walked[2].2), (EPB, &out[at..], ts));
            let read = read(&out);
            let Block::EnhancedPacket(epb) = &read[1] else { panic!("no packet") };
            prop_assert_eq!(&epb.data[..], &whole[..]);
            prop_assert_eq!(epb.original_len, wire_len);
            prop_assert_eq!(epb.options.is_empty(), lost == 0);
        }

        #[test]
        fn walking_never_panics(bytes in prop::collection::vec(any::<u8>(), 0..100)) {
            let _ = blocks(&bytes).count();
        }
    }
}
