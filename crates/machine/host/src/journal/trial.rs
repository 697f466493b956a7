//! The guardian's process: how a session is put on trial, and what the process does.

use std::{
    io::{self, BufRead, BufReader, Write},
    path::PathBuf,
    process::{Command, Stdio},
};

use super::{Guardian, Journal, JournalError, Session, Verdict, guardian::leave_control_group};
use crate::{
    Root,
    file::{FileError, PRIVATE, append},
    knob::Store,
};

/// The first word of a guardian that watches.
const ARMED: &str = "armed";

/// A session that could not be put on trial: nothing of it is changed yet.
#[derive(Debug, thiserror::Error)]
pub enum TrialError {
    #[error(transparent)]
    Journal(#[from] JournalError),
    #[error(transparent)]
    Log(#[from] FileError),
    #[error("cannot {operation}: {source}")]
    Process { operation: &'static str, source: io::Error },
    #[error("the guardian did not start, so nothing was changed; see {}", log.display())]
    Silent { log: PathBuf },
}

model::classified!(TrialError: Internal, Lacking: Log; within: Journal);

fn process(operation: &'static str) -> impl Fn(io::Error) -> TrialError {
    move |source| TrialError::Process { operation, source }
}

/// A guardian that watches.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Armed {
    /// The control group that it cannot leave, and why, if it cannot: whatever ends that group ends the guardian.
    pub stays_in_group: Option<String>,
}

/// The terms of a trial.
#[derive(Debug)]
pub struct Trial {
    /// A command that comes to [`run_guardian`]; behind it come `SESSION --after SECONDS --state FOLDER [--nic NAME]…`.
    pub guardian: Command,
    /// Seconds until the changes are taken back, unless they are confirmed.
    pub seconds: u64,
    /// The interfaces whose drops are watched.
    pub nics: Vec<String>,
}

impl Session {
    /// Puts this session on trial: starts its guardian, and waits until it watches.
    pub fn on_trial(&mut self, journal: &Journal, trial: Trial) -> Result<Armed, TrialError> {
        let Trial { mut guardian, seconds, mut nics } = trial;
        nics.sort();
        nics.dedup();
        // Whether it lives is told by the session's full name.
        guardian.args([&self.header.session, "--after", &seconds.to_string(), "--state"]).arg(journal.state());
        guardian.args(nics.iter().flat_map(|nic| ["--nic", nic]));
        let path = journal.state().join("guardian.log");
        let log = append(&path, PRIVATE)?;
        guardian.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(log).current_dir("/");
        let mut child = guardian.spawn().map_err(process("start the guardian of --commit-confirm"))?;
        let mut line = String::new();
        if let Some(out) = child.stdout.take() {
            BufReader::new(out).read_line(&mut line).map_err(process("hear the guardian"))?;
        }
        let mut words = line.trim().splitn(3, ' ');
        let deadline = words.next().filter(|&word| word == ARMED).and_then(|_| words.next()?.parse().ok());
        let deadline = deadline.ok_or(TrialError::Silent { log: path })?;
        self.guarded(child.id(), deadline)?;
        Ok(Armed { stays_in_group: words.next().map(str::to_owned) })
    }
}

/// Runs as the guardian of `session` for so many seconds: leaves the terminal and its control group, says on `out` that it watches, and takes the
/// session back unless a confirmation comes, earlier when the drops of `nics` rise.
///
/// # Errors
/// The guardian cannot watch, so nobody may rely on it.
pub fn run_guardian(
    journal: &Journal,
    session: &str,
    seconds: u64,
    nics: Vec<String>,
    store: &mut dyn Store,
    out: &mut dyn Write,
) -> Result<Verdict, TrialError> {
    nix::unistd::setsid().map_err(|errno| process("leave the terminal")(errno.into()))?;
    // Before it says that it watches: a session that it cannot read it could not take back.
    let loaded = journal.session(session)?;
    let guardian = Guardian::arm(Root::live(), nics, seconds);
    let stays = leave_control_group().err().map_or(String::new(), |group| format!(" {group}"));
    writeln!(out, "{ARMED} {}{stays}", guardian.deadline_boottime_ms())
        .and_then(|()| out.flush())
        .map_err(process("say that the guardian watches"))?;
    Ok(guardian.watch(journal, loaded, store))
}
