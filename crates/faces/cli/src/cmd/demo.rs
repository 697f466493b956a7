//! `evenkeel demo`: arguments, progress, text, JSON and the page.

use std::{path::PathBuf, time::Duration};

use ::demo::DemoConfig;
use anyhow::anyhow;
use clap::Args;
use host::{Host, Root};
use model::{CpuSet, schema::Document};
use rig::cores;
use sys::privilege::{self, Capability};

use crate::time::within;
use crate::{
    failure::{Failure, Outcome},
    long_run::{OutFile, interrupted, json_text, long_run, put_out},
    numbers::{number, packets_per_second},
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
    let page = OutFile::open((!args.no_html).then_some(&args.html), "page with the charts")?;
    let done = long_run(|stop, bar| ::demo::run(&config, &host, stop, bar))?;
    let Some(run) = done else {
        drop(page);
        return interrupted("demo");
    };
    let text = match args.json {
        true => json_text(&Document::new("demo", 1, &run))?,
        false => report::demo_text(&run, report::Look::of_stdout()) + "\n",
    };
    put_out(&text, page, || report::demo_page(&run)).map(|()| Outcome::Fine)
}
