//! Findings on many machines as text: the machines that answered, their differences, the outliers.

use std::fmt::Write;

use model::{
    doctor::Verdict,
    doctor_nodes::{Comparison, Node, Outlier, Row},
};

use crate::table::Look;

/// Up to so many machines have a column each; beyond, a row names those that differ.
const COLUMNS_MAX: usize = 6;
/// Machines named in one cell.
const NAMED_MAX: usize = 4;

/// Each machine in a line: what was found there, or why nothing was.
pub fn nodes_text(nodes: &[Node], look: Look) -> String {
    let rows = nodes.iter().map(|node| match (&node.report, &node.error) {
        (Some(report), _) => vec![
            node.node.clone(),
            report.kernel.clone(),
            report.role.to_string(),
            report.count(Verdict::Bad).to_string(),
            report.count(Verdict::Improve).to_string(),
            report.count(Verdict::Unknown).to_string(),
        ],
        (None, _) => {
            vec![node.node.clone(), "no answer".to_owned(), String::new(), String::new(), String::new(), String::new()]
        }
    });
    let mut out = look.table(&["node", "kernel", "role", ">bad", ">improve", ">unknown"], rows);
    for node in nodes {
        if let Some(error) = &node.error {
            let _ = write!(out, "\n{}", look.paragraph(&format!("{}: {error}", node.node)));
        }
    }
    out
}

/// The rows in which machines differ (or every row), and the outliers with their fix.
pub fn compare_text(comparison: &Comparison, look: Look, all: bool) -> String {
    // A verdict that differs because a value does is told by the value.
    let explained = |row: &Row| {
        let same = |other: &Row| other.check == row.check && other.object == row.object;
        row.subject.is_none() && comparison.rows.iter().any(|r| r.subject.is_some() && same(r) && r.differs())
    };
    let shown: Vec<&Row> = comparison.rows.iter().filter(|row| all || (row.differs() && !explained(row))).collect();
    let agree = comparison.rows.iter().filter(|row| !row.differs()).count();
    let machines = comparison.nodes.len();
    if machines < 2 {
        return "One machine alone differs from none.\n".to_owned();
    }
    let mut out = match (shown.is_empty(), machines <= COLUMNS_MAX) {
        (true, _) => String::new(),
        (false, true) => by_column(comparison, &shown, look),
        (false, false) => by_value(comparison, &shown, look),
    };
    let differ = comparison.rows.len() - agree;
    let _ = writeln!(
        out,
        "{}{agree} values agree on all of {machines} machines, {differ} differ.",
        if out.is_empty() { "" } else { "\n" }
    );
    let place = |o: &Outlier| (o.node.clone(), o.check.clone(), o.object.clone());
    for (at, outlier) in comparison.outliers.iter().enumerate() {
        // Several values of one finding have one fix.
        let same = |at: usize| comparison.outliers.get(at).is_some_and(|other| place(other) == place(outlier));
        let begins = at.checked_sub(1).is_none_or(|before| !same(before));
        let _ = write!(out, "{}{}", if begins { "\n" } else { "" }, look.paragraph(&sentence(outlier)));
        if let Some(fix) = outlier.fix.as_ref().filter(|_| !same(at + 1)) {
            let _ = writeln!(out, "  fix  {fix}");
        }
    }
    if comparison.outliers.is_empty() && differ > 0 {
        let _ = write!(
            out,
            "\n{}",
            look.paragraph("No machine stands alone: where they differ, no value is the majority one.")
        );
    }
    out
}

/// `n17: receive ring of eth0 is 512, the others 4096 (rings: improve)`
fn sentence(o: &Outlier) -> String {
    let what = o.subject.as_deref().unwrap_or("verdict");
    let of = o
        .object
        .as_deref()
        .filter(|object| !object.contains(what))
        .map_or_else(String::new, |object| format!(" of {object}"));
    let others = match (o.agree, o.others) {
        (agree, others) if agree == others => format!("the others {}", o.majority),
        (agree, others) => format!("{agree} of the {others} others {}", o.majority),
    };
    format!("{}: {what}{of} is {}, {others} ({}: {})", o.node, o.value, o.check, o.verdict)
}

fn name(row: &Row) -> String {
    match &row.object {
        Some(object) => format!("{} ({object})", row.check),
        None => row.check.clone(),
    }
}

fn what(row: &Row) -> String {
    row.subject.clone().unwrap_or_else(|| "verdict".to_owned())
}

fn by_column(comparison: &Comparison, rows: &[&Row], look: Look) -> String {
    let mut heads = vec!["check", "what"];
    heads.extend(comparison.nodes.iter().map(String::as_str));
    let line = |row: &&Row| {
        let mut cells = vec![name(row), what(row)];
        cells.extend(row.cells.iter().map(|cell| cell.clone().unwrap_or_else(|| "-".to_owned())));
        cells
    };
    look.table(&heads, rows.iter().map(line))
}

fn by_value(comparison: &Comparison, rows: &[&Row], look: Look) -> String {
    let line = |row: &&Row| {
        let majority = row.majority.clone();
        let mut others: Vec<(&str, Vec<&str>)> = Vec::new();
        for (node, cell) in comparison.nodes.iter().zip(&row.cells) {
            let Some(cell) = cell.as_deref().filter(|cell| Some(*cell) != majority.as_deref()) else { continue };
            match others.iter_mut().find(|(value, _)| *value == cell) {
                Some((_, nodes)) => nodes.push(node),
                None => others.push((cell, vec![node])),
            }
        }
        let others: Vec<String> = others.iter().map(|(value, nodes)| format!("{value}: {}", some(nodes))).collect();
        vec![name(row), what(row), majority.unwrap_or_else(|| "(none)".to_owned()), others.join("; ")]
    };
    look.table(&["check", "what", "usual", "differs"], rows.iter().map(line))
}

fn some(nodes: &[&str]) -> String {
    match nodes.len() {
        n if n > NAMED_MAX => format!("{} and {} more", nodes[..NAMED_MAX].join(", "), n - NAMED_MAX),
        _ => nodes.join(", "),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn comparison(machines: usize) -> Comparison {
        let cells = |odd: &str, majority: &str| {
            (0..machines).map(|n| Some(if n == 1 { odd } else { majority }.to_owned())).collect::<Vec<_>>()
        };
        let row = |subject: &str, odd: &str, majority: &str| Row {
            check: "rings".into(),
            object: Some("eth0".into()),
            subject: Some(subject.into()),
            cells: cells(odd, majority),
            majority: Some(majority.into()),
        };
        let outlier = Outlier {
            node: "n2".into(),
            check: "rings".into(),
            object: Some("eth0".into()),
            subject: Some("receive ring".into()),
            value: "512".into(),
            majority: "4096".into(),
            agree: machines - 1,
            others: machines - 1,
            verdict: Verdict::Improve,
            fix: Some("ethtool -G eth0 rx 4096".into()),
        };
        Comparison {
            nodes: (1..=machines).map(|n| format!("n{n}")).collect(),
            rows: vec![row("receive ring", "512", "4096"), row("transmit ring", "1", "1")],
            outliers: vec![outlier],
        }
    }

    #[test]
    fn few_machines_have_columns() {
        let text = compare_text(&comparison(3), Look::plain(80), false);
        assert!(text.contains("n1") && text.contains("512") && !text.contains("transmit"), "{text}");
        assert!(
            text.contains("n2: receive ring of eth0 is 512, the others 4096 (rings: improve)\n  fix  ethtool"),
            "{text}"
        );
        assert!(text.lines().all(|line| line.chars().count() <= 80), "{text}");
    }

    #[test]
    fn many_machines_have_a_row_of_those_that_differ() {
        let text = compare_text(&comparison(40), Look::plain(80), true);
        assert!(text.contains("512: n2") && !text.contains("n31"), "{text}");
        assert!(text.contains("transmit ring"), "{text}");
        assert!(text.contains("1 values agree on all of 40 machines, 1 differ"), "{text}");
    }
}
