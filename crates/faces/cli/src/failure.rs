//! How a verb ends: an outcome, or a failure with its class and its exit code.

use std::{
    error::Error,
    fmt::Display,
    io::{self, IsTerminal, Write},
    process::ExitCode,
};

use anyhow::anyhow;
use model::{
    Classified, ErrorClass,
    schema::Document,
    visible::{visible, visible_plain},
};
use serde::Serialize;

/// A verb that ran to its end.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Outcome {
    /// All is fine (exit code 0).
    Fine,
    /// The answer is "no": a verdict, a finding (exit code 1).
    No,
    /// A signal ended it, and has been told about: the process ends as the signal would have ended it, once all that it holds has gone.
    #[cfg(any(feature = "demo", feature = "verbs"))]
    Interrupted,
}

impl From<Outcome> for ExitCode {
    fn from(outcome: Outcome) -> Self {
        match outcome {
            Outcome::Fine => Self::SUCCESS,
            Outcome::No => Self::from(1),
            #[cfg(any(feature = "demo", feature = "verbs"))]
            Outcome::Interrupted => {
                // The parent is to see that a signal ended us. Where that fails, the code says what a shell would say of it.
                let _ = signal_hook::low_level::emulate_default_handler(signal_hook::consts::SIGINT);
                Self::from(128 + signal_hook::consts::SIGINT as u8)
            }
        }
    }
}

/// Nobody reads the standard output any more: the reader had enough of it.
#[derive(Debug, thiserror::Error)]
#[error("nobody reads the standard output any more")]
struct Unread;

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

    /// The failure with what was done about it.
    pub(crate) fn after(self, done: &str) -> Self {
        Self { class: self.class, error: anyhow!("{}. {done}", self.message()) }
    }

    /// Says on stderr what went wrong, in one paragraph, and gives the exit code. A closed pipe is not worth a word.
    pub(crate) fn report(self) -> ExitCode {
        if self.is_unread() {
            return ExitCode::SUCCESS;
        }
        note(format_args!("evenkeel: {}", self.message()));
        ExitCode::from(self.exit_code())
    }

    /// The exit code of its class.
    pub(crate) fn exit_code(&self) -> u8 {
        self.class.exit_code()
    }

    /// The error and its causes.
    pub(crate) fn message(&self) -> String {
        message(self.error.as_ref())
    }

    /// True if all that went wrong is that nobody reads the standard output any more.
    pub(crate) fn is_unread(&self) -> bool {
        self.error.is::<Unread>()
    }
}

/// An error with its causes, each said once: an error of ours mostly says its cause itself.
pub(crate) fn message(error: &(dyn Error + 'static)) -> String {
    anyhow::Chain::new(error).map(ToString::to_string).fold(String::new(), |text, next| match text.as_str() {
        "" => next,
        _ if text.contains(&next) => text,
        _ => format!("{text}: {next}"),
    })
}

impl<E: Classified + Send + Sync + 'static> From<E> for Failure {
    fn from(error: E) -> Self {
        Self { class: error.class(), error: error.into() }
    }
}

/// Writes a whole answer to the standard output.
pub(crate) fn print(text: &str) -> Result<(), Failure> {
    written(text).map_err(cannot_write)
}

/// A failed write to the standard output.
pub(crate) fn cannot_write(error: io::Error) -> Failure {
    match error.kind() {
        io::ErrorKind::BrokenPipe => Failure::lacking(Unread),
        _ => Failure::lacking(anyhow::Error::from(error).context(CANNOT_WRITE)),
    }
}

pub(crate) fn json<T: Serialize>(verb: &str, body: T) -> Result<String, Failure> {
    serde_json::to_string_pretty(&Document::new(verb, 1, body)).map_err(Failure::internal)
}

/// A document as a line of its own, for outputs that have one document per line.
pub(crate) fn json_line<T: Serialize>(verb: &str, body: T) -> Result<String, Failure> {
    Ok(serde_json::to_string(&Document::new(verb, 1, body)).map_err(Failure::internal)? + "\n")
}

/// Prints a document on stdout.
pub(crate) fn print_json<T: Serialize>(verb: &str, body: T) -> Result<(), Failure> {
    print(&(json(verb, body)? + "\n"))
}

/// Writes a whole answer that is a verdict, too: who has gone away no longer hears the words, and the exit code is as it was.
pub(crate) fn print_verdict(text: &str, outcome: Outcome) -> Result<Outcome, Failure> {
    match print(text) {
        Err(failure) if !failure.is_unread() => Err(failure),
        _ => Ok(outcome),
    }
}

/// Writes what was asked for by `--help` or `--version`.
pub(crate) fn print_help(help: &clap::Error) -> Result<Outcome, Failure> {
    help.print().and_then(|()| io::stdout().flush()).map_err(cannot_write)?;
    Ok(Outcome::Fine)
}

fn written(text: &str) -> io::Result<()> {
    let mut out = io::stdout().lock();
    // Names of processes, interfaces and files come from others: a terminal must not obey them.
    out.write_all(visible(text).as_bytes())?;
    out.flush()
}

/// Followed by the cause.
const CANNOT_WRITE: &str = "cannot write to the standard output";

/// The lines of a verb that changes the machine: there a lost terminal, pipe or disk must not end the work half done. What
/// was lost is told at the end.
#[derive(Debug, Default)]
pub(crate) struct Lines {
    lost: Option<io::Error>,
}

impl Lines {
    /// Says a line on stdout, or learns that it is lost.
    pub(crate) fn print(&mut self, line: impl Display) {
        if let Err(error) = written(&format!("{line}\n")) {
            self.lost.get_or_insert(error);
        }
    }

    /// The end of the verb. Where something was `done`, a reader that went away missed what can be taken back how, and is no
    /// small matter; otherwise it is as quiet as elsewhere.
    pub(crate) fn end(self, done: bool, outcome: Outcome) -> Result<Outcome, Failure> {
        match self.lost {
            None => Ok(outcome),
            Some(error) if !done && error.kind() == io::ErrorKind::BrokenPipe => Ok(outcome),
            Some(error) if !done => Err(Failure::lacking(anyhow!("{CANNOT_WRITE}: {error}"))),
            // In words: as a cause, a closed pipe would be kept quiet.
            Some(error) => Err(Failure::lacking(anyhow!(
                "{CANNOT_WRITE}: {error}. The work was done all the same; `evenkeel undo --list` shows what stands"
            ))),
        }
    }
}

/// Says something on stderr, within the width of a terminal.
pub(crate) fn note_within(text: impl Display) {
    let text = text.to_string();
    match io::stderr().is_terminal() {
        true => note(report::Look::of_stderr().paragraph(&text).trim_end()),
        // Whoever reads a pipe finds it in one line.
        false => note(text),
    }
}

/// Says a warning on stderr, within the width of a terminal.
pub(crate) fn caution(text: impl Display) {
    note_within(format_args!("warning: {text}"));
}

/// A line on stderr; a message that nobody can hear any more is no reason to stop.
pub(crate) fn note(line: impl Display) {
    // Nothing here is coloured by us: what is, came with a name or an argument.
    let _ = writeln!(io::stderr(), "{}", visible_plain(&line.to_string()));
}

/// Ends the process over wrong arguments, as clap does; in plain text where an argument has what a terminal would act on.
pub(crate) fn exit_usage(error: &clap::Error) -> ! {
    let is_acted_on = |argument: std::ffi::OsString| {
        let text = argument.to_string_lossy();
        // Borrowed again: nothing was escaped.
        matches!(visible_plain(&text), std::borrow::Cow::Owned(_))
    };
    if std::env::args_os().any(is_acted_on) {
        note(error.render().to_string().trim_end());
        std::process::exit(error.exit_code());
    }
    error.exit()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_of_json_is_one_line() {
        let line = json_line("link.event", serde_json::json!({ "what": "beta\nleft", "node": { "name": "beta" } }));
        let line = line.unwrap();
        assert_eq!(line.find('\n'), Some(line.len() - 1), "{line}");
        let read: serde_json::Value = serde_json::from_str(&line).unwrap();
        assert_eq!((&read["schema"], &read["what"]), (&"evenkeel.link.event/1".into(), &"beta\nleft".into()));
    }

    #[test]
    fn only_an_unread_answer_ends_in_silence() {
        assert!(cannot_write(io::ErrorKind::BrokenPipe.into()).is_unread());
        assert!(!cannot_write(io::ErrorKind::StorageFull.into()).is_unread());
        // A connection of a measurement that broke is no answer that nobody wants.
        let elsewhere =
            anyhow::Error::from(io::Error::from(io::ErrorKind::BrokenPipe)).context("write to a connection");
        assert!(!Failure::lacking(elsewhere).is_unread());
    }
}
