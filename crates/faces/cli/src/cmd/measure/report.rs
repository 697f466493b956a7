//! `evenkeel report`: saved runs, shown and laid side by side.

use std::path::PathBuf;

use ::bench::run;
use anyhow::anyhow;
use clap::{Args, Subcommand};
use model::{
    bench::{BenchRun, SCHEMA, compare::compare},
    schema::Document,
};
use report::Look;

use super::bench::{OutputArgs, flood, guest, neighbour};
use crate::{
    failure::{Failure, Outcome, note, print_verdict},
    results::{OutFile, json_text},
};

/// Show or compare saved runs of bench, flood and neighbour runs included.
#[derive(Debug, Args)]
#[command(
    after_help = "Examples:\n  evenkeel report show run.json --html page.html\n  evenkeel report compare before.json after.json"
)]
pub(crate) struct ReportArgs {
    #[command(subcommand)]
    sub: Sub,
}

#[derive(Debug, Subcommand)]
enum Sub {
    /// Show a run as text, and write it as a page or a table.
    Show(ShowArgs),
    /// Compare runs with the first one. The exit code is 1 when there is nothing to compare.
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
    /// Print the comparison as JSON (schema evenkeel.bench.compare/1; bench.flood.compare/1, bench.neighbour.compare/1) instead of text.
    #[arg(long)]
    json: bool,
}

pub(crate) fn run(args: &ReportArgs) -> Result<Outcome, Failure> {
    match &args.sub {
        Sub::Show(args) => args.run(),
        Sub::Compare(args) => args.run(),
    }
}

impl ShowArgs {
    /// The options of a run that is shown as text, JSON or a page alone.
    fn plain(&self, what: &str, page_is: &'static str) -> Result<(bool, Option<OutFile<'_>>), Failure> {
        let (as_json, page) = self
            .output
            .for_flood()
            .map_err(|option| Failure::usage(anyhow!("{} is {what}, which has no {option}", self.run.display())))?;
        Ok((as_json, OutFile::open(page, page_is)?))
    }

    fn run(&self) -> Result<Outcome, Failure> {
        if flood::is_saved(&self.run) {
            let (as_json, page) = self.plain("a run of bench flood", flood::PAGE)?;
            return flood::put_out(&flood::load(&self.run)?, as_json, page).map(|()| Outcome::Fine);
        }
        if neighbour::is_saved(&self.run) {
            let (as_json, page) = self.plain("a run with neighbours", neighbour::PAGE)?;
            return neighbour::show(&neighbour::load(&self.run)?, as_json, page).map(|()| Outcome::Fine);
        }
        if guest::is_saved(&self.run) {
            let (as_json, page) = self.plain("a run of guests", guest::PAGE)?;
            return guest::show(&guest::load(&self.run)?, as_json, page).map(|()| Outcome::Fine);
        }
        let run = run::load_run(&self.run)?;
        self.output.open()?.show(&run)?;
        Ok(Outcome::Fine)
    }
}

impl CompareArgs {
    fn run(&self) -> Result<Outcome, Failure> {
        for path in &self.runs {
            let unread = |e| {
                Failure::usage(anyhow!(
                    "cannot read {}: {e}; `evenkeel bench --save FILE` writes a run",
                    path.display()
                ))
            };
            host::file::read_text(path).map_err(unread)?;
        }
        if let Some(run) = self.runs.iter().find(|path| guest::is_saved(path)) {
            return Err(Failure::usage(anyhow!(
                "{} is a run of guests, which are not compared: `evenkeel report show` it",
                run.display()
            )));
        }
        let (neighbours, rest): (Vec<_>, Vec<_>) = self.runs.iter().partition(|path| neighbour::is_saved(path));
        match (neighbours.first(), rest.first()) {
            (Some(one), Some(other)) => {
                return Err(Failure::usage(anyhow!(
                    "{} is a run with neighbours and {} is none: they have nothing in common",
                    one.display(),
                    other.display()
                )));
            }
            (Some(_), None) => return self.compare_neighbours(),
            _ => {}
        }
        let (floods, others): (Vec<_>, Vec<_>) = self.runs.iter().partition(|path| flood::is_saved(path));
        match (floods.first(), others.first()) {
            (Some(flood), Some(other)) => Err(Failure::usage(anyhow!(
                "{} is a run of bench flood and {} is none: they have nothing in common",
                flood.display(),
                other.display()
            ))),
            (Some(_), None) => self.compare_floods(),
            _ => self.compare(),
        }
    }

    fn compare_neighbours(&self) -> Result<Outcome, Failure> {
        let runs = self.runs.iter().map(|path| Ok((path.display().to_string(), neighbour::load(path)?)));
        let comparison = model::bench::neighbour::compare::compare(&runs.collect::<Result<Vec<_>, Failure>>()?);
        let schema = model::bench::neighbour::compare::SCHEMA;
        let text = match self.json {
            true => json_text(&Document::new("bench.neighbour.compare", schema, &comparison))?,
            false => report::neighbour_compare_text(&comparison, Look::of_stdout()),
        };
        print_verdict(&text, compared(comparison.rows.iter().any(|row| !row.costs.is_empty())))
    }

    fn compare_floods(&self) -> Result<Outcome, Failure> {
        let runs = self.runs.iter().map(|path| Ok((path.display().to_string(), flood::load(path)?)));
        let comparison = model::flood::compare::compare(&runs.collect::<Result<Vec<_>, Failure>>()?);
        let text = match self.json {
            true => json_text(&Document::new("bench.flood.compare", model::flood::compare::SCHEMA, &comparison))?,
            false => report::flood_compare_text(&comparison, Look::of_stdout()),
        };
        print_verdict(&text, compared(comparison.rows.iter().any(|row| row.cells.iter().flatten().count() > 1)))
    }

    fn compare(&self) -> Result<Outcome, Failure> {
        let runs = self
            .runs
            .iter()
            .map(|path| Ok((path.display().to_string(), run::load_run(path)?)))
            .collect::<Result<Vec<(String, BenchRun)>, Failure>>()?;
        let comparison = compare(&runs);
        let text = match self.json {
            true => json_text(&Document::new("bench.compare", SCHEMA, &comparison))?,
            false => report::bench_compare_text(&comparison, Look::of_stdout()),
        };
        print_verdict(&text, compared(comparison.rows.iter().any(|row| row.values.iter().flatten().count() > 1)))
    }
}

/// Runs that have no figure in common cannot be compared: the answer is no.
fn compared(any: bool) -> Outcome {
    if any {
        return Outcome::Fine;
    }
    note("evenkeel: nothing to compare: no two of these runs measured the same (box, frame size, quantity)");
    Outcome::No
}
