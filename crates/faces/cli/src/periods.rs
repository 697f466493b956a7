//! Intervals that are measured one after the other.

use std::{
    sync::atomic::{AtomicBool, Ordering},
    thread,
    time::{Duration, Instant},
};

use clap::Args;
use serde::Serialize;

use crate::{
    failure::{Failure, json_line, print},
    numbers::number,
    terminal::is_interactive,
    time::interval,
};

/// A signal is seen after so long at most.
const SIGNAL_PERIOD: Duration = Duration::from_millis(50);

/// Intervals that are measured and shown one after the other.
#[derive(Debug, Args)]
#[command(next_help_heading = "Intervals")]
pub(crate) struct Intervals {
    /// Measure one interval, print it as text and end.
    #[arg(long, conflicts_with = "count")]
    once: bool,
    /// Length of an interval, 100ms to 1h.
    #[arg(long, short, value_name = "TIME", default_value = "1s", value_parser = interval)]
    pub(crate) interval: Duration,
    /// End after this number of intervals; 0: no end.
    #[arg(long, short = 'n', value_name = "N", value_parser = number::<u64>("a number of intervals", "10", ..))]
    count: Option<u64>,
    /// Print JSON, one document on a line for each interval.
    #[arg(long)]
    pub(crate) json: bool,
}

impl Intervals {
    /// A live view is shown in the foreground of a terminal, unless text or JSON is asked for.
    pub(crate) fn are_live(&self) -> bool {
        !self.once && !self.json && is_interactive()
    }

    /// The number after which a live view ends.
    pub(crate) fn most(&self) -> Option<u64> {
        self.count.filter(|&count| count > 0)
    }

    /// Prints each interval, as `text` has it or as a document of `verb`.
    pub(crate) fn print<T: Serialize>(
        &self,
        verb: &str,
        stop: &AtomicBool,
        mut next: impl FnMut() -> Result<T, Failure>,
        text: impl Fn(&T) -> String,
    ) -> Result<(), Failure> {
        let count = if self.count.is_none() { Some(1) } else { self.most() };
        each(self.interval, count, stop, |first| {
            let measured = next()?;
            print(&match self.json {
                true => json_line(verb, &measured)?,
                false if first => text(&measured),
                false => format!("\n{}", text(&measured)),
            })
        })
    }
}

/// Does something at the end of each interval, `count` times or until `stop` is set: then the interval ends early, and is the last.
fn each(
    interval: Duration,
    count: Option<u64>,
    stop: &AtomicBool,
    mut ended: impl FnMut(bool) -> Result<(), Failure>,
) -> Result<(), Failure> {
    let begun = Instant::now();
    let mut taken: u32 = 0;
    while count.is_none_or(|n| u64::from(taken) < n) {
        taken = taken.saturating_add(1);
        // Counted from the beginning, so that the intervals do not drift.
        let stopped = !sleep_until(begun + interval * taken, stop);
        ended(taken == 1)?;
        if stopped {
            break;
        }
    }
    Ok(())
}

/// Sleeps until `end`; false when `stop` was set before.
pub(crate) fn sleep_until(end: Instant, stop: &AtomicBool) -> bool {
    while !stop.load(Ordering::Relaxed) {
        let left = end.saturating_duration_since(Instant::now());
        if left.is_zero() {
            return true;
        }
        thread::sleep(left.min(SIGNAL_PERIOD));
    }
    false
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn intervals_end_with_their_count_or_a_stop() {
        let firsts = |interval: Duration, count, stop| {
            let mut firsts = Vec::new();
            let ended = |first| {
                firsts.push(first);
                Ok(())
            };
            each(interval, count, &AtomicBool::new(stop), ended).expect("nothing fails");
            firsts
        };
        assert_eq!(firsts(Duration::ZERO, Some(3), false), [true, false, false]);
        assert_eq!(firsts(Duration::from_secs(3600), None, true), [true]);
    }
}
