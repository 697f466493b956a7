//! The time in front of a line.

use std::io::{self, Write};

use super::Time;

/// Local time with a look at the machine's time zone every quarter of an hour of the packets' own time: zones change at its ends.
#[derive(Debug)]
pub(super) struct Clock {
    shown: Time,
    zone: jiff::tz::TimeZone,
    quarter: u64,
    offset_s: i64,
    /// The packet from which the time counts, in nanoseconds since the epoch.
    since: Option<u64>,
}

impl Clock {
    const QUARTER_S: u64 = 900;

    /// Seconds since the epoch as they stand on the wall.
    fn local(&mut self, seconds: u64) -> u64 {
        let quarter = seconds / Self::QUARTER_S;
        if quarter != self.quarter {
            self.quarter = quarter;
            let at = jiff::Timestamp::from_second(i64::try_from(seconds).unwrap_or(0)).unwrap_or_default();
            self.offset_s = i64::from(self.zone.to_offset(at).seconds());
        }
        seconds.saturating_add_signed(self.offset_s)
    }

    pub(super) fn new(shown: Time) -> Self {
        Self { shown, zone: jiff::tz::TimeZone::system(), quarter: u64::MAX, offset_s: 0, since: None }
    }

    /// Writes the time of a packet.
    pub(super) fn write(&mut self, out: &mut Vec<u8>, timestamp_ns: u64) -> io::Result<()> {
        let (seconds, micros) = (timestamp_ns / 1_000_000_000, timestamp_ns % 1_000_000_000 / 1000);
        let of_day = |seconds: u64| (seconds / 3600 % 24, seconds / 60 % 60, seconds % 60);
        match self.shown {
            Time::None => Ok(()),
            Time::Epoch => write!(out, "{seconds}.{micros:06} "),
            Time::OfDay => {
                let (h, m, s) = of_day(self.local(seconds));
                write!(out, "{h:02}:{m:02}:{s:02}.{micros:06} ")
            }
            Time::Date => {
                let local = self.local(seconds);
                let (h, m, s) = of_day(local);
                let day = jiff::Timestamp::from_second(i64::try_from(local).unwrap_or(0)).unwrap_or_default();
                let day = day.to_zoned(jiff::tz::TimeZone::UTC).date();
                write!(out, "{day} {h:02}:{m:02}:{s:02}.{micros:06} ")
            }
            Time::SincePrevious | Time::SinceFirst => {
                // Whole microseconds, as they stand in the other forms.
                let (since, now) = (self.since.unwrap_or(timestamp_ns) / 1000, timestamp_ns / 1000);
                if self.shown == Time::SincePrevious || self.since.is_none() {
                    self.since = Some(timestamp_ns);
                }
                let (sign, span) = (if now < since { '-' } else { ' ' }, now.abs_diff(since));
                let (seconds, micros) = (span / 1_000_000, span % 1_000_000);
                let (h, m, s) = (seconds / 3600, seconds / 60 % 60, seconds % 60);
                write!(out, "{sign}{h:02}:{m:02}:{s:02}.{micros:06} ")
            }
        }
    }
}
