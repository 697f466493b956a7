//! `shield check` and `shield explain`: rules judged without an interface.

use std::{
    io::{self, IsTerminal},
    ops::ControlFlow,
    path::PathBuf,
};

use anyhow::Context;
use clap::Args;
use model::schema::Document;
use report::Look;
use serde::Serialize;
use shield::{
    compile::{self, Counters, Now},
    explain, nft,
    rules::check::{Finding, Weight},
    run::session,
};

use super::RuleArgs;
use crate::failure::{Failure, Outcome, print};

/// Find what is wrong with rules, and what is probably not meant.
///
/// Errors are told with line and column and what to write instead (exit code 2). In rules that are well written: rules that never
/// apply, rules that contradict each other, sets that nobody uses, a rule that would cut off the ssh session you are typing in
/// (exit code 1; notes alone are 0).
#[derive(Debug, Args)]
pub(super) struct CheckArgs {
    /// File of rules (TOML).
    file: PathBuf,
    /// Print JSON (schema evenkeel.shield.check/1).
    #[arg(long)]
    json: bool,
}

#[derive(Serialize)]
struct Checked {
    file: String,
    rules: usize,
    prefixes: usize,
    findings: Vec<Found>,
}

#[derive(Serialize)]
struct Found {
    weight: &'static str,
    line: Option<usize>,
    what: String,
    instead: String,
}

fn word(weight: Weight) -> &'static str {
    match weight {
        Weight::Note => "note",
        Weight::Warning => "warning",
        Weight::Harm => "harm",
    }
}

pub(super) fn check(args: &CheckArgs) -> Result<Outcome, Failure> {
    let rules = RuleArgs { rules: Some(args.file.clone()), rule: Vec::new(), set: Vec::new() };
    let file = rules.read()?;
    // What only shows when tables are made: too many rules or classes.
    compile::tables(&file.rules, &mut Counters::new(), Now::read())?;
    let findings = shield::rules::check::check(&file, &session::sessions(), Now::read());
    let prefixes: usize = file.rules.sets.values().map(|set| set.prefixes.len()).sum();
    let worst = findings.iter().map(|finding| finding.weight).max();
    let name = args.file.display().to_string();
    if args.json {
        let found =
            |Finding { weight, line, what, instead }: Finding| Found { weight: word(weight), line, what, instead };
        let findings = findings.into_iter().map(found).collect();
        let body = Checked { file: name, rules: file.rules.rules.len(), prefixes, findings };
        print(&(serde_json::to_string(&Document::new("shield.check", 1, body)).map_err(Failure::internal)? + "\n"))?;
    } else {
        let mut text = format!(
            "{name}: {} rules, {prefixes} prefixes in {} sets\n",
            file.rules.rules.len(),
            file.rules.sets.len()
        );
        for Finding { weight, line, what, instead } in &findings {
            let place = line.map_or_else(String::new, |line| format!("{line}:"));
            text += &format!("{name}:{place} {}: {what}; {instead}\n", word(*weight));
        }
        if findings.is_empty() {
            text += "nothing found\n";
        }
        print(&text)?;
    }
    Ok(if worst.is_some_and(|weight| weight > Weight::Note) { Outcome::No } else { Outcome::Fine })
}

/// Print the rules as a script for nftables, which decides nearly the same without this program.
///
/// `evenkeel shield plan eth0 --rules FILE | nft -f -` replaces the table that an earlier script made, in one transaction. The hook is ingress of
/// the interface; each rule has a counter of its own. The management allow-list comes first, with the addresses that this machine has
/// now and the ssh session you are typing in. Detection is not in it; rules that challenge have no such form, and are refused. Frames
/// of two VLAN tags pass unjudged, ports behind an IPv6 authentication header are not read.
#[derive(Debug, Args)]
pub(super) struct PlanArgs {
    /// The interface that packets come in by.
    interface: String,
    #[command(flatten)]
    rules: RuleArgs,
}

pub(super) fn plan(args: &PlanArgs) -> Result<Outcome, Failure> {
    let file = args.rules.read()?;
    if sys::packet::interface_index(&args.interface).is_none() {
        return Err(port::members::unknown_interface(&args.interface).into());
    }
    let own = session::own_addresses().context("cannot list this machine's addresses").map_err(Failure::lacking)?;
    let mut rules = file.rules.clone();
    rules.rules.splice(0..0, file.management.all(&own, &session::sessions()));
    print(&nft::script(&rules, &args.interface, Now::read())?)?;
    Ok(Outcome::Fine)
}

/// Tell for each packet of a saved capture which rule decides.
///
/// The capture (pcap or pcapng) is read, nothing is sent. Limits go by the capture's own times. The management allow-list is before the
/// rules, as `shield run` would have it on this machine, but for the ssh session.
#[derive(Debug, Args)]
pub(super) struct ExplainArgs {
    /// The capture; `-` is the standard input.
    capture: PathBuf,
    #[command(flatten)]
    rules: RuleArgs,
    /// Only the sums by rule.
    #[arg(long, short)]
    summary: bool,
    /// Print JSON (schema evenkeel.shield.explain/1), a document on a line: one for each packet, the sums last.
    #[arg(long)]
    json: bool,
}

#[derive(Serialize)]
struct Line {
    packet: u64,
    at_ns: i64,
    bytes: u32,
    frame: String,
    outcome: String,
    rule: Option<String>,
    reason: String,
}

#[derive(Serialize)]
struct Sums {
    summary: explain::Summary,
    rules: Vec<String>,
}

/// Text that is printed in large pieces: a capture has many packets.
const PIECE: usize = 1 << 16;

pub(super) fn explain(args: &ExplainArgs) -> Result<Outcome, Failure> {
    let file = args.rules.read()?;
    let mut rules = file.rules;
    let own = session::own_addresses().context("cannot list this machine's addresses").map_err(Failure::lacking)?;
    rules.rules.splice(0..0, file.management.rules(&own, None));
    // Somebody who watches packets as they come sees each at once.
    let piece = if io::stdout().is_terminal() || !args.capture.is_file() { 0 } else { PIECE };
    let (mut text, mut printed) = (String::new(), Ok(()));
    let each = |packet: &explain::Explained| {
        if args.summary {
            return ControlFlow::Continue(());
        }
        let reason = explain::reason(&rules, packet);
        if args.json {
            let line = Line {
                packet: packet.number,
                at_ns: i64::try_from(packet.at_ns).unwrap_or(i64::MAX),
                bytes: packet.len,
                frame: packet.frame.to_string(),
                outcome: format!("{:?}", packet.decision.outcome).to_lowercase(),
                rule: packet.decision.rule.map(|number| rules.rules[number].name.clone()),
                reason,
            };
            text += &serde_json::to_string(&Document::new("shield.explain", 1, line)).unwrap_or_default();
            text.push('\n');
        } else {
            text += &format!("{:>7}  {}\n         {reason}\n", packet.number, packet.frame);
        }
        if text.len() > piece {
            printed = print(&text);
            text.clear();
        }
        if printed.is_ok() { ControlFlow::Continue(()) } else { ControlFlow::Break(()) }
    };
    let (summary, broken) = explain::explain_while(&rules, &args.capture, Now::read(), each)?;
    printed?;
    if args.json {
        let sums = Sums { summary, rules: rules.rules.iter().map(|rule| rule.name.clone()).collect() };
        text += &(serde_json::to_string(&Document::new("shield.explain", 1, sums)).map_err(Failure::internal)? + "\n");
    } else {
        text += &sums(&rules, &summary);
    }
    print(&text)?;
    // What could be read has been told; that it was not all is still an error.
    broken.map_or(Ok(Outcome::Fine), |broken| Err(broken.into()))
}

/// The sums as text.
fn sums(rules: &shield::rules::Rules, summary: &explain::Summary) -> String {
    let grouped = model::units::grouped;
    let mut rows: Vec<Vec<String>> = rules
        .rules
        .iter()
        .zip(&summary.decided)
        .zip(&summary.counted)
        .map(|((rule, decided), counted)| vec![rule.name.clone(), grouped(decided.packets), grouped(counted.packets)])
        .collect();
    rows.push(vec!["(default)".into(), grouped(summary.by_default.packets), String::new()]);
    let table = Look::of_stdout().table(&["RULE", ">DECIDED", ">COUNTED ONLY"], rows);
    format!(
        "\n{} packets: {} passed, {} dropped, {} challenged; {} not IP, {} malformed, {} cut short by the capture\n\n{table}",
        grouped(summary.all.packets),
        grouped(summary.passed.packets),
        grouped(summary.dropped.packets),
        grouped(summary.challenged.packets),
        grouped(summary.not_ip.packets),
        grouped(summary.malformed.packets),
        grouped(summary.cut.packets),
    )
}
