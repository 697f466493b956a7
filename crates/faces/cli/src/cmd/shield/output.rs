//! Messages and events of a running shield, on stderr and stdout.

use std::{
    io::{self, ErrorKind},
    os::fd::{AsFd, BorrowedFd},
    process, thread,
    time::Duration,
};

use anyhow::Context;
use serve::{Lost, OutputThread};
use shield::run::Message;

use crate::failure::{Failure, note};

/// The process ends after so long though somebody does not even take its last word.
const EXIT_TIMEOUT: Duration = Duration::from_secs(3);

/// Messages go to stderr, documents to stdout; events too if they are JSON.
pub(super) struct Output {
    out: OutputThread,
    err: OutputThread,
    json: bool,
}

impl Output {
    pub(super) fn start(json: bool) -> Result<Self, Failure> {
        let (out, err) = (io::stdout(), io::stderr());
        let out = start(out.as_fd(), "standard output")?;
        Ok(Self { out, err: start(err.as_fd(), "standard error")?, json })
    }

    pub(super) fn emit(&self, message: Message) {
        match message {
            Message::Text(text) => self.message(&text),
            Message::Event(event) if self.json => self.show(shield::events::line(&event)),
            Message::Event(event) => self.message(shield::events::line(&event).trim_end()),
        }
    }

    /// Puts a line on stderr.
    pub(super) fn message(&self, line: &str) {
        self.err.put(format!("{line}\n"));
    }

    /// Puts lines on stdout.
    pub(super) fn show(&self, text: String) {
        self.out.put(text);
    }

    /// Returns whether nothing that is shown reaches anybody any more.
    pub(super) fn is_unheard(&self) -> bool {
        self.out.has_ended()
    }
}

fn start(to: BorrowedFd<'_>, name: &'static str) -> Result<OutputThread, Failure> {
    let started = OutputThread::start(to, move |lost| note(message(name, &lost)));
    started.with_context(|| format!("cannot write to the {name}")).map_err(Failure::lacking)
}

fn message(name: &str, lost: &Lost) -> String {
    match lost {
        Lost::LeftOut(count) => format!("{count} messages were left out: nobody read them"),
        Lost::Ended(error) if error.kind() == ErrorKind::BrokenPipe => format!(
            "nobody reads the {name} any more; the shield goes on without it (end it with `evenkeel shield stop` or kill {})",
            process::id()
        ),
        Lost::Ended(error) => format!("cannot write to the {name}: {error}; the shield goes on without it"),
    }
}

/// From now on the program has a moment to end by itself with `code`; then it is ended, whoever does not read its last words.
pub(super) fn end_soon(code: u8) {
    thread::spawn(move || {
        thread::sleep(EXIT_TIMEOUT);
        process::exit(code.into());
    });
}
