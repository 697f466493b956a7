//! The `evenkeel` program: arguments in, exit code out.

// They panic when nobody can read them any more: `failure` has what prints.
#![warn(clippy::print_stdout, clippy::print_stderr)]

mod args;
mod bar;
mod cmd;
#[cfg(test)]
mod conventions;
#[cfg(feature = "measure")]
mod dry_run;
mod failure;
mod first_steps;
#[cfg(feature = "measure")]
mod long_run;
mod numbers;
mod output;
mod periods;
mod results;
mod shown;
mod signals;
mod terminal;
mod time;
mod unit;

use std::process::ExitCode;

use clap::{
    CommandFactory, FromArgMatches, Parser,
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
    first_steps::with_groups(Cli::command())
}

fn parse() -> Result<Cli, clap::Error> {
    Cli::from_arg_matches_mut(&mut command().try_get_matches()?).map_err(|error| error.format(&mut command()))
}

/// True if a flag is spelled so much like another that it is probably meant: it begins alike.
fn is_alike(wanted: &str, other: &str) -> bool {
    let letters = |flag: &str| -> Vec<char> { flag.trim_start_matches('-').chars().take(2).collect() };
    let (mut a, mut b) = (letters(wanted), letters(other));
    // The first two letters may have changed places.
    a.sort_unstable();
    b.sort_unstable();
    a == b
}

/// The command that was probably meant by words that are natural and wrong.
fn meant(words: &[String]) -> Option<String> {
    let words: Vec<&str> = words.iter().skip(1).map(String::as_str).collect();
    match words.as_slice() {
        ["bench", "neighbour" | "neighbor", ..] => {
            Some("`evenkeel bench --neighbour LIST`, such as cpu,memory".to_owned())
        }
        ["report", file, ..] if file.ends_with(".json") => Some(format!("`evenkeel report show {file}`")),
        ["snapshot", "-o" | "--output", file, ..] => Some(format!("`evenkeel snapshot {file}`")),
        ["snapshot", flag, ..] if *flag == "-o" || *flag == "--output" => Some("`evenkeel snapshot FILE`".to_owned()),
        _ => None,
    }
}

#[cfg(feature = "measure")]
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
    // An argument with a value stands here with its name.
    let flag = flag.split(' ').next().unwrap_or_default();
    let typed = error.kind() == ErrorKind::UnknownArgument || std::env::args().any(|word| word == flag);
    if is_capture && typed { cmd::called_here(flag) } else { None }
}

fn main() -> ExitCode {
    #[cfg(feature = "measure")]
    if guest::agent::is_here() {
        return be_guest();
    }
    cmd::complete();
    terminal::write_from_anywhere();
    let result = match parse() {
        Ok(cli) => cli.verb.run(),
        // The help, too, is an answer that can be lost.
        Err(error) if !error.use_stderr() => failure::print_help(&error),
        Err(mut error) => {
            if error.kind() == ErrorKind::UnknownArgument {
                // The tip to pass a flag as a value (`-- -i`) leads away from what was meant.
                error.remove(ContextKind::Suggested);
                let flag = match error.get(ContextKind::InvalidArg) {
                    Some(ContextValue::String(flag)) => flag.clone(),
                    _ => String::new(),
                };
                if let Some(ContextValue::String(tip)) = error.get(ContextKind::SuggestedArg)
                    && !is_alike(&flag, tip)
                {
                    error.remove(ContextKind::SuggestedArg);
                }
                // The usage has what was given so far as if it were required, with brackets that do not match.
                error.remove(ContextKind::Usage);
            }
            if let Some(tip) = tcpdumps(&error) {
                error.remove(ContextKind::SuggestedArg);
                error.insert(ContextKind::Suggested, ContextValue::StyledStrs(vec![tip.into()]));
            }
            let words: Vec<String> = std::env::args_os().map(|word| word.to_string_lossy().into_owned()).collect();
            if let Some(tip) = meant(&words) {
                error.remove(ContextKind::SuggestedArg);
                error.remove(ContextKind::SuggestedSubcommand);
                error.insert(ContextKind::Suggested, ContextValue::StyledStrs(vec![tip.into()]));
            }
            failure::exit_usage(&error)
        }
    };
    match result {
        Ok(outcome) => outcome.into(),
        Err(failure) => failure.report(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_flag_that_is_not_alike_is_no_tip() {
        for (wanted, other) in
            [("--moed", "--mode"), ("--xd", "--xdp"), ("--repaets", "--repeats"), ("--ojson", "--json")]
        {
            assert_eq!(is_alike(wanted, other), wanted != "--ojson", "{wanted} {other}");
        }
        assert!(!is_alike("--frobnicate", "--before") && !is_alike("--frobnicate", "--nic"));
    }

    #[test]
    fn natural_guesses_have_a_tip() {
        let tip = |line: &str| meant(&line.split(' ').map(str::to_owned).collect::<Vec<_>>());
        assert!(tip("evenkeel bench neighbour").is_some_and(|t| t.contains("--neighbour LIST")));
        assert_eq!(tip("evenkeel report run.json").as_deref(), Some("`evenkeel report show run.json`"));
        assert_eq!(tip("evenkeel snapshot -o here.tar").as_deref(), Some("`evenkeel snapshot here.tar`"));
        assert_eq!(tip("evenkeel report show run.json"), None);
    }
}
