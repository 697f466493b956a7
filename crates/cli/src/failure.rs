//! How a verb ends: an outcome, or a failure with its class and its exit code.

use std::{
    fmt::Display,
    io::{self, Write},
    process::ExitCode,
};

use anyhow::Context;
use model::{Classified, ErrorClass};

/// A verb that ran to its end.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Outcome {
    /// All is fine (exit code 0).
    Fine,
    /// The answer is "no": a verdict, a finding (exit code 1).
    No,
}

impl From<Outcome> for ExitCode {
    fn from(outcome: Outcome) -> Self {
        match outcome {
            Outcome::Fine => Self::SUCCESS,
            Outcome::No => Self::from(1),
        }
    }
}

/// A verb that could not do its work.
#[derive(Debug)]
pub(crate) struct Failure {
    class: ErrorClass,
    error: anyhow::Error,
}

impl Failure {
    /// Wrong arguments or wrong input (exit code 2).
    pub(crate) fn usage(error: impl Into<anyhow::Error>) -> Self {
        Self { class: ErrorClass::Usage, error: error.into() }
    }

    /// The machine or a privilege lacks something (exit code 3).
    pub(crate) fn lacking(error: impl Into<anyhow::Error>) -> Self {
        Self { class: ErrorClass::Lacking, error: error.into() }
    }

    /// An internal fault (exit code 4).
    pub(crate) fn internal(error: impl Into<anyhow::Error>) -> Self {
        Self { class: ErrorClass::Internal, error: error.into() }
    }

    /// The same failure, with what was done about it.
    pub(crate) fn after(self, done: &str) -> Self {
        Self { class: self.class, error: anyhow::anyhow!("{}. {done}", self.message()) }
    }

    /// Says on stderr what went wrong, in one paragraph, and gives the exit code. A closed pipe is not worth a word.
    pub(crate) fn report(self) -> ExitCode {
        if self.is_broken_pipe() {
            return ExitCode::SUCCESS;
        }
        note(format_args!("evenkeel: {}", self.message()));
        ExitCode::from(self.exit_code())
    }

    /// The exit code of its class.
    pub(crate) fn exit_code(&self) -> u8 {
        self.class.exit_code()
    }

    /// What went wrong with its causes, each said once: an error of ours mostly says its cause itself.
    pub(crate) fn message(&self) -> String {
        self.error.chain().map(ToString::to_string).fold(String::new(), |said, next| match said.as_str() {
            "" => next,
            _ if said.contains(&next) => said,
            _ => format!("{said}: {next}"),
        })
    }

    fn is_broken_pipe(&self) -> bool {
        self.error
            .chain()
            .filter_map(|e| e.downcast_ref::<std::io::Error>())
            .any(|e| e.kind() == std::io::ErrorKind::BrokenPipe)
    }
}

impl<E: Classified + Send + Sync + 'static> From<E> for Failure {
    fn from(error: E) -> Self {
        Self { class: error.class(), error: error.into() }
    }
}

/// Makes a panic of `println!` on a closed pipe a quiet end, as other filters do it: exit code 0 and no message.
pub(crate) fn die_quietly_on_broken_pipe() {
    let default = std::panic::take_hook();
    std::panic::set_hook(Box::new(move |info| {
        let text = info.payload().downcast_ref::<String>().map_or("", String::as_str);
        if text.starts_with("failed printing to stdout") && text.contains("Broken pipe") {
            std::process::exit(0);
        }
        default(info);
    }));
}

/// A line on stdout from a verb that changes the machine: there a lost terminal or pipe must not end the work half done, as
/// the panic of `println!` does. The caller sees the loss if it cares.
pub(crate) fn tell(line: impl Display) -> io::Result<()> {
    writeln!(io::stdout(), "{line}")
}

/// Writes a whole answer to the standard output.
pub(crate) fn print(text: &str) -> Result<(), Failure> {
    let mut out = io::stdout().lock();
    out.write_all(text.as_bytes())
        .and_then(|()| out.flush())
        .context("cannot write to the standard output")
        .map_err(Failure::lacking)
}

/// A line on stderr; a message that nobody can hear any more is no reason to stop.
pub(crate) fn note(line: impl Display) {
    let _ = writeln!(io::stderr(), "{line}");
}
