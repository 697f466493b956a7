//! `evenkeel undo` and `evenkeel confirm`: what was changed is taken back, or stays.

use std::{
    fs, io,
    os::unix::fs::MetadataExt,
    path::{Path, PathBuf},
};

use anyhow::anyhow;
use clap::Args;
use host::{
    journal::{Journal, Session, StepState, UndoOptions, UndoReport, Verdict, run_guardian, settings, short_name},
    knob::Live,
};
use model::visible::visible_word;
use serde::Serialize;

use crate::{
    args::StateArg,
    failure::{Failure, Lines, Outcome, json, note, print},
};

/// Take back what evenkeel changed, last change first.
///
/// Example: evenkeel undo --list, then evenkeel undo 085716
///
/// Without a session, undo takes back the last one that still stands. It stops at a value that somebody else has written since, and names
/// both values. It works after a crash: every change is on disk before it is made. With nothing to undo, the exit code is 0.
#[derive(Debug, Args)]
pub(crate) struct UndoArgs {
    /// The session: a name of --list, or the long one that `apply` printed.
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
    #[command(flatten)]
    state: StateArg,
    /// Print JSON (schema evenkeel.undo/1).
    #[arg(long)]
    json: bool,
}

/// Be the guardian of a session, which `--commit-confirm` starts: take it back unless it is confirmed in time, or earlier when drops rise.
#[derive(Debug, Args)]
pub(crate) struct GuardianArgs {
    /// The session.
    session: String,
    /// Seconds within which the confirmation has to come.
    #[arg(long)]
    after: u64,
    /// Interfaces whose drops are watched.
    #[arg(long)]
    nic: Vec<String>,
    /// Where the journal is kept.
    #[arg(long)]
    state: PathBuf,
}

/// Keep changes that were made with --commit-confirm.
///
/// With nothing to confirm, the exit code is 1: the changes were taken back already, or never made.
#[derive(Debug, Args)]
pub(crate) struct ConfirmArgs {
    /// The session: a name of `undo --list`, or the long one [default: the last one that waits].
    session: Option<String>,
    #[command(flatten)]
    state: StateArg,
    /// Print JSON (schema evenkeel.confirm/1).
    #[arg(long)]
    json: bool,
}

#[derive(Debug, Serialize)]
struct Undone {
    session: String,
    complete: bool,
    #[serde(flatten)]
    report: UndoReport,
}

/// A line of --list.
#[derive(Debug, Serialize)]
struct Listed {
    /// The name for `undo` and `confirm`.
    name: String,
    session: String,
    /// The start, in local time (RFC 3339).
    started: String,
    /// The verb that made it.
    verb: String,
    command: String,
    changes: usize,
    state: &'static str,
}

pub(crate) fn run(args: &UndoArgs) -> Result<Outcome, Failure> {
    let journal = args.state.journal();
    if args.list {
        return list(&journal, args.json);
    }
    let sessions = match &args.session {
        Some(name) => vec![journal.session(name)?],
        None => standing(&journal, args.all)?,
    };
    // Nobody may be reading any more: what is to be put back is put back all the same.
    let mut lines = Lines::default();
    if sessions.is_empty() {
        match args.json {
            true => lines.print(document(Vec::<Undone>::new())?),
            false => lines.print("Nothing to undo: no session of this boot still stands."),
        }
        return lines.end(false, Outcome::Fine);
    }
    let writer = journal.lock()?;
    let (mut done, mut outcome, mut unrecorded) = (Vec::new(), Outcome::Fine, None);
    for session in sessions {
        // Read again under the lock: a guardian may have been faster.
        let mut session = journal.session(&session.header.session)?;
        let name = session.header.session.clone();
        if !session.is_of_this_boot()? {
            let name = short_name(&name);
            note(format_args!("session {name} is of an earlier boot: its settings went with that, nothing to undo"));
            continue;
        }
        if !session.is_open() && args.session.is_some() && !args.json {
            let at = session.undone_unix_ns.map_or_else(String::new, |ns| format!(" at {}", to_second(&local(ns))));
            lines.print(format_args!("session {}: it was taken back already{at}, nothing to undo", short_name(&name)));
            continue;
        }
        if let Err(failure) =
            refuse_elsewhere(&session, &args.state).and_then(|()| refuse_if_alive(&session, args.force))
        {
            // What is refused here must not keep the others from being taken back, unless it is the only one.
            if !args.all {
                return Err(failure);
            }
            failure.report();
            outcome = Outcome::No;
            continue;
        }
        let options = UndoOptions { force: args.force, dry_run: args.dry_run, go_on: false, in_order: args.all };
        let report = session.undo(&writer, &mut Live, options);
        if !args.json {
            let again = format!("evenkeel undo --force {}{}", short_name(&name), args.state.flag());
            print_report(&mut lines, short_name(&name), &report, &again, args.dry_run);
        }
        let complete = report.is_complete();
        unrecorded = unrecorded.or_else(|| report.unrecorded.clone());
        done.push(Undone { session: name, complete, report });
        if !complete {
            outcome = Outcome::No;
            break;
        }
    }
    let changed = !args.dry_run && done.iter().any(|undone| undone.report.restored() > 0);
    if args.json {
        lines.print(document(done)?);
    }
    let printed = lines.end(changed, outcome);
    match unrecorded {
        None => printed,
        Some(why) => Err(Failure::lacking(anyhow!(
            "what is said above was done, but the journal cannot note it and names the settings still ({why}); undo again \
             then finds the old values and notes them"
        ))),
    }
}

/// A session of another network namespace: an interface of the same name here is not the one that was changed.
fn refuse_elsewhere(session: &Session, state: &StateArg) -> Result<(), Failure> {
    let Some(netns) = session.other_netns() else { return Ok(()) };
    let name = short_name(&session.header.session);
    let undo = format!("evenkeel undo {name}{}", state.flag());
    let enter = match way_into(netns) {
        Some(enter) => format!("{enter} {undo}"),
        None => "no process and no file of /run/netns holds that namespace any more: if it is gone, so are its \
                 settings, and nothing is to be done"
            .to_owned(),
    };
    Err(Failure::lacking(anyhow!(
        "session {name} changed another network namespace (net:[{netns}]), and is undone in there: {enter}"
    )))
}

/// The command that enters a network namespace; none: no process and no file of /run/netns holds it.
fn way_into(netns: u64) -> Option<String> {
    let is_it = |path: &Path| fs::metadata(path).is_ok_and(|m| m.ino() == netns);
    let entries = |folder: &str| fs::read_dir(folder).into_iter().flatten().flatten();
    let name = |entry: fs::DirEntry| entry.file_name().to_string_lossy().into_owned();
    if let Some(named) = entries("/run/netns").find(|e| is_it(&e.path())) {
        return Some(format!("ip netns exec {}", name(named)));
    }
    let process = entries("/proc").find(|e| is_it(&e.path().join("ns/net")))?;
    Some(format!("nsenter --net=/proc/{}/ns/net", name(process)))
}

/// The sessions of this boot that still stand, last first; only the last one unless all are wanted.
fn standing(journal: &Journal, all: bool) -> Result<Vec<Session>, Failure> {
    let mut standing = Vec::new();
    for session in journal.sessions()?.into_iter().rev() {
        if session.is_open() && session.is_of_this_boot()? {
            standing.push(session);
        }
    }
    if !all {
        // The last one of this namespace; where there is none, the last one, so that the way to it is told.
        let here = standing.iter().position(|s| s.other_netns().is_none()).unwrap_or(0);
        standing = standing.into_iter().skip(here).take(1).collect();
    }
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

fn print_report(lines: &mut Lines, session: &str, report: &UndoReport, again: &str, dry_run: bool) {
    if dry_run {
        for step in &report.steps {
            match &step.state {
                StepState::Restored | StepState::Forced { .. } => lines.print(step.change.shell_back()),
                _ => lines.print(format_args!("# {step}")),
            }
        }
        return;
    }
    for step in &report.steps {
        lines.print(step);
    }
    let settings = settings(report.restored());
    match report.is_complete() {
        true => lines.print(format_args!("session {session} undone: {settings} put back, all is as before it")),
        false => lines.print(format_args!(
            "session {session}: stopped after {settings}; the line before this one says why. `{again}` overwrites what \
             somebody else wrote"
        )),
    }
}

/// The sessions that were undone, or that there are, as a document.
fn document<T: Serialize>(sessions: Vec<T>) -> Result<String, Failure> {
    #[derive(Serialize)]
    struct Body<T> {
        sessions: Vec<T>,
    }
    json("undo", Body { sessions })
}

fn list(journal: &Journal, json: bool) -> Result<Outcome, Failure> {
    let mut sessions = Vec::new();
    let (readable, odd) = journal.readable()?;
    for s in readable {
        let state = match (s.is_of_this_boot()?, s.is_open()) {
            (false, _) => "earlier boot",
            (true, false) => "undone",
            (true, true) if s.other_netns().is_some_and(|netns| way_into(netns).is_none()) => "namespace gone",
            (true, true) if s.awaits_confirmation() && s.guardian_lives() => "awaits confirm",
            (true, true) if s.awaits_confirmation() => "stands, its guardian is dead",
            (true, true) => "stands",
        };
        sessions.push(Listed {
            name: short_name(&s.header.session).to_owned(),
            started: local(s.header.started_unix_ns),
            verb: verb(&s.header.command),
            changes: s.steps.len(),
            session: s.header.session,
            command: s.header.command,
            state,
        });
    }
    let text = if json {
        document(sessions)?
    } else if sessions.is_empty() && !odd.is_empty() {
        "No session of the journal can be read.".to_owned()
    } else if sessions.is_empty() {
        "The journal is empty.".to_owned()
    } else {
        let rows = sessions.into_iter().map(|s| {
            // The command may contain any characters, such as those of a file's name.
            vec![
                visible_word(&s.name).into_owned(),
                to_second(&s.started),
                visible_word(&s.verb).into_owned(),
                s.state.into(),
                s.changes.to_string(),
                visible_word(&s.command).into_owned(),
            ]
        });
        let heads = ["SESSION", "STARTED", "VERB", "STATE", ">CHANGES", "COMMAND"];
        report::Look::of_stdout().table_within(&heads, rows.collect(), &["VERB", "STARTED"]).trim_end().to_owned()
    };
    print(&(text + "\n"))?;
    if odd.is_empty() {
        return Ok(Outcome::Fine);
    }
    let messages: Vec<String> = odd.iter().map(ToString::to_string).collect();
    Err(Failure::lacking(anyhow!("not listed: {}", messages.join("\nevenkeel: not listed: "))))
}

/// Lets a session stay that waits for a confirmation.
pub(crate) fn confirm(args: &ConfirmArgs) -> Result<Outcome, Failure> {
    let journal = args.state.journal();
    let waits = |s: &Session| s.awaits_confirmation() && s.is_of_this_boot().unwrap_or(false);
    let found = match &args.session {
        Some(name) => Some(journal.session(name)?).filter(waits),
        None => journal.sessions()?.into_iter().rev().find(waits),
    };
    let mut lines = Lines::default();
    // A document, or the words.
    let mut say = |session: Option<&str>, confirmed: bool, words: String| -> Result<(), Failure> {
        lines.print(match args.json {
            false => words,
            true => json("confirm", Confirmed { session: session.map(str::to_owned), confirmed, message: words })?,
        });
        Ok(())
    };
    let Some(found) = found else {
        say(
            None,
            false,
            format!(
                "Nothing to confirm: no session waits. `evenkeel undo --list{}` shows what was taken back.",
                args.state.flag()
            ),
        )?;
        return lines.end(false, Outcome::No);
    };
    let writer = journal.lock_waiting()?;
    let mut session = journal.session(&found.header.session)?;
    let name = session.header.session.clone();
    if !waits(&session) {
        say(Some(&name), false, format!("Too late: session {} was taken back.", short_name(&name)))?;
        return lines.end(false, Outcome::No);
    }
    session.confirm(&writer)?;
    say(
        Some(&name),
        true,
        format!("session {0} stays. Take it back: evenkeel undo {0}{1}", short_name(&name), args.state.flag()),
    )?;
    lines.end(true, Outcome::Fine)
}

/// The answer of `confirm --json`.
#[derive(Debug, Serialize)]
struct Confirmed {
    session: Option<String>,
    confirmed: bool,
    message: String,
}

/// A moment in local time (RFC 3339).
fn local(unix_ns: u64) -> String {
    let at = jiff::Timestamp::from_nanosecond(i128::from(unix_ns)).unwrap_or_default();
    at.to_zoned(jiff::tz::TimeZone::system()).strftime("%Y-%m-%dT%H:%M:%S%:z").to_string()
}

/// A moment of [`local`] to the second, without its zone: `2026-11-29 08:57:16`.
fn to_second(local: &str) -> String {
    local.replacen('T', " ", 1).chars().take(19).collect()
}

/// The verb of a command line: `spread apply` of `evenkeel spread eth0 apply`, `doctor` of `evenkeel doctor --fix`.
fn verb(command: &str) -> String {
    let mut words = command.split_whitespace();
    let words = words.by_ref().skip_while(|w| w.ends_with("evenkeel")).take_while(|w| !w.starts_with('-'));
    words.take(2).collect::<Vec<_>>().join(" ")
}

/// Stands guard: away from the terminal, until the confirmation, the deadline, or rising drops.
pub(crate) fn guard(args: GuardianArgs) -> Result<Outcome, Failure> {
    let (journal, session) = (Journal::at(Some(&args.state)), args.session.as_str());
    // What it says goes to its log: each line says when.
    let now = || jiff::Zoned::now().strftime("%Y-%m-%dT%H:%M:%S%:z");
    let note = |line: std::fmt::Arguments<'_>| note(format_args!("{} {line}", now()));
    match run_guardian(&journal, session, args.after, args.nic, &mut Live, &mut io::stdout())? {
        Verdict::Confirmed => note(format_args!("session {session}: confirmed")),
        Verdict::UndoneAlready => note(format_args!("session {session}: undone already")),
        Verdict::Reverted { reason, report } => {
            note(format_args!("session {session}: {reason}; {} put back", settings(report.restored())));
            report.steps.iter().for_each(|s| note(format_args!("  {s}")));
            if let Some(why) = &report.unrecorded {
                note(format_args!("  the journal could not note that: {why}"));
            }
            if !report.is_complete() {
                note(format_args!("  not all was put back: see the lines above and `evenkeel undo --list`"));
                return Ok(Outcome::No);
            }
        }
    }
    Ok(Outcome::Fine)
}
