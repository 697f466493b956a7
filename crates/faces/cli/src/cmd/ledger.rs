//! `evenkeel ledger`: every packet delivered, lost at a named place, or unexplained.

use ::ledger::{Filter, Ledger, Options};
use clap::Args;
use report::{Look, Paint};
use tui::{ledger::View, live::live};

use crate::{
    failure::{Failure, Outcome, note},
    periods::Intervals,
    signals::{Second, stop_flag},
};

/// Unexplained share up to which --check finds nothing.
const UNEXPLAINED_MAX: f64 = 0.001;

/// Account for every packet: delivered, lost somewhere, unexplained.
///
/// Examples: `evenkeel ledger --once -i 10`; `evenkeel ledger eth0 --details --filter 'udp port 53'`; `evenkeel ledger --once --check`
///
/// Counters of the kernel and the drivers say how many packets each station lost; the kernel's drop reasons say why, in which
/// function, on which interface and for which process; each loss comes with what to do about it. On a terminal this is a live
/// view (q leaves, p holds). Into a pipe, with --once or with --json it counts for one interval and prints it; --count gives more.
///
/// Packets that a rule dropped on purpose, that had done their work (a reset), and copies for packet taps are no losses.
///
/// The exit code is 0 whatever was lost, unless --check is given. The JSON has the schema evenkeel.ledger/1.
#[derive(Debug, Args)]
pub(crate) struct LedgerArgs {
    /// Interfaces to show one by one; the others are summed up [default: all]
    #[arg(value_name = "INTERFACE", value_parser = crate::args::interface)]
    interfaces: Vec<String>,
    #[command(flatten)]
    intervals: Intervals,
    /// Use counters alone, without the kernel's drop reasons.
    #[arg(long, help_heading = "Losses")]
    no_trace: bool,
    /// Show whose packets ended at each place.
    ///
    /// Ports, addresses, one packet in hexadecimal, and the kernel's functions that led there.
    #[arg(long, conflicts_with = "no_trace", help_heading = "Losses")]
    details: bool,
    /// Show details of packets such as 'udp port 53' only.
    ///
    /// The syntax is pcap-filter(7). Implies --details.
    #[arg(long, value_name = "EXPRESSION", conflicts_with = "no_trace", help_heading = "Losses")]
    filter: Option<String>,
    /// Exit code 1 for losses, or 0.1 % unexplained.
    #[arg(long, help_heading = "Losses")]
    check: bool,
}

pub(crate) fn run(args: &LedgerArgs) -> Result<Outcome, Failure> {
    let intervals = &args.intervals;
    let filter = args.filter.as_deref().map(Filter::compile).transpose()?;
    let details = args.details || filter.is_some();
    let options = Options { interfaces: args.interfaces.clone(), trace: !args.no_trace, details, filter };
    let stop = stop_flag(Second::Ends)?;
    let mut ledger = Ledger::open(options)?;
    let mut found = false;
    let mut next = || {
        let report = ledger.close();
        found |= report.as_ref().is_ok_and(|r| r.lost_unintended() > 0 || r.unexplained_ratio() > UNEXPLAINED_MAX);
        report
    };
    if intervals.are_live() {
        live(View::new(intervals.interval, Paint::of_stdout().is_on()), next, &stop, intervals.most())?;
    } else {
        note(format_args!("counting for {} s", intervals.interval.as_secs_f64()));
        let text = |report: &_| report::ledger_text(report, Look::of_stdout(), Paint::of_stdout(), details);
        intervals.print("ledger", &stop, || Ok(next()?), text)?;
    }
    Ok(if args.check && found { Outcome::No } else { Outcome::Fine })
}
