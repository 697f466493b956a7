//! `evenkeel spread`: queue interrupts, RPS, XPS and NAPI threads spread over the cores.

mod apply;
mod members;
mod request;
mod show;
mod status;
mod watch;

use clap::{Args, Subcommand};
use host::{Host, Root, snapshot};
use spread::{PlanError, SpreadPlan, plan};

pub(super) use self::request::RequestArgs;
use crate::{
    args::RootArg,
    failure::{Failure, Outcome, caution, print, print_json},
};

/// Spread the packet work evenly over the cores.
///
/// One queue per physical core of the NIC's node first, then SMT siblings, then the far node. `plan` changes nothing and
/// takes a saved machine with --root. What `apply` and `watch` change is journalled, and `evenkeel undo` takes it back.
#[derive(Debug, Args)]
#[command(args_conflicts_with_subcommands = true, subcommand_negates_reqs = true)]
pub(crate) struct SpreadArgs {
    #[command(subcommand)]
    action: Option<Action>,
    #[command(flatten)]
    plan: PlanArgs,
}

#[derive(Debug, Subcommand)]
enum Action {
    /// Print each change with its reason; change nothing.
    Plan(PlanArgs),
    /// Show the members of a fanout group that each CPU gets.
    Members(members::MembersArgs),
    /// Make the changes, through the journal.
    Apply(apply::ApplyArgs),
    /// Show where each interrupt is wanted, written and goes.
    Status(status::StatusArgs),
    /// Move work off a core that stays hot, until Ctrl-C.
    Watch(watch::WatchArgs),
}

impl SpreadArgs {
    /// True if it is about a saved machine.
    pub(crate) fn is_saved(&self) -> bool {
        match &self.action {
            Some(Action::Plan(args)) => args.root.is_given(),
            Some(Action::Members(args)) => args.is_saved(),
            None => self.plan.root.is_given(),
            Some(Action::Apply(_) | Action::Status(_) | Action::Watch(_)) => false,
        }
    }
}

/// Arguments of `spread plan`.
#[derive(Debug, Args)]
struct PlanArgs {
    #[command(flatten)]
    request: RequestArgs,
    #[command(flatten)]
    root: RootArg,
    /// Print a line per setting, also for alike queues.
    #[arg(long, conflicts_with_all = ["json", "shell"], help_heading = "Output")]
    full: bool,
    /// Print shell commands instead of a table.
    #[arg(long, conflicts_with = "json", help_heading = "Output")]
    shell: bool,
    /// Print the plan as JSON (schema evenkeel.spread.plan/1).
    #[arg(long, help_heading = "Output")]
    json: bool,
}

/// Does what the action says.
pub(crate) fn run(args: SpreadArgs) -> Result<Outcome, Failure> {
    match args.action {
        None => show_plan(&args.plan, true),
        Some(Action::Plan(plan)) => show_plan(&plan, false),
        Some(Action::Members(members)) => members::run(&members),
        Some(Action::Apply(apply)) => apply::run(&apply),
        Some(Action::Status(status)) => status::run(&status),
        Some(Action::Watch(watch)) => watch::run(&watch),
    }
}

fn show_plan(args: &PlanArgs, bare: bool) -> Result<Outcome, Failure> {
    let root = open_root(&args.root)?;
    let planned = plan(&Host::read(&root)?, &args.request.options(&root)?).map_err(|e| match &e {
        // A word that is neither a command nor an interface.
        PlanError::NoInterface(_) if bare => {
            Failure::from(e).after("The commands are plan, apply, status, watch, members")
        }
        _ => e.into(),
    })?;
    if args.json {
        print_json("spread.plan", &planned)?;
    } else if args.shell {
        print(&planned.plan.to_shell())?;
    } else {
        warn(&planned);
        let table = show::text(&planned, args.full);
        let gap = if table.is_empty() { "" } else { "\n" };
        print(&format!("{table}{gap}{}", summary(&planned, args)))?;
    }
    Ok(Outcome::Fine)
}

/// A saved machine, or this one. Says what is wrong with a copy.
fn open_root(path: &RootArg) -> Result<Root, Failure> {
    if !path.is_given() {
        return live_root();
    }
    let root = path.open()?;
    for warning in snapshot::later(&root) {
        caution(warning);
    }
    Ok(root)
}

/// The root of this machine; refuses a /sys of another network namespace.
fn live_root() -> Result<Root, Failure> {
    host::namespace::check()?;
    Ok(Root::live())
}

/// Says the plan's warnings on stderr.
fn warn(planned: &SpreadPlan) {
    for warning in &planned.plan.warnings {
        caution(warning);
    }
}

/// The command that makes what this one plans, for a shell: the words of this command after `spread`, but for `plan` and `--full`.
fn apply_command(words: impl Iterator<Item = String>) -> String {
    let mut words = words.skip_while(|word| word != "spread").skip(1).peekable();
    words.next_if(|word| word == "plan");
    let request = words.filter(|word| word != "--full").map(|word| format!(" {}", host::ssh::quoted(&word)));
    format!("evenkeel spread apply{}", request.collect::<String>())
}

fn summary(planned: &SpreadPlan, args: &PlanArgs) -> String {
    let how = match args.root.is_given() {
        true => "As commands for that machine: --shell".to_owned(),
        false => {
            let words = std::env::args_os().map(|word| word.to_string_lossy().into_owned());
            format!("Make it so: {}", apply_command(words))
        }
    };
    match (planned.plan.changes.len(), planned.rows.len()) {
        (0, _) => "Nothing to change: all is as planned.\n".to_owned(),
        (1, 1) => format!("1 setting changes. {how}\n"),
        (changes, settings) => {
            let counts = format!("{changes} of {settings} settings change (= stays; --full: a line each).");
            format!("{}{how}\n", report::Look::of_stdout().paragraph(&counts))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_command_that_applies_a_plan_has_its_arguments() {
        let of = |line: &str| apply_command(line.split(' ').map(str::to_owned));
        assert_eq!(of("evenkeel spread"), "evenkeel spread apply");
        assert_eq!(of("evenkeel spread eth0 --full"), "evenkeel spread apply eth0");
        assert_eq!(of("/bin/evenkeel spread plan --cpus 0-3 eth*"), "evenkeel spread apply --cpus 0-3 'eth*'");
    }
}
