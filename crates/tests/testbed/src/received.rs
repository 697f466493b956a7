//! Comparison of the frames that two routers have sent on.

use std::{collections::BTreeMap, net::Ipv4Addr};

/// The part of a captured frame that is compared; none: the kernel's own traffic.
///
/// Left out are what is drawn at random for each packet that the router makes itself (the identification of its ICMP messages), and what
/// follows a packet in a frame of the smallest size, which a card sends whatever it holds.
pub fn compared(frame: &[u8], routers: &[Ipv4Addr]) -> Option<Vec<u8>> {
    let mut frame = frame.to_vec();
    match frame.get(12..14)? {
        [0x08, 0x06] => return None,
        [0x08, 0] => {
            let len = usize::from(u16::from_be_bytes([*frame.get(16)?, *frame.get(17)?]));
            let source = Ipv4Addr::from(*frame.get(26..30)?.first_chunk::<4>()?);
            if frame.len() <= 60 && 14 + len < frame.len() {
                frame.truncate(14 + len);
            }
            if routers.contains(&source) && frame.len() >= 34 && frame[23] == 1 {
                frame[18..20].fill(0);
                frame[24..26].fill(0);
            }
        }
        [0x86, 0xdd] => {
            let len = usize::from(u16::from_be_bytes([*frame.get(18)?, *frame.get(19)?]));
            if frame.len() <= 60 && 54 + len < frame.len() {
                frame.truncate(54 + len);
            }
            // Neighbours, routers and groups look for each other.
            let hops = frame.get(20..22)?;
            if (hops[0] == 58 && hops[1] == 255 && matches!(frame.get(54)?, 133..=137))
                || (hops == [0, 1] && frame.get(62) == Some(&143))
            {
                return None;
            }
        }
        _ => return None,
    }
    Some(frame)
}

/// The count of each frame, with the fields left out that routers may set differently.
pub fn counted(frames: &[Vec<u8>], routers: &[Ipv4Addr]) -> BTreeMap<Vec<u8>, i64> {
    let mut seen = BTreeMap::new();
    for frame in frames.iter().filter_map(|frame| compared(frame, routers)) {
        *seen.entry(frame).or_default() += 1;
    }
    seen
}

/// Frames that came more or less often than expected, but for those that are `left_out`; the first of them are told.
pub fn differences(
    who: &str,
    expected: &BTreeMap<Vec<u8>, i64>,
    got: &BTreeMap<Vec<u8>, i64>,
    left_out: impl Fn(&[u8]) -> bool,
) -> usize {
    println!("{who}: {} frames of the kernel", expected.values().sum::<i64>());
    let mut both = got.clone();
    expected.iter().for_each(|(frame, times)| *both.entry(frame.clone()).or_default() -= times);
    both.retain(|frame, times| *times != 0 && !left_out(frame));
    for (frame, times) in both.iter().take(20) {
        let hex: String = frame.iter().take(120).map(|byte| format!("{byte:02x}")).collect();
        let alone = expected.get(frame).unwrap_or(&0);
        println!("{who} got {times:+} than the {alone} of {} bytes {hex}", frame.len());
    }
    both.len()
}

/// True for an ICMP error about a packet that an IPv4 route refused, and for a redirect. The kernel sends each source few of them a second, and fewer
/// after a redirect (net.ipv4.route.error_cost, which is the whole machine's): which ones it sends depends on how long the frames took.
pub fn answers_refused(frame: &[u8]) -> bool {
    let at = |range: std::ops::Range<usize>| frame.get(range).unwrap_or_default();
    // The answer to a packet with options has options.
    let message = 14 + frame.get(14).map_or(0, |first| usize::from(first & 15) * 4);
    at(12..14) == [8, 0] && at(23..24) == [1] && matches!(at(message..message + 2), [3, 0 | 1 | 13] | [5, _])
}
