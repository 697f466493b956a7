//! `evenkeel ledger`: every packet delivered, lost at a named place, or unexplained.

use std::{io::IsTerminal, sync::atomic::AtomicBool, time::Duration};

use ::ledger::{Filter, Ledger, Options};
use clap::Args;
use model::{schema::Document, stations::LedgerReport};
use report::{Look, Paint};
use tui::{ledger::View, live::live};

use crate::signals::{Second, stop_flag};
use crate::time::interval;
use crate::{
    failure::{Failure, Outcome, note},
    numbers::number,
    periods::print_each_until,
};

/// With --check: this much may stay unexplained.
const UNEXPLAINED: f64 = 0.001;

/// Account for every packet: delivered, lost at a named place, or unexplained.
///
/// Counters of the kernel and the drivers say how many packets each station lost; the kernel's drop reasons say why, in which
/// function, on which interface and for which process; each loss comes with what to do about it. On a terminal this is a live
/// view (q leaves, p holds). Into a pipe, with --once or with --json it counts for one interval and prints it; --count gives more.
///
/// Packets that a rule dropped on purpose, that had done their work (a reset), and copies for packet taps are told apart from losses.
///
/// The exit code is 0 whatever was lost, unless --check is given: then 1 when packets were lost or stayed unexplained.
///
/// Examples: `evenkeel ledger --once -i 10`; `evenkeel ledger eth0 --details --filter 'udp port 53'`; `evenkeel ledger --once --check`
#[derive(Debug, Args)]
pub(crate) struct LedgerArgs {
    /// Interfaces to show one by one; default: all of this network namespace. The others are summed up.
    interfaces: Vec<String>,
    /// Count for one interval, print it as text and end.
    #[arg(long, conflicts_with = "count")]
    once: bool,
    /// Length of an interval, 100ms to 1h.
    #[arg(long, short, value_name = "TIME", default_value = "1s", value_parser = interval)]
    interval: Duration,
    /// End after so many intervals; 0 for no end.
    #[arg(long, short = 'n', value_name = "N", value_parser = number::<u64>("a number of intervals", "10", ..))]
    count: Option<u64>,
    /// Print JSON (schema evenkeel.ledger/1), a document on a line for each interval.
    #[arg(long)]
    json: bool,
    /// Do not trace the kernel's drop reasons: counters alone. Losses without a counter stay unexplained.
    #[arg(long)]
    no_trace: bool,
    /// Show whose packets ended at each place: ports, addresses, one packet in hexadecimal, and the kernel's functions that led there.
    #[arg(long, conflicts_with = "no_trace")]
    details: bool,
    /// Show details of these packets only, in tcpdump's syntax, such as 'udp port 53'; implies --details.
    #[arg(long, value_name = "EXPRESSION", conflicts_with = "no_trace")]
    filter: Option<String>,
    /// End with exit code 1 when packets were lost, or more than 0.1 % of them stayed unexplained. What a rule dropped on purpose is
    /// no finding, nor are copies for packet taps.
    #[arg(long)]
    check: bool,
}

/// Counts and shows.
pub(crate) fn run(args: &LedgerArgs) -> Result<Outcome, Failure> {
    let interval = args.interval;
    let filter = args.filter.as_deref().map(Filter::compile).transpose()?;
    let details = args.details || filter.is_some();
    let options = Options { interfaces: args.interfaces.clone(), trace: !args.no_trace, details, filter };
    let stop = stop_flag(Second::Ends)?;
    let mut ledger = Ledger::open(options)?;
    let interactive = std::io::stdin().is_terminal() && std::io::stdout().is_terminal();
    let mut found = false;
    let mut next = || {
        let report = ledger.close();
        found |= report.as_ref().is_ok_and(|r| r.lost_unmeant() > 0 || r.unexplained_ratio() > UNEXPLAINED);
        report
    };
    if interactive && !args.once && !args.json {
        watch(args, interval, &mut next, &stop)?;
    } else {
        note(format_args!("counting for {} s", args.interval.as_secs_f64()));
        let count = args.count.unwrap_or(1);
        print(args, interval, &mut next, (count > 0).then_some(count), &stop)?;
    }
    Ok(if args.check && found { Outcome::No } else { Outcome::Fine })
}

type Next<'a> = &'a mut dyn FnMut() -> Result<LedgerReport, ::ledger::LedgerError>;

/// The live view.
fn watch(args: &LedgerArgs, interval: Duration, next: Next<'_>, stop: &AtomicBool) -> Result<(), Failure> {
    let colour = std::env::var_os("NO_COLOR").is_none_or(|v| v.is_empty());
    Ok(live(View::new(interval, colour), next, stop, args.count.filter(|&n| n > 0))?)
}

/// Text or JSON, an interval after the other.
fn print(
    args: &LedgerArgs,
    interval: Duration,
    next: Next<'_>,
    count: Option<u64>,
    stop: &AtomicBool,
) -> Result<(), Failure> {
    let detailed = args.details || args.filter.is_some();
    print_each_until(interval, count, stop, |first| {
        let report = next()?;
        let text = || report::ledger_text(&report, Look::of_stdout(), Paint::of_stdout(), detailed);
        Ok(match args.json {
            true => serde_json::to_string(&Document::new("ledger", 1, &report)).map_err(Failure::internal)? + "\n",
            false if !first => format!("\n{}", text()),
            false => text(),
        })
    })
}
