//! The internet checksum (RFC 1071) and its incremental update (RFC 1624).

use std::net::IpAddr;

/// A sum of 16-bit words in one's complement arithmetic, not yet complemented.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Sum(u64);

impl Sum {
    /// The empty sum.
    pub fn new() -> Self {
        Self::default()
    }

    /// Adds bytes as big-endian words; an odd last byte counts as the upper half of a word.
    #[must_use]
    pub fn bytes(mut self, data: &[u8]) -> Self {
        let (words, rest) = data.as_chunks::<2>();
        for word in words {
            self.0 += u64::from(u16::from_be_bytes(*word));
        }
        if let [last] = rest {
            self.0 += u64::from(*last) << 8;
        }
        self
    }

    /// Adds one word.
    #[must_use]
    pub fn word(self, word: u16) -> Self {
        Self(self.0 + u64::from(word))
    }

    /// Adds the pseudo-header of UDP, TCP and ICMPv6: addresses, protocol and length (RFC 768, RFC 8200 section 8.1).
    ///
    /// The addresses are of one family; of two different ones both are added as they are.
    #[must_use]
    pub fn pseudo_header(self, source: IpAddr, destination: IpAddr, protocol: u8, len: u32) -> Self {
        let add = |sum: Self, address: IpAddr| match address {
            IpAddr::V4(a) => sum.bytes(&a.octets()),
            IpAddr::V6(a) => sum.bytes(&a.octets()),
        };
        add(add(self, source), destination).word(u16::from(protocol)).bytes(&len.to_be_bytes())
    }

    /// The checksum: the folded sum, complemented.
    pub fn finish(self) -> u16 {
        let mut sum = self.0;
        while sum > 0xffff {
            sum = (sum & 0xffff) + (sum >> 16);
        }
        !(sum as u16)
    }

    /// The checksum of UDP, where 0 would mean "none" and is sent as 0xffff (RFC 768).
    pub fn finish_udp(self) -> u16 {
        match self.finish() {
            0 => 0xffff,
            sum => sum,
        }
    }
}

/// The checksum after one 16-bit word under it changed from `old` to `new` (RFC 1624, equation 3).
pub fn update(checksum: u16, old: u16, new: u16) -> u16 {
    Sum::new().word(!checksum).word(!old).word(new).finish()
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn the_examples_of_the_standards_hold() {
        // RFC 1071, section 3.
        assert_eq!(!Sum::new().bytes(&[0x00, 0x01, 0xf2, 0x03, 0xf4, 0xf5, 0xf6, 0xf7]).finish(), 0xddf2);
        // RFC 1624, section 4.
        assert_eq!(update(0xdd2f, 0x5555, 0x3285), 0x0000);
        assert_eq!(Sum::new().finish_udp(), 0xffff);
    }

    proptest! {
        #[test]
        fn an_update_equals_a_new_sum(mut data in proptest::collection::vec(any::<u8>(), 4..80), at in 0usize..40, new: u16) {
            prop_assume!(data.iter().any(|&b| b != 0));
            let at = at * 2 % (data.len() / 2 * 2);
            let before = Sum::new().bytes(&data).finish();
            let old = u16::from_be_bytes([data[at], data[at + 1]]);
            data[at..at + 2].copy_from_slice(&new.to_be_bytes());
            prop_assume!(data.iter().any(|&b| b != 0));
            prop_assert_eq!(update(before, old, new), Sum::new().bytes(&data).finish());
        }
    }
}
