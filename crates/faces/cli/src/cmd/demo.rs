//! `evenkeel demo`: arguments, progress, text, JSON and the page.

mod sampling;

use std::{path::PathBuf, time::Duration};

use ::demo::{DemoConfig, Watch};
use anyhow::anyhow;
use clap::Args;
use host::{
    Host, Root,
    file::{PUBLIC, Whole},
};
use indicatif::ProgressBar;
use model::{CpuSet, run::Stage, schema::Document, units};
use rig::cores;
use sys::privilege::{self, Capability};

use self::sampling::Sampler;
use crate::time::within;
use crate::{
    failure::{Failure, Outcome, note, print},
    numbers::{number, packets_per_second},
    periods::steps_bar,
    signals::{Second, end_interrupted, stop_flag},
};

/// What the demo does to the machine needs these.
const CAPABILITIES: [Capability; 4] =
    [Capability::CAP_SYS_ADMIN, Capability::CAP_NET_ADMIN, Capability::CAP_NET_RAW, Capability::CAP_BPF];

/// Flood a lab with SYNs and receive the flood in eight ways.
///
/// Example: `sudo evenkeel demo --duration 500ms --repeats 1`. It works in two network namespaces of its own, joined by a veth, and removes them.
/// Each stage shows what was offered, captured and lost, where it was lost, the load of every core, and what a packet costs. A page with the
/// charts goes to the current folder.
#[derive(Debug, Args)]
pub(crate) struct DemoArgs {
    /// Length of each measurement, 200ms to 10m.
    #[arg(long = "duration", alias = "seconds", value_name = "TIME", default_value = "2s", value_parser = within("200ms", "10m"), help_heading = "Measurements")]
    seconds: Duration,
    /// Measurements per stage. The one with the median rate is shown, with the range of all.
    #[arg(long, value_name = "N", default_value_t = 3, value_parser = number::<u32>("a number of measurements", "3", 1..=99), help_heading = "Measurements")]
    repeats: u32,
    /// Packets per second to offer, such as 250000, 100k or 1.5Mpps [default: 90 % of the generator's ceiling; 10 % where it shares the
    /// receivers' cores].
    #[arg(long, value_name = "RATE", value_parser = packets_per_second, help_heading = "Measurements")]
    rate: Option<f64>,
    /// Cores to use, such as 0-3,8 [default: all that are online and not isolated].
    #[arg(long, value_name = "CPUS", help_heading = "Measurements")]
    cpus: Option<CpuSet>,
    /// The page to write.
    #[arg(long, value_name = "FILE", default_value = "evenkeel-demo.html", help_heading = "Results")]
    html: PathBuf,
    /// Write no page.
    #[arg(long, conflicts_with = "html", help_heading = "Results")]
    no_html: bool,
    /// Print the run as JSON (schema evenkeel.demo/1) instead of text.
    #[arg(long, help_heading = "Results")]
    json: bool,
}

impl DemoArgs {
    /// Checks everything that can be checked before anything is made.
    fn validate(&self, host: &Host) -> Result<DemoConfig, Failure> {
        if let Some(rate) = self.rate
            && !(1000.0..=5e7).contains(&rate)
        {
            return Err(Failure::usage(anyhow!("--rate takes 1000 to 50000000 packets/s, not {rate}")));
        }
        let cpus = cores::usable(host, self.cpus.as_ref())?;
        Ok(DemoConfig { duration: self.seconds, repeats: self.repeats, pps: self.rate, cpus })
    }
}

/// Runs the demo.
pub(crate) fn run(args: &DemoArgs) -> Result<Outcome, Failure> {
    let host = Host::read(&Root::live())?;
    let config = args.validate(&host)?;
    privilege::require_root("demo", &CAPABILITIES)?;
    let page = if args.no_html { None } else { Some(Whole::open(&args.html, PUBLIC)?) };
    let stop = stop_flag(Second::IsIgnored)?;
    let when = jiff::Timestamp::now().strftime("%Y-%m-%dT%H:%M:%SZ").to_string();
    let mut progress = Progress::new();
    let run = ::demo::run(&config, &host, when, &stop, &mut Sampler::default(), &mut progress)?;
    progress.bar.finish_and_clear();
    let Some(run) = run else {
        drop(page);
        end_interrupted("Everything that the demo had made is gone again")?;
        return Ok(Outcome::No);
    };
    let text = match args.json {
        true => serde_json::to_string_pretty(&Document::new("demo", 1, &run)).map_err(Failure::internal)?,
        false => report::demo_text(&run, report::Look::of_stdout()),
    };
    // What was measured is not lost when one of its ways out is shut.
    let printed = print(&(text + "\n"));
    if let Some(page) = page {
        page.write(report::demo_page(&run)?.as_bytes())?;
        note(format_args!("The page with the charts: {}", args.html.display()));
    }
    printed.map(|()| Outcome::Fine)
}

/// Progress on stderr: a bar on a terminal, a line per stage in any case.
struct Progress {
    bar: ProgressBar,
}

impl Progress {
    fn new() -> Self {
        Self { bar: steps_bar() }
    }
}

impl Watch for Progress {
    fn step(&mut self, name: &str, number: usize, of: usize) {
        self.bar.set_length(of as u64);
        self.bar.set_position(number as u64 - 1);
        self.bar.set_message(name.to_owned());
    }

    fn stage(&mut self, stage: &Stage) {
        let line = format!(
            "{:<22} {:>10} of {:>10} captured",
            stage.name,
            units::pps(stage.delivered_pps),
            units::pps(stage.offered_pps)
        );
        if self.bar.is_hidden() {
            note(line);
        } else {
            self.bar.println(line);
        }
    }
}
