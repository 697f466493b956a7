//! The `evenkeel` program: arguments in, exit code out.

// They panic when nobody can read them any more: `failure` has what prints.
#![warn(clippy::print_stdout, clippy::print_stderr)]

mod args;
mod cmd;
#[cfg(test)]
mod conventions;
mod failure;
mod long_run;
mod numbers;
mod output;
mod periods;
mod signals;
mod terminal;
mod time;

use std::process::ExitCode;

use clap::{
    CommandFactory, Parser,
    error::{ContextKind, ContextValue, ErrorKind},
};

/// Keeps a Linux server on an even keel under millions of packets per second.
#[derive(Debug, Parser)]
#[command(name = "evenkeel", version, max_term_width = 100, arg_required_else_help = true)]
struct Cli {
    #[command(subcommand)]
    verb: cmd::Verb,
}

/// The command line, for completions and man pages.
fn command() -> clap::Command {
    Cli::command()
}

/// The name that a flag has now, where a tip has found an earlier one, which still works and is not shown.
fn current_name(root: &clap::Command, words: impl Iterator<Item = String>, flag: &str) -> String {
    let mut verb = root;
    for word in words {
        verb = verb.find_subcommand(&word).unwrap_or(verb);
    }
    let earlier =
        |arg: &&clap::Arg| arg.get_all_aliases().is_some_and(|names| names.contains(&flag.trim_start_matches('-')));
    let now = verb.get_arguments().find(earlier).and_then(clap::Arg::get_long);
    now.map_or_else(|| flag.to_owned(), |now| format!("--{now}"))
}

/// Is the first process of a guest, which has no command line of its own.
fn be_guest() -> ExitCode {
    if let Err(why) = guest::agent::run() {
        guest::agent::console(&format!("evenkeel: {why}"));
    }
    // The kernel panics, and the guest ends.
    ExitCode::FAILURE
}

/// The tip for a flag of tcpdump that `evenkeel capture` has by another name.
fn tcpdumps(error: &clap::Error) -> Option<&'static str> {
    let Some(ContextValue::String(flag)) = error.get(ContextKind::InvalidArg) else { return None };
    let is_capture = std::env::args().nth(1).is_some_and(|verb| verb == "capture");
    if is_capture { cmd::called_here(flag) } else { None }
}

fn main() -> ExitCode {
    if guest::agent::is_here() {
        return be_guest();
    }
    cmd::complete();
    terminal::write_from_anywhere();
    let result = match Cli::try_parse() {
        Ok(cli) => cli.verb.run(),
        // The help, too, is an answer that can be lost.
        Err(error) if !error.use_stderr() => failure::print_help(&error),
        Err(mut error) => {
            if error.kind() == ErrorKind::UnknownArgument {
                // The tip to pass a flag as a value (`-- -i`) leads away from what was meant.
                error.remove(ContextKind::Suggested);
                if let Some(ContextValue::String(tip)) = error.get(ContextKind::SuggestedArg) {
                    let now = current_name(&command(), std::env::args(), tip);
                    error.insert(ContextKind::SuggestedArg, ContextValue::String(now));
                }
                if let Some(tip) = tcpdumps(&error) {
                    error.insert(ContextKind::Suggested, ContextValue::StyledStrs(vec![tip.into()]));
                }
                // With an argument that is spelled alike, the usage shows that one as if it were required.
                if error.get(ContextKind::SuggestedArg).is_some() {
                    error.remove(ContextKind::Usage);
                }
            }
            failure::exit_usage(&error)
        }
    };
    match result {
        Ok(outcome) => outcome.into(),
        Err(failure) => failure.report(),
    }
}
