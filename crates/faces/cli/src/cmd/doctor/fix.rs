//! `evenkeel doctor --fix`: the changes through the journal, as `spread apply` makes them.

use std::{
    path::{Path, PathBuf},
    time::Duration,
};

use anyhow::anyhow;
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
    cmd::{
        changes::{Made, Terms},
        keep::Keeping,
    },
    failure::{Failure, Lines, Outcome, json, note, print_json},
};

#[derive(Debug, Default, Serialize)]
struct Done {
    #[serde(flatten)]
    made: Made,
    /// The effect of the fixes on counters, a line each.
    gain: Vec<String>,
    /// The file that keeps the fixes, with `--keep`.
    #[serde(skip_serializing_if = "Option::is_none")]
    kept: Option<PathBuf>,
    #[serde(flatten)]
    plan: Plan,
}

/// Prints the plan as JSON and changes nothing.
pub(super) fn print_plan(plan: Plan) -> Result<Outcome, Failure> {
    print_json("doctor.fix", &Done { plan, ..Done::default() }).map(|()| Outcome::Fine)
}

/// Fails if this user may not make the fixes of the selected findings.
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
    if !plan.changes.is_empty() || args.keep {
        privilege::require_root("doctor --fix", needed(&plan.changes))?;
    }
    let keeping = keeping(args, examined, wanted)?;
    let mut terms = Terms { state: args.state.path(), commit_confirm: args.commit_confirm, keeping };
    let mut lines = Lines::default();
    if plan.changes.is_empty() {
        terms.keep()?;
        report(args, &mut lines, &terms, Done { plan, ..Done::default() })?;
        terms.tell()?;
        return lines.end(terms.keeping.is_some(), Outcome::Fine);
    }
    if !args.json {
        // From here on a reader that has gone away changes nothing: what was asked for is done.
        lines.print(plan.to_shell().trim_end());
    }
    let writer = args.state.journal().lock_for_changes()?;
    let before = args.measure.map(|s| measure::watch(Duration::from_secs(s))).transpose()?;
    let objects = examined.report.findings.iter().filter_map(|f| f.object.clone());
    let nics = objects.filter(|name| is_interface(name)).collect();
    let made = terms.make(&writer, nics, &plan.changes, || match plan.changes.iter().any(may_be_reset) {
        true => Ok(fix_plan(&diagnose(&evidence(args, root)?, &Selection::default()), wanted).changes),
        false => Ok(plan.changes.clone()),
    })?;
    drop(writer);
    // What was lost before the fix is no fault of the settings that are there now.
    ack::count_from_now(&args.state, root)?;
    let gain = match (before, args.measure) {
        (Some(before), Some(s)) => measure::gain(&before, &measure::watch(Duration::from_secs(s))?),
        _ => Vec::new(),
    };
    report(args, &mut lines, &terms, Done { made, gain, plan, ..Done::default() })?;
    terms.note_trial();
    terms.tell()?;
    lines.end(true, Outcome::Fine)
}

/// The file that keeps the fixes of the named checks; without names, of the checks whose findings have a fix.
fn keeping(args: &DoctorArgs, examined: &Diagnosis, wanted: &Selection) -> Result<Option<Keeping>, Failure> {
    if !args.keep {
        return Ok(None);
    }
    let named = args.fix.as_ref().filter(|fix| !fix.is_empty()).unwrap_or(&args.only);
    let mut checks = named.clone();
    if checks.is_empty() {
        let fixed = examined.entries.iter().filter(|it| {
            let has_fix = it.outcome.verdict.is_finding() && !it.outcome.changes.is_empty();
            has_fix && wanted.has(it.check.id, it.outcome.object.as_deref())
        });
        checks = fixed.map(|it| it.check.id.to_owned()).collect();
        checks.sort();
        checks.dedup();
    }
    if checks.is_empty() {
        return Err(Failure::lacking(anyhow!(
            "there is nothing to keep: no finding has a fix that is a setting; name the checks: --fix rings --keep"
        )));
    }
    Keeping::doctor(&args.etc, args.name.as_deref(), named, checks, args.role).map(Some)
}

/// The guardian watches the drops of those.
fn is_interface(object: &str) -> bool {
    !object.contains('/') && Path::new("/sys/class/net").join(object).exists()
}

/// The setting of a device may have taken this one back.
fn may_be_reset(change: &Change) -> bool {
    !change.knob.resets_queues() && !matches!(change.knob, Knob::Sysctl { .. } | Knob::RfsEntries)
}

fn report(args: &DoctorArgs, lines: &mut Lines, terms: &Terms<'_>, done: Done) -> Result<(), Failure> {
    if args.json {
        let kept = terms.keeping.as_ref().map(Keeping::path);
        lines.print(json("doctor.fix", Done { kept, ..done })?);
        return Ok(());
    }
    for line in &done.gain {
        lines.print(format_args!("gain: {line}"));
    }
    if done.made.is_some() {
        lines.print("");
    }
    terms.print(lines, &done.made, "Nothing to set: no finding among these has a fix that is a setting.");
    Ok(())
}
