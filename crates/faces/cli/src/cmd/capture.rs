//! `evenkeel capture`: arguments to one validated configuration, a session, its report.

mod args;
mod config_file;
mod read;
mod show;
mod tcpdump;

use std::sync::atomic::Ordering;

use capture::{run::Seen, session::Session};

pub(crate) use args::CaptureArgs;
pub(crate) use tcpdump::called_here;

use crate::{
    failure::{Failure, Outcome},
    signals::{Second, report_flag, stop_flag},
};

pub(crate) fn run(args: CaptureArgs) -> Result<Outcome, Failure> {
    if args.tcpdump.list_interfaces {
        return tcpdump::list();
    }
    let config = args.validate(std::env::args_os().skip(2).collect())?;
    if config.read.is_some() {
        return read::run(&config);
    }
    // A reader may be held up by whoever reads its pipe.
    let (stop, report_requested) = (stop_flag(Second::Ends)?, report_flag()?);
    let (session, opened) = Session::open(&config.capture, &stop, &mut show::before)?;
    let mut progress = show::Progress::new(&config);
    let report = session.run(&stop, |seen| match seen {
        Seen::Second(elapsed, readers) => progress.tick(elapsed, readers),
        Seen::Notice(notice) => show::notice(&notice),
        Seen::Moment(readers) if report_requested.swap(false, Ordering::Relaxed) => show::so_far(&readers()),
        Seen::Moment(_) => {}
    });
    let shown = show::report(&config, &opened, &report);
    match report.failure {
        Some(failure) => Err(failure.into()),
        None => shown.map(|()| Outcome::Fine),
    }
}
