//! Differences between machines: every value that the checks read by machine, and the outliers.

use std::collections::{BTreeMap, BTreeSet};

use model::{
    doctor::{Finding, Report, Verdict},
    doctor_nodes::{Comparison, Outlier, Row},
};

/// Key of a row: the check, its object, the value's name (none for the verdict).
type Key = (String, Option<String>, Option<String>);

/// Said of a machine whose check saw no such object where others have it.
const NONE: &str = "none";

pub fn compare(machines: &[(String, &Report)]) -> Comparison {
    let mut rows: BTreeMap<Key, Vec<Option<String>>> = BTreeMap::new();
    for (at, (_, report)) in machines.iter().enumerate() {
        for finding in &report.findings {
            let object = finding.object.clone();
            let verdict = finding.verdict.as_str().to_owned();
            let values = finding.values.iter().map(|v| (Some(v.subject.clone()), v.value.clone()));
            for (subject, value) in values.chain([(None, verdict)]) {
                let key = (finding.check.clone(), object.clone(), subject);
                rows.entry(key).or_insert_with(|| vec![None; machines.len()])[at] = Some(value);
            }
        }
    }
    let checks: Vec<BTreeSet<&str>> =
        machines.iter().map(|(_, report)| report.findings.iter().map(|f| f.check.as_str()).collect()).collect();
    let mut comparison =
        Comparison { nodes: machines.iter().map(|(name, _)| name.clone()).collect(), ..Default::default() };
    for ((check, object, subject), mut cells) in rows {
        // A check that saw nothing of the kind says so without an object.
        if object.is_none() && subject.is_none() && cells.iter().flatten().all(|c| c == Verdict::NotApplicable.as_str())
        {
            continue;
        }
        if object.is_some() && is_remarkable(machines, &check, object.as_deref(), &cells) {
            for (cell, checks) in cells.iter_mut().zip(&checks) {
                if cell.is_none() && checks.contains(check.as_str()) {
                    *cell = Some(NONE.to_owned());
                }
            }
        }
        let majority = majority(&cells);
        comparison.rows.push(Row { check, object, subject, cells, majority });
    }
    comparison.outliers = outliers(machines, &comparison.rows);
    comparison
}

/// An object that few machines have is worth a word only where a check has found something about it: interfaces have other
/// names elsewhere.
fn is_remarkable(machines: &[(String, &Report)], check: &str, object: Option<&str>, cells: &[Option<String>]) -> bool {
    let there = cells.iter().flatten().count();
    let is_finding = |report: &Report| finding(report, check, object).is_some_and(|f| f.verdict.is_finding());
    there * 2 < cells.len() && machines.iter().any(|(_, report)| is_finding(report))
}

fn finding<'a>(report: &'a Report, check: &str, object: Option<&str>) -> Option<&'a Finding> {
    report.findings.iter().find(|f| f.check == check && f.object.as_deref() == object)
}

/// The value of more than half of the machines that have one; two at least.
fn majority(cells: &[Option<String>]) -> Option<String> {
    let mut counts: BTreeMap<&str, usize> = BTreeMap::new();
    for cell in cells.iter().flatten() {
        *counts.entry(cell).or_default() += 1;
    }
    let all: usize = counts.values().sum();
    counts.into_iter().find(|&(_, count)| count >= 2 && count * 2 > all).map(|(value, _)| value.to_owned())
}

fn outliers(machines: &[(String, &Report)], rows: &[Row]) -> Vec<Outlier> {
    let mut found: Vec<Outlier> = Vec::new();
    for row in rows {
        let Some(majority) = &row.majority else { continue };
        let others = row.cells.iter().flatten().count() - 1;
        let agree = row.cells.iter().flatten().filter(|cell| *cell == majority).count();
        for ((node, report), cell) in machines.iter().zip(&row.cells) {
            let Some(value) = cell.as_ref().filter(|value| *value != majority && *value != NONE) else { continue };
            let own = finding(report, &row.check, row.object.as_deref());
            // Others of whom nothing is known, or who have no such thing, are no measure: only a finding stands out there.
            if is_no_measure(row, majority) && !own.is_some_and(|f| f.verdict.is_finding()) {
                continue;
            }
            let outlier = Outlier {
                node: node.clone(),
                check: row.check.clone(),
                object: row.object.clone(),
                subject: row.subject.clone(),
                value: value.clone(),
                majority: majority.clone(),
                agree,
                others,
                verdict: own.map_or(Verdict::Unknown, |f| f.verdict),
                fix: own.and_then(one_line),
            };
            found.push(outlier);
        }
    }
    // Where a value tells what is different, the verdict that follows from it need not be told.
    let reported: BTreeSet<(String, String, Option<String>)> = found
        .iter()
        .filter(|o| o.subject.is_some())
        .map(|o| (o.node.clone(), o.check.clone(), o.object.clone()))
        .collect();
    found.retain(|o| o.subject.is_some() || !reported.contains(&(o.node.clone(), o.check.clone(), o.object.clone())));
    found.sort_by(|a, b| (a.verdict, &a.node, &a.check, &a.object).cmp(&(b.verdict, &b.node, &b.check, &b.object)));
    found
}

/// Most machines say nothing of a row: their verdict is that it is unknown, or there is no such object.
fn is_no_measure(row: &Row, majority: &str) -> bool {
    majority == NONE || (row.subject.is_none() && majority == Verdict::Unknown.as_str())
}

/// Commands that fit in one line; of longer fixes the first, and how many more there are.
const COMMANDS_MAX: usize = 3;

/// The commands of a fix in one line, or else its first advice.
fn one_line(finding: &Finding) -> Option<String> {
    let lines = &finding.fix.as_ref()?.shell;
    let bare = |line: &String| line.split("  #").next().unwrap_or_default().trim_end().to_owned();
    let commands: Vec<String> = lines.iter().filter(|line| !line.starts_with('#')).map(bare).collect();
    match commands.len() {
        0 => lines.first().cloned(),
        n if n <= COMMANDS_MAX => Some(commands.join("; ")),
        n => Some(format!("{}  (and {} more)", commands[0], n - 1)),
    }
}

#[cfg(test)]
mod tests {
    use model::doctor::{Comparable, Fix, Role};

    use super::*;

    fn report(ring: &str, extra: Option<(&str, &str)>) -> Report {
        let verdict = if ring == "512" { Verdict::Improve } else { Verdict::Good };
        let finding = |check: &str, object: Option<&str>, subject: &str, value: &str, verdict| Finding {
            check: check.into(),
            object: object.map(Into::into),
            group: "g".into(),
            question: "?".into(),
            evidence: vec![],
            verdict,
            reason: "w".into(),
            values: vec![Comparable { subject: subject.into(), value: value.into() }],
            fix: (verdict != Verdict::Good).then(|| Fix {
                shell: vec!["ethtool -G eth0 rx 4096  # now 512".into(), "more".into()],
                ..Fix::default()
            }),
        };
        let mut findings = vec![finding("rings", Some("eth0"), "receive ring", ring, verdict)];
        findings.push(match extra {
            Some((object, value)) => finding("xdp-programs", Some(object), "XDP program", value, Verdict::Bad),
            None => Finding {
                object: None,
                values: vec![],
                ..finding("xdp-programs", None, "", "", Verdict::NotApplicable)
            },
        });
        Report {
            hostname: "h".into(),
            kernel: "k".into(),
            role: Role::Server,
            role_guessed: false,
            role_reasons: vec![],
            watched_s: None,
            findings,
            unreadable: vec![],
        }
    }

    fn compared(reports: &[Report]) -> Comparison {
        let machines: Vec<(String, &Report)> =
            reports.iter().enumerate().map(|(n, report)| (format!("n{}", n + 1), report)).collect();
        compare(&machines)
    }

    #[test]
    fn the_small_ring_stands_out_once_with_its_fix() {
        let mut reports = vec![report("4096", None); 20];
        reports[16] = report("512", None);
        let comparison = compared(&reports);
        let [outlier] = &comparison.outliers[..] else { panic!("{:?}", comparison.outliers) };
        assert_eq!((outlier.node.as_str(), outlier.value.as_str(), outlier.majority.as_str()), ("n17", "512", "4096"));
        assert_eq!((outlier.agree, outlier.others), (19, 19));
        assert_eq!(outlier.fix.as_deref(), Some("ethtool -G eth0 rx 4096; more"));
        assert_eq!(comparison.rows.iter().filter(|row| row.differs()).count(), 2, "the ring and its verdict");
    }

    #[test]
    fn what_only_one_machine_has_is_reported_when_it_is_a_finding() {
        let comparison =
            compared(&[report("4096", None), report("4096", Some(("eth0", "spy (generic)"))), report("4096", None)]);
        let [outlier] = &comparison.outliers[..] else { panic!("{:?}", comparison.outliers) };
        assert_eq!(
            (outlier.node.as_str(), outlier.value.as_str(), outlier.majority.as_str()),
            ("n2", "spy (generic)", "none")
        );
    }

    #[test]
    fn a_machine_is_not_alone_for_being_good_where_the_others_know_nothing() {
        let with = |verdict| {
            let mut it = report("4096", None);
            it.findings[1].verdict = verdict;
            it
        };
        for (verdict, named) in
            [(Verdict::Good, 0), (Verdict::NotApplicable, 0), (Verdict::Improve, 1), (Verdict::Unknown, 0)]
        {
            let comparison = compared(&[with(Verdict::Unknown), with(verdict), with(Verdict::Unknown)]);
            assert_eq!(comparison.outliers.len(), named, "{verdict}: {:?}", comparison.outliers);
        }
        let comparison = compared(&[with(Verdict::Good), with(Verdict::Unknown), with(Verdict::Good)]);
        assert_eq!(comparison.outliers.len(), 1, "to know less than the others is worth a word");
        // One has a bad program, one a good one of the same name, and the others have none.
        let mut good = report("4096", Some(("eth0", "spy (generic)")));
        good.findings[1].verdict = Verdict::Good;
        let bad = report("4096", Some(("eth0", "spy (generic)")));
        let none = || report("4096", None);
        let comparison = compared(&[good, bad, none(), none(), none()]);
        assert!(comparison.outliers.iter().all(|o| o.node == "n2"), "{:?}", comparison.outliers);
        assert_eq!(comparison.outliers.len(), 1);
    }

    #[test]
    fn two_that_differ_have_no_outlier_but_a_row() {
        let comparison = compared(&[report("512", None), report("4096", None)]);
        assert_eq!(comparison.outliers, []);
        assert!(comparison.rows.iter().any(|row| row.differs() && row.majority.is_none()));
        assert_eq!(compared(&[]).rows, []);
        assert!(compared(&[report("512", None)]).outliers.is_empty());
    }
}
