//! `evenkeel doctor`: what to change on this machine, and why.

mod ack;
mod fix;
mod measure;
mod nodes;

use anyhow::anyhow;
use clap::{Args, Subcommand};
use doctor::{Evidence, Selection, diagnose};
use host::{Root, snapshot};
use model::doctor::Role;
use report::{Look, Paint, doctor_list, doctor_table, doctor_text};

use crate::{
    args::{RootArg, StateArg},
    cmd::keep::EtcArg,
    failure::{Failure, Outcome, json, note, print, print_verdict},
    numbers::words,
    time::seconds_within,
};

/// Check this machine's settings for packets: finding, evidence, fix.
///
/// Changes nothing without --fix. What --fix sets is journalled, and `evenkeel undo` takes it back. Exit code 1 when there is a
/// finding (bad or improve), 0 when there is none.
#[derive(Debug, Args)]
#[command(args_conflicts_with_subcommands = true)]
pub(crate) struct DoctorArgs {
    #[command(subcommand)]
    action: Option<Action>,
    /// No interface: doctor looks at all of them.
    #[arg(hide = true, value_name = "NONE")]
    stray: Option<String>,
    /// Role of the machine [default: guessed].
    #[arg(long, value_name = "ROLE", value_parser = words(&ROLES), help_heading = "Machine")]
    role: Option<Role>,
    #[command(flatten)]
    root: RootArg,
    /// Run only these checks, such as rings:eth0.
    #[arg(long, value_name = "CHECK", value_delimiter = ',', help_heading = "Machine")]
    only: Vec<String>,
    /// Show what is good, too.
    #[arg(long, conflicts_with = "json", help_heading = "Output")]
    all: bool,
    /// Print JSON (schema evenkeel.doctor/1).
    ///
    /// With --fix or --dry-run the schema is evenkeel.doctor.fix/1, with --list evenkeel.doctor.list/1.
    #[arg(long, help_heading = "Output")]
    json: bool,
    /// Make the fixes of all findings, or of these checks.
    #[arg(long, value_name = "CHECK", num_args = 0.., value_delimiter = ',', help_heading = "Fixes")]
    fix: Option<Vec<String>>,
    /// Set these findings aside, or all that are `improve`.
    ///
    /// All counts begin now. `none` takes it back.
    #[arg(long, value_name = "CHECK", num_args = 0.., value_delimiter = ',', conflicts_with_all = ["root", "only", "all", "fix", "dry_run", "list"], help_heading = "Fixes")]
    ack: Option<Vec<String>>,
    /// Print the fixes as commands and change nothing.
    #[arg(long, help_heading = "Fixes")]
    dry_run: bool,
    /// Take the fixes back after this time unless `evenkeel confirm` comes, or earlier when drops rise.
    #[arg(long, hide_short_help = true, value_name = "TIME", requires = "fix", value_parser = seconds_within("1s", "24h"), help_heading = "Journal")]
    commit_confirm: Option<u64>,
    /// Keep the fixes by a file of `evenkeel keep`.
    #[arg(long, requires = "fix", conflicts_with_all = ["root", "dry_run", "commit_confirm"], help_heading = "Fixes")]
    keep: bool,
    /// Name the file of --keep, without its ending [default: doctor-CHECK].
    #[arg(long, value_name = "NAME", hide_short_help = true, requires = "keep", help_heading = "Files")]
    name: Option<String>,
    #[command(flatten)]
    etc: EtcArg,
    /// Watch the counters for this time before and after the fixes, and say what they brought.
    #[arg(long, hide_short_help = true, value_name = "TIME", requires = "fix", value_parser = seconds_within("1s", "10m"), help_heading = "Fixes")]
    measure: Option<u64>,
    #[command(flatten)]
    state: StateArg,
    /// List the checks and examine nothing.
    #[arg(long, hide_short_help = true, conflicts_with_all = ["root", "only", "all", "fix", "dry_run"], help_heading = "Output")]
    list: bool,
    /// With --list: as the table of the documentation.
    #[arg(long, hide = true, requires = "list")]
    markdown: bool,
    #[command(flatten)]
    nodes: nodes::NodesArgs,
}

impl DoctorArgs {
    /// True if it does not look at this machine.
    pub(crate) fn is_elsewhere(&self) -> bool {
        self.action.is_some() || self.list || self.root.is_given() || self.nodes.is_given()
    }
}

/// What is not about one machine.
#[derive(Debug, Subcommand)]
enum Action {
    Compare(nodes::CompareArgs),
}

pub(super) const ROLES: [(&str, &str, Role); 5] = [
    ("router", "Forwards packets between its interfaces", Role::Router),
    ("firewall", "Forwards packets and judges them by rules", Role::Firewall),
    ("capture", "Reads packets that are not meant for it", Role::Capture),
    ("server", "Ends connections", Role::Server),
    ("cluster", "A node of a closed network whose members trust each other", Role::Cluster),
];

/// Examines the machine, and makes the fixes when told.
pub(crate) fn run(args: &DoctorArgs) -> Result<Outcome, Failure> {
    if let Some(Action::Compare(args)) = &args.action {
        return nodes::run_compare(args);
    }
    if let Some(word) = &args.stray {
        return Err(Failure::usage(anyhow!(
            "doctor looks at all interfaces at once: leave out `{word}`. One check on one interface: `--only rings:eth0`. Two saved runs: \
             `evenkeel doctor compare A B`"
        )));
    }
    if args.list {
        return list(args);
    }
    let only = Selection::parse(&args.only)?;
    if args.nodes.is_given() {
        return nodes::run(
            &args.nodes,
            &nodes::Common { role: args.role, only: &args.only, json: args.json, all: args.all },
        );
    }
    let wanted = args.fix.as_deref().map_or_else(|| Ok(only.clone()), Selection::parse)?;
    if args.fix.is_some() && args.root.is_given() && !args.dry_run {
        return Err(Failure::usage(anyhow!(
            "--root is a saved machine, whose settings cannot be made here; --dry-run prints the commands for it"
        )));
    }
    if !args.root.is_given() {
        host::namespace::check()?;
    }
    if let Some(names) = &args.ack {
        return ack::run(args, names);
    }
    let root = args.root.open()?;
    let examined = diagnose(&evidence(args, &root)?, &only);
    for (check, object) in only.objects().chain(wanted.objects()) {
        let is_it = |f: &model::doctor::Finding| f.check == check && f.object.as_deref() == Some(object);
        if !examined.report.findings.iter().any(is_it) {
            return Err(Failure::lacking(anyhow!(
                "the check {check} finds no `{object}` here; `evenkeel doctor --only {check} --all` shows what there is"
            )));
        }
    }
    if args.fix.is_some() && !args.dry_run {
        fix::check_rights(&examined, &wanted)?;
    }
    for warning in snapshot::warnings(&root) {
        note(format_args!("warning: {warning}"));
    }
    if args.dry_run {
        let plan = doctor::fix_plan(&examined, &wanted);
        if args.json {
            return fix::print_plan(plan);
        }
        if plan.changes.is_empty() {
            note("No finding among these has a fix that is a setting: there is nothing to print.");
        }
        return print(&with_end(&plan.to_shell())).map(|()| Outcome::Fine);
    }
    if args.fix.is_some() {
        return fix::run(args, &root, &examined, &wanted);
    }
    let outcome = if examined.report.has_findings() { Outcome::No } else { Outcome::Fine };
    let text = match args.json {
        true => json("doctor", &examined.report)?,
        false => doctor_text(&examined.report, Look::of_stdout(), Paint::of_stdout(), args.all),
    };
    print_verdict(&with_end(&text), outcome)
}

/// Gathers the evidence, and what was acknowledged on this machine.
fn evidence(args: &DoctorArgs, root: &Root) -> Result<Evidence, Failure> {
    let mut evidence = Evidence::gather(root, args.role)?;
    if root.is_live() {
        evidence.acknowledge(&ack::stands(&args.state));
    }
    Ok(evidence)
}

fn list(args: &DoctorArgs) -> Result<Outcome, Failure> {
    let rows = doctor::rows();
    let text = match (args.json, args.markdown) {
        (true, _) => json("doctor.list", serde_json::json!({ "checks": rows }))?,
        (false, true) => doctor_table(&rows),
        (false, false) => doctor_list(&rows, Look::of_stdout()),
    };
    print(&with_end(&text)).map(|()| Outcome::Fine)
}

/// The text with one end of line at its end.
fn with_end(text: &str) -> String {
    format!("{}\n", text.trim_end())
}
