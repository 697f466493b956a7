//! `evenkeel report`: saved runs, shown and laid side by side.

use std::path::PathBuf;

use ::bench::run;
use clap::{Args, Subcommand};
use model::{
    bench::{BenchRun, SCHEMA, compare::compare},
    schema::Document,
};
use report::Look;

use super::bench::OutputArgs;
use crate::failure::{Failure, Outcome, print};

/// Show saved runs of `evenkeel bench`, or lay them side by side.
#[derive(Debug, Args)]
pub(crate) struct ReportArgs {
    #[command(subcommand)]
    sub: Sub,
}

#[derive(Debug, Subcommand)]
enum Sub {
    /// Show a run: as text, and as a page or a table if files are named.
    Show(ShowArgs),
    /// Lay runs side by side: the first one is what the others are compared with.
    Compare(CompareArgs),
}

#[derive(Debug, Args)]
struct ShowArgs {
    /// The file of the run.
    run: PathBuf,
    #[command(flatten)]
    output: OutputArgs,
}

#[derive(Debug, Args)]
struct CompareArgs {
    /// The files of the runs.
    #[arg(num_args = 2.., required = true)]
    runs: Vec<PathBuf>,
    /// Print the comparison as JSON (schema evenkeel.bench.compare/1) instead of text.
    #[arg(long)]
    json: bool,
}

/// Shows or compares.
pub(crate) fn run(args: &ReportArgs) -> Result<Outcome, Failure> {
    match &args.sub {
        Sub::Show(args) => args.run(),
        Sub::Compare(args) => args.run(),
    }
}

impl ShowArgs {
    fn run(&self) -> Result<Outcome, Failure> {
        let run = run::load_run(&self.run)?;
        self.output.open()?.show(&run)?;
        Ok(Outcome::Fine)
    }
}

impl CompareArgs {
    fn run(&self) -> Result<Outcome, Failure> {
        let runs = self
            .runs
            .iter()
            .map(|path| Ok((path.display().to_string(), run::load_run(path)?)))
            .collect::<Result<Vec<(String, BenchRun)>, Failure>>()?;
        let comparison = compare(&runs);
        let text = match self.json {
            true => {
                let document = Document::new("bench.compare", SCHEMA, &comparison);
                serde_json::to_string_pretty(&document).map_err(Failure::internal)? + "\n"
            }
            false => report::bench_compare_text(&comparison, Look::of_stdout()),
        };
        print(&text).map(|()| Outcome::Fine)
    }
}
