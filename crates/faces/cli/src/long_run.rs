//! Verbs that measure for long: they stop at a signal, and show progress on stderr.

use std::fmt::Display;

use indicatif::ProgressBar;
use model::{schema::Document, units::duration_words};
use report::PageError;
use rig::{
    experiment::Control,
    progress::{Progress, Step},
};
use serde::Serialize;
use sys::privilege::Capability;

use crate::{
    bar::{begin_step, steps_bar},
    failure::{Failure, Outcome, note, print},
    results::{OutFile, json_text},
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
pub(crate) fn long_run<T, E: Into<Failure>>(work: impl FnOnce(&mut Control<'_>) -> Result<T, E>) -> Result<T, Failure> {
    let stop = stop_flag(Second::IsIgnored)?;
    let mut bar = Bar { bar: steps_bar(), step: String::new() };
    work(&mut Control { stop: &stop, progress: &mut bar }).map_err(Into::into)
}

/// A result of a measurement, as it is printed, drawn and saved.
pub(crate) trait Found: Serialize {
    /// The name and the version of its schema.
    const SCHEMA: (&'static str, u32);
    /// The page, for people.
    const PAGE: &'static str = "page with the charts";

    fn text(&self) -> String;

    fn page(&self) -> Result<String, PageError>;

    /// The result as JSON.
    fn document(&self) -> Result<String, Failure> {
        let (name, version) = Self::SCHEMA;
        json_text(&Document::new(name, version, self))
    }

    /// Prints the result, as JSON if so wanted, and writes its page.
    fn show(&self, as_json: bool, page: Option<OutFile<'_>>) -> Result<(), Failure> {
        let text = if as_json { self.document()? } else { self.text() };
        put_out(&text, page, || self.page())
    }
}

/// Measures, and shows what was found. `what` is named if a signal ends it; the exit code is that of `outcome`.
pub(crate) fn measure<F: Found, E: Into<Failure>>(
    what: &str,
    (as_json, page): (bool, Option<OutFile<'_>>),
    outcome: impl FnOnce(&F) -> bool,
    work: impl FnOnce(&mut Control<'_>) -> Result<Option<F>, E>,
) -> Result<Outcome, Failure> {
    let Some(found) = long_run(work)? else {
        drop(page);
        return interrupted(what);
    };
    found.show(as_json, page)?;
    Ok(if outcome(&found) { Outcome::Fine } else { Outcome::No })
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
struct Bar {
    bar: ProgressBar,
    step: String,
}

impl Progress for Bar {
    fn begin(&mut self, step: &Step) {
        let left = step.left_s.map_or_else(String::new, |s| format!(", {} left", duration_words(s)));
        self.step.clone_from(&step.name);
        begin_step(&self.bar, step.number, step.of, format!("{}{left}", step.name));
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
