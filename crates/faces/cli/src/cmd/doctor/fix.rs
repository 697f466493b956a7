//! `evenkeel doctor --fix`: the changes through the journal, as `spread apply` makes them.

use std::{path::Path, time::Duration};

use doctor::{Diagnosis, Selection, diagnose, fix_plan};
use host::{
    Root,
    journal::needed,
    knob::{Change, Knob, Plan},
};
use serde::Serialize;
use sys::privilege;

use super::{DoctorArgs, ack, evidence, measure};
use crate::{
    cmd::changes::{Made, Terms},
    failure::{Failure, Lines, Outcome, json, note, print_json},
};

#[derive(Debug, Default, Serialize)]
struct Done {
    #[serde(flatten)]
    made: Made,
    /// The effect of the fixes on counters, a line each.
    gain: Vec<String>,
    #[serde(flatten)]
    plan: Plan,
}

/// Prints the plan as JSON and changes nothing.
pub(super) fn print_plan(plan: Plan) -> Result<Outcome, Failure> {
    print_json("doctor.fix", &Done { plan, ..Done::default() }).map(|()| Outcome::Fine)
}

/// Refuses whoever may not make the fixes of the selected findings.
pub(super) fn check_rights(examined: &Diagnosis, wanted: &Selection) -> Result<(), Failure> {
    let plan = fix_plan(examined, wanted);
    if plan.changes.is_empty() {
        return Ok(());
    }
    Ok(privilege::require_root("doctor --fix", needed(&plan.changes))?)
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
        report(args, &mut lines, Done { plan, ..Done::default() })?;
        return lines.end(false, Outcome::Fine);
    }
    if !args.json {
        // From here on a reader that has gone away changes nothing: what was asked for is done.
        lines.print(plan.to_shell().trim_end());
    }
    let terms = terms(args);
    let writer = args.state.journal().lock_for_changes()?;
    let before = args.measure.map(|s| measure::watch(Duration::from_secs(s))).transpose()?;
    let objects = examined.report.findings.iter().filter_map(|f| f.object.clone());
    let nics = objects.filter(|name| is_interface(name)).collect();
    let made = terms.make(&writer, nics, &plan.changes, || match plan.changes.iter().any(may_be_reset) {
        true => Ok(fix_plan(&diagnose(&evidence(args, root)?, &Selection::default()), wanted).changes),
        false => Ok(plan.changes.clone()),
    })?;
    // What was lost before the fix is no fault of the settings that are there now.
    ack::count_from_now(&args.state, root)?;
    let gain = match (before, args.measure) {
        (Some(before), Some(s)) => measure::gain(&before, &measure::watch(Duration::from_secs(s))?),
        _ => Vec::new(),
    };
    report(args, &mut lines, Done { made, gain, plan })?;
    terms.note_trial();
    lines.end(true, Outcome::Fine)
}

fn terms(args: &DoctorArgs) -> Terms<'_> {
    Terms { state: args.state.path(), commit_confirm: args.commit_confirm }
}

/// The guardian watches the drops of those.
fn is_interface(object: &str) -> bool {
    !object.contains('/') && Path::new("/sys/class/net").join(object).exists()
}

/// The setting of a device may have taken this one back.
fn may_be_reset(change: &Change) -> bool {
    !change.knob.resets_queues() && !matches!(change.knob, Knob::Sysctl { .. } | Knob::RfsEntries)
}

fn report(args: &DoctorArgs, lines: &mut Lines, done: Done) -> Result<(), Failure> {
    if args.json {
        lines.print(json("doctor.fix", done)?);
        return Ok(());
    }
    for line in &done.gain {
        lines.print(format_args!("gain: {line}"));
    }
    if done.made.is_some() {
        lines.print("");
    }
    terms(args).print(lines, &done.made, "Nothing to set: no finding among these has a fix that is a setting.");
    Ok(())
}
