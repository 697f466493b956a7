//! `evenkeel keep`: settings planned and applied again after the machine has changed.

mod add;
mod keeping;
mod planner;
mod run;
mod show;

use std::path::{Path, PathBuf};

use anyhow::anyhow;
use clap::{Args, Subcommand};
use keep::{
    Folder, KeepError, Keeper,
    control::{self, Command},
    off,
};
use sys::privilege::{self, Capability};

use crate::{
    args::StateArg,
    failure::{Failure, Lines, Outcome, json, note, print, print_verdict},
    unit::exec_start,
};

pub(crate) use self::keeping::Keeping;
use self::{add::check_name, planner::VerbPlanner};

/// Keep settings: plan and apply them again after a boot, a reset or a rename.
///
///     evenkeel keep add spread eth0 --cpus 0-3
///     evenkeel keep run
///
/// Files in /etc/evenkeel/keep.d hold options of `spread` and checks of `doctor`, from which values are planned on this machine. Without a
/// command, show the state of the files. Exit code 1: a setting differs, or a file has failed or is refused.
#[derive(Debug, Args)]
#[command(args_conflicts_with_subcommands = true)]
pub(crate) struct KeepArgs {
    #[command(subcommand)]
    action: Option<Action>,
    #[command(flatten)]
    status: StatusArgs,
}

#[derive(Debug, Subcommand)]
enum Action {
    Status(StatusArgs),
    Add(add::AddArgs),
    Run(run::RunArgs),
    Off(OffArgs),
    Unit(UnitArgs),
}

#[derive(Debug, Args)]
pub(crate) struct EtcArg {
    /// Use keep.d in this folder [default: /etc/evenkeel].
    #[arg(long, value_name = "DIR", hide_short_help = true, help_heading = "Files")]
    etc: Option<PathBuf>,
}

impl EtcArg {
    pub(crate) fn folder(&self) -> Folder {
        Folder::at(self.etc.as_deref())
    }

    fn path(&self) -> Option<&Path> {
        self.etc.as_deref()
    }
}

/// Show the kept settings, those that differ, and the likely writers of those.
#[derive(Debug, Args)]
struct StatusArgs {
    #[command(flatten)]
    etc: EtcArg,
    #[command(flatten)]
    state: StateArg,
    /// Print JSON (schema evenkeel.keep.status/1).
    #[arg(long)]
    json: bool,
}

/// Stop keeping and undo the changes.
///
///     evenkeel keep off spread-eth0
///
/// With NAME, remove that file; the others are still kept. Without NAME, end `keep run`; the files stay.
#[derive(Debug, Args)]
struct OffArgs {
    /// Remove this file, named without its ending [default: end `keep run`].
    name: Option<String>,
    /// Undo nothing.
    #[arg(long)]
    leave: bool,
    #[command(flatten)]
    etc: EtcArg,
    #[command(flatten)]
    state: StateArg,
}

/// Print a systemd unit that starts `keep run` at boot.
///
///     evenkeel keep unit >/etc/systemd/system/evenkeel-keep.service
#[derive(Debug, Args)]
struct UnitArgs {
    #[command(flatten)]
    etc: EtcArg,
    #[command(flatten)]
    state: StateArg,
}

pub(crate) fn run(args: &KeepArgs) -> Result<Outcome, Failure> {
    match &args.action {
        None => status(&args.status),
        Some(Action::Status(args)) => status(args),
        Some(Action::Add(args)) => add::run(args),
        Some(Action::Run(args)) => run::run(args),
        Some(Action::Off(args)) => off(args),
        Some(Action::Unit(args)) => unit(args),
    }
}

fn status(args: &StatusArgs) -> Result<Outcome, Failure> {
    host::namespace::check()?;
    let asked = match args.etc.path() {
        // `keep run` may keep another folder.
        None => asked(Command::Status)?,
        Some(_) => asked(Command::Status)?.filter(|it| it.folder == args.etc.folder().path().display().to_string()),
    };
    let status = match asked {
        Some(status) => status,
        None => {
            let mut keeper = Keeper::new(args.etc.folder(), args.state.journal(), VerbPlanner::live());
            keeper.survey().map_err(|why| Failure::lacking(anyhow!(why)))?;
            keeper.status()
        }
    };
    let outcome = if status.is_bad() { Outcome::No } else { Outcome::Fine };
    let text = match args.json {
        true => json("keep.status", &status)? + "\n",
        false => show::text(&status),
    };
    print_verdict(&text, outcome)
}

/// The answer of `keep run`; none: it does not run, or answers only root.
fn asked(command: Command) -> Result<Option<keep::status::Status>, Failure> {
    match control::ask(command) {
        Err(KeepError::Serve(serve::ServeError::NotRoot { .. } | serve::ServeError::File { .. })) => Ok(None),
        other => Ok(other?),
    }
}

/// Makes `keep run` read the files again; false: it does not run.
fn told() -> Result<bool, Failure> {
    Ok(asked(Command::Reload)?.is_some())
}

fn off(args: &OffArgs) -> Result<Outcome, Failure> {
    privilege::require_root("keep off", &[Capability::CAP_NET_ADMIN])?;
    host::namespace::check()?;
    let mut lines = Lines::default();
    match &args.name {
        Some(name) => {
            let done = match args.etc.folder().remove(name) {
                Err(KeepError::NoSuchFile { .. }) if !args.leave && off::stands(&args.state.journal(), name)? => {
                    "does not exist any more"
                }
                removed => removed.map(|()| "is removed")?,
            };
            told()?;
            lines.print(format_args!("{} {done}", args.etc.folder().file(name).display()));
        }
        None if control::stop()? => lines.print("The process that kept has ended; the files stay. If a unit runs it, the next boot starts it again: systemctl disable evenkeel-keep"),
        None => lines.print("No process keeps here; the files stay."),
    }
    if args.leave {
        return lines.end(true, Outcome::Fine);
    }
    let mut outcome = Outcome::Fine;
    let reports = off::take_back(&args.state.journal(), args.name.as_deref())?;
    let restored: usize = reports.iter().map(|(_, report)| report.restored()).sum();
    for (_, report) in &reports {
        report.steps.iter().for_each(|step| lines.print(step));
        if !report.is_complete() {
            outcome = Outcome::No;
        }
    }
    lines.print(format_args!("{} put back", host::journal::settings(restored)));
    lines.end(restored > 0, outcome)
}

fn unit(args: &UnitArgs) -> Result<Outcome, Failure> {
    let state = args.state.journal().state().to_owned();
    let mut words = Vec::new();
    if args.etc.path().is_some()
        && let Some(etc) = args.etc.folder().path().parent()
    {
        words.extend(["--etc".to_owned(), etc.display().to_string()]);
    }
    if args.state.path().is_some() {
        words.extend(["--state".to_owned(), state.display().to_string()]);
    }
    crate::unit::warn_of_hidden([state.as_path()], "/var/lib/evenkeel");
    print(&keep::unit::text(&exec_start()?, &words, &state)).map(|()| Outcome::Fine)
}

/// Prints a hint after `keep add`, which changes no setting itself.
fn note_nobody() {
    note(
        "No process keeps here: `evenkeel keep run --once` applies the file now, `evenkeel keep unit` prints a unit for each boot.",
    );
}

/// Prints a hint after `--keep`, which has changed the settings once.
fn note_unkept() {
    note(
        "No process keeps the settings yet: `evenkeel keep unit` prints a unit for each boot, `evenkeel keep run` keeps them from a terminal.",
    );
}
