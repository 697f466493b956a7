//! `evenkeel profile sweep`: a lab box under rising load.

use std::{path::PathBuf, time::Duration};

use clap::{Args, Subcommand, ValueEnum};
use host::{Host, Root};
use model::{CpuSet, schema::Document, sweep::SCHEMA};
use profile::sweep::{self, SweepBox, SweepConfig};
use rig::cores;
use sys::privilege;

use super::profile::ProfileArgs;
use crate::time::within;
use crate::{
    failure::{Failure, Outcome},
    long_run::{Bar, LAB_CAPABILITIES, OutFile, interrupted, json_text, long_run, put_out},
    numbers::number,
};

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
        privilege::require_root("profile sweep", &LAB_CAPABILITIES)?;
        let page = OutFile::open(self.html.as_deref(), "page with the charts")?;
        let Some(sweep) = long_run(|stop, bar| sweep::run(&config, &host, stop, bar))? else {
            drop(page);
            return interrupted("sweep");
        };
        let text = match self.json {
            true => json_text(&Document::new("sweep", SCHEMA, &sweep))?,
            false => report::sweep_text(&sweep, report::Look::of_stdout()),
        };
        put_out(&text, page, || report::sweep_page(&sweep)).map(|()| Outcome::Fine)
    }
}

impl sweep::Watch for Bar {}
