//! Checksums that were left to a NIC: a veth hands frames on as its other end's stack made them, and no NIC comes.

use wire::{Ethernet, Ip, Sum, ip::protocol};

/// Writes the checksum of a whole TCP segment or UDP datagram where that of the pseudo-header alone stands; all other frames stay as they are.
pub(super) fn finish(frame: &mut [u8]) {
    if let Some((at, checksum)) = finished(frame)
        && let Some(field) = frame.get_mut(at..at + 2)
    {
        field.copy_from_slice(&checksum.to_be_bytes());
    }
}

/// The place and the kind of a checksum.
fn finished(frame: &[u8]) -> Option<(usize, u16)> {
    let payload = Ethernet::parse(frame).ok()?.payload();
    let ip = Ip::parse(payload).ok().filter(|ip| ip.fragment().is_none() && !ip.is_cut_short())?;
    let within = match ip.protocol() {
        protocol::TCP => 16,
        protocol::UDP => 6,
        _ => return None,
    };
    let segment = ip.payload();
    let field = segment.get(within..).and_then(<[u8]>::first_chunk).map(|bytes| u16::from_be_bytes(*bytes))?;
    let sum = Sum::new().pseudo_header(ip.source(), ip.destination(), ip.protocol(), segment.len() as u32);
    // Of a tunnel the inner one is unfinished, and this one is right, or none.
    if field != !sum.finish() {
        return None;
    }
    // The field itself adds the pseudo-header.
    let sum = Sum::new().bytes(segment);
    let checksum = if ip.protocol() == protocol::UDP { sum.finish_udp() } else { sum.finish() };
    Some((frame.len() - payload.len() + ip.header_len() + within, checksum))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A frame with the checksum of its pseudo-header alone.
    fn unfinished(tags: &[u16], v6: bool, number: u8, data: &[u8]) -> Vec<u8> {
        let (within, header) = if number == protocol::TCP { (16, 20) } else { (6, 8) };
        let mut segment = vec![7; header];
        if number == protocol::UDP {
            segment[4..6].copy_from_slice(&((header + data.len()) as u16).to_be_bytes());
        } else {
            segment[12] = 0x50;
        }
        segment[within..within + 2].fill(0);
        segment.extend_from_slice(data);
        let len = segment.len() as u16;
        let mut ip = if v6 {
            let mut ip = vec![0x60, 0, 0, 0, (len >> 8) as u8, len as u8, number, 64];
            ip.extend([1; 16].into_iter().chain([2; 16]));
            ip
        } else {
            let total = len + 20;
            let mut ip = vec![0x45, 0, (total >> 8) as u8, total as u8, 0, 0, 0, 0, 64, number, 0, 0];
            ip.extend([10, 0, 0, 1, 10, 0, 0, 2]);
            ip
        };
        let parsed = [ip.clone(), segment.clone()].concat();
        let parsed = Ip::parse(&parsed).unwrap();
        let sum = Sum::new().pseudo_header(parsed.source(), parsed.destination(), number, u32::from(len));
        segment[within..within + 2].copy_from_slice(&(!sum.finish()).to_be_bytes());
        ip.extend(segment);
        let mut frame = vec![3; 12];
        for tag in tags {
            frame.extend([0x81, 0x00]);
            frame.extend(tag.to_be_bytes());
        }
        frame.extend(if v6 { [0x86, 0xdd] } else { [0x08, 0x00] });
        frame.extend(ip);
        // Padding is not summed.
        frame.extend([0xff; 5]);
        frame
    }

    fn is_right(frame: &[u8]) -> Option<bool> {
        Ip::parse(Ethernet::parse(frame).unwrap().payload()).unwrap().is_payload_checksum_right()
    }

    #[test]
    fn those_of_tcp_and_udp_are_finished_behind_tags_too() {
        for tags in [&[][..], &[5], &[5, 6]] {
            for (v6, number) in [false, true].into_iter().flat_map(|v6| [(v6, protocol::TCP), (v6, protocol::UDP)]) {
                let mut frame = unfinished(tags, v6, number, b"even and odd.");
                assert_eq!(is_right(&frame), Some(false));
                finish(&mut frame);
                assert_eq!(is_right(&frame), Some(true), "{tags:?} {v6} {number}");
                let before = frame.clone();
                finish(&mut frame);
                assert_eq!(frame, before, "what is right stays");
            }
        }
    }

    #[test]
    fn other_frames_stay_as_they_are() {
        let whole = unfinished(&[], false, protocol::UDP, b"tunnel");
        let mut none = whole.clone();
        none[14 + 20 + 6..14 + 20 + 8].fill(0);
        let mut fragment = whole.clone();
        fragment[14 + 6] = 0x20;
        let mut other = whole.clone();
        other[14 + 9] = 132;
        for frame in [none, fragment, other].into_iter().chain((0..whole.len() - 5).map(|end| whole[..end].to_vec())) {
            let mut after = frame.clone();
            finish(&mut after);
            assert_eq!(after, frame);
        }
    }
}
