//! `evenkeel spread apply`.

use std::path::PathBuf;

use anyhow::anyhow;
use clap::Args;
use host::{
    Host, Root,
    journal::{Applied, Journal, Session, Writer},
    knob::{Knob, Live},
};
use serde::Serialize;
use spread::{Options, SpreadPlan, plan};
use sys::privilege::{self, Capability};

use super::{print_json, show, warn, wish::WishArgs};
use crate::{
    cmd::undo::start_guardian,
    failure::{Failure, Outcome},
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
    #[arg(long, value_name = "SECONDS", value_parser = clap::value_parser!(u64).range(1..=86_400))]
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
    let root = Root::live();
    let options = args.wish.options(&root)?;
    let planned = plan(&Host::read(&root)?, &options)?;
    if args.dry_run {
        print!("{}", planned.plan.to_shell());
        return Ok(Outcome::Fine);
    }
    if !planned.plan.changes.is_empty() {
        privilege::require("spread apply", &[Capability::CAP_NET_ADMIN, Capability::CAP_SYS_NICE])?;
    }
    warn(&planned);
    if !args.json {
        print!("{}", show::text(&planned, false));
    }
    if planned.plan.changes.is_empty() {
        return report(args, Report { session: None, written: 0, already: 0, plan: planned });
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
    let applied = make(&writer, &mut session, &root, &options, &planned)?;
    for (change, read_back) in &applied.rounded {
        let (asked, is) = (change.knob.shown(&change.new), change.knob.shown(read_back));
        eprintln!("warning: {}: {asked} was written, and it reads {is}", change.knob);
    }
    let name = session.header.session.clone();
    let done = Report { session: Some(name), written: applied.written, already: applied.idle, plan: planned };
    report(args, done)?;
    if let Some(seconds) = args.commit_confirm {
        eprintln!(
            "It is taken back in {seconds} s, or when drops rise, unless you run: evenkeel confirm{}",
            state_flag(args)
        );
    }
    Ok(Outcome::Fine)
}

/// Applies the plan; where it switches threaded NAPI on, the threads that this makes are pinned in a second round.
fn make(
    writer: &Writer,
    session: &mut Session,
    root: &Root,
    options: &Options,
    planned: &SpreadPlan,
) -> Result<Applied, Failure> {
    let mut applied = session.apply(writer, &mut Live, &planned.plan.changes)?;
    let threads_on = planned.plan.changes.iter().any(|c| matches!(c.knob, Knob::NapiThreaded { .. }) && c.new == "1");
    if threads_on {
        let again = plan(&Host::read(root)?, options)?;
        let threads: Vec<_> =
            again.plan.changes.into_iter().filter(|c| matches!(c.knob, Knob::NapiThreadAffinity { .. })).collect();
        let more = session.apply(writer, &mut Live, &threads)?;
        applied.written += more.written;
        applied.idle += more.idle;
    }
    Ok(applied)
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

fn report(args: &ApplyArgs, done: Report) -> Result<Outcome, Failure> {
    if args.json {
        print_json("spread.apply", done)?;
        return Ok(Outcome::Fine);
    }
    match &done.session {
        None => println!("\nNothing to change: all is as planned."),
        Some(session) => println!(
            "\n{} written and read back. Take it back: evenkeel undo {session}{}",
            if done.written == 1 { "1 setting".to_owned() } else { format!("{} settings", done.written) },
            state_flag(args)
        ),
    }
    Ok(Outcome::Fine)
}
