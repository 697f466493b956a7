//! `evenkeel demo` as a program of its own, for `make demo`: the crates of the other verbs take longer to build than the demo to run.

#![warn(clippy::print_stdout, clippy::print_stderr)]
#![allow(dead_code, reason = "the modules are those of evenkeel, and the demo needs a part of each")]

mod bar;
#[path = "cmd/measure/demo.rs"]
mod demo;
mod dry_run;
mod failure;
mod long_run;
mod numbers;
mod results;
mod signals;
mod terminal;
mod time;

use std::process::ExitCode;

use clap::Parser;

#[derive(Debug, Parser)]
#[command(name = "evenkeel-demo", version, max_term_width = 100)]
struct Cli {
    #[command(flatten)]
    args: demo::DemoArgs,
}

fn main() -> ExitCode {
    terminal::write_from_anywhere();
    let result = match Cli::try_parse() {
        Ok(cli) => demo::run(&cli.args),
        Err(error) if error.use_stderr() => failure::exit_usage(&error),
        Err(help) => failure::print_help(&help),
    };
    result.map_or_else(failure::Failure::report, Into::into)
}
