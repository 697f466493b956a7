//! Verbs that measure for long: they stop at a signal, and show progress on stderr.

use std::{fmt::Display, sync::atomic::AtomicBool, time::Duration};

use indicatif::{ProgressBar, ProgressStyle};
use model::units::duration_words;
use rig::progress::{Progress, Step};
use sys::privilege::Capability;

use crate::{
    failure::{Failure, Outcome, note, print},
    results::OutFile,
    signals::{Second, stop_flag},
};

/// A lab, its programs, and the sampling of its work need these.
pub(crate) const LAB_CAPABILITIES: [Capability; 6] = [
    Capability::CAP_SYS_ADMIN,
    Capability::CAP_NET_ADMIN,
    Capability::CAP_NET_RAW,
    Capability::CAP_BPF,
    Capability::CAP_PERFMON,
    Capability::CAP_SYSLOG,
];

/// Does `work` with a flag that a signal sets, and with a progress bar that is gone afterwards.
pub(crate) fn long_run<T, E: Into<Failure>>(
    work: impl FnOnce(&AtomicBool, &mut Bar) -> Result<T, E>,
) -> Result<T, Failure> {
    let stop = stop_flag(Second::IsIgnored)?;
    let mut bar = Bar { bar: steps_bar(), step: String::new() };
    work(&stop, &mut bar).map_err(Into::into)
}

/// Ends a verb that a signal interrupted, and that has removed all it made.
pub(crate) fn interrupted(verb: &str) -> Result<Outcome, Failure> {
    Ok(end_interrupted(format_args!("Everything that the {verb} had made is gone again")))
}

/// Ends a verb that a signal interrupted: `left` says what became of its results.
pub(crate) fn end_interrupted(left: impl Display) -> Outcome {
    note(format_args!("evenkeel: interrupted. {left}"));
    Outcome::Interrupted
}

/// Progress on stderr: a bar on a terminal, lines elsewhere.
pub(crate) struct Bar {
    bar: ProgressBar,
    step: String,
}

impl Progress for Bar {
    fn begin(&mut self, step: &Step) {
        let left = step.left_s.map_or_else(String::new, |s| format!(", {} left", duration_words(s)));
        self.step.clone_from(&step.name);
        self.bar.set_length(step.of as u64);
        self.bar.set_position(step.number as u64 - 1);
        self.bar.set_message(format!("{}{left}", step.name));
        if self.bar.is_hidden() {
            note(format_args!("{}/{} {}{left}", step.number, step.of, step.name));
        }
    }

    fn update(&mut self, text: &str) {
        if self.bar.is_hidden() {
            note(format_args!("  {text}"));
        } else {
            self.bar.set_message(format!("{}: {text}", self.step));
        }
    }

    fn line(&mut self, text: &str) {
        if self.bar.is_hidden() { note(text) } else { self.bar.println(text) }
    }
}

impl Drop for Bar {
    fn drop(&mut self) {
        self.bar.finish_and_clear();
    }
}

/// A bar for steps whose number is not known yet.
fn steps_bar() -> ProgressBar {
    let bar = ProgressBar::new(1);
    if let Ok(style) = ProgressStyle::with_template("{bar:24} {pos}/{len} {msg} [{elapsed}]") {
        bar.set_style(style);
    }
    bar.enable_steady_tick(Duration::from_millis(500));
    bar
}

/// Prints the text and writes the page. What was measured is not lost when one of these ways out is shut.
pub(crate) fn put_out<E: Into<Failure>>(
    text: &str,
    page: Option<OutFile<'_>>,
    draw: impl FnOnce() -> Result<String, E>,
) -> Result<(), Failure> {
    let printed = print(text);
    if let Some(page) = page {
        page.write(draw().map_err(Into::into)?)?;
    }
    printed
}
