//! The verdict of an XDP filter on one frame.

use std::num::NonZeroU32;

/// The end of a frame: the XDP action of the program that judged it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum XdpAction {
    /// Dropped as by a fault of the program (0).
    Aborted,
    /// Dropped (1).
    Drop,
    /// Passed on to the host (2).
    Pass,
    /// Answered by the interface that it came by (3).
    Tx,
    /// Sent to another interface or socket (4).
    Redirect,
}

/// A filter's reason.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Why {
    /// A rule says so.
    Rule,
    /// The packet is beyond the limit of a rule.
    Limit,
    /// A rule challenges its sender.
    Challenge,
    Default,
    /// Cut short, or in contradiction with itself.
    Malformed,
    NotIp,
    /// The filter's control process is gone.
    NoHeartbeat,
}

/// The verdict on one frame with its reason, in the 32 bits in which kernel programs hand it on.
///
/// Bit 31 is set; bits 20 to 23 say why, 16 to 18 are the action, and the low 16 bits are the number of the deciding rule's counter plus 1, or 0.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Verdict(NonZeroU32);

impl Verdict {
    /// The word that a kernel program has written.
    pub fn word(self) -> u32 {
        self.0.get()
    }

    /// The verdict in a word that a kernel program has written; none: nobody judged the frame.
    pub fn of(word: u32) -> Option<Self> {
        NonZeroU32::new(word).filter(|word| word.get() >> 31 == 1).map(Self)
    }

    /// The number of the action, as XDP programs return it.
    pub fn action_number(self) -> u8 {
        (self.0.get() >> 16 & 7) as u8
    }

    /// The end of the frame.
    pub fn action(self) -> XdpAction {
        match self.0.get() >> 16 & 7 {
            1 => XdpAction::Drop,
            2 => XdpAction::Pass,
            3 => XdpAction::Tx,
            4 => XdpAction::Redirect,
            _ => XdpAction::Aborted,
        }
    }

    pub fn why(self) -> Why {
        match self.0.get() >> 20 & 15 {
            0 => Why::Rule,
            1 => Why::Limit,
            2 => Why::Challenge,
            3 => Why::Default,
            4 => Why::Malformed,
            5 => Why::NotIp,
            _ => Why::NoHeartbeat,
        }
    }

    /// The number of the deciding rule's counter, if a rule decided.
    pub fn counter(self) -> Option<u16> {
        (self.0.get() as u16).checked_sub(1)
    }

    /// The verdict in words, with the rule's name: `dropped by rule "bad-port"`.
    pub fn text(self, rule: Option<&str>) -> String {
        let done = match self.action() {
            XdpAction::Aborted | XdpAction::Drop => "dropped",
            XdpAction::Pass => "passed",
            XdpAction::Tx => "answered",
            XdpAction::Redirect => "sent on to the other interface",
        };
        let rule = match (rule, self.counter()) {
            (Some(name), _) => format!("rule \"{name}\""),
            (None, Some(counter)) => format!("the rule of counter {counter}"),
            (None, None) => "a rule".to_owned(),
        };
        match self.why() {
            Why::Rule => format!("{done} by {rule}"),
            Why::Limit => format!("{done} by the limit of {rule}"),
            Why::Challenge => format!("{done} by the challenge of {rule}"),
            Why::Default => format!("{done} by default: no rule applies"),
            Why::Malformed => format!("{done} as malformed"),
            Why::NotIp => format!("{done}: not IP"),
            Why::NoHeartbeat => format!("{done}: the shield's control process is gone"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_word_is_read_as_it_is_written() {
        let word = |why: u32, action: u32, counter_plus_1: u32| 1 << 31 | why << 20 | action << 16 | counter_plus_1;
        let dropped = Verdict::of(word(0, 1, 8)).unwrap();
        assert_eq!((dropped.action(), dropped.why(), dropped.counter()), (XdpAction::Drop, Why::Rule, Some(7)));
        assert_eq!(dropped.text(Some("x")), "dropped by rule \"x\"");
        assert_eq!(dropped.text(None), "dropped by the rule of counter 7");
        let crossed = Verdict::of(word(3, 4, 0)).unwrap();
        assert_eq!((crossed.action(), crossed.why(), crossed.counter()), (XdpAction::Redirect, Why::Default, None));
        assert_eq!(Verdict::of(0), None);
        assert_eq!(Verdict::of(7), None, "nobody has written that");
    }
}
