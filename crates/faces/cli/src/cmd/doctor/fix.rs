//! `evenkeel doctor --fix`: the changes through the journal, as `spread apply` makes them.

use std::{sync::atomic::AtomicBool, time::Duration};

use doctor::{Diagnosis, Selection, diagnose, fix_plan};
use host::{
    Root,
    journal::{Applied, Journal, Session, Writer, short_name},
    knob::{Change, Knob, Plan},
};
use serde::Serialize;
use sys::privilege::{self, Capability};

use super::{DoctorArgs, ack, evidence, measure};
use crate::{
    cmd::{
        spread::{
            apply::{back, step_by_step, with_first_values},
            json, print_json,
            watch::stop_flag,
        },
        undo::{settings, start_guardian},
    },
    failure::{Failure, Lines, Outcome, note},
};

/// What was done.
#[derive(Debug, Serialize)]
struct Done {
    session: Option<String>,
    written: u32,
    already: u32,
    /// What the fixes brought, where that shows in counters.
    gain: Vec<String>,
    #[serde(flatten)]
    plan: Plan,
}

/// Prints the plan as JSON and changes nothing.
pub(super) fn tell(plan: Plan) -> Result<Outcome, Failure> {
    print_json("doctor.fix", &Done { session: None, written: 0, already: 0, gain: Vec::new(), plan })
        .map(|()| Outcome::Fine)
}

/// Makes the fixes of the selected findings.
pub(super) fn run(
    args: &DoctorArgs,
    root: &Root,
    examined: &Diagnosis,
    wanted: &Selection,
) -> Result<Outcome, Failure> {
    let plan = fix_plan(examined, wanted);
    for warning in &plan.warnings {
        note(format_args!("warning: {warning}"));
    }
    let mut lines = Lines::default();
    if plan.changes.is_empty() {
        report(args, &mut lines, Done { session: None, written: 0, already: 0, gain: Vec::new(), plan })?;
        return lines.end(false, Outcome::Fine);
    }
    privilege::require_root("doctor --fix", needed(&plan))?;
    if !args.json {
        // From here on a reader that has gone away changes nothing: what was asked for is done.
        lines.say(plan.to_shell().trim_end());
    }
    let journal = Journal::at(args.state.as_deref());
    let writer = journal.lock()?;
    // A journal that cannot be read could not take back what is done now.
    journal.sessions()?;
    let before = args.measure.map(|s| measure::watch(Duration::from_secs(s))).transpose()?;
    let command: Vec<String> = std::env::args().collect();
    let mut session = Session::begin(&writer, &command.join(" "))?;
    if let Some(seconds) = args.commit_confirm {
        let nics: Vec<String> = examined.report.findings.iter().filter_map(|f| f.object.clone()).collect();
        let nics = nics_of(&nics);
        start_guardian(&journal, &mut session, seconds, &nics)?;
    }
    let stop = stop_flag()?;
    let applied = make(&writer, &mut session, &plan, &stop, &mut || {
        evidence(args, root).map(|again| fix_plan(&diagnose(&again, &Selection::default()), wanted))
    })?;
    say(&applied);
    // What was lost before the fix is no fault of the settings that are there now.
    ack::count_from_now(args.state.as_deref(), root)?;
    let gain = match (before, args.measure) {
        (Some(before), Some(s)) => measure::gain(&before, &measure::watch(Duration::from_secs(s))?),
        _ => Vec::new(),
    };
    let name = session.header.session.clone();
    let done = Done { session: Some(name), written: applied.written, already: applied.idle, gain, plan };
    report(args, &mut lines, done)?;
    if let Some(seconds) = args.commit_confirm {
        note(format_args!(
            "It is taken back in {seconds} s, or when drops rise, unless you run: evenkeel confirm{}",
            state_flag(args)
        ));
    }
    lines.end(true, Outcome::Fine)
}

/// The objects that are interfaces: the guardian watches their drops.
fn nics_of(objects: &[String]) -> Vec<String> {
    let there = |name: &&String| !name.contains('/') && std::path::Path::new("/sys/class/net").join(name).exists();
    let mut nics: Vec<String> = objects.iter().filter(there).cloned().collect();
    nics.sort();
    nics.dedup();
    nics
}

/// The affinity of another's thread takes CAP_SYS_NICE; nothing else does.
fn needed(plan: &Plan) -> &'static [Capability] {
    let of_threads = |c: &Change| matches!(c.knob, Knob::NapiThreaded { .. } | Knob::NapiThreadAffinity { .. });
    if plan.changes.iter().any(of_threads) {
        &[Capability::CAP_NET_ADMIN, Capability::CAP_SYS_NICE]
    } else {
        &[Capability::CAP_NET_ADMIN]
    }
}

/// Applies the plan: the settings of the devices first, then, from a new look at the machine, all the others. For some
/// drivers reset their queues and interrupts for the former.
fn make(
    writer: &Writer,
    session: &mut Session,
    plan: &Plan,
    stop: &AtomicBool,
    again: &mut dyn FnMut() -> Result<Plan, Failure>,
) -> Result<Applied, Failure> {
    let (device, mut others): (Vec<Change>, Vec<Change>) =
        plan.changes.iter().cloned().partition(|c| c.knob.resets_queues());
    let mut applied = step_by_step(writer, session, &device, Session::apply, stop)?;
    let reset = applied.written > 0 && others.iter().any(|c| !matches!(c.knob, Knob::Sysctl { .. } | Knob::RfsEntries));
    if reset {
        match again() {
            Ok(again) => others = with_first_values(again.changes, &others),
            Err(failure) => return Err(failure.after(&back(writer, session))),
        }
    }
    let how = if reset { Session::apply_after_reset } else { Session::apply };
    applied.add(step_by_step(writer, session, &others, how, stop)?);
    Ok(applied)
}

fn say(applied: &Applied) {
    for (change, read_back) in &applied.rounded {
        let (asked, is) = (change.knob.told(&change.new), change.knob.told(read_back));
        note(format_args!("warning: {}: {asked} was written, and it reads {is}", change.knob));
    }
    if let Some((_, why)) = applied.refused.first() {
        let left: Vec<String> = applied.refused.iter().map(|(change, _)| change.knob.to_string()).collect();
        note(format_args!("warning: {} stay as they were ({}): {why}", left.len(), left.join(", ")));
    }
}

fn state_flag(args: &DoctorArgs) -> String {
    args.state.as_ref().map_or_else(String::new, |s| format!(" --state {}", s.display()))
}

fn report(args: &DoctorArgs, lines: &mut Lines, done: Done) -> Result<(), Failure> {
    if args.json {
        lines.say(json("doctor.fix", done)?);
        return Ok(());
    }
    for line in &done.gain {
        lines.say(format_args!("gain: {line}"));
    }
    match &done.session {
        None => lines.say("Nothing to set: no finding among these has a fix that is a setting."),
        Some(session) => lines.say(format_args!(
            "\n{} written and read back. Take it back: evenkeel undo {}{}",
            settings(done.written as usize),
            short_name(session),
            state_flag(args)
        )),
    }
    Ok(())
}
