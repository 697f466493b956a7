//! `evenkeel top`: where packets, losses and CPU time are right now.

mod meter;
mod settings;

use std::{io::IsTerminal, path::PathBuf, time::Duration};

use clap::Args;
use model::{schema::Document, top::TopSample};
use report::Look;
use tui::top::{Filter, View, live};

use self::meter::Meter;
use crate::signals::{Second, stop_flag};
use crate::time::interval;
use crate::{
    failure::{Failure, Outcome},
    numbers::number,
    periods::print_each,
};

/// Show packets, losses and load per interface, queue and core.
///
/// Example: evenkeel top eth0
///
/// On a terminal this is a live view (`?` shows its keys). Into a pipe, with --once or with --json it measures one interval and
/// prints it; --count gives more. --settings prints what is set instead of what moves.
#[derive(Debug, Args)]
pub(crate) struct TopArgs {
    /// Interfaces to show; default: those on which something moves.
    interfaces: Vec<String>,
    /// Measure one interval, print it as text and end.
    #[arg(long, conflicts_with = "count")]
    once: bool,
    /// Length of an interval, 100ms to 1h.
    #[arg(long, short, value_name = "TIME", default_value = "1s", value_parser = interval)]
    interval: Duration,
    /// End after so many intervals; 0 for no end.
    #[arg(long, short = 'n', value_name = "N", value_parser = number::<u64>("a number of intervals", "10", ..))]
    count: Option<u64>,
    /// Print JSON (schema evenkeel.top/1), a document on a line for each interval.
    #[arg(long)]
    json: bool,
    /// Show idle interfaces too.
    #[arg(long, short)]
    all: bool,
    /// Print the settings of the interfaces instead: rings, channels, coalescing, offloads (what ethtool -g -l -c -k show).
    #[arg(long, conflicts_with_all = ["once", "count", "all"])]
    settings: bool,
    /// With --settings: those of a saved machine (`evenkeel snapshot`).
    #[arg(long, value_name = "PATH", requires = "settings")]
    root: Option<PathBuf>,
}

/// Measures and shows.
pub(crate) fn run(args: &TopArgs) -> Result<Outcome, Failure> {
    if args.settings {
        return settings::run(args);
    }
    let interval = args.interval;
    let mut meter = Meter::open(args.interfaces.clone())?;
    let interactive = std::io::stdin().is_terminal() && std::io::stdout().is_terminal();
    if interactive && !args.once && !args.json {
        watch(args, interval, &mut meter)?;
    } else {
        let count = args.count.unwrap_or(1);
        print(args, interval, &mut meter, (count > 0).then_some(count))?;
    }
    Ok(Outcome::Fine)
}

/// The live view.
fn watch(args: &TopArgs, interval: Duration, meter: &mut Meter) -> Result<(), Failure> {
    let stop = stop_flag(Second::Ends)?;
    let filter = if args.all || !args.interfaces.is_empty() { Filter::All } else { Filter::Busy };
    let colour = std::env::var_os("NO_COLOR").is_none_or(|v| v.is_empty());
    let count = args.count.filter(|&n| n > 0);
    Ok(live(View::new(interval, filter, colour), || meter.next(), &stop, count)?)
}

/// Text or JSON, an interval after the other.
fn print(args: &TopArgs, interval: Duration, meter: &mut Meter, count: Option<u64>) -> Result<(), Failure> {
    let everything = args.all || !args.interfaces.is_empty();
    print_each(interval, count, |first| {
        let mut sample = meter.next()?;
        if !everything && !args.json {
            leave_out_idle(&mut sample);
        }
        Ok(match args.json {
            true => serde_json::to_string(&Document::new("top", 1, sample)).map_err(Failure::internal)? + "\n",
            false if !first => format!("\n{}", report::top_text(&sample, Look::of_stdout())),
            false => report::top_text(&sample, Look::of_stdout()),
        })
    })
}

/// Idle interfaces become a note.
fn leave_out_idle(sample: &mut TopSample) {
    let before = sample.interfaces.len();
    sample.interfaces.retain(|i| !i.is_idle());
    let idle = before - sample.interfaces.len();
    if idle > 0 {
        sample.notes.push(format!("{idle} idle interface(s) not shown; --all shows them"));
    }
}
