//! `evenkeel route rules`: the rules by which nftables says what the fast path may forward.

use std::{path::Path, str::FromStr};

use anyhow::anyhow;
use clap::Args;
use host::{
    journal::needed,
    knob::{Change, Knob, Live, MARK_RULES_ABSENT, Plan, Store, mark_rules},
};
use model::route::CtMark;
use route::conntrack::LIBERAL;
use serde::Serialize;
use sys::privilege::{self, Capability};

use crate::{
    args::StateArg,
    cmd::changes::{Made, Terms},
    failure::{Failure, Lines, Outcome, json, print, print_json},
};

/// Print the two lines for nft that mark established connections for mode stateful, or put them in.
///
/// What reaches the chain was accepted by the chains that filter: an established connection then has the mark, and its packets need not go
/// through nftables again. `evenkeel undo` takes the rules and the setting of conntrack back.
#[derive(Debug, Args)]
pub(super) struct RulesArgs {
    /// Mark that connections get: VALUE or VALUE/MASK.
    #[arg(long, value_name = "MARK", default_value_t = CtMark::default(), value_parser = CtMark::from_str)]
    mark: CtMark,
    /// Put the rules in, and have conntrack be liberal about TCP windows, through the journal.
    #[arg(long)]
    apply: bool,
    /// Take the rules away, through the journal. Conntrack stays as it is.
    #[arg(long, conflicts_with = "apply")]
    remove: bool,
    /// With --apply or --remove: print the changes as commands and make none.
    #[arg(long)]
    dry_run: bool,
    #[command(flatten)]
    state: StateArg,
    /// Print JSON (schema evenkeel.route.rules/1).
    #[arg(long)]
    json: bool,
}

#[derive(Debug, Serialize)]
struct Rules {
    mark: CtMark,
    /// For nft.
    lines: [String; 2],
    /// The knob, as a command.
    sysctl: String,
    #[serde(flatten)]
    made: Made,
    #[serde(flatten)]
    plan: Plan,
}

pub(super) fn run(args: &RulesArgs) -> Result<Outcome, Failure> {
    let sysctl = format!("sysctl -w {}=1", LIBERAL.replace('/', "."));
    let mut rules =
        Rules { mark: args.mark, lines: mark_rules(args.mark), sysctl, made: Made::default(), plan: Plan::default() };
    if !args.apply && !args.remove {
        if args.json {
            return print_json("route.rules", rules).map(|()| Outcome::Fine);
        }
        print(&format!("{}\n{}\n# {}\n", rules.lines[0], rules.lines[1], rules.sysctl))?;
        return Ok(Outcome::Fine);
    }
    privilege::require("a look at the rules of nftables", &[Capability::CAP_NET_ADMIN])?;
    rules.plan.changes = changes(args)?;
    if args.dry_run {
        let idle = rules.plan.changes.is_empty();
        let text = if idle { "Nothing to do: it is so already.\n".to_owned() } else { rules.plan.to_shell() };
        return if args.json { print_json("route.rules", rules) } else { print(&text) }.map(|()| Outcome::Fine);
    }
    privilege::require_root("route rules", needed(&rules.plan.changes))?;
    let mut terms = Terms { state: args.state.path(), commit_confirm: None, keeping: None };
    let mut lines = Lines::default();
    if !rules.plan.changes.is_empty() {
        if !args.json {
            lines.print(rules.plan.to_shell().trim_end());
        }
        let writer = args.state.journal().lock_for_changes()?;
        let again = rules.plan.changes.clone();
        rules.made = terms.make(&writer, Vec::new(), &rules.plan.changes, || Ok(again))?;
    }
    match args.json {
        true => lines.print(json("route.rules", &rules)?),
        false => terms.print(&mut lines, &rules.made, "Nothing to do: it is so already."),
    }
    lines.end(rules.made.is_some(), Outcome::Fine)
}

/// The settings that have to be changed.
fn changes(args: &RulesArgs) -> Result<Vec<Change>, Failure> {
    let mark = args.mark.to_string();
    if !args.remove && !Path::new("/proc/sys").join(LIBERAL).exists() {
        return Err(Failure::lacking(anyhow!(
            "the kernel tracks no connections yet: `modprobe nf_conntrack`, then try again"
        )));
    }
    let liberal = Knob::Sysctl { path: LIBERAL.to_owned() };
    let wanted = match args.remove {
        true => vec![(Knob::MarkRules, MARK_RULES_ABSENT, "no connection is marked for the fast path any more")],
        false => vec![
            (liberal, "1", "conntrack does not follow TCP windows of what the fast path forwards"),
            (Knob::MarkRules, mark.as_str(), "established connections that nftables accepted take the fast path"),
        ],
    };
    let mut changes = Vec::new();
    for (knob, new, reason) in wanted {
        let change = Change { old: Live.read(&knob)?, knob, new: new.to_owned(), reason: reason.to_owned() };
        changes.extend((!change.is_idle()).then_some(change));
    }
    Ok(changes)
}
