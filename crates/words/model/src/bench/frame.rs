//! Frames of a trial, and the bits of a frame by layer.

use std::fmt;

use serde::{Deserialize, Serialize};

/// Ethernet header and FCS, in bytes.
pub const ETHERNET_BYTES: u32 = 18;
/// Preamble, start delimiter and the least gap between frames, in bytes (IEEE 802.3).
pub const LINE_BYTES: u32 = 20;

#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case", tag = "kind")]
pub enum FrameSpec {
    Size {
        /// Bytes with FCS, as RFC 2544 counts.
        bytes: u32,
    },
    /// UDP datagrams in fragments.
    Datagram {
        /// Bytes of UDP payload.
        payload: u32,
        fragments: u32,
    },
    Mix {
        /// Name of the mix, such as `imix`.
        name: String,
        /// The sizes in turn, bytes with FCS.
        bytes: Vec<u32>,
    },
    /// The packets of a capture file, in its order.
    Replay {
        file: String,
        packets: u32,
        /// All their bytes with FCS, as sent.
        bytes: u64,
    },
}

impl FrameSpec {
    /// Frames that are one unit of counting: fragments of a datagram; 1 for everything else.
    pub fn frames_per_unit(&self) -> u32 {
        match self {
            Self::Datagram { fragments, .. } => *fragments,
            _ => 1,
        }
    }

    /// Mean bytes of one unit on Ethernet with FCS, all its frames together. `ip_header` is 20 or 40 bytes.
    pub fn frame_bytes(&self, ip_header: u32) -> f64 {
        match self {
            Self::Size { bytes } => f64::from(*bytes),
            Self::Datagram { payload, fragments } => {
                // IPv6 fragments carry eight bytes of header more.
                let per_frame = ETHERNET_BYTES + ip_header + if ip_header == 40 { 8 } else { 0 };
                f64::from(payload + 8) + f64::from(fragments * per_frame)
            }
            Self::Mix { bytes, .. } => bytes.iter().map(|&b| f64::from(b)).sum::<f64>() / bytes.len().max(1) as f64,
            Self::Replay { packets, bytes, .. } => *bytes as f64 / f64::from(*packets).max(1.0),
        }
    }

    /// Mean bytes of UDP payload of one unit; of a replay, what is left behind a UDP header.
    pub fn payload_bytes(&self, ip_header: u32) -> f64 {
        match self {
            Self::Datagram { payload, .. } => f64::from(*payload),
            _ => (self.frame_bytes(ip_header) - f64::from(ETHERNET_BYTES + ip_header + 8)).max(0.0),
        }
    }

    /// Bytes that one unit takes on the line, preamble and least gap of each of its frames included.
    pub fn line_bytes(&self, ip_header: u32) -> f64 {
        self.frame_bytes(ip_header) + f64::from(LINE_BYTES * self.frames_per_unit())
    }

    /// Units per second that fill a line of so many bits per second in one direction (RFC 2544, appendix B).
    pub fn line_pps(&self, ip_header: u32, line_bits_per_s: f64) -> f64 {
        line_bits_per_s / (8.0 * self.line_bytes(ip_header))
    }

    /// The word for tables: `64`, `4096 in 3 fragments`, `imix`.
    pub fn label(&self) -> String {
        self.to_string()
    }
}

impl fmt::Display for FrameSpec {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Size { bytes } => write!(f, "{bytes}"),
            Self::Datagram { payload, fragments } => write!(f, "{payload} in {fragments} fragments"),
            Self::Mix { name, .. } => f.write_str(name),
            Self::Replay { file, .. } => f.write_str(file),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn payloads_are_those_of_the_study() {
        for (bytes, payload) in [(64, 18.0), (128, 82.0), (256, 210.0), (512, 466.0), (1024, 978.0), (1518, 1472.0)] {
            assert_eq!(FrameSpec::Size { bytes }.payload_bytes(20), payload);
        }
        let datagram = FrameSpec::Datagram { payload: 4096, fragments: 3 };
        assert_eq!((datagram.payload_bytes(20), datagram.frames_per_unit()), (4096.0, 3));
        assert_eq!(datagram.frame_bytes(20), 4104.0 + 3.0 * 38.0);
        assert_eq!(datagram.label(), "4096 in 3 fragments");
    }

    #[test]
    fn a_full_line_is_that_of_the_rfc() {
        // RFC 2544, appendix B: 10 Mbit/s Ethernet.
        for (bytes, pps) in [(64, 14_880.0), (128, 8_445.0), (512, 2_349.0), (1518, 812.0)] {
            let line = FrameSpec::Size { bytes }.line_pps(20, 10e6);
            assert!((line - pps).abs() < 1.0, "{bytes}: {line}");
        }
    }
}
