//! `evenkeel profile sweep`: a lab box under rising load.

use std::{path::PathBuf, time::Duration};

use clap::{Args, Subcommand, ValueEnum};
use host::{
    Host, Root,
    file::{PUBLIC, Whole},
};
use indicatif::ProgressBar;
use model::{CpuSet, schema::Document, sweep::SCHEMA};
use profile::sweep::{self, SweepBox, SweepConfig};
use rig::{cores, machine};
use sys::privilege::{self, Capability};

use super::profile::ProfileArgs;
use crate::time::within;
use crate::{
    failure::{Failure, Outcome, note, print},
    numbers::number,
    periods::steps_bar,
    signals::{Second, end_interrupted, stop_flag},
};

/// A lab, its generator and the sampling need these.
const CAPABILITIES: [Capability; 6] = [
    Capability::CAP_SYS_ADMIN,
    Capability::CAP_NET_ADMIN,
    Capability::CAP_NET_RAW,
    Capability::CAP_BPF,
    Capability::CAP_PERFMON,
    Capability::CAP_SYSLOG,
];

/// Show what the CPU time goes to: memory, interrupts, IP, locks …
#[derive(Debug, Args)]
#[command(args_conflicts_with_subcommands = true)]
pub(crate) struct ProfileVerb {
    #[command(subcommand)]
    sub: Option<Sub>,
    #[command(flatten)]
    args: ProfileArgs,
}

#[derive(Debug, Subcommand)]
enum Sub {
    Sweep(SweepArgs),
}

/// Load a lab box step by step and show what its CPU time goes to.
///
/// Each load meets a standard and an optimised configuration.
///
/// Example: `evenkeel profile sweep --dut filter --html sweep.html`. It works in network namespaces of its own, and removes them.
///
/// It searches the ceiling of both configurations first, in turn, `--repeats` times each. Then it offers loads up to 110 % of the better
/// ceiling to both.
#[derive(Debug, Args)]
struct SweepArgs {
    /// The box to load.
    #[arg(long = "dut", alias = "box", value_name = "BOX", value_enum, default_value_t = BoxArg::Router, help_heading = "Measurements")]
    what: BoxArg,
    /// Number of loads, 1 to 50.
    #[arg(long = "loads", alias = "steps", value_name = "N", default_value_t = 10, value_parser = number::<u32>("a number of loads", "10", 1..=50), help_heading = "Measurements")]
    steps: u32,
    /// Searches for each ceiling, 1 to 20. Fewer than 3 give no verdict.
    #[arg(long, value_name = "N", default_value_t = 5, value_parser = number::<u32>("a number of repeats", "5", 1..=20), help_heading = "Measurements")]
    repeats: u32,
    /// Length of each load in each configuration, 200ms to 1m.
    #[arg(long = "duration", alias = "seconds", value_name = "TIME", default_value = "1s", value_parser = within("200ms", "1m"), help_heading = "Measurements")]
    seconds: Duration,
    /// CPUs to use, such as 2,3: the last one is the box's, the one before it the generator's [default: all that are online
    /// and not isolated].
    #[arg(long, value_name = "CPUS", help_heading = "Measurements")]
    cpus: Option<CpuSet>,
    /// Write a page with the charts.
    #[arg(long, value_name = "FILE", help_heading = "Results")]
    html: Option<PathBuf>,
    /// Print the run as JSON (schema evenkeel.sweep/1) instead of text.
    #[arg(long, help_heading = "Results")]
    json: bool,
}

/// The boxes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
enum BoxArg {
    /// The kernel routes: with connection tracking, and without.
    Router,
    /// Routing past 25 rules of nftables: one after the other, and as a set.
    Filter,
    /// A bridge: its frames taken through the rules of IP, and not.
    Bridge,
    /// Capture on a mirror port: a plain socket, and evenkeel's tap.
    Capture,
    /// The same: a plain socket, and rings in a fanout group.
    CaptureRing,
}

impl BoxArg {
    fn choice(self) -> SweepBox {
        match self {
            Self::Router => SweepBox::Router,
            Self::Filter => SweepBox::Filter,
            Self::Bridge => SweepBox::Bridge,
            Self::Capture => SweepBox::Capture,
            Self::CaptureRing => SweepBox::CaptureRing,
        }
    }
}

/// A profile of this machine, or a sweep.
pub(crate) fn run(verb: &ProfileVerb) -> Result<Outcome, Failure> {
    match &verb.sub {
        None => super::profile::run(&verb.args),
        Some(Sub::Sweep(args)) => args.run(),
    }
}

impl SweepArgs {
    /// Checks everything that can be checked before anything is made.
    fn config(&self, host: &Host) -> Result<SweepConfig, Failure> {
        let cpus = cores::usable(host, self.cpus.as_ref())?;
        let what = self.what.choice();
        let compared = sweep::configurations(what).to_vec();
        let duration = self.seconds;
        Ok(SweepConfig { what, steps: self.steps, duration, repeats: self.repeats, cpus, compared })
    }

    fn run(&self) -> Result<Outcome, Failure> {
        let host = Host::read(&Root::live())?;
        let config = self.config(&host)?;
        privilege::require_root("profile sweep", &CAPABILITIES)?;
        let page = self.html.as_deref().map(|path| Whole::open(path, PUBLIC)).transpose()?;
        let stop = stop_flag(Second::IsIgnored)?;
        let when = jiff::Timestamp::now().strftime("%Y-%m-%dT%H:%M:%SZ").to_string();
        let mut progress = Progress::new();
        let done = sweep::run(&config, (when, machine::describe(&host)), &stop, &mut progress)?;
        progress.bar.finish_and_clear();
        let Some(sweep) = done else {
            drop(page);
            end_interrupted("Everything that the sweep had made is gone again")?;
            return Ok(Outcome::No);
        };
        let text = if self.json {
            serde_json::to_string_pretty(&Document::new("sweep", SCHEMA, &sweep)).map_err(Failure::internal)? + "\n"
        } else {
            report::sweep_text(&sweep, report::Look::of_stdout())
        };
        // What was measured is not lost when one of its ways out is shut.
        let printed = print(&text);
        if let (Some(file), Some(path)) = (page, &self.html) {
            file.write(report::sweep_page(&sweep)?.as_bytes())?;
            note(format_args!("The page with the charts: {}", path.display()));
        }
        printed.map(|()| Outcome::Fine)
    }
}

/// Progress on stderr: a bar on a terminal, a line per measurement elsewhere.
struct Progress {
    bar: ProgressBar,
}

impl Progress {
    fn new() -> Self {
        Self { bar: steps_bar() }
    }
}

impl sweep::Watch for Progress {
    fn begins(&mut self, what: &str, number: usize, of: usize) {
        self.bar.set_length(of as u64);
        self.bar.set_position(number as u64 - 1);
        self.bar.set_message(what.to_owned());
        if self.bar.is_hidden() {
            note(format_args!("{number}/{of} {what}"));
        }
    }
}
