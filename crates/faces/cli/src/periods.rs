//! What verbs have in common that take time: the length of an interval, a loop over intervals, a bar.

use std::{
    sync::atomic::{AtomicBool, Ordering},
    thread,
    time::{Duration, Instant},
};

use indicatif::{ProgressBar, ProgressStyle};

use crate::failure::{Failure, print};

/// A signal is seen after so long at most.
const LOOK: Duration = Duration::from_millis(50);

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
