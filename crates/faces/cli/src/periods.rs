//! What verbs have in common that take time: the length of an interval, a loop over intervals, a bar.

use std::{
    sync::atomic::{AtomicBool, Ordering},
    thread,
    time::{Duration, Instant},
};

use indicatif::{ProgressBar, ProgressStyle};

use crate::failure::{Failure, print};

/// The shortest interval: below it the kernel's CPU times, which count ticks of 10 ms, say nothing, and a reading is a large part of
/// it.
const SHORTEST_S: f64 = 0.1;
const LONGEST_S: f64 = 3600.0;
/// A signal is seen after so long at most.
const LOOK: Duration = Duration::from_millis(50);

/// The length of an interval out of an argument, in seconds.
pub(crate) fn seconds(text: &str) -> Result<f64, String> {
    let number: f64 = text.parse().map_err(|_| format!("`{text}` is not a number of seconds"))?;
    if (SHORTEST_S..=LONGEST_S).contains(&number) {
        Ok(number)
    } else {
        Err(format!("an interval is from {SHORTEST_S} to {LONGEST_S} seconds"))
    }
}

/// Prints what `answer` has to say at the end of each interval, `count` times or without end. It is told whether it is the first.
pub(crate) fn print_each(
    interval: Duration,
    count: Option<u64>,
    answer: impl FnMut(bool) -> Result<String, Failure>,
) -> Result<(), Failure> {
    print_each_until(interval, count, &AtomicBool::new(false), answer)
}

/// The same until `stop` is set: then the interval ends early, and its answer is the last.
pub(crate) fn print_each_until(
    interval: Duration,
    count: Option<u64>,
    stop: &AtomicBool,
    mut answer: impl FnMut(bool) -> Result<String, Failure>,
) -> Result<(), Failure> {
    let begun = Instant::now();
    let mut taken: u32 = 0;
    while count.is_none_or(|n| u64::from(taken) < n) {
        taken = taken.saturating_add(1);
        // Counted from the beginning, so that the intervals do not drift.
        let end = begun + interval * taken;
        while !stop.load(Ordering::Relaxed) && Instant::now() < end {
            thread::sleep(end.saturating_duration_since(Instant::now()).min(LOOK));
        }
        let stopped = stop.load(Ordering::Relaxed);
        print(&answer(taken == 1)?)?;
        if stopped {
            break;
        }
    }
    Ok(())
}

/// A bar for steps whose number is not known yet.
pub(crate) fn steps_bar() -> ProgressBar {
    let bar = ProgressBar::new(1);
    if let Ok(style) = ProgressStyle::with_template("{bar:24} {pos}/{len} {msg} [{elapsed}]") {
        bar.set_style(style);
    }
    bar.enable_steady_tick(Duration::from_millis(500));
    bar
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_interval_is_a_number_within_bounds() {
        assert_eq!(seconds("0.1"), Ok(0.1));
        assert_eq!(seconds("3600"), Ok(3600.0));
        for wrong in ["0.09", "3601", "-1", "NaN", "x", ""] {
            assert!(seconds(wrong).is_err(), "{wrong}");
        }
    }

    #[test]
    fn as_many_answers_are_asked_for_as_were_wanted() {
        let mut firsts = Vec::new();
        let answer = |first| {
            firsts.push(first);
            Ok(String::new())
        };
        print_each(Duration::ZERO, Some(3), answer).expect("nothing is printed");
        assert_eq!(firsts, [true, false, false]);
    }

    #[test]
    fn a_stop_ends_the_interval_and_its_answer_is_the_last() {
        let mut answers = 0;
        let answer = |_| {
            answers += 1;
            Ok(String::new())
        };
        print_each_until(Duration::from_secs(3600), None, &AtomicBool::new(true), answer).expect("nothing is printed");
        assert_eq!(answers, 1);
    }
}
