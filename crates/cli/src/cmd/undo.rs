//! `evenkeel undo` and `evenkeel confirm`: what was changed is taken back, or stays.

use std::{
    fs,
    io::{BufRead, BufReader, Write},
    path::PathBuf,
    process::{Command, Stdio},
};

use anyhow::{Context, anyhow};
use clap::Args;
use host::{
    Root,
    journal::{Guardian, Journal, Session, StepReport, StepState, UndoOptions, UndoReport, Verdict},
    knob::Live,
};
use model::schema::Document;
use serde::Serialize;

use crate::failure::{Failure, Outcome};

/// Take back what evenkeel changed, last change first.
///
/// Without a session: the last one that still stands. A value that somebody else has written since stops it, and both values
/// are named. Works after a crash: every change is on disk before it is made.
#[derive(Debug, Args)]
pub(crate) struct UndoArgs {
    /// The session, as `apply` printed it and --list shows it.
    #[arg(value_name = "SESSION", conflicts_with = "all")]
    session: Option<String>,
    /// Every session that still stands, last first.
    #[arg(long)]
    all: bool,
    /// List the sessions and change nothing.
    #[arg(long, conflicts_with_all = ["session", "all"])]
    list: bool,
    /// Print the shell commands and change nothing.
    #[arg(long)]
    dry_run: bool,
    /// Put the old value back even where somebody else has written since, or a watch still runs.
    #[arg(long)]
    force: bool,
    /// Where the journal is kept [default: /var/lib/evenkeel, or EVENKEEL_STATE].
    #[arg(long, value_name = "DIR")]
    state: Option<PathBuf>,
    /// Print JSON (schema evenkeel.undo/1).
    #[arg(long)]
    json: bool,
    /// Be the guardian of SESSION for so many seconds (what --commit-confirm starts).
    #[arg(long, hide = true, requires = "session")]
    after: Option<u64>,
    /// An interface whose drops the guardian watches.
    #[arg(long, hide = true)]
    nic: Vec<String>,
}

/// Confirm the changes of `spread apply --commit-confirm`, so that they stay.
#[derive(Debug, Args)]
pub(crate) struct ConfirmArgs {
    /// The session [default: the last one that waits].
    session: Option<String>,
    /// Where the journal is kept [default: /var/lib/evenkeel, or EVENKEEL_STATE].
    #[arg(long, value_name = "DIR")]
    state: Option<PathBuf>,
}

#[derive(Debug, Serialize)]
struct Undone {
    session: String,
    complete: bool,
    #[serde(flatten)]
    report: UndoReport,
}

/// One line of --list.
#[derive(Debug, Serialize)]
struct Listed {
    session: String,
    command: String,
    changes: usize,
    state: &'static str,
}

/// Takes sessions back.
pub(crate) fn run(args: &UndoArgs) -> Result<Outcome, Failure> {
    let journal = Journal::at(args.state.as_deref());
    if let (Some(seconds), Some(session)) = (args.after, &args.session) {
        return guard(&journal, session, seconds, args.nic.clone());
    }
    if args.list {
        return list(&journal, args.json);
    }
    let sessions = match &args.session {
        Some(name) => vec![journal.session(name)?],
        None => standing(&journal, args.all)?,
    };
    if sessions.is_empty() {
        say(args.json, Vec::new(), "Nothing to undo: no session of this boot still stands.")?;
        return Ok(Outcome::Fine);
    }
    let writer = journal.lock()?;
    let (mut done, mut outcome) = (Vec::new(), Outcome::Fine);
    for session in sessions {
        // Read again under the lock: a guardian may have been faster.
        let mut session = journal.session(&session.header.session)?;
        let name = session.header.session.clone();
        if !session.is_of_this_boot()? {
            eprintln!("session {name} is of an earlier boot: its settings went with that, nothing to undo");
            continue;
        }
        refuse_if_alive(&session, args.force)?;
        let report = session.undo(&writer, &mut Live, UndoOptions { force: args.force, dry_run: args.dry_run })?;
        if !args.json {
            print_report(&name, &report, args.dry_run);
        }
        let complete = report.is_complete();
        done.push(Undone { session: name, complete, report });
        if !complete {
            outcome = Outcome::No;
            break;
        }
    }
    say(args.json, done, "")?;
    Ok(outcome)
}

/// The sessions of this boot that still stand, last first; only the last one unless all are wanted.
fn standing(journal: &Journal, all: bool) -> Result<Vec<Session>, Failure> {
    let mut standing = Vec::new();
    for session in journal.sessions()?.into_iter().rev() {
        if session.is_open() && session.is_of_this_boot()? {
            standing.push(session);
        }
    }
    standing.truncate(if all { usize::MAX } else { 1 });
    Ok(standing)
}

/// A watch that still runs would move things again.
fn refuse_if_alive(session: &Session, force: bool) -> Result<(), Failure> {
    let pid = session.header.pid;
    let comm = fs::read_to_string(format!("/proc/{pid}/comm")).unwrap_or_default();
    if force || pid == std::process::id() || comm.trim() != "evenkeel" {
        return Ok(());
    }
    Err(Failure::lacking(anyhow!(
        "process {pid} (`{}`) still runs and would change things again: stop it first (it takes its moves back itself), \
         or use --force",
        session.header.command
    )))
}

fn print_report(session: &str, report: &UndoReport, dry_run: bool) {
    if dry_run {
        for step in &report.steps {
            match &step.state {
                StepState::Restored | StepState::Forced { .. } => println!("{}", step.change.shell_back()),
                _ => println!("# {step}"),
            }
        }
        return;
    }
    report.steps.iter().for_each(|step: &StepReport| println!("{step}"));
    match (report.is_complete(), report.restored()) {
        (true, n) => println!("session {session}: {n} settings put back, all is as before it"),
        (false, n) => println!(
            "session {session}: stopped after {n} settings; look at the last line, then `evenkeel undo --force {session}` \
             overwrites what somebody else wrote"
        ),
    }
}

fn say(json: bool, done: Vec<Undone>, otherwise: &str) -> Result<(), Failure> {
    #[derive(Serialize)]
    struct Body {
        sessions: Vec<Undone>,
    }
    if json {
        print_json(Body { sessions: done })?;
    } else if !otherwise.is_empty() {
        println!("{otherwise}");
    }
    Ok(())
}

fn print_json<T: Serialize>(body: T) -> Result<(), Failure> {
    println!("{}", serde_json::to_string_pretty(&Document::new("undo", 1, body)).map_err(Failure::internal)?);
    Ok(())
}

fn list(journal: &Journal, json: bool) -> Result<Outcome, Failure> {
    #[derive(Serialize)]
    struct Body {
        sessions: Vec<Listed>,
    }
    let mut sessions = Vec::new();
    for s in journal.sessions()? {
        let state = match (s.is_of_this_boot()?, s.is_open()) {
            (false, _) => "earlier boot",
            (true, false) => "undone",
            (true, true) if s.awaits_confirmation() => "awaits confirm",
            (true, true) => "stands",
        };
        sessions.push(Listed { changes: s.steps.len(), session: s.header.session, command: s.header.command, state });
    }
    if json {
        print_json(Body { sessions })?;
    } else if sessions.is_empty() {
        println!("The journal is empty.");
    } else {
        let rows = sessions.into_iter().map(|s| vec![s.session, s.state.into(), s.changes.to_string(), s.command]);
        print!("{}", report::Look::of_stdout().table(&["SESSION", "STATE", ">CHANGES", "COMMAND"], rows));
    }
    Ok(Outcome::Fine)
}

/// Lets a session stay that waits for a confirmation.
pub(crate) fn confirm(args: &ConfirmArgs) -> Result<Outcome, Failure> {
    let journal = Journal::at(args.state.as_deref());
    let waits = |s: &Session| s.awaits_confirmation() && s.is_of_this_boot().unwrap_or(false);
    let found = match &args.session {
        Some(name) => Some(journal.session(name)?).filter(waits),
        None => journal.sessions()?.into_iter().rev().find(waits),
    };
    let Some(found) = found else {
        println!("Nothing to confirm: no session waits (it may have been taken back already: evenkeel undo --list).");
        return Ok(Outcome::No);
    };
    let writer = journal.lock_waiting()?;
    let mut session = journal.session(&found.header.session)?;
    if !waits(&session) {
        println!("Too late: session {} was taken back.", session.header.session);
        return Ok(Outcome::No);
    }
    session.confirm(&writer)?;
    println!("session {} stays. Take it back: evenkeel undo {0}", session.header.session);
    Ok(Outcome::Fine)
}

/// Starts the guardian of a session, in a process and a terminal session of its own, and waits until it watches.
pub(crate) fn start_guardian(
    journal: &Journal,
    session: &mut Session,
    seconds: u64,
    nics: &[String],
) -> Result<(), Failure> {
    let state = journal.folder().parent().unwrap_or_else(|| journal.folder());
    let log = state.join("guardian.log");
    let open = fs::OpenOptions::new().create(true).append(true).open(&log);
    let log = open.with_context(|| format!("cannot write {}", log.display())).map_err(Failure::lacking)?;
    let program = std::env::current_exe().context("cannot find this program's own file").map_err(Failure::internal)?;
    let mut command = Command::new(program);
    command.args(["undo", &session.header.session, "--after", &seconds.to_string(), "--state"]).arg(state);
    for nic in nics {
        command.args(["--nic", nic]);
    }
    command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(log).current_dir("/");
    let mut child =
        command.spawn().context("cannot start the guardian of --commit-confirm").map_err(Failure::internal)?;
    let mut line = String::new();
    if let Some(out) = child.stdout.take() {
        BufReader::new(out).read_line(&mut line).context("cannot hear the guardian").map_err(Failure::internal)?;
    }
    let deadline = line.trim().strip_prefix("armed ").and_then(|ms| ms.parse().ok());
    let deadline = deadline.ok_or_else(|| {
        let log = state.join("guardian.log");
        Failure::internal(anyhow!("the guardian did not start, so nothing was changed; see {}", log.display()))
    })?;
    Ok(session.guarded(child.id(), deadline)?)
}

/// Is the guardian: away from the terminal, until the confirmation, the deadline, or rising drops.
fn guard(journal: &Journal, session: &str, seconds: u64, nics: Vec<String>) -> Result<Outcome, Failure> {
    nix::unistd::setsid().context("cannot leave the terminal").map_err(Failure::internal)?;
    let guardian = Guardian::arm(Root::live(), nics, seconds);
    println!("armed {}", guardian.deadline_boottime_ms());
    std::io::stdout().flush().map_err(Failure::internal)?;
    match guardian.watch(journal, session, &mut Live)? {
        Verdict::Confirmed => eprintln!("session {session}: confirmed"),
        Verdict::UndoneAlready => eprintln!("session {session}: undone already"),
        Verdict::Reverted { reason, report } => {
            eprintln!("session {session}: {reason}; {} settings put back", report.restored());
            report.steps.iter().for_each(|s| eprintln!("  {s}"));
            if !report.is_complete() {
                return Ok(Outcome::No);
            }
        }
    }
    Ok(Outcome::Fine)
}
