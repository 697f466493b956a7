//! Findings of the doctor as text.

use std::fmt::Write;

use model::{
    CpuSet,
    doctor::{CheckRow, Finding, Report, Setting, Verdict},
};

use crate::{
    paint::Paint,
    paint::{Colour, mark},
    table::Look,
};

/// The widest page: longer lines are hard to read.
const WIDEST: u16 = 110;
/// Longer scripts are cut: `--dry-run` prints them whole.
const COMMANDS_MAX: usize = 6;
/// Behind the labels of a finding.
const INDENT: usize = 9;

/// The findings, the gravest first. What is as it should be is a count unless `all`.
pub fn doctor_text(report: &Report, look: Look, paint: Paint, all: bool) -> String {
    let look = Look { width: look.read_at().clamp(40, WIDEST), ..look };
    let mut out = head(report, look);
    for finding in report.findings.iter().filter(|f| f.verdict.is_finding()) {
        let _ = write!(out, "\n{}", entry(finding, look));
    }
    let rest = |verdict| report.findings.iter().filter(move |f| f.verdict == verdict);
    if all {
        for finding in [Verdict::Acknowledged, Verdict::Unknown, Verdict::Good].into_iter().flat_map(rest) {
            let _ = write!(out, "\n{}", entry(finding, look));
        }
        let names: Vec<&str> = rest(Verdict::NotApplicable).map(|f| f.check.as_str()).collect();
        if !names.is_empty() {
            let _ = write!(out, "\n{}", look.paragraph(&format!("Not applicable: {}.", names.join(", "))));
        }
    } else {
        out.push_str(&unknown(rest(Verdict::Unknown), look));
    }
    if !report.unreadable.is_empty() {
        let _ = write!(out, "\nCould not be read:\n");
        for c in &report.unreadable {
            // Most reasons name the file themselves.
            let line =
                if c.reason.contains(&c.source) { c.reason.clone() } else { format!("{}: {}", c.source, c.reason) };
            out.push_str(&hanging("  - ", 4, &line, look));
        }
    }
    let _ = write!(out, "\n{}", look.paragraph(&tail(report, all)));
    paint.finish(&out)
}

/// From so many answers on that an old copy lacks, a line counts them.
const FOLDED_MIN: usize = 6;

/// Unknown verdicts with the reason; checks that lack the same thing stand together.
fn unknown<'a>(findings: impl Iterator<Item = &'a Finding>, look: Look) -> String {
    // An old copy lacks many things at once, and one new copy has them all.
    let (lacking, rest): (Vec<&Finding>, Vec<&Finding>) = findings.partition(|f| f.reason.contains("save it again"));
    let (folded, single) =
        if lacking.len() > FOLDED_MIN { (lacking, rest) } else { (Vec::new(), [lacking, rest].concat()) };
    let mut by_reason: Vec<(&str, Vec<String>)> = Vec::new();
    for finding in single {
        match by_reason.iter_mut().find(|(why, _)| *why == finding.reason) {
            Some((_, names)) => names.push(name(finding)),
            None => by_reason.push((&finding.reason, vec![name(finding)])),
        }
    }
    if by_reason.is_empty() && folded.is_empty() {
        return String::new();
    }
    let mut checks: Vec<&str> = folded.iter().map(|f| f.check.as_str()).collect();
    checks.dedup();
    let count = match folded.len() {
        0 => String::new(),
        n => hanging(
            "  - ",
            4,
            &format!(
                "{n} answers of {} checks: this copy lacks what they read; save it again as root (--all names them)",
                checks.len()
            ),
            look,
        ),
    };
    let line = |(why, names): &(&str, Vec<String>)| hanging("  - ", 4, &format!("{}: {why}", names.join(", ")), look);
    format!("\nUnknown:\n{count}{}", by_reason.iter().map(line).collect::<String>())
}

fn head(report: &Report, look: Look) -> String {
    let how = match (report.role_guessed, report.role_reasons.as_slice()) {
        (false, _) => String::new(),
        (true, []) => " (guessed; --role says otherwise)".to_owned(),
        (true, why) => format!(" (guessed: {}; --role says otherwise)", why.join(", ")),
    };
    look.paragraph(&format!("{}, Linux {}, role {}{how}", report.hostname, report.kernel, report.role))
}

fn name(finding: &Finding) -> String {
    match &finding.object {
        Some(object) => format!("{} ({object})", finding.check),
        None => finding.check.clone(),
    }
}

fn painted(verdict: Verdict, text: &str) -> String {
    match verdict {
        Verdict::Bad => mark(Colour::Red, text),
        Verdict::Improve => mark(Colour::Yellow, text),
        Verdict::Good => mark(Colour::Green, text),
        _ => text.to_owned(),
    }
}

/// The comment behind a command. Commands write CPUs as masks: what these mean is said, so that `echo 1` is not taken for CPU 1.
fn now(setting: &Setting) -> String {
    // `none` is the empty set.
    let cpus = |list: &str| CpuSet::parse_list(list).unwrap_or_default().phrase();
    match setting.cpus {
        true => format!("  # {}; now {}", cpus(&setting.to), cpus(&setting.from)),
        false => format!("  # now {}", setting.from),
    }
}

/// A finding: verdict and name, evidence, importance, fix.
fn entry(finding: &Finding, look: Look) -> String {
    let verdict = finding.verdict.as_str().to_uppercase();
    let gap = INDENT.max(verdict.len() + 1) - verdict.len();
    let label = format!("{}{:gap$}", painted(finding.verdict, &verdict), "");
    let mut out = hanging(&label, INDENT, &format!("{}: {}", name(finding), finding.question), look);
    let front = |label: &str| format!("{:INDENT$}", format!("  {label}"));
    for (n, seen) in finding.evidence.iter().enumerate() {
        out.push_str(&hanging(&front(if n == 0 { "saw" } else { "" }), INDENT, seen, look));
    }
    out.push_str(&hanging(&front("why"), INDENT, &finding.reason, look));
    let Some(fix) = &finding.fix else { return out };
    let shown = if fix.shell.len() > COMMANDS_MAX { COMMANDS_MAX - 2 } else { fix.shell.len() };
    for (n, command) in fix.shell.iter().take(shown).enumerate() {
        let front = front(if n == 0 { "fix" } else { "" });
        if command.starts_with('#') {
            out.push_str(&hanging(&front, INDENT, command, look));
        } else {
            // A command is one line however narrow the page is: it is there to be copied. Those of the settings come first.
            let now = fix.changes.get(n).map_or_else(String::new, now);
            let _ = writeln!(out, "{front}{command}{now}");
        }
    }
    if fix.shell.len() > shown {
        let rest = format!("# and {} more; --dry-run prints them all", fix.shell.len() - shown);
        out.push_str(&hanging(&front(""), INDENT, &rest, look));
    }
    out.push_str(&hanging(&front("risk"), INDENT, &fix.risk, look));
    if let Some(gain) = &fix.gain {
        out.push_str(&hanging(&front("gain"), INDENT, gain, look));
    }
    out
}

/// A paragraph with a front; the following lines stand below its text.
fn hanging(front: &str, indent: usize, text: &str, look: Look) -> String {
    let width = usize::from(look.width).saturating_sub(indent).max(20);
    let body = Look { width: u16::try_from(width).unwrap_or(u16::MAX), ..look }.paragraph(text);
    let mut out = String::new();
    for (n, line) in body.lines().enumerate() {
        let _ = if n == 0 { writeln!(out, "{front}{line}") } else { writeln!(out, "{:indent$}{line}", "") };
    }
    out
}

fn tail(report: &Report, all: bool) -> String {
    let counts: Vec<String> = Verdict::ALL
        .iter()
        .map(|&v| (v, report.count(v)))
        .filter(|&(_, n)| n > 0)
        .map(|(v, n)| format!("{n} {v}"))
        .collect();
    let counts = if counts.is_empty() { "No check was run".to_owned() } else { counts.join(", ") };
    let settings = |f: &Finding| f.verdict.is_finding() && f.fix.as_ref().is_some_and(|fix| !fix.changes.is_empty());
    let fixable = report.findings.iter().filter(|f| settings(f)).count();
    let mut text = format!("{counts}.");
    if !all && report.count(Verdict::Good) > 0 {
        text.push_str(" --all shows them all.");
    }
    match fixable {
        0 => {}
        // A saved machine, which nobody can change here.
        n if report.watched_s.is_none() => {
            let have = if n == 1 { "1 has a fix" } else { &format!("{n} have a fix") };
            let _ = write!(text, " {have}: with --dry-run, doctor prints the commands for that machine.");
        }
        1 => text.push_str(" 1 has a fix that `evenkeel doctor --fix` makes, and `evenkeel undo` takes back."),
        n => {
            let _ = write!(text, " {n} have a fix that `evenkeel doctor --fix` makes, and `evenkeel undo` takes back.");
        }
    }
    text
}

/// The table of checks as text.
pub fn doctor_list(rows: &[CheckRow], look: Look) -> String {
    let rows = rows.iter().map(|r| vec![r.check.clone(), r.group.clone(), r.question.clone()]);
    look.table(&["CHECK", "GROUP", "ASKS"], rows)
}

/// The table of checks for docs/look/doctor.md.
pub fn doctor_table(rows: &[CheckRow]) -> String {
    let mut out = String::from("| check | asks | evidence | fix | risk | roles |\n|---|---|---|---|---|---|\n");
    for r in rows {
        let roles: Vec<&str> = r.roles.iter().map(|role| role.as_str()).collect();
        let roles = if roles.is_empty() { "all".to_owned() } else { roles.join(", ") };
        let cells = [&format!("`{}`", r.check), &r.question, &r.evidence, &r.fix, &r.risk, &roles];
        let cells: Vec<String> = cells.iter().map(|c| c.replace('|', "\\|")).collect();
        let _ = writeln!(out, "| {} |", cells.join(" | "));
    }
    out
}
