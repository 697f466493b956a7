//! What happens, on stderr: a bar on a terminal, lines elsewhere.

use ::bench::run::{self, Watch, duration_words};
use indicatif::ProgressBar;
use model::{bench::Trial, units};

use crate::{failure::note, periods::steps_bar};

/// The bar, and lines above it.
pub(super) struct Progress {
    bar: ProgressBar,
    step: String,
}

impl Progress {
    pub(super) fn new() -> Self {
        Self { bar: steps_bar(), step: String::new() }
    }

    pub(super) fn finish(&self) {
        self.bar.finish_and_clear();
    }

    fn line(&self, line: &str) {
        if self.bar.is_hidden() { note(line) } else { self.bar.println(line) }
    }
}

impl Watch for Progress {
    fn begins(&mut self, progress: &run::Progress) {
        let left = duration_words(progress.left_s);
        self.bar.set_length(progress.of as u64);
        self.bar.set_position(progress.number as u64 - 1);
        self.step = progress.step.to_string();
        self.bar.set_message(format!("{}, {left} left", self.step));
        if self.bar.is_hidden() {
            note(format_args!("{}/{} {}, {left} left", progress.number, progress.of, self.step));
        }
    }

    fn ended(&mut self, trial: &Trial) {
        let text = words(trial);
        match &trial.void {
            // A trial that does not count is worth a line wherever it is read.
            Some(why) => self.line(&format!("  {text}: void: {why}")),
            None if self.bar.is_hidden() => note(format_args!("  {text}")),
            None => self.bar.set_message(format!("{}: {text}", self.step)),
        }
    }

    fn says(&mut self, line: &str) {
        self.line(&format!("  {line}"));
    }
}

fn words(trial: &Trial) -> String {
    let late = trial.failed_ratio() - trial.loss_ratio();
    let late = if late > 0.0 { format!(", {} late", units::percent(late)) } else { String::new() };
    format!(
        "{}: {} sent, {} lost{late} in {:.2} s",
        trial.purpose,
        units::pps(trial.offered_pps),
        units::percent(trial.loss_ratio()),
        trial.seconds
    )
}
