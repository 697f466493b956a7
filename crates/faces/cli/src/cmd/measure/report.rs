//! `evenkeel report`: saved runs, shown and laid side by side.

use std::path::{Path, PathBuf};

use ::bench::run;
use anyhow::anyhow;
use clap::{Args, Subcommand};
use model::{
    bench::{
        SCHEMA,
        compare::compare,
        guest::GuestRun,
        neighbour::{self, NeighbourRun},
    },
    compare::Comparison,
    flood::{self, FloodRun},
    schema::Document,
};
use report::{Look, bench_compare_text, flood_compare_text, neighbour_compare_text};
use serde::Serialize;

use super::bench::{OutputArgs, Saved, is_saved, load};
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
    fn run(&self) -> Result<Outcome, Failure> {
        if !(self.show::<FloodRun>()? || self.show::<NeighbourRun>()? || self.show::<GuestRun>()?) {
            let run = run::load_run(&self.run)?;
            self.output.open()?.show(&run)?;
        }
        Ok(Outcome::Fine)
    }

    /// Shows the file if it is such a run.
    fn show<R: Saved>(&self) -> Result<bool, Failure> {
        if !is_saved::<R>(&self.run) {
            return Ok(false);
        }
        let (as_json, page) = self.output.for_flood().map_err(|option| {
            Failure::usage(anyhow!("{} is {}, which has no {option}", self.run.display(), R::WHAT))
        })?;
        let page = OutFile::open(page, R::PAGE)?;
        load::<R>(&self.run)?.show(as_json, page).map(|()| true)
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
        if let Some(run) = self.runs.iter().find(|path| is_saved::<GuestRun>(path)) {
            return Err(Failure::usage(anyhow!(
                "{} is a run of guests, which are not compared: `evenkeel report show` it",
                run.display()
            )));
        }
        if self.all_are::<NeighbourRun>()? {
            let schema = ("bench.neighbour.compare", neighbour::compare::SCHEMA);
            let compare = (neighbour::compare::compare, neighbour_compare_text as Text<_>);
            return self.compare(load, compare, schema, |row| !row.costs.is_empty());
        }
        if self.all_are::<FloodRun>()? {
            let schema = ("bench.flood.compare", flood::compare::SCHEMA);
            let compare = (flood::compare::compare, flood_compare_text as Text<_>);
            return self.compare(load, compare, schema, |row| row.cells.iter().flatten().count() > 1);
        }
        let compare = (compare, bench_compare_text as Text<_>);
        let schema = ("bench.compare", SCHEMA);
        self.compare(|path| Ok(run::load_run(path)?), compare, schema, |row| row.values.iter().flatten().count() > 1)
    }

    /// True if all files are such runs, an error if some are.
    fn all_are<R: Saved>(&self) -> Result<bool, Failure> {
        let (these, others): (Vec<_>, Vec<_>) = self.runs.iter().partition(|path| is_saved::<R>(path));
        match (these.first(), others.first()) {
            (Some(one), Some(other)) => Err(Failure::usage(anyhow!(
                "{} is {} and {} is none: they have nothing in common",
                one.display(),
                R::WHAT,
                other.display()
            ))),
            (one, _) => Ok(one.is_some()),
        }
    }

    fn compare<Run, Row: Serialize>(
        &self,
        load: impl Fn(&Path) -> Result<Run, Failure>,
        (compare, text): (impl Fn(&[(String, Run)]) -> Comparison<Row>, Text<Row>),
        (name, version): (&str, u32),
        in_common: impl Fn(&Row) -> bool,
    ) -> Result<Outcome, Failure> {
        let runs = self.runs.iter().map(|path| Ok((path.display().to_string(), load(path)?)));
        let comparison = compare(&runs.collect::<Result<Vec<_>, Failure>>()?);
        let text = match self.json {
            true => json_text(&Document::new(name, version, &comparison))?,
            false => text(&comparison, Look::of_stdout()),
        };
        print_verdict(&text, compared(comparison.rows.iter().any(in_common)))
    }
}

/// A comparison as text.
type Text<Row> = fn(&Comparison<Row>, Look) -> String;

/// Runs that have no figure in common cannot be compared: the answer is no.
fn compared(any: bool) -> Outcome {
    if any {
        return Outcome::Fine;
    }
    note("evenkeel: nothing to compare: no two of these runs measured the same (box, frame size, quantity)");
    Outcome::No
}
