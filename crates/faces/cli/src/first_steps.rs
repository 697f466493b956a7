//! The help of the program itself: where to start, and the verbs in groups.

use std::fmt::Write;

use clap::Command;

/// The first commands of somebody who has just installed it.
const START: [(&str, &str); 3] = [
    ("sudo evenkeel ledger --once", "where packets die, and why"),
    ("evenkeel doctor", "what to change on this machine"),
    ("sudo evenkeel demo --quick", "a flood in a lab, received in eight ways"),
];

/// The verbs by what they are for.
const GROUPS: [(&str, &[&str]); 5] = [
    ("Look, and change nothing", &["ledger", "doctor", "top", "profile", "capture", "snapshot", "selftest"]),
    ("Change settings, with undo", &["spread", "keep", "undo", "confirm"]),
    ("Run in front of the stack, or in its place", &["shield", "route", "link"]),
    ("Measure in a lab, or between ports", &["bench", "demo", "gen", "report"]),
    ("This program", &["clean", "completions", "man", "help"]),
];

/// The command with both in its help.
pub(crate) fn with_groups(command: Command) -> Command {
    let mut text = String::from("Start here:\n");
    for (line, what) in START {
        let _ = writeln!(text, "  {line:<29}{what}");
    }
    for (group, verbs) in GROUPS {
        let _ = writeln!(text, "\n{group}:");
        for verb in verbs {
            let about = command.find_subcommand(verb).and_then(Command::get_about).map(ToString::to_string);
            let about = about.unwrap_or_else(|| "Print the help of a verb".to_owned());
            let _ = writeln!(text, "  {verb:<13}{}", about.lines().next().unwrap_or_default().trim_end_matches('.'));
        }
    }
    command.help_template(format!("{{about}}\n\n{{usage-heading}} {{usage}}\n\n{text}\nOptions:\n{{options}}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_verb_is_in_one_group() {
        let command = crate::command();
        let mut shown: Vec<&str> = command
            .get_subcommands()
            .filter(|c| !c.is_hide_set())
            .map(Command::get_name)
            .filter(|n| *n != "help")
            .collect();
        let mut grouped: Vec<&str> =
            GROUPS.iter().flat_map(|(_, verbs)| *verbs).copied().filter(|n| *n != "help").collect();
        shown.sort_unstable();
        grouped.sort_unstable();
        assert_eq!(shown, grouped);
    }

    #[test]
    fn it_says_where_to_start() {
        let help = crate::command().render_help().to_string();
        let start = help.find("sudo evenkeel ledger --once").expect("the first command");
        assert!(start < help.find("Measure in a lab").expect("the groups"), "{help}");
    }
}
