//! `evenkeel profile`: what the CPU time goes to.

use std::{
    path::{Path, PathBuf},
    sync::atomic::Ordering,
    thread,
    time::{Duration, Instant},
};

use anyhow::anyhow;
use clap::Args;
use host::{
    Host, Root,
    file::{AtomicFile, PUBLIC},
};
use indicatif::{ProgressBar, ProgressStyle};
use model::{
    CpuSet,
    profile::{Profile, SCHEMA},
    schema::Document,
};
use profile::{PerPacket, Recorder, RecorderOptions, Recording, SetApart, compare, flame_graph};
use report::{Look, ProfileView, comparison_text, profile_text};
use sys::privilege::{self, Capability};

use crate::time::within;
use crate::{
    failure::{Failure, Outcome, note, print},
    numbers::number,
    results::{OutFile, json_text},
    signals::{Second, stop_flag},
};

/// Clocks of all CPUs and a program on them; CAP_SYSLOG shows the addresses of functions.
const CAPABILITIES: [Capability; 3] = [Capability::CAP_BPF, Capability::CAP_PERFMON, Capability::CAP_SYSLOG];
/// The time between two readings of the samples.
const POLL_PERIOD: Duration = Duration::from_secs(2);

/// Show what the CPU time goes to: memory, interrupts, IP, locks …
#[derive(Debug, Args)]
#[command(args_conflicts_with_subcommands = true)]
pub(crate) struct ProfileVerb {
    #[cfg(feature = "measure")]
    #[command(subcommand)]
    sub: Option<Sub>,
    #[command(flatten)]
    args: ProfileArgs,
}

#[cfg(feature = "measure")]
#[derive(Debug, clap::Subcommand)]
enum Sub {
    Sweep(super::measure::SweepArgs),
}

/// Show what the CPU time goes to, by class of work.
///
/// Example: `evenkeel profile -d 10s --per eth0`. It samples the kernel's stacks on a software clock, which works in virtual machines
/// too, and sorts them into classes: in all, per core, and in nanoseconds per packet while there is traffic.
#[derive(Debug, Args)]
struct ProfileArgs {
    /// Sample for this time; Ctrl-C ends it earlier.
    #[arg(long, short, value_name = "TIME", default_value = "5s", value_parser = within("100ms", "24h"), help_heading = "Sampling")]
    duration: Duration,
    /// Samples per second and CPU (1 to 10000).
    #[arg(long, short = 'F', value_name = "HZ", default_value_t = 199, value_parser = number::<u32>("samples per second", "199", 1..=10_000), help_heading = "Sampling")]
    frequency: u32,
    /// The CPUs to sample, such as 0-3,8 [default: all that are online].
    #[arg(long, value_name = "CPUS", help_heading = "Sampling")]
    cpus: Option<CpuSet>,
    /// Divide by the packets of these interfaces [default: of all that carry traffic].
    #[arg(long, value_name = "INTERFACE", value_delimiter = ',', value_parser = crate::args::interface, help_heading = "Sampling")]
    per: Vec<String>,
    /// A column for every core.
    #[arg(long, help_heading = "Results")]
    per_core: bool,
    /// Show the most expensive functions of each class, and the functions that no rule names.
    #[arg(long, short, help_heading = "Results")]
    verbose: bool,
    /// List the N most expensive functions, whatever their class.
    #[arg(long, value_name = "N", default_value_t = 0, value_parser = number::<u8>("a number of functions", "10", 0..=40), help_heading = "Results")]
    top: u8,
    /// Print JSON (schema evenkeel.profile/1; with --compare evenkeel.profile.compare/1).
    #[arg(long, help_heading = "Results")]
    json: bool,
    /// Also write the profile as JSON to this file.
    #[arg(long, value_name = "FILE", help_heading = "Results")]
    save: Option<PathBuf>,
    /// Draw a flame graph, coloured by class.
    #[arg(long, value_name = "FILE.svg", help_heading = "Results")]
    flamegraph: Option<PathBuf>,
    /// Compare two saved profiles; measure nothing.
    #[arg(long, num_args = 2, value_names = ["A", "B"], conflicts_with_all = ["cpus", "per", "per_core", "verbose", "save", "flamegraph"], help_heading = "Results")]
    compare: Option<Vec<PathBuf>>,
}

/// A profile of this machine, or a sweep.
pub(crate) fn run(verb: &ProfileVerb) -> Result<Outcome, Failure> {
    #[cfg(feature = "measure")]
    if let Some(Sub::Sweep(args)) = &verb.sub {
        return args.run();
    }
    profile(&verb.args)
}

/// Samples and shows, or compares.
fn profile(args: &ProfileArgs) -> Result<Outcome, Failure> {
    if let Some([a, b]) = args.compare.as_deref() {
        return print_comparison(a, b, args.json);
    }
    privilege::require("profile", &CAPABILITIES)?;
    let save = args.save.as_deref().map(|path| AtomicFile::open(path, PUBLIC)).transpose()?;
    let drawing = OutFile::open(args.flamegraph.as_deref(), "flame graph")?;
    let host = Host::read(&Root::live())?;
    let per_packet = if args.per.is_empty() { PerPacket::Auto } else { PerPacket::Interfaces(args.per.clone()) };
    let Recording { profile, tally, .. } = record(
        RecorderOptions {
            frequency_hz: args.frequency,
            cpus: args.cpus.clone(),
            per_packet,
            set_apart: SetApart::Nobody,
            keep_stacks: args.flamegraph.is_some(),
            machine: host::machine::describe(&host),
        },
        args.duration,
    )?;
    let document = Document::new("profile", SCHEMA, &profile);
    let view = ProfileView { per_core: args.per_core, verbose: args.verbose, functions: args.top.into() };
    let text = match args.json {
        true => json_text(&document)?,
        false => profile_text(&profile, view, Look::of_stdout()),
    };
    // What was measured is not lost when one of its ways out is shut.
    let printed = print(&text);
    if let Some(file) = save {
        file.write(json_text(&document)?.as_bytes())?;
    }
    if let Some(file) = drawing {
        let title = format!("CPU time of {}, {}", profile.machine.hostname, profile.timestamp);
        file.write(flame_graph(&tally, &title)?)?;
    }
    printed.map(|()| Outcome::Fine)
}

/// Samples for a time, or until a signal comes.
fn record(options: RecorderOptions, duration: Duration) -> Result<Recording, Failure> {
    let stop = stop_flag(Second::Ends)?;
    let hz = options.frequency_hz;
    let mut recorder = Recorder::with(options)?;
    let bar = progress(duration, hz);
    let begun = Instant::now();
    let mut polled = begun;
    while begun.elapsed() < duration && !stop.load(Ordering::Relaxed) {
        thread::sleep(Duration::from_millis(50).min(duration.saturating_sub(begun.elapsed())));
        bar.set_position(begun.elapsed().as_millis() as u64);
        // A short profile is read once, at its end.
        if polled.elapsed() >= POLL_PERIOD && duration.saturating_sub(begun.elapsed()) > POLL_PERIOD {
            recorder.poll()?;
            polled = Instant::now();
        }
    }
    let recording = recorder.finish()?;
    bar.finish_and_clear();
    Ok(recording)
}

/// A bar on a terminal, a line otherwise; few updates, because they are seen by the profile.
fn progress(duration: Duration, hz: u32) -> ProgressBar {
    let bar = ProgressBar::new(duration.as_millis() as u64);
    if let Ok(style) = ProgressStyle::with_template("{bar:24} {msg}") {
        bar.set_style(style);
    }
    let message = format!("sampling for {} s, {hz} times per second and CPU", duration.as_secs_f64());
    if bar.is_hidden() {
        note(&message);
    }
    bar.set_message(message);
    bar
}

fn print_comparison(a: &Path, b: &Path, json: bool) -> Result<Outcome, Failure> {
    let (first, second) = (saved(a)?, saved(b)?);
    let comparison = compare((&a.display().to_string(), &first), (&b.display().to_string(), &second));
    let text = match json {
        true => json_text(&Document::new("profile.compare", SCHEMA, &comparison))?,
        false => comparison_text(&comparison, Look::of_stdout()),
    };
    print(&text).map(|()| Outcome::Fine)
}

/// Reads a saved profile.
fn saved(path: &Path) -> Result<Profile, Failure> {
    let shown = path.display();
    let how = "save one with `evenkeel profile --save FILE`";
    let text = host::file::read_text(path)
        .map_err(|e| Failure::usage(anyhow!("cannot read the profile {shown}: {e}; {how}")))?;
    let value: serde_json::Value =
        serde_json::from_str(&text).map_err(|e| Failure::usage(anyhow!("{shown} is no profile: {e}; {how}")))?;
    let expected = Document::new("profile", SCHEMA, ()).schema;
    match value.get("schema").and_then(serde_json::Value::as_str) {
        Some(schema) if schema == expected => {}
        Some(other) => {
            return Err(Failure::usage(anyhow!(
                "{shown} is `{other}`, but what can be compared is `{expected}`; {how}"
            )));
        }
        None => return Err(Failure::usage(anyhow!("{shown} is no profile: it names no schema; {how}"))),
    }
    serde_json::from_value(value).map_err(|e| Failure::usage(anyhow!("the profile {shown} is damaged: {e}; {how}")))
}
