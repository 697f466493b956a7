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
mod periods;
mod signals;
mod time;

use std::process::ExitCode;

use clap::{
    CommandFactory, Parser,
    error::{ContextKind, ErrorKind},
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

fn main() -> ExitCode {
    cmd::complete();
    let result = match Cli::try_parse() {
        Ok(cli) => cli.verb.run(),
        // The help, too, is an answer that can be lost.
        Err(error) if !error.use_stderr() => failure::print_help(&error),
        Err(mut error) => {
            if error.kind() == ErrorKind::UnknownArgument {
                // The tip to pass a flag as a value (`-- -i`) leads away from what was meant.
                error.remove(ContextKind::Suggested);
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
