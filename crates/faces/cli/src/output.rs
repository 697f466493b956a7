//! Messages and events of a verb that stays, such as a shield, on stderr and stdout.

use std::{
    io::{self, ErrorKind},
    os::fd::{AsFd, BorrowedFd},
    process, thread,
    time::Duration,
};

use anyhow::Context;
use serve::{Lost, OutputThread};

use crate::failure::{Failure, note};

/// The process ends after so long though somebody does not even take its last word.
const EXIT_TIMEOUT: Duration = Duration::from_secs(3);

/// Messages go to stderr, documents to stdout; events too if they are JSON.
pub(crate) struct Output {
    out: OutputThread,
    err: OutputThread,
    json: bool,
}

/// A service that goes on after its reader has gone.
#[derive(Debug, Clone)]
pub(crate) struct Who {
    /// Name in a sentence: `the shield`.
    pub(crate) name: &'static str,
    /// The command that ends the process, such as `evenkeel shield stop eth0`.
    pub(crate) stop: String,
}

impl Output {
    pub(crate) fn start(who: &Who, json: bool) -> Result<Self, Failure> {
        let (out, err) = (io::stdout(), io::stderr());
        let out = start(out.as_fd(), "standard output", who)?;
        Ok(Self { out, err: start(err.as_fd(), "standard error", who)?, json })
    }

    /// Puts an event, a line of JSON, where it belongs.
    pub(crate) fn event(&self, line: String) {
        match self.json {
            true => self.show(line),
            false => self.message(line.trim_end()),
        }
    }

    /// Puts a line on stderr.
    pub(crate) fn message(&self, line: &str) {
        self.err.put(format!("{line}\n"));
    }

    /// Puts lines on stdout.
    pub(crate) fn show(&self, text: String) {
        self.out.put(text);
    }

    /// Returns whether nothing that is shown reaches anybody any more.
    pub(crate) fn is_unheard(&self) -> bool {
        self.out.has_ended()
    }
}

fn start(to: BorrowedFd<'_>, name: &'static str, who: &Who) -> Result<OutputThread, Failure> {
    let who = who.clone();
    let started = OutputThread::start(to, move |lost| note(message(name, &who, &lost)));
    started.with_context(|| format!("cannot write to the {name}")).map_err(Failure::lacking)
}

fn message(name: &str, Who { name: who, stop }: &Who, lost: &Lost) -> String {
    match lost {
        Lost::LeftOut(count) => format!("{count} messages were left out: nobody read them"),
        Lost::Ended(error) if error.kind() == ErrorKind::BrokenPipe => format!(
            "nobody reads the {name} any more; {who} goes on without it (end it with `{stop}` or kill {})",
            process::id()
        ),
        Lost::Ended(error) => format!("cannot write to the {name}: {error}; {who} goes on without it"),
    }
}

/// From now on the program has a moment to end by itself with `code`; then it is ended, whoever does not read its last words.
pub(crate) fn end_soon(code: u8) {
    thread::spawn(move || {
        thread::sleep(EXIT_TIMEOUT);
        process::exit(code.into());
    });
}
