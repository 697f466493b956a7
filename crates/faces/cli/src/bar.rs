//! A bar of steps on stderr, if that is a terminal.

use std::time::Duration;

use indicatif::{ProgressBar, ProgressStyle};

/// A bar for an unknown number of steps.
pub(crate) fn steps_bar() -> ProgressBar {
    let bar = ProgressBar::new(1);
    if let Ok(style) = ProgressStyle::with_template("{bar:24} {pos}/{len} {msg} [{elapsed}]") {
        bar.set_style(style);
    }
    bar.enable_steady_tick(Duration::from_millis(500));
    bar
}

/// Shows step `number` of `of`.
pub(crate) fn begin_step(bar: &ProgressBar, number: usize, of: usize, message: String) {
    bar.set_length(of as u64);
    bar.set_position(number as u64 - 1);
    bar.set_message(message);
}
