//! `shield status`, `list`, `reload`, `stop`: a shield that another process runs, or nobody.

use std::{io::ErrorKind, thread, time::Duration};

use clap::Args;
use host::session;
use model::shield::{Rates, ShieldStatus};
use report::{Look, ShieldRow};
use rules::requester::Requester;
use serde::Serialize;
use serve::ServeError;
use shield::{
    ShieldError,
    run::{self, Answer, Command, Paths, Reloaded, Stopped, owner::unreachable, status as state},
};

use crate::failure::{Failure, Outcome, json_line, note, print};
use crate::time::interval;

/// Show the shield of an interface: rules, counters, rates, and who runs it.
///
/// Without an interface, list all shields as `shield list` does. Exit code 1: there is no shield, or it has failed open or closed because
/// nobody runs it.
#[derive(Debug, Args)]
pub(super) struct StatusArgs {
    /// The interface.
    #[arg(value_parser = crate::args::interface)]
    interface: Option<String>,
    /// Length of the interval for rates, 100ms to 1h.
    #[arg(long, short, value_name = "TIME", default_value = "1s", value_parser = interval)]
    interval: Duration,
    /// Print JSON (schema evenkeel.shield.status/1; without an interface evenkeel.shield.list/1).
    #[arg(long)]
    json: bool,
}

/// List the shields of this network namespace.
///
/// Exit code 1: one of them has failed open or closed because nobody runs it. Exit code 3: one of them cannot be seen from here.
#[derive(Debug, Args)]
pub(super) struct ListArgs {
    /// Print JSON (schema evenkeel.shield.list/1).
    #[arg(long)]
    json: bool,
}

/// Make the shield of an interface read its rules again. After an error the old rules stay active.
///
/// The ssh session you are typing in is added to the management allow-list, unless the file says session = false.
#[derive(Debug, Args)]
pub(super) struct ReloadArgs {
    /// The interface.
    #[arg(value_parser = crate::args::interface)]
    interface: String,
    /// Load the rules even if one would cut off the ssh session you are typing in.
    #[arg(long)]
    force: bool,
    /// Print JSON (schema evenkeel.shield.reload/1).
    #[arg(long)]
    json: bool,
}

/// Remove the shield of an interface. A process that does not answer for two seconds is killed.
#[derive(Debug, Args)]
pub(super) struct StopArgs {
    /// The interface.
    #[arg(value_parser = crate::args::interface)]
    interface: String,
    /// End the process, but leave the shield on the interface. It fails open or closed unless another `shield run` takes it over within
    /// --fail-after.
    #[arg(long)]
    leave: bool,
    /// Print JSON (schema evenkeel.shield.stop/1).
    #[arg(long)]
    json: bool,
}

/// The result of a reload or a stop.
#[derive(Debug, Serialize)]
struct Done<'a> {
    interface: &'a str,
    done: bool,
    message: &'a str,
    warnings: &'a [String],
    #[serde(flatten)]
    reloaded: Option<Reloaded>,
}

/// Says how it went: as a line, or as a document.
fn conclude(interface: &str, schema: &'static str, json: bool, answer: &Answer) -> Result<(), Failure> {
    if !json {
        answer.warnings.iter().for_each(note);
        return print(&format!("{}\n", answer.message));
    }
    let Answer { done, message, warnings, reloaded, .. } = answer;
    let body = Done { interface, done: *done, message, warnings, reloaded: *reloaded };
    print(&json_line(schema, body)?)
}

/// Asks the shield's process for its state, or reads it from the pins.
pub(super) fn look(interface: &str, paths: &Paths) -> Result<ShieldStatus, ShieldError> {
    match Command::Status.ask(paths) {
        Ok(answer) => answer.and_then(|answer| answer.status).map_or_else(|| state::of_pins(interface, paths), Ok),
        Err(error) if is_silent(&error) => match state::of_pins(interface, paths) {
            Ok(mut status) => {
                status.warnings.push(format!("{error}, or remove the shield: `evenkeel shield stop {interface}`"));
                Ok(status)
            }
            Err(_) => Err(error),
        },
        Err(error) => Err(error),
    }
}

/// Returns whether the process hangs.
fn is_silent(error: &ShieldError) -> bool {
    matches!(error, ShieldError::Serve(ServeError::Silent { .. }))
}

/// Ends a question that could not be answered: no shield is the answer "no". With `starts` a hint says how to start one.
fn answered(interface: &str, error: ShieldError, starts: bool) -> Result<Outcome, Failure> {
    let gone = host::interface::index(interface).err();
    match error {
        // Of an interface that went away the shield may still be asked.
        ShieldError::NoShield { .. } if gone.is_some() => Err(gone.map_or_else(|| error.into(), Failure::from)),
        ShieldError::NoShield { .. } => {
            let start = if starts {
                format!("; start one with `evenkeel shield run {interface} --rules FILE`")
            } else {
                String::new()
            };
            note(format_args!("{error}{start}"));
            Ok(Outcome::No)
        }
        error @ ShieldError::Detached { .. } => {
            note(error);
            Ok(Outcome::No)
        }
        error if is_denied(&error) => Err(gone.map_or_else(|| state::unseen(interface).into(), Failure::from)),
        error => Err(error.into()),
    }
}

/// Returns whether another user could have done it.
fn is_denied(error: &ShieldError) -> bool {
    let denied = match error {
        ShieldError::File { source, .. } | ShieldError::Serve(ServeError::File { source, .. }) => {
            source.kind() == ErrorKind::PermissionDenied
        }
        ShieldError::Xdp(error) => error.is_denied(),
        _ => false,
    };
    denied && !nix::unistd::geteuid().is_root()
}

pub(super) fn status(args: &StatusArgs) -> Result<Outcome, Failure> {
    let Some(interface) = &args.interface else { return show_all(args.json, Outcome::No) };
    let now = match rates_over(interface, args.interval) {
        Ok(now) => now,
        Err(error) => return answered(interface, error, true),
    };
    let text = match args.json {
        true => json_line("shield.status", &now)?,
        false => report::shield_text(&now, Look::of_stdout()),
    };
    print(&text)?;
    Ok(if now.has_failed() { Outcome::No } else { Outcome::Fine })
}

/// Returns the state after an interval, with the rates in it.
fn rates_over(interface: &str, interval: Duration) -> Result<ShieldStatus, ShieldError> {
    let paths = Paths::of(interface);
    let before = look(interface, &paths)?;
    thread::sleep(interval);
    let mut now = look(interface, &paths)?;
    with_rates(&mut now, &before, interval.as_secs_f64());
    Ok(now)
}

/// Puts the rates since `before` into `now`.
pub(super) fn with_rates(now: &mut ShieldStatus, before: &ShieldStatus, seconds: f64) {
    now.rates = Some(Rates::between(&before.totals, &now.totals, seconds));
    for rule in &mut now.rules {
        let earlier = before.rules.iter().find(|other| other.name == rule.name);
        rule.pps = earlier.map(|earlier| rule.packets.saturating_sub(earlier.packets) as f64 / seconds);
    }
}

/// A shield in the list.
#[derive(Debug, Serialize)]
struct Listed {
    interface: String,
    #[serde(flatten)]
    shield: Option<Short>,
    /// The reason why nothing is known of it.
    error: Option<String>,
}

#[derive(Debug, Serialize)]
struct Short {
    mode: String,
    pid: Option<u32>,
    failed: bool,
    file: Option<String>,
    rules: usize,
    built_in: usize,
    /// Number of rules against attacks.
    attack_rules: usize,
    passed: u64,
    dropped: u64,
    attacks: usize,
}

impl Short {
    fn of(status: &ShieldStatus) -> Self {
        let holding = rules::status::holding_of(&status.rules);
        Self {
            mode: status.mode.clone(),
            pid: status.pid,
            failed: status.has_failed(),
            file: status.file.clone(),
            rules: holding.rules,
            built_in: holding.built_in,
            attack_rules: holding.attack,
            passed: status.totals.passed,
            dropped: status.totals.dropped,
            attacks: status.attacks.len(),
        }
    }
}

pub(super) fn list(args: &ListArgs) -> Result<Outcome, Failure> {
    show_all(args.json, Outcome::Fine)
}

/// Lists the shields; `none` is the outcome where there is none.
fn show_all(json: bool, none: Outcome) -> Result<Outcome, Failure> {
    let names = Paths::interfaces().map_err(|error| match is_denied(&error) {
        true => Failure::lacking(anyhow::anyhow!("cannot list the shields: run as root")),
        false => error.into(),
    })?;
    let looked: Vec<_> = names.iter().map(|name| (name, look(name, &Paths::of(name)))).collect();
    let failed = looked.iter().any(|(_, status)| status.as_ref().is_ok_and(ShieldStatus::has_failed));
    let text = match json {
        true => {
            let listed = looked.iter().map(|(name, status)| match status {
                Ok(status) => {
                    Listed { interface: status.interface.clone(), shield: Some(Short::of(status)), error: None }
                }
                Err(error) => Listed { interface: (*name).clone(), shield: None, error: Some(error.to_string()) },
            });
            json_line("shield.list", serde_json::json!({ "shields": listed.collect::<Vec<_>>() }))?
        }
        false => {
            let rows = looked.iter().map(|(name, status)| match status {
                Ok(status) => ShieldRow::Known(status),
                Err(_) => ShieldRow::Unknown { interface: name },
            });
            report::shield_list(&rows.collect::<Vec<_>>(), Look::of_stdout())
        }
    };
    print(&text)?;
    // A table has no room for what is to be done.
    let unseen: Vec<String> =
        looked.iter().filter_map(|(_, status)| Some(status.as_ref().err()?.to_string())).collect();
    match unseen.is_empty() {
        true if looked.is_empty() => Ok(none),
        true => Ok(if failed { Outcome::No } else { Outcome::Fine }),
        false => Err(Failure::lacking(anyhow::anyhow!(unseen.join("\n")))),
    }
}

pub(super) fn reload(args: &ReloadArgs) -> Result<Outcome, Failure> {
    let interface = &args.interface;
    let paths = Paths::of(interface);
    let answer = match Command::Reload(Requester { sessions: session::sessions(), force: args.force }).ask(&paths) {
        Ok(Some(answer)) => answer,
        Ok(None) => match state::of_pins(interface, &paths) {
            Ok(_) => {
                let none = || ShieldError::NoProcess { interface: interface.clone() };
                return Err(unreachable(interface, &paths).unwrap_or_else(none).into());
            }
            Err(error) => return answered(interface, error, true),
        },
        Err(error) => return answered(interface, error, true),
    };
    if answer.done || args.json {
        conclude(interface, "shield.reload", args.json, &answer)?;
    }
    match answer.done {
        true => Ok(Outcome::Fine),
        false => Err(Failure::usage(anyhow::anyhow!(answer.message))),
    }
}

pub(super) fn stop(args: &StopArgs) -> Result<Outcome, Failure> {
    let interface = &args.interface;
    let paths = Paths::of(interface);
    let Stopped { mut answer, killed, only_files } = match run::stop(interface, &paths, args.leave) {
        Ok(Stopped { answer, .. }) if !answer.done => return Err(Failure::lacking(anyhow::anyhow!(answer.message))),
        Ok(stopped) => stopped,
        Err(error) => return answered(interface, error, false),
    };
    if let Some(pid) = killed {
        note(format_args!("process {pid} did not answer and was killed"));
    }
    answer.message = match (args.leave, only_files) {
        (_, true) if killed.is_none() => {
            format!("{interface}: there was no shield; files of a start that failed were removed")
        }
        (true, _) => format!("{interface}: the process has ended; the shield stays, and no process runs it"),
        (false, _) => format!("{interface}: shield removed"),
    };
    conclude(interface, "shield.stop", args.json, &answer)?;
    Ok(Outcome::Fine)
}
