//! Facts that the machine knows about a packet, beside its bytes.

/// Facts about a packet. None: a fact does not apply to it (ports of a fragment, connections of ICMP), or was not looked up (a capture).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Known {
    /// True if the kernel has its connection: a TCP socket that does not merely listen, a SYN cookie that is right, an entry of conntrack.
    pub connection: Option<bool>,
    /// A socket of this machine listens at its destination.
    pub listener: Option<bool>,
    /// True if its source was seen before, while no attack was under way.
    pub source_seen: Option<bool>,
}

impl Known {
    /// Different answers to the three questions together.
    pub const VALUES: usize = 27;

    /// Its number among them: three digits of 0 (cannot be said), 1 (no), 2 (yes), the connection's the lowest. The kernel program counts the same.
    pub fn number(self) -> usize {
        [self.source_seen, self.listener, self.connection]
            .into_iter()
            .fold(0, |number, answer| 3 * number + digit(answer))
    }

    pub(crate) fn of(number: usize) -> Self {
        let answer = |digit: usize| [None, Some(false), Some(true)][digit % 3];
        Self { connection: answer(number), listener: answer(number / 3), source_seen: answer(number / 9) }
    }

    /// True if it answers all that is asked as it is asked. What cannot be said is no answer.
    pub fn answers(self, wanted: &Self) -> bool {
        let one = |wanted: Option<bool>, answer: Option<bool>| wanted.is_none() || wanted == answer;
        one(wanted.connection, self.connection)
            && one(wanted.listener, self.listener)
            && one(wanted.source_seen, self.source_seen)
    }

    /// True if it asks, or answers, nothing.
    pub fn is_nothing(&self) -> bool {
        *self == Self::default()
    }
}

fn digit(answer: Option<bool>) -> usize {
    answer.map_or(0, |yes| 1 + usize::from(yes))
}

#[cfg(test)]
mod tests {
    use super::Known;

    #[test]
    fn numbers_lead_back() {
        for number in 0..Known::VALUES {
            assert_eq!(Known::of(number).number(), number);
        }
        assert_eq!(Known { connection: Some(false), ..Known::default() }.number(), 1);
        assert_eq!(Known { listener: Some(true), ..Known::default() }.number(), 6);
    }

    #[test]
    fn what_cannot_be_reported_answers_nothing() {
        let wanted = Known { connection: Some(false), ..Known::default() };
        assert!(!Known::default().answers(&wanted) && wanted.answers(&wanted) && wanted.answers(&Known::default()));
        assert!(!Known { connection: Some(true), ..wanted }.answers(&wanted));
    }
}
