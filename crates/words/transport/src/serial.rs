//! Serial number arithmetic (RFC 1982).

/// A sequence number that wraps.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Hash)]
pub struct Serial(pub u32);

impl Serial {
    /// The number advanced by `count`.
    #[must_use]
    pub fn plus(self, count: u32) -> Self {
        Self(self.0.wrapping_add(count))
    }

    /// Distance from `other`; negative before it.
    pub fn since(self, other: Self) -> i32 {
        self.0.wrapping_sub(other.0) as i32
    }

    pub fn is_before(self, other: Self) -> bool {
        self.since(other) < 0
    }

    /// True for the `count` numbers from `first` on.
    pub fn is_within(self, first: Self, count: u32) -> bool {
        self.0.wrapping_sub(first.0) < count
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_follow_each_other_across_the_wrap() {
        let last = Serial(u32::MAX);
        assert_eq!(last.plus(1), Serial(0));
        assert!(last.is_before(Serial(5)) && !Serial(5).is_before(last) && !last.is_before(last));
        assert_eq!((Serial(5).since(last), last.since(Serial(5))), (6, -6));
        assert!(Serial(3).is_within(Serial(u32::MAX - 1), 6) && !Serial(4).is_within(Serial(u32::MAX - 1), 6));
    }
}
