//! The table of a self-test.

use model::selftest::{Group, Outcome, SelfTest};

use crate::table::Look;

const GROUPS: [(Group, &str); 3] = [(Group::Needs, "NEED"), (Group::Interface, "INTERFACE"), (Group::Verbs, "VERB")];

/// A table per group, the remedies, and the number of rows by outcome.
pub fn selftest_text(test: &SelfTest, look: Look) -> String {
    let distribution = test.distribution.as_deref().unwrap_or("unknown distribution");
    let mut text = look.paragraph(&format!(
        "evenkeel {} on Linux {} ({}), {distribution}, {} CPUs.",
        test.version, test.kernel, test.architecture, test.cpus
    ));
    for (group, head) in GROUPS {
        let rows: Vec<_> = test.rows.iter().filter(|row| row.group == group).collect();
        if rows.is_empty() {
            continue;
        }
        // The rows of verbs are for themselves.
        let for_verbs = rows.iter().any(|row| !row.verbs.is_empty());
        let cells = rows.iter().map(|row| {
            let mut cells = vec![row.name.clone(), row.outcome.name().to_owned()];
            cells.extend(for_verbs.then(|| row.verbs.join(", ")));
            cells.push(row.reason.clone());
            cells
        });
        let heads: &[&str] = if for_verbs { &[head, "OUTCOME", "FOR", "REASON"] } else { &[head, "OUTCOME", "REASON"] };
        text += "\n";
        text += &look.table(heads, cells);
    }
    let mut fixes: Vec<(&str, Vec<&str>)> = Vec::new();
    for row in &test.rows {
        let Some(fix) = row.fix.as_deref() else { continue };
        match fixes.iter_mut().find(|(known, _)| *known == fix) {
            Some((_, names)) => names.push(&row.name),
            None => fixes.push((fix, vec![&row.name])),
        }
    }
    if !fixes.is_empty() {
        text += "\nWhat to do:\n";
    }
    for (fix, names) in fixes {
        text += &look.paragraph(&format!("- {fix} ({})", names.join(", ")));
    }
    let [works, limited, fails, untried] =
        [Outcome::Works, Outcome::Limited, Outcome::Fails, Outcome::Untried].map(|outcome| test.count(outcome));
    text += &format!(
        "\n{works} work, {limited} work less, {fails} do not work, {untried} were not tried; {:.1} s.\n",
        test.duration_s
    );
    text
}
