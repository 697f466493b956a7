//! The ways out of a run, and the plan before it begins.

use std::{
    fmt::Write,
    path::{Path, PathBuf},
};

use ::bench::run::{NAME, Saved, Settings, Step, What, seconds};
use clap::Args;
use model::units::duration_words;
use model::{
    bench::{BenchRun, FrameSpec, SCHEMA},
    schema::Document,
};
use report::{BenchCsv, BenchView, Look};
use serde::Serialize;

use crate::{
    failure::Failure,
    long_run::put_out,
    results::{OutFile, json_text},
};

/// The version of the schema `evenkeel.bench.plan/<version>`.
const PLAN_SCHEMA: u32 = 1;

/// Ways out of a run.
#[derive(Debug, Args)]
pub(crate) struct OutputArgs {
    /// Write all results as CSV.
    #[arg(long, hide_short_help = true, value_name = "FILE", help_heading = "Results")]
    csv: Option<PathBuf>,
    /// Write all trials as CSV.
    #[arg(long, hide_short_help = true, value_name = "FILE", help_heading = "Results")]
    trials_csv: Option<PathBuf>,
    /// Write an HTML page with charts.
    #[arg(long, value_name = "FILE", help_heading = "Results")]
    html: Option<PathBuf>,
    /// Print JSON (schema evenkeel.bench/1) instead of text.
    #[arg(long, help_heading = "Results")]
    json: bool,
    /// Also print each step of the searches.
    #[arg(long, help_heading = "Results")]
    steps: bool,
    /// Also print every trial.
    #[arg(long, hide_short_help = true, help_heading = "Results")]
    trials: bool,
    /// Print latency at every load, not only idle and at the highest one.
    #[arg(long, hide_short_help = true, help_heading = "Results")]
    every_load: bool,
}

/// The files of [`OutputArgs`], found to be writable.
pub(crate) struct Outputs<'a> {
    args: &'a OutputArgs,
    csv: Option<OutFile<'a>>,
    trials_csv: Option<OutFile<'a>>,
    html: Option<OutFile<'a>>,
}

impl OutputArgs {
    /// Learns now, not after a run, that a file cannot be written.
    pub(crate) fn open(&self) -> Result<Outputs<'_>, Failure> {
        Ok(Outputs {
            args: self,
            csv: OutFile::open(self.csv.as_deref(), "table of the results")?,
            trials_csv: OutFile::open(self.trials_csv.as_deref(), "table of the trials")?,
            html: OutFile::open(self.html.as_deref(), "page with the charts")?,
        })
    }
}

impl Outputs<'_> {
    /// Prints the run, and writes it where it is wanted.
    pub(crate) fn show(self, run: &BenchRun) -> Result<(), Failure> {
        let printed = put_out(&self.args.text(run)?, self.html, || report::bench_page(run));
        for (file, which) in [(self.csv, BenchCsv::Results), (self.trials_csv, BenchCsv::Trials)] {
            if let Some(file) = file {
                file.write(report::bench_csv(run, which)?)?;
            }
        }
        printed
    }
}

impl OutputArgs {
    /// True if JSON is wanted.
    pub(crate) fn as_json(&self) -> bool {
        self.json
    }

    /// The ways out that a run of `bench flood` has: whether as JSON, and the page; a name of one that it has not is an error.
    pub(crate) fn for_flood(&self) -> Result<(bool, Option<&Path>), &'static str> {
        let wrong = [
            (self.csv.is_some(), "--csv"),
            (self.trials_csv.is_some(), "--trials-csv"),
            (self.steps, "--steps"),
            (self.trials, "--trials"),
            (self.every_load, "--every-load"),
        ];
        match wrong.iter().find(|(given, _)| *given) {
            Some((_, option)) => Err(option),
            None => Ok((self.json, self.html.as_deref())),
        }
    }

    fn text(&self, run: &BenchRun) -> Result<String, Failure> {
        Ok(match self.json {
            true => json_text(&Document::new(NAME, SCHEMA, run))?,
            false => {
                let view = BenchView { steps: self.steps, trials: self.trials, every_load: self.every_load };
                report::bench_text(run, view, Look::of_stdout())
            }
        })
    }
}

/// The plan of a run (`evenkeel.bench.plan/1`).
#[derive(Serialize)]
struct Plan<'a> {
    preset: &'a str,
    /// Seconds that all steps take which are not done.
    seconds: f64,
    steps: Vec<PlannedStep>,
}

#[derive(Serialize)]
struct PlannedStep {
    #[serde(rename = "box")]
    of: String,
    frame: FrameSpec,
    test: String,
    seconds: f64,
    done: bool,
}

/// The plan as JSON.
pub(super) fn plan_json(saved: &Saved, settings: &Settings, steps: &[Step]) -> Result<String, Failure> {
    let one = |step: &Step| PlannedStep {
        of: step.id.mode.clone(),
        frame: step.id.frame.clone(),
        test: step.id.what.to_string(),
        seconds: step.seconds,
        done: saved.done.contains(&step.id),
    };
    let steps: Vec<PlannedStep> = steps.iter().map(one).collect();
    let seconds = steps.iter().filter(|s| !s.done).map(|s| s.seconds).sum();
    json_text(&Document::new("bench.plan", PLAN_SCHEMA, Plan { preset: &settings.name, seconds, steps }))
}

/// The steps of a run and its duration, for `--dry-run`.
pub(super) fn plan(saved: &Saved, settings: &Settings, steps: &[Step]) -> String {
    let setup = &saved.run.setup;
    let look = Look::of_stdout();
    let preset = &settings.preset;
    let mut text = look.paragraph(&match settings.name == preset.name {
        true => format!("Preset {}: {}.", preset.name, preset.what),
        // What the flags changed is in the steps below.
        false => format!("Preset {} with changes by flags.", preset.name),
    });
    text += &look.paragraph(&format!(
        "{}, IPv{}, {} {} in each direction.",
        if setup.bidirectional { "Both directions at once" } else { "One direction" },
        setup.ip_version,
        setup.flows,
        if setup.flows == 1 { "flow" } else { "flows" },
    ));
    for role in &setup.arrangement.roles {
        text += &look.paragraph(&format!("CPU {}: {}.", role.cpus, role.role));
    }
    text.push('\n');
    let done = |step: &Step| saved.done.contains(&step.id);
    let rows = steps.iter().enumerate().map(|(i, step)| {
        let what = match step.id.what {
            What::Ceiling => "tester's ceiling".to_owned(),
            What::Test(test) => test.to_string(),
        };
        let time = if done(step) { "done".to_owned() } else { duration_words(step.seconds) };
        vec![(i + 1).to_string(), step.id.mode.clone(), step.id.frame.label(), what, time]
    });
    text.push_str(&look.table(&[">STEP", "BOX", ">FRAMES", "TEST", ">ABOUT"], rows));
    let left: Vec<Step> = steps.iter().filter(|s| !done(s)).cloned().collect();
    let _ = writeln!(text, "\n{} steps, about {} in all.", left.len(), duration_words(seconds(&left)));
    text
}
