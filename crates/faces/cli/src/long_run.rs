//! Verbs that measure for long: they stop at a signal, show progress on stderr, and put their results out at the end.

use std::{path::Path, sync::atomic::AtomicBool};

use host::file::{PUBLIC, Whole};
use indicatif::ProgressBar;
use rig::progress::{Progress, Step, duration_words};
use serde::Serialize;
use sys::privilege::Capability;

use crate::{
    failure::{Failure, Outcome, note, print},
    periods::steps_bar,
    signals::{Second, end_interrupted, stop_flag},
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

/// Bytes of room on the disk that a file for results takes before the run begins.
const ROOM: u32 = 256 << 10;

/// A file for results, found to be writable before the run begins.
pub(crate) struct OutFile<'a> {
    file: Whole,
    path: &'a Path,
    what: &'static str,
}

impl<'a> OutFile<'a> {
    /// Opens the file, if one is wanted; `what` names it when it is written.
    pub(crate) fn open(path: Option<&'a Path>, what: &'static str) -> Result<Option<Self>, Failure> {
        let Some(path) = path else { return Ok(None) };
        let mut file = Whole::open(path, PUBLIC)?;
        file.reserve(ROOM)?;
        Ok(Some(Self { file, path, what }))
    }

    /// Writes the file whole, and says where it is.
    pub(crate) fn write(self, bytes: impl AsRef<[u8]>) -> Result<(), Failure> {
        self.file.write(bytes.as_ref())?;
        note(format_args!("The {}: {}", self.what, self.path.display()));
        Ok(())
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

/// A document as text.
pub(crate) fn json_text(document: &impl Serialize) -> Result<String, Failure> {
    Ok(serde_json::to_string_pretty(document).map_err(Failure::internal)? + "\n")
}
