//! Changes of the machine that a verb makes at once: what `spread apply` and `doctor --fix` say about them alike.

use std::{path::Path, process::Command};

use anyhow::Context;
use host::{
    journal::{Applied, Transaction, TransactionError, Trial, Writer, settings, short_name},
    knob::{Change, Live},
};
use serde::Serialize;

use crate::{
    args::state_flag,
    cmd::keep::Keeping,
    failure::{Failure, Lines, caution, note},
    signals::{Second, stop_flag},
};

/// The command line as it was typed.
pub(crate) fn command_line() -> String {
    std::env::args().collect::<Vec<_>>().join(" ")
}

/// Applied changes, in the JSON of both verbs.
#[derive(Debug, Default, Serialize)]
pub(crate) struct Made {
    session: Option<String>,
    written: u32,
    unchanged: u32,
}

impl Made {
    /// True if there was anything to make.
    pub(crate) fn is_some(&self) -> bool {
        self.session.is_some()
    }
}

/// The terms of a change: the journal's folder, and whether it is on trial.
pub(crate) struct Terms<'a> {
    /// The state folder, if one was named.
    pub(crate) state: Option<&'a Path>,
    /// Seconds until the changes are taken back, unless they are confirmed.
    pub(crate) commit_confirm: Option<u64>,
    /// The file that keeps the change, with `--keep`.
    pub(crate) keeping: Option<Keeping>,
}

impl Terms<'_> {
    /// Writes the file that keeps the change, if there is one.
    pub(crate) fn keep(&mut self) -> Result<(), Failure> {
        self.keeping.as_mut().map_or(Ok(()), Keeping::write)
    }

    /// Makes `keep run` read the file. The journal must be unlocked.
    pub(crate) fn tell(&self) -> Result<(), Failure> {
        self.keeping.as_ref().map_or(Ok(()), Keeping::tell)
    }

    /// Makes the changes; with `commit_confirm` a guardian watches the drops of `nics`. The file that keeps them is written before, so that
    /// nothing is set that cannot be kept, and is restored if they fail.
    pub(crate) fn make(
        &mut self,
        writer: &Writer,
        nics: Vec<String>,
        changes: &[Change],
        replan: impl FnOnce() -> Result<Vec<Change>, Failure>,
    ) -> Result<Made, Failure> {
        self.keep()?;
        self.set(writer, nics, changes, replan).map_err(|failure| match self.keeping.take() {
            Some(keeping) => keeping.put_back(failure),
            None => failure,
        })
    }

    fn set(
        &self,
        writer: &Writer,
        nics: Vec<String>,
        changes: &[Change],
        replan: impl FnOnce() -> Result<Vec<Change>, Failure>,
    ) -> Result<Made, Failure> {
        let command = self.keeping.as_ref().map_or_else(command_line, |it| it.session_command(&command_line()));
        let mut transaction = Transaction::begin(writer, &command)?;
        if let Some(seconds) = self.commit_confirm {
            let program =
                std::env::current_exe().context("cannot find this program's own file").map_err(Failure::internal)?;
            let mut guardian = Command::new(program);
            guardian.arg("guardian");
            let armed = transaction.session.on_trial(writer.journal(), Trial { guardian, seconds, nics })?;
            if let Some(group) = armed.stays_in_group {
                note(format_args!(
                    "warning: the guardian cannot leave its control group {group}: whatever ends that group (the end of your login, with \
                     KillUserProcesses=yes) ends the guardian, and the changes then stay"
                ));
            }
        }
        let stop = stop_flag(Second::IsIgnored)?;
        let applied = transaction.make(&mut Live, changes, &stop, replan).map_err(|error| match error {
            TransactionError::Apply(error) => error.into(),
            TransactionError::Stopped(back) => {
                Failure::lacking(anyhow::anyhow!("interrupted")).after(&back.to_string())
            }
            TransactionError::Replan(failure, back) => failure.after(&back.to_string()),
        })?;
        warn(&applied);
        let session = Some(transaction.session.header.session);
        Ok(Made { session, written: applied.written, unchanged: applied.idle })
    }

    /// Says how what was made is taken back; `nothing` where nothing was to be made.
    pub(crate) fn print(&self, lines: &mut Lines, made: &Made, nothing: &str) {
        match (&made.session, &self.keeping) {
            (None, None) => lines.print(nothing),
            (None, Some(kept)) => lines.print(format_args!(
                "{nothing} Kept by {}. Take it back: {}",
                kept.path().display(),
                kept.way_back(self.state)
            )),
            (Some(_), Some(kept)) => lines.print(format_args!(
                "{} written and read back, and kept by {}. Take both back: {}",
                settings(made.written as usize),
                kept.path().display(),
                kept.way_back(self.state)
            )),
            (Some(session), None) => lines.print(format_args!(
                "{} written and read back. Take it back: evenkeel undo {}{}",
                settings(made.written as usize),
                short_name(session),
                state_flag(self.state)
            )),
        }
    }

    /// Says on stderr until when what was made is to be confirmed, if it is.
    pub(crate) fn note_trial(&self) {
        if let Some(seconds) = self.commit_confirm {
            note(format_args!(
                "It is taken back in {seconds} s, or when drops rise, unless you run: evenkeel confirm{}",
                state_flag(self.state)
            ));
        }
    }
}

/// Says what reads otherwise than it was written, and what cannot be set.
fn warn(applied: &Applied) {
    for (change, read_back) in &applied.rounded {
        let (written, is) = (change.knob.phrase(&change.new), change.knob.phrase(read_back));
        caution(format_args!("{}: {written} was written, and it reads {is}", change.knob));
    }
    if let Some((_, why)) = applied.refused.first() {
        let left: Vec<String> = applied.refused.iter().map(|(change, _)| change.knob.to_string()).collect();
        caution(format_args!("{} stay as they were ({}): {why}", left.len(), left.join(", ")));
    }
}
