//! `evenkeel spread apply`.

use std::path::PathBuf;

use clap::Args;
use host::{Host, journal::needed};
use serde::Serialize;
use spread::{SpreadPlan, plan};
use sys::privilege;

use super::{live_root, request::RequestArgs, show, warn};
use crate::{
    args::StateArg,
    cmd::{
        changes::{Made, Terms},
        keep::{EtcArg, Keeping},
    },
    failure::{Failure, Lines, Outcome, json, print, print_json},
    time::seconds_within,
};

/// Arguments of `spread apply`.
#[derive(Debug, Args)]
pub(crate) struct ApplyArgs {
    #[command(flatten)]
    request: RequestArgs,
    /// Print the shell commands and change nothing.
    #[arg(long, help_heading = "Output")]
    dry_run: bool,
    /// Take everything back after this time unless `evenkeel confirm` comes, or earlier when drops rise.
    #[arg(long, help_heading = "Journal", value_name = "TIME", value_parser = seconds_within("1s", "24h"))]
    commit_confirm: Option<u64>,
    /// Keep the placement by a file of `evenkeel keep`.
    #[arg(long, help_heading = "Journal", conflicts_with_all = ["dry_run", "commit_confirm"])]
    keep: bool,
    /// Name the file of --keep, without its ending [default: spread-INTERFACE].
    #[arg(long, value_name = "NAME", hide_short_help = true, requires = "keep", help_heading = "Files")]
    name: Option<String>,
    #[command(flatten)]
    etc: EtcArg,
    #[command(flatten)]
    state: StateArg,
    /// Print the outcome as JSON (schema evenkeel.spread.apply/1; with --dry-run the plan, evenkeel.spread.plan/1).
    #[arg(long, help_heading = "Output")]
    json: bool,
}

#[derive(Debug, Serialize)]
struct Report {
    #[serde(flatten)]
    made: Made,
    /// The file that keeps the placement, with `--keep`.
    #[serde(skip_serializing_if = "Option::is_none")]
    kept: Option<PathBuf>,
    #[serde(flatten)]
    plan: SpreadPlan,
}

/// Makes the plan and applies it.
pub(crate) fn run(args: &ApplyArgs) -> Result<Outcome, Failure> {
    let root = live_root()?;
    let options = args.request.options(&root)?;
    let planned = plan(&Host::read(&root)?, &options)?;
    if args.dry_run {
        match args.json {
            true => print_json("spread.plan", &planned)?,
            false => print(&planned.plan.to_shell())?,
        }
        return Ok(Outcome::Fine);
    }
    if !planned.plan.changes.is_empty() || args.keep {
        privilege::require_root("spread apply", needed(&planned.plan.changes))?;
    }
    let keep = || Keeping::spread(&args.etc, args.name.as_deref(), &args.request.interfaces(), &options);
    let keeping = args.keep.then(keep).transpose()?;
    warn(&planned);
    // From here on a reader that has gone away changes nothing: what was asked for is done.
    let mut lines = Lines::default();
    if !args.json && !planned.rows.is_empty() {
        lines.print(format_args!("{}\n", show::text(&planned, false).trim_end()));
    }
    let mut terms = Terms { state: args.state.path(), commit_confirm: args.commit_confirm, keeping };
    let made = if planned.plan.changes.is_empty() {
        terms.keep()?;
        Made::default()
    } else {
        let writer = args.state.journal().lock_for_changes()?;
        let nics = planned.rows.iter().map(|r| r.nic.clone()).collect();
        terms.make(&writer, nics, &planned.plan.changes, || Ok(plan(&Host::read(&root)?, &options)?.plan.changes))?
    };
    let done = made.is_some();
    let kept = terms.keeping.as_ref().map(Keeping::path);
    match args.json {
        true => lines.print(json("spread.apply", Report { made, kept, plan: planned })?),
        false => terms.print(&mut lines, &made, "Nothing to change: all is as planned."),
    }
    if done {
        terms.note_trial();
    }
    terms.tell()?;
    lines.end(done || terms.keeping.is_some(), Outcome::Fine)
}
