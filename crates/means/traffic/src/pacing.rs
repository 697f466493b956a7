//! A sender's wait for the time of its next packet.

use std::time::Duration;

/// Up to this rate a sender sleeps unless told otherwise, in packets per second: bursts stay within what queues hold.
pub const SLEEP_PPS_MAX: f64 = 100_000.0;
/// The shortest sleep: a wake-up and a system call cost some 0.1 ms together.
const NAP_MIN: Duration = Duration::from_millis(1);
/// The longest sleep, so that a stop is seen soon.
const NAP_MAX: Duration = Duration::from_millis(20);
/// A sender looks once more this long before its end, and sends what became due since the look before.
const LAST_LOOK_LEAD: Duration = Duration::from_micros(200);

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Pacing {
    /// By running: evenly spaced packets, at the price of the core.
    Even,
    /// By sleeping: leaves the core to others, at the price of bursts.
    Sleep,
}

impl Pacing {
    /// Name of the pacing on the command line.
    pub fn name(self) -> &'static str {
        match self {
            Self::Even => "even",
            Self::Sleep => "sleep",
        }
    }
}

/// The sleep of a sender of `pps` packets per second between two looks: a gap where that is between 1 and 20 ms.
pub fn nap(pps: f64) -> Duration {
    let gap = Duration::try_from_secs_f64(1.0 / pps).unwrap_or(NAP_MAX);
    gap.clamp(NAP_MIN, NAP_MAX)
}

/// The rest of `wait` when the sender may at most sleep until shortly before its end, `left` from now.
pub(crate) fn until_last_look(wait: Duration, left: Duration) -> Duration {
    if left > LAST_LOOK_LEAD { wait.min(left - LAST_LOOK_LEAD) } else { wait.min(left) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_nap_is_a_gap_within_bounds() {
        let ms = |pps| nap(pps).as_secs_f64() * 1e3;
        assert_eq!([ms(1e5), ms(1e3), ms(0.001), ms(1e-300)], [1.0, 1.0, 20.0, 20.0]);
        assert!((ms(100.0) - 10.0).abs() < 1e-6);
    }

    #[test]
    fn the_last_look_is_shortly_before_the_end() {
        let us = Duration::from_micros;
        assert_eq!(until_last_look(us(1000), us(5000)), us(1000));
        assert_eq!(until_last_look(us(1000), us(900)), us(700));
        assert_eq!(until_last_look(us(1000), us(150)), us(150));
    }
}
