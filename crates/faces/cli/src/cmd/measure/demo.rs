//! `evenkeel demo`: arguments, progress, text, JSON and the page.

use std::{path::PathBuf, time::Duration};

use ::demo::{DemoConfig, stage_names};
use anyhow::anyhow;
use clap::Args;
use host::{Host, Root};
use model::{CpuSet, run::DemoRun};
use rig::cores;
use sys::privilege::{self, Capability};
use traffic::Rate;

use crate::time::within;
use crate::{
    dry_run::{DryRun, times},
    failure::{Failure, Outcome},
    long_run::{Found, end_interrupted, interrupted, long_run},
    numbers::number,
    results::OutFile,
};

/// Capabilities of the demo.
const CAPABILITIES: [Capability; 4] =
    [Capability::CAP_SYS_ADMIN, Capability::CAP_NET_ADMIN, Capability::CAP_NET_RAW, Capability::CAP_BPF];

/// Length and number of the measurements of `--quick`, and otherwise.
const QUICK: (Duration, u32) = (Duration::from_millis(500), 1);
const USUAL: (Duration, u32) = (Duration::from_secs(2), 3);
/// A stage is set up, warmed up and read in about so many seconds.
const STAGE_S: f64 = 1.0;

/// Flood a lab with SYNs and receive the flood in eight ways.
///
/// Example: `sudo evenkeel demo --quick`. It works in two network namespaces of its own, joined by a veth, and removes them.
/// Each stage shows what was offered, captured and lost, where it was lost, the load of every core, and what a packet costs. A page with the
/// charts goes to the current folder: a first look after some 15 s, the whole after a minute and a half.
#[derive(Debug, Args)]
pub(crate) struct DemoArgs {
    /// Length of each measurement, 200ms to 10m [default: 2s].
    #[arg(long = "duration", value_name = "TIME", value_parser = within("200ms", "10m"), help_heading = "Measurements")]
    seconds: Option<Duration>,
    /// Measurements per stage [default: 3]. The one with the median rate is shown, with the range of all.
    #[arg(long, value_name = "N", value_parser = number::<u32>("a number of measurements", "3", 1..=99), help_heading = "Measurements")]
    repeats: Option<u32>,
    /// A first look: one measurement of 500ms per stage.
    #[arg(long, help_heading = "Measurements")]
    quick: bool,
    /// Print the plan and its time, then exit.
    #[arg(long, help_heading = "Measurements")]
    dry_run: bool,
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
    /// True if a page with one short measurement per stage comes before the long ones.
    fn looks_first(&self) -> bool {
        !self.quick && !self.no_html && self.seconds.is_none() && self.repeats.is_none()
    }

    /// Checks everything that can be checked before anything is made.
    fn validate(&self, host: &Host) -> Result<DemoConfig, Failure> {
        if let Some(rate) = self.rate
            && !(1000.0..=5e7).contains(&rate)
        {
            return Err(Failure::usage(anyhow!("--rate takes 1000 to 50000000 packets/s, not {rate}")));
        }
        let cpus = cores::usable(host, self.cpus.as_ref())?;
        let (duration, repeats) = if self.quick { QUICK } else { USUAL };
        let (duration, repeats) = (self.seconds.unwrap_or(duration), self.repeats.unwrap_or(repeats));
        Ok(DemoConfig { duration, repeats, pps: self.rate, cpus })
    }
}

pub(crate) fn run(args: &DemoArgs) -> Result<Outcome, Failure> {
    let host = Host::read(&Root::live())?;
    let config = args.validate(&host)?;
    if args.dry_run {
        let stages = stage_names(&config.cpus, &host.cpus);
        let seconds = |(duration, repeats): (Duration, u32)| {
            let each_s = f64::from(repeats) * (duration.as_secs_f64() + STAGE_S);
            duration.as_secs_f64() + each_s * stages.len() as f64
        };
        let mut seconds_in_all = seconds((config.duration, config.repeats));
        let mut steps = Vec::new();
        if args.looks_first() {
            seconds_in_all += seconds(QUICK);
            steps.push("first look: each stage once, 500 ms".to_owned());
        }
        steps.push("generator ceiling".to_owned());
        steps.extend(stages.iter().map(|name| format!("{name}, {}", times(config.repeats))));
        return DryRun { steps, seconds: seconds_in_all }.print("demo.plan", args.json);
    }
    privilege::require_root("demo", &CAPABILITIES)?;
    let open = || OutFile::open((!args.no_html).then_some(&args.html), DemoRun::PAGE);
    let mut page = open()?;
    let mut has_looked = false;
    let done = long_run(|control| {
        if args.looks_first()
            && let Some(first_page) = page.take()
        {
            let first = DemoConfig { duration: QUICK.0, repeats: QUICK.1, ..config.clone() };
            let Some(run) = ::demo::run(&first, &host, control)? else { return Ok(None) };
            first_page.save(run.page()?)?;
            has_looked = true;
            control
                .progress
                .line(&format!("A first look, one measurement of 500 ms per stage: {}", args.html.display()));
            page = open()?;
        }
        Ok::<_, Failure>(::demo::run(&config, &host, control)?)
    })?;
    let Some(run) = done else {
        drop(page);
        return match has_looked {
            true => Ok(end_interrupted(format_args!(
                "Everything that the demo had made is gone again; {} keeps the first look",
                args.html.display()
            ))),
            false => interrupted("demo"),
        };
    };
    run.show(args.json, page).map(|()| Outcome::Fine)
}

impl Found for DemoRun {
    const SCHEMA: (&'static str, u32) = ("demo", 1);

    fn text(&self) -> String {
        report::demo_text(self, report::Look::of_stdout()) + "\n"
    }

    fn page(&self) -> Result<String, report::PageError> {
        report::demo_page(self)
    }
}

/// A rate in packets/s, as `gen` reads it.
fn packets_per_second(text: &str) -> Result<f64, String> {
    match text.parse::<Rate>() {
        Ok(Rate::Packets(pps)) => Ok(pps),
        _ => Err("write a rate in packets/s, such as 250000, 100k or 1.5Mpps".to_owned()),
    }
}

#[cfg(test)]
mod tests {
    use super::packets_per_second;

    #[test]
    fn rates_have_the_units_of_gen() {
        for (text, pps) in [("1M", 1e6), ("100k", 1e5), ("1.5Mpps", 1.5e6), ("250000", 250e3)] {
            assert_eq!(packets_per_second(text), Ok(pps), "{text}");
        }
        for text in ["", "x", "max", "1Gbit", "-1"] {
            assert!(packets_per_second(text).is_err_and(|why| why.contains("100k")), "{text}");
        }
    }
}
