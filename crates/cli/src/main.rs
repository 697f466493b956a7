//! The `evenkeel` program: arguments in, exit code out.

mod cmd;
mod demo;
mod failure;
mod out_file;
mod periods;

use std::process::ExitCode;

use clap::{CommandFactory, Parser};

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
    failure::die_quietly_on_broken_pipe();
    match Cli::parse().verb.run() {
        Ok(outcome) => outcome.into(),
        Err(failure) => failure.report(),
    }
}
