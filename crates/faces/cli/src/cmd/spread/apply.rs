//! `evenkeel spread apply`.

use std::{
    path::PathBuf,
    sync::atomic::{AtomicBool, Ordering},
};

use anyhow::anyhow;
use clap::Args;
use host::{
    Host, Root,
    journal::{Applied, ApplyError, Journal, Session, UndoOptions, Writer, short_name},
    knob::{Change, Knob, Live, Store},
};
use serde::Serialize;
use spread::{Options, SpreadPlan, plan};
use sys::privilege::{self, Capability};

use super::{caution, json, open_root, print_json, show, warn, watch::stop_flag, wish::WishArgs};
use crate::{
    cmd::undo::{settings, start_guardian},
    failure::{Failure, Lines, Outcome, note, print},
    numbers::number,
};

/// Arguments of `spread apply`.
#[derive(Debug, Args)]
pub(crate) struct ApplyArgs {
    #[command(flatten)]
    wish: WishArgs,
    /// Print the shell commands and change nothing.
    #[arg(long)]
    dry_run: bool,
    /// Take everything back after SECONDS unless `evenkeel confirm` comes, or earlier when drops rise.
    #[arg(long, value_name = "SECONDS", value_parser = number::<u64>("a number of seconds", "60", 1..=86_400))]
    commit_confirm: Option<u64>,
    /// Refused here: promiscuity by membership ends with the process that holds it (see `spread watch --promisc`).
    #[arg(long, hide = true)]
    promisc: bool,
    /// Where the journal is kept [default: /var/lib/evenkeel, or EVENKEEL_STATE].
    #[arg(long, value_name = "DIR")]
    state: Option<PathBuf>,
    /// Print the outcome as JSON (schema evenkeel.spread.apply/1).
    #[arg(long)]
    json: bool,
}

/// What was done.
#[derive(Debug, Serialize)]
struct Report {
    session: Option<String>,
    written: u32,
    already: u32,
    #[serde(flatten)]
    plan: SpreadPlan,
}

/// Makes the plan and applies it.
pub(crate) fn run(args: &ApplyArgs) -> Result<Outcome, Failure> {
    if args.promisc {
        return Err(Failure::usage(anyhow!(
            "promiscuous mode is held by membership and ends with the process that holds it, so `apply`, which ends at \
             once, cannot set it; `evenkeel spread watch --promisc` and `evenkeel capture` hold it while they run"
        )));
    }
    let root = open_root(None)?;
    let options = args.wish.options(&root)?;
    let planned = plan(&Host::read(&root)?, &options)?;
    if args.dry_run {
        match args.json {
            true => print_json("spread.plan", &planned)?,
            false => print(&planned.plan.to_shell())?,
        }
        return Ok(Outcome::Fine);
    }
    if !planned.plan.changes.is_empty() {
        privilege::require_root("spread apply", needed(&planned))?;
    }
    warn(&planned);
    // From here on a reader that has gone away changes nothing: what was asked for is done.
    let mut lines = Lines::default();
    if !args.json && !planned.rows.is_empty() {
        lines.say(format_args!("{}\n", show::text(&planned, false).trim_end()));
    }
    if planned.plan.changes.is_empty() {
        report(args, &mut lines, Report { session: None, written: 0, already: 0, plan: planned })?;
        return lines.end(false, Outcome::Fine);
    }
    let journal = Journal::at(args.state.as_deref());
    let writer = journal.lock()?;
    // A journal that cannot be read could not take back what is done now.
    journal.sessions()?;
    let command: Vec<String> = std::env::args().collect();
    let mut session = Session::begin(&writer, &command.join(" "))?;
    if let Some(seconds) = args.commit_confirm {
        start_guardian(&journal, &mut session, seconds, &nics_of(&planned))?;
    }
    let stop = stop_flag()?;
    let applied = make(&writer, &mut session, &root, &options, &planned, &stop)?;
    for (change, read_back) in &applied.rounded {
        let (asked, is) = (change.knob.told(&change.new), change.knob.told(read_back));
        caution(format_args!("{}: {asked} was written, and it reads {is}", change.knob));
    }
    if let Some((_, why)) = applied.refused.first() {
        let left: Vec<String> = applied.refused.iter().map(|(change, _)| change.knob.to_string()).collect();
        caution(format_args!("{} stay as they were ({}): {why}", left.len(), left.join(", ")));
    }
    let name = session.header.session.clone();
    let done = Report { session: Some(name), written: applied.written, already: applied.idle, plan: planned };
    report(args, &mut lines, done)?;
    if let Some(seconds) = args.commit_confirm {
        note(format_args!(
            "It is taken back in {seconds} s, or when drops rise, unless you run: evenkeel confirm{}",
            state_flag(args)
        ));
    }
    lines.end(true, Outcome::Fine)
}

/// The affinity of another's thread takes CAP_SYS_NICE; nothing else does.
fn needed(planned: &SpreadPlan) -> &'static [Capability] {
    let of_threads = |c: &Change| matches!(c.knob, Knob::NapiThreaded { .. } | Knob::NapiThreadAffinity { .. });
    if planned.plan.changes.iter().any(of_threads) {
        &[Capability::CAP_NET_ADMIN, Capability::CAP_SYS_NICE]
    } else {
        &[Capability::CAP_NET_ADMIN]
    }
}

/// Applies the plan: the settings of the devices first, then, from a new look at the machine, all the others. For some
/// drivers reset their queues for the former, and NAPI threads exist only once they are switched on.
fn make(
    writer: &Writer,
    session: &mut Session,
    root: &Root,
    options: &Options,
    planned: &SpreadPlan,
    stop: &AtomicBool,
) -> Result<Applied, Failure> {
    let (device, mut others): (Vec<Change>, Vec<Change>) =
        planned.plan.changes.iter().cloned().partition(|c| c.knob.resets_queues());
    let mut applied = step_by_step(writer, session, &device, Session::apply, stop)?;
    if applied.written > 0 {
        let again = Host::read(root).map_err(Failure::from).and_then(|host| Ok(plan(&host, options)?));
        match again {
            Ok(again) => others = with_first_values(again.plan.changes, &others),
            Err(failure) => return Err(failure.after(&back(writer, session))),
        }
    }
    let how = if applied.written > 0 { Session::apply_after_reset } else { Session::apply };
    applied.add(step_by_step(writer, session, &others, how, stop)?);
    Ok(applied)
}

/// The changes that are left, with the values from before the device was set: what undo is to put back is not what the
/// driver has made of them since. A setting that was as planned then, and is not now, had the planned value. For what no driver
/// resets, what is there now counts.
pub(crate) fn with_first_values(left: Vec<Change>, first: &[Change]) -> Vec<Change> {
    let first_value = |c: &Change| {
        let old = first.iter().find(|f| f.knob == c.knob).map_or(&c.new, |f| &f.old);
        match c.knob {
            Knob::IrqAffinity { .. } if c.knob.cpus(old).is_none_or(|cpus| cpus.is_empty()) => String::new(),
            Knob::IrqAffinity { .. } | Knob::XpsCpus { .. } | Knob::RpsCpus { .. } | Knob::RpsFlowCnt { .. } => {
                old.clone()
            }
            _ => String::new(),
        }
    };
    let left = left.into_iter().filter(|c| !c.knob.resets_queues());
    left.map(|c| Change { old: first_value(&c), ..c }).collect()
}

/// A way to make changes.
pub(crate) type Apply = fn(&mut Session, &Writer, &mut dyn Store, &[Change]) -> Result<Applied, ApplyError>;

/// Makes the changes one by one; a signal that asks the program to end takes all of the session back.
pub(crate) fn step_by_step(
    writer: &Writer,
    session: &mut Session,
    changes: &[Change],
    how: Apply,
    stop: &AtomicBool,
) -> Result<Applied, Failure> {
    let mut applied = Applied::default();
    for change in changes {
        if stop.load(Ordering::Relaxed) {
            return Err(Failure::lacking(anyhow!("interrupted")).after(&back(writer, session)));
        }
        applied.add(how(session, writer, &mut Live, std::slice::from_ref(change))?);
    }
    Ok(applied)
}

/// Takes the session back and says how that went.
pub(crate) fn back(writer: &Writer, session: &mut Session) -> String {
    let report = session.undo(writer, &mut Live, UndoOptions::default());
    match report.is_complete() {
        true => {
            let were = if report.restored() == 1 { "was" } else { "were" };
            format!("Nothing stays changed: {} {were} put back", settings(report.restored()))
        }
        false => format!("Not all could be put back; run evenkeel undo {}", short_name(&session.header.session)),
    }
}

fn nics_of(planned: &SpreadPlan) -> Vec<String> {
    let mut nics: Vec<String> = planned.rows.iter().map(|r| r.nic.clone()).collect();
    nics.sort();
    nics.dedup();
    nics
}

fn state_flag(args: &ApplyArgs) -> String {
    args.state.as_ref().map_or_else(String::new, |s| format!(" --state {}", s.display()))
}

fn report(args: &ApplyArgs, lines: &mut Lines, done: Report) -> Result<(), Failure> {
    match &done.session {
        _ if args.json => lines.say(json("spread.apply", done)?),
        None => lines.say("Nothing to change: all is as planned."),
        Some(session) => lines.say(format_args!(
            "{} written and read back. Take it back: evenkeel undo {}{}",
            settings(done.written as usize),
            short_name(session),
            state_flag(args)
        )),
    }
    Ok(())
}
