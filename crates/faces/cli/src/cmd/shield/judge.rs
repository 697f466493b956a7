//! `shield check` and `shield explain`: rules judged without an interface.

use std::{
    fs::File,
    io::{self, IsTerminal},
    ops::ControlFlow,
    path::{Path, PathBuf},
};

use anyhow::{Context, anyhow};
use clap::Args;
use host::session;
use model::{shield::ChallengeStatus, units::counted};
use report::Look;
use rules::{
    Action, Problem, RulesError,
    check::{self, Finding, Kind, Weight},
    compile::{self, Counters, Now},
    explain, nft,
};
use serde::Serialize;
use shield::{
    ShieldError,
    run::{challenge_here, outside, unknowable_here},
};
use sys::{
    libpcap::{self, Pcap},
    privilege::{self, Remaining},
};

use super::{RuleArgs, rule_file};
use crate::failure::{Failure, Outcome, json_line, note, print};

/// Check a file of rules before it does anything.
///
/// Exit code 2: errors, each with line, column and what to write instead. Exit code 1: warnings, such as a rule that never applies, an
/// unused set, or a rule that would cut off your ssh session. Exit code 0: nothing, or notes such as two rules that overlap.
#[derive(Debug, Args)]
pub(super) struct CheckArgs {
    /// File of rules (TOML); `-` reads standard input.
    #[arg(value_parser = rule_file())]
    file: PathBuf,
    /// Print JSON (schema evenkeel.shield.check/1). Errors are findings of the kind `error`.
    #[arg(long)]
    json: bool,
}

#[derive(Serialize)]
struct Checked {
    file: String,
    /// None: the file has errors.
    rules: Option<usize>,
    prefixes: Option<usize>,
    /// The way in which challenged SYNs would be answered on this machine; none: nothing challenges.
    challenge: Option<ChallengeStatus>,
    findings: Vec<Found>,
}

#[derive(Serialize)]
struct Found {
    kind: What,
    severity: &'static str,
    line: Option<usize>,
    /// Of an error, in characters.
    #[serde(skip_serializing_if = "Option::is_none")]
    column: Option<usize>,
    what: String,
    fix: String,
}

#[derive(Serialize)]
#[serde(untagged)]
enum What {
    Found(Kind),
    /// `error`
    Wrong(&'static str),
}

/// The document of a file with errors.
fn with_errors(file: String, problems: &[Problem]) -> Checked {
    let found = |problem: &Problem| Found {
        kind: What::Wrong("error"),
        severity: "error",
        line: Some(problem.line),
        column: Some(problem.column),
        what: problem.what.clone(),
        fix: problem.instead.clone().unwrap_or_default(),
    };
    Checked { file, rules: None, prefixes: None, challenge: None, findings: problems.iter().map(found).collect() }
}

fn print_checked(body: Checked) -> Result<(), Failure> {
    print(&json_line("shield.check", body)?)
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
    let name = args.file.display().to_string();
    let file = rules.read().or_else(|error| {
        if let (true, ShieldError::Rules(RulesError::Rules(problems))) = (args.json, &error) {
            print_checked(with_errors(name.clone(), problems))?;
        }
        Err(Failure::from(error))
    })?;
    // What only shows when tables are made: too many rules or classes.
    compile::tables(&file.rules, &mut Counters::new(), Now::read())?;
    let mut findings = check::check(&file, &session::sessions(), Now::read());
    findings.extend(outside(&file));
    // Netfilter tells nobody else.
    let is_root = nix::unistd::geteuid().is_root();
    if is_root {
        findings.extend(unknowable_here(&file));
    }
    let prefixes: usize = file.rules.sets.values().map(|set| set.prefixes.len()).sum();
    let worst = findings.iter().map(|finding| finding.weight).max();
    let challenges = file.rules.rules.iter().any(|rule| rule.action == Action::Challenge);
    let may_challenge = challenges || !file.rules.protected.is_empty();
    let challenge = (may_challenge && is_root).then(challenge_here);
    if args.json {
        let found = |Finding { kind, weight, line, what, instead }: Finding| Found {
            kind: What::Found(kind),
            severity: word(weight),
            line,
            column: None,
            what,
            fix: instead,
        };
        let findings = findings.into_iter().map(found).collect();
        let (rules, prefixes) = (Some(file.rules.rules.len()), Some(prefixes));
        print_checked(Checked { file: name, rules, prefixes, challenge, findings })?;
    } else {
        let number = |count: usize, one: &str, more: &str| counted(count as u64, one, more);
        let mut text = format!(
            "{name}: {}, {} in {}\n",
            number(file.rules.rules.len(), "rule", "rules"),
            number(prefixes, "prefix", "prefixes"),
            number(file.rules.sets.len(), "set", "sets"),
        );
        for Finding { weight, line, what, instead, .. } in &findings {
            let place = line.map_or_else(String::new, |line| format!("{line}:"));
            text += &format!("{name}:{place} {}: {what}; {instead}\n", word(*weight));
        }
        if let Some(challenge) = &challenge {
            text += &format!("{name}: note: on this machine, {}\n", challenge.text());
        } else if may_challenge {
            text += &format!("{name}: note: run it as root to know how SYNs are answered on this machine\n");
        }
        if let Some(note) = check::without_rules(&file) {
            text += &format!("{name}: note: {note}\n");
        }
        if worst.is_none_or(|weight| weight <= Weight::Note) {
            text += "no problems found\n";
        }
        print(&text)?;
    }
    Ok(if worst.is_some_and(|weight| weight > Weight::Note) { Outcome::No } else { Outcome::Fine })
}

/// Print the rules as an nftables script, to use them without this program.
///
/// Load it with `evenkeel shield plan eth0 --rules FILE | nft -f -`; that replaces the table of an earlier script in one transaction. The
/// table hooks into the ingress of the interface, and each rule has its own counter. The management allow-list comes first, with this
/// machine's present addresses and your ssh session. The script differs from `shield run` in this: no detection; no `challenge` (such rules are
/// refused); no `malformed` (frames that are cut short or contradict themselves pass); frames with two VLAN tags pass unjudged; ports
/// after an IPv6 authentication header are not read.
#[derive(Debug, Args)]
pub(super) struct PlanArgs {
    /// The interface on which packets come in.
    #[arg(value_parser = crate::args::interface)]
    interface: String,
    #[command(flatten)]
    rules: RuleArgs,
}

pub(super) fn plan(args: &PlanArgs) -> Result<Outcome, Failure> {
    let file = args.rules.read()?;
    host::interface::index(&args.interface)?;
    let own = session::own_addresses().context("cannot list this machine's addresses").map_err(Failure::lacking)?;
    let mut rules = file.rules.clone();
    rules.rules.splice(0..0, file.management.all(&own, &session::sessions()));
    print(&nft::script(&rules, &args.interface, Now::read())?)?;
    Ok(Outcome::Fine)
}

/// Show for each packet of a saved capture which rule decides.
///
/// Reads a pcap or pcapng file and sends nothing. Limits use the times of the capture. The management allow-list of this machine comes
/// before the rules, as in `shield run`, but without your ssh session.
#[derive(Debug, Args)]
pub(super) struct ExplainArgs {
    /// The capture file; `-` reads standard input.
    capture: PathBuf,
    #[command(flatten)]
    rules: RuleArgs,
    /// Print only the sums per rule.
    #[arg(long, short)]
    summary: bool,
    /// Print JSON (schema evenkeel.shield.explain/1), one document per line: each packet, the sums last.
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
const PIECE_BYTES: usize = 1 << 16;

struct Opened(Pcap);

impl explain::CaptureReader for Opened {
    fn link_type(&self) -> (i32, String) {
        (self.0.link_type(), libpcap::link_name(self.0.link_type()))
    }

    fn next_packet(&mut self) -> Result<Option<explain::Captured<'_>>, String> {
        let packet = self.0.next_packet().map_err(|e| e.to_string())?;
        Ok(packet.map(|packet| explain::Captured {
            at_ns: i128::from(packet.seconds) * 1_000_000_000 + i128::from(packet.nanoseconds),
            wire_len: packet.wire_len,
            data: packet.data,
        }))
    }
}

pub(super) fn explain(args: &ExplainArgs) -> Result<Outcome, Failure> {
    let is_standard_input = |path: &Path| path == Path::new("/dev/stdin") || path == Path::new("-");
    if is_standard_input(&args.capture) && args.rules.rules.as_deref().is_some_and(is_standard_input) {
        return Err(Failure::usage(anyhow!(
            "standard input cannot be both the capture and the rules: name a file for one of them"
        )));
    }
    let file = args.rules.read()?;
    let mut rules = file.rules;
    let own = session::own_addresses().context("cannot list this machine's addresses").map_err(Failure::lacking)?;
    rules.rules.splice(0..0, file.management.rules(&own, None));
    // Somebody who watches packets as they come sees each at once.
    let piece = if io::stdout().is_terminal() || !args.capture.is_file() { 0 } else { PIECE_BYTES };
    libpcap::load()?;
    // libpcap meets what a stranger wrote there: with the file open, no right is needed any more.
    if args.capture.as_os_str() != "-" {
        let wrong = |e: io::Error| RulesError::Capture { path: args.capture.clone(), reason: e.to_string() };
        let file = File::open(&args.capture).map_err(wrong)?;
        nix::unistd::dup2_stdin(file).map_err(|e| wrong(e.into()))?;
    }
    let now = Now::read();
    if let Some(why) = privilege::give_up(Remaining::Reading)?.still_root {
        note(format_args!("warning: explain goes on with root's user id, without capabilities: {why}"));
    }
    let asking: Vec<_> =
        rules.rules.iter().filter(|rule| !rule.when.known.is_nothing()).map(|rule| rule.name.as_str()).collect();
    if !asking.is_empty() {
        note(format_args!(
            "warning: these rules apply to no packet here, as a capture says nothing of connection, listener and source-seen: {}",
            asking.join(", ")
        ));
    }
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
            text += &json_line("shield.explain", line).unwrap_or_default();
        } else {
            text += &format!("{:>7}  {}\n         {reason}\n", packet.number, packet.frame);
        }
        if text.len() > piece {
            printed = print(&text);
            text.clear();
        }
        if printed.is_ok() { ControlFlow::Continue(()) } else { ControlFlow::Break(()) }
    };
    let opened = Pcap::of_file(Path::new("-")).map_err(|e| explain::unreadable(&e.to_string(), &args.capture))?;
    let (summary, broken) = explain::explain(&rules, &mut Opened(opened), &args.capture, now, each)?;
    printed?;
    if args.json {
        let sums = Sums { summary, rules: rules.rules.iter().map(|rule| rule.name.clone()).collect() };
        text += &json_line("shield.explain", sums)?;
    } else {
        text += &sums(&rules, &summary);
    }
    print(&text)?;
    // What could be read has been told; that it was not all is still an error.
    broken.map_or(Ok(Outcome::Fine), |broken| Err(broken.into()))
}

/// The sums as text.
fn sums(rules: &rules::Rules, summary: &explain::Summary) -> String {
    let grouped = model::units::grouped;
    let mut rows: Vec<Vec<String>> = rules
        .rules
        .iter()
        .zip(&summary.decided)
        .zip(&summary.counted)
        .map(|((rule, decided), counted)| vec![rule.name.clone(), grouped(decided.packets), grouped(counted.packets)])
        .collect();
    rows.push(vec!["(default)".into(), grouped(summary.by_default.packets), String::new()]);
    let table = Look::of_stdout().table(&["RULE", ">DECIDED", ">MATCHED, NOT DECIDED"], rows);
    let uncut = match summary.uncut.packets {
        0 => String::new(),
        uncut => format!(
            "\n{} of them have length 0 in their IP header (TCP that the sender's NIC was to segment) and are judged by their length in the file; from a \
             wire they would be malformed",
            grouped(uncut)
        ),
    };
    format!(
        "\n{} {}: {} passed, {} dropped, {} challenged; {} not IP, {} malformed, {} cut short by the capture{uncut}\n\n{table}",
        grouped(summary.all.packets),
        if summary.all.packets == 1 { "packet" } else { "packets" },
        grouped(summary.passed.packets),
        grouped(summary.dropped.packets),
        grouped(summary.challenged.packets),
        grouped(summary.not_ip.packets),
        grouped(summary.malformed.packets),
        grouped(summary.cut.packets),
    )
}
