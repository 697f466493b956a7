//! `evenkeel profile sweep`: a lab box under rising load.

use std::{path::PathBuf, time::Duration};

use clap::Args;
use host::{Host, Root};
use model::{CpuSet, sweep::Sweep};
use rig::cores;
use sweep::{SweepBox, SweepConfig};
use sys::privilege;

use crate::time::within;
use crate::{
    dry_run::DryRun,
    failure::{Failure, Outcome},
    long_run::{Found, LAB_CAPABILITIES, measure},
    numbers::{number, words},
    results::OutFile,
};

/// Loads, their length and searches of `--quick`, and otherwise.
const QUICK: (u32, Duration, u32) = (5, Duration::from_millis(300), 3);
const USUAL: (u32, Duration, u32) = (10, Duration::from_secs(1), 5);
/// A search of a ceiling takes about so many seconds, and a load besides its length.
const SEARCH_S: f64 = 6.0;
const LOAD_S: f64 = 0.4;

const BOXES: [(&str, &str, SweepBox); 5] = [
    ("router", "The kernel routes: with connection tracking, and without", SweepBox::Router),
    ("filter", "Routing past 25 rules of nftables: one after the other, and as a set", SweepBox::Filter),
    ("bridge", "A bridge: its frames taken through the rules of IP, and not", SweepBox::Bridge),
    ("capture", "Capture on a mirror port: a plain socket, and evenkeel's tap", SweepBox::Capture),
    ("capture-ring", "The same: a plain socket, and rings in a fanout group", SweepBox::CaptureRing),
];

/// Load a lab box step by step and show what its CPU time goes to.
///
/// Each load meets a standard and an optimised configuration.
///
/// Example: `evenkeel profile sweep --dut filter --html sweep.html`. It works in network namespaces of its own, and removes them.
///
/// It searches the ceiling of both configurations first, in turn, `--repeats` times each. Then it offers loads up to 110 % of the better
/// ceiling to both.
#[derive(Debug, Args)]
pub(crate) struct SweepArgs {
    /// The box to load.
    #[arg(long = "dut", value_name = "BOX", value_parser = words(&BOXES), default_value = "router", help_heading = "Measurements")]
    what: SweepBox,
    /// Number of loads, 1 to 50 [default: 10].
    #[arg(long = "loads", value_name = "N", value_parser = number::<u32>("a number of loads", "10", 1..=50), help_heading = "Measurements")]
    steps: Option<u32>,
    /// Searches for each ceiling, 1 to 20 [default: 5]. Fewer than 3 give no verdict.
    #[arg(long, value_name = "N", value_parser = number::<u32>("a number of repeats", "5", 1..=20), help_heading = "Measurements")]
    repeats: Option<u32>,
    /// Length of each load in each configuration, 200ms to 1m [default: 1s].
    #[arg(long = "duration", value_name = "TIME", value_parser = within("200ms", "1m"), help_heading = "Measurements")]
    seconds: Option<Duration>,
    /// A first look: 5 loads of 300ms, 3 searches.
    #[arg(long, help_heading = "Measurements")]
    quick: bool,
    /// Print the plan and its time, then exit.
    #[arg(long, help_heading = "Measurements")]
    dry_run: bool,
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

impl SweepArgs {
    /// Checks everything that can be checked before anything is made.
    fn config(&self, host: &Host) -> Result<SweepConfig, Failure> {
        let cpus = cores::usable(host, self.cpus.as_ref())?;
        let what = self.what;
        let compared = sweep::configurations(what).to_vec();
        let (steps, duration, repeats) = if self.quick { QUICK } else { USUAL };
        let (steps, duration) = (self.steps.unwrap_or(steps), self.seconds.unwrap_or(duration));
        let repeats = self.repeats.unwrap_or(repeats);
        Ok(SweepConfig { what, steps, duration, repeats, cpus, compared })
    }

    pub(crate) fn run(&self) -> Result<Outcome, Failure> {
        let host = Host::read(&Root::live())?;
        let config = self.config(&host)?;
        if self.dry_run {
            return plan(&config).print("sweep.plan", self.json);
        }
        privilege::require_root("profile sweep", &LAB_CAPABILITIES)?;
        let page = OutFile::open(self.html.as_deref(), Sweep::PAGE)?;
        measure("sweep", (self.json, page), |_| true, |control| sweep::run(&config, &host, control, &mut |_, _| ()))
    }
}

/// The steps of a sweep.
fn plan(config: &SweepConfig) -> DryRun {
    let load_s = config.duration.as_secs_f64() + LOAD_S;
    let each = |name: &str| {
        [
            format!("{} searches of the ceiling, {name}", config.repeats),
            format!("{} loads at the ceiling, {name}", config.repeats),
            format!("{} loads up to 110 % of the better ceiling, {name}", config.steps),
        ]
    };
    let of_each_s = f64::from(config.repeats) * (SEARCH_S + load_s) + f64::from(config.steps) * load_s;
    DryRun {
        steps: config.compared.iter().flat_map(|configuration| each(configuration.name)).collect(),
        seconds: 2.0 + of_each_s * config.compared.len() as f64,
    }
}
