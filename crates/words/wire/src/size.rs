//! Frame sizes: with FCS, as RFC 2544 counts them, and without, as they lie in memory.

use std::fmt;

use crate::ethernet::FCS_LEN;

/// Preamble, start delimiter and the gap between frames, which a frame also costs on the line, in bytes (IEEE 802.3).
pub const LINE_OVERHEAD: usize = 20;

/// The size of an Ethernet frame.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct FrameSize(usize);

impl FrameSize {
    /// The least frame of Ethernet: 64 bytes with FCS, 60 in memory.
    pub const MIN: Self = Self(64);
    /// The largest untagged frame at an MTU of 1500: 1518 bytes with FCS, 1514 in memory.
    pub const MAX_STANDARD: Self = Self(1518);
    /// The sizes of RFC 2544, section 9.1, in bytes with FCS.
    pub const RFC2544: [Self; 7] = [Self(64), Self(128), Self(256), Self(512), Self(1024), Self(1280), Self(1518)];

    /// A size in bytes with FCS, as RFC 2544 counts.
    pub const fn with_fcs(bytes: usize) -> Self {
        Self(bytes)
    }

    /// A size in bytes as the frame lies in memory.
    pub const fn in_memory(bytes: usize) -> Self {
        Self(bytes + FCS_LEN)
    }

    pub const fn bytes_with_fcs(self) -> usize {
        self.0
    }

    /// Bytes in memory: without FCS.
    pub const fn bytes_in_memory(self) -> usize {
        self.0.saturating_sub(FCS_LEN)
    }
}

/// Bytes with FCS.
impl fmt::Display for FrameSize {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

/// The simple Internet mix: of 12 frames 7 of 64, 4 of 594 and 1 of 1518 bytes with FCS, spread evenly over the cycle.
pub const IMIX: [FrameSize; 12] = {
    const S: FrameSize = FrameSize(64);
    const M: FrameSize = FrameSize(594);
    const L: FrameSize = FrameSize(1518);
    [S, M, S, S, M, S, L, S, M, S, S, M]
};

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn imix_is_7_4_1() {
        let count = |bytes| IMIX.iter().filter(|s| s.bytes_with_fcs() == bytes).count();
        assert_eq!((count(64), count(594), count(1518)), (7, 4, 1));
    }

    #[test]
    fn ten_gigabit_is_14_88_million_of_the_least_frames() {
        let pps = 10e9 / (8.0 * (FrameSize::MIN.bytes_with_fcs() + LINE_OVERHEAD) as f64);
        assert!((pps - 14_880_952.0).abs() < 1.0);
        assert_eq!(FrameSize::MIN.bytes_in_memory(), 60);
        assert_eq!(FrameSize::in_memory(1514), FrameSize::MAX_STANDARD);
    }
}
