//! `evenkeel top`: where packets, losses and CPU time are right now.

mod fast_path;
mod meter;
mod settings;

use std::path::PathBuf;

use clap::Args;
use model::top::TopSample;
use report::{Look, Paint};
use tui::{
    live::live,
    top::{Filter, View},
};

use self::meter::Meter;
use crate::{
    failure::{Failure, Outcome, caution},
    periods::Intervals,
    signals::{Second, stop_flag},
};

/// Show packets, losses and load per interface, queue and core.
///
/// Example: evenkeel top eth0
///
/// On a terminal this is a live view (`?` shows its keys). Into a pipe, with --once or with --json it measures one interval and
/// prints it; --count gives more. --settings prints what is set instead of what moves. The JSON has the schemas
/// evenkeel.top/1 and evenkeel.top.settings/1.
#[derive(Debug, Args)]
pub(crate) struct TopArgs {
    /// Interfaces to show [default: those on which something moves].
    #[arg(value_name = "INTERFACE")]
    interfaces: Vec<String>,
    #[command(flatten)]
    intervals: Intervals,
    /// Show idle interfaces too.
    #[arg(long, short, help_heading = "Output")]
    all: bool,
    /// Print the settings of the interfaces instead: rings, channels, coalescing, offloads (what ethtool -g -l -c -k show).
    #[arg(long, conflicts_with_all = ["once", "count", "all"], help_heading = "Output")]
    settings: bool,
    /// With --settings: those of a saved machine (`evenkeel snapshot`).
    #[arg(long, value_name = "PATH", requires = "settings", help_heading = "Output")]
    root: Option<PathBuf>,
}

impl TopArgs {
    /// True if it is about a saved machine.
    pub(crate) fn is_saved(&self) -> bool {
        self.root.is_some()
    }
}

pub(crate) fn run(args: &TopArgs) -> Result<Outcome, Failure> {
    if args.settings {
        return settings::run(args);
    }
    // What a fast path does is told by /sys/fs/bpf, which only this way of entering a namespace leaves there.
    if let Err(mixed) = host::namespace::check() {
        caution(mixed);
    }
    let intervals = &args.intervals;
    let mut meter = Meter::open(crate::args::interfaces(&args.interfaces, false))?;
    let stop = stop_flag(Second::Ends)?;
    let everything = args.all || !args.interfaces.is_empty();
    if intervals.are_live() {
        let filter = if everything { Filter::All } else { Filter::Busy };
        live(
            View::new(intervals.interval, filter, Paint::of_stdout().is_on()),
            || meter.next(),
            &stop,
            intervals.most(),
        )?;
        return Ok(Outcome::Fine);
    }
    let next = || {
        let mut sample = meter.next()?;
        if !everything && !intervals.json {
            leave_out_idle(&mut sample);
        }
        Ok(sample)
    };
    intervals.print("top", &stop, next, |sample| report::top_text(sample, Look::of_stdout()))?;
    Ok(Outcome::Fine)
}

/// Idle interfaces become a note.
fn leave_out_idle(sample: &mut TopSample) {
    let before = sample.interfaces.len();
    sample.interfaces.retain(|i| !i.is_idle());
    let idle = before - sample.interfaces.len();
    if idle > 0 {
        let s = if idle == 1 { "" } else { "s" };
        sample.notes.push(format!("{idle} idle interface{s} not shown; --all shows them"));
    }
}
