//! The conventions of the command line, held over all verbs: one name per thing, one notation per kind, help that is grouped.

use std::{any::TypeId, collections::BTreeMap, time::Duration};

use clap::{Arg, Command};
use model::CpuSet;

/// Every verb that users see, with its words.
fn verbs() -> Vec<(String, Command)> {
    fn walk(command: &Command, words: &str, found: &mut Vec<(String, Command)>) {
        for sub in command.get_subcommands().filter(|sub| !sub.is_hide_set() && sub.get_name() != "help") {
            let words = format!("{words} {}", sub.get_name());
            walk(sub, &words, found);
            found.push((words.trim().to_owned(), sub.clone()));
        }
    }
    let mut root = crate::command();
    root.build();
    let mut found = Vec::new();
    walk(&root, "", &mut found);
    found.push((String::new(), root));
    found
}

/// Every argument that users see, with its verb.
fn arguments() -> Vec<(String, Arg)> {
    let of = |(verb, command): &(String, Command)| {
        let shown = command.get_arguments().filter(|arg| !arg.is_hide_set());
        shown.map(|arg| (format!("{verb} {arg}"), arg.clone())).collect::<Vec<_>>()
    };
    verbs().iter().flat_map(of).collect()
}

fn value_name(arg: &Arg) -> String {
    match arg.get_action().takes_values() {
        true => arg.get_value_names().unwrap_or_default().join(" "),
        false => String::new(),
    }
}

/// Fails with everything that is wrong at once.
#[track_caller]
fn none(wrong: impl Iterator<Item = String>) {
    let wrong: Vec<String> = wrong.collect();
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

#[test]
fn every_argument_has_help_and_says_its_default_as_clap_does() {
    let is_wrong = |help: &str| {
        let rest = help.replace("[default: ", "").replace("[without a list: ", "");
        let noun_clauses = ["How ", "What ", "Whether ", "When ", "Where ", "Which "];
        help.len() < 4
            || rest.to_lowercase().contains("default:")
            || noun_clauses.iter().any(|word| help.starts_with(word))
    };
    let help = |arg: &Arg| arg.get_long_help().or(arg.get_help()).map(ToString::to_string).unwrap_or_default();
    let all = arguments().into_iter().map(|(place, arg)| (place, help(&arg)));
    none(all.filter(|(_, help)| is_wrong(help)).map(|(place, help)| format!("{place}: {help}")));
}

#[test]
fn a_schema_is_named_with_its_version() {
    let help = |arg: &Arg| arg.get_long_help().or(arg.get_help()).map(ToString::to_string).unwrap_or_default();
    let all = arguments().into_iter().map(|(place, arg)| (place, help(&arg)));
    let lacks_version = |help: &str| {
        let names = help.split([' ', '(', ')', ',', ';']).filter(|word| word.starts_with("evenkeel."));
        help.contains("schema") && names.into_iter().any(|name| !name.contains('/'))
    };
    none(all.filter(|(_, help)| lacks_version(help)).map(|(place, help)| format!("{place}: {help}")));
}

#[test]
fn a_flag_has_the_same_value_in_every_verb() {
    let mut values = BTreeMap::<String, BTreeMap<String, String>>::new();
    for (place, arg) in arguments() {
        if let Some(long) = arg.get_long() {
            values.entry(long.to_owned()).or_default().insert(value_name(&arg), place);
        }
    }
    none(values.into_values().filter(|found| found.len() > 1).map(|found| format!("{found:?}")));
}

#[test]
fn a_kind_of_value_has_one_name() {
    let is_wrong = |arg: &Arg| {
        let (kind, value) = (arg.get_value_parser().type_id(), value_name(arg));
        let is_interface = ["interface", "interfaces", "per"].contains(&arg.get_id().as_str());
        // Whole seconds are read into a u64.
        (kind == TypeId::of::<Duration>()) != (value == "TIME") && kind != TypeId::of::<u64>()
            || (kind == TypeId::of::<CpuSet>()) != (value == "CPUS")
            || is_interface != (value == "INTERFACE")
            || ["IFACE", "SECONDS", "MS", "COUNT", "PPS", "SIZE", "FOLDER"].contains(&value.as_str())
    };
    let all = arguments().into_iter().filter(|(_, arg)| arg.get_action().takes_values());
    none(all.filter(|(_, arg)| is_wrong(arg)).map(|(place, _)| place));
}

#[test]
fn the_help_of_a_verb_with_many_options_is_grouped() {
    let without = |(verb, command): (String, Command)| {
        let options = command.get_arguments().filter(|arg| !arg.is_hide_set() && !arg.is_positional());
        let options: Vec<_> = options.filter(|arg| arg.get_id() != "help" && arg.get_id() != "version").collect();
        let bare = options.iter().filter(|arg| arg.get_help_heading().is_none());
        let bare: Vec<String> = bare.map(ToString::to_string).collect();
        (options.len() > 6 && !bare.is_empty()).then(|| format!("{verb}: {}", bare.join(", ")))
    };
    none(verbs().into_iter().filter_map(without));
}

#[test]
fn short_help_fits_a_terminal() {
    // Lines, where a verb has too many options or commands for a screen of 24.
    let long = BTreeMap::from([
        ("", 44),
        ("bench", 58),
        ("bench flood", 36),
        ("capture", 40),
        ("doctor", 31),
        ("gen", 34),
        ("link bench", 28),
        ("link serve", 28),
        ("link speedup", 31),
        ("link unit", 28),
        ("profile", 32),
        ("profile sweep", 25),
        ("route", 25),
        ("route run", 29),
        ("spread", 31),
        ("spread apply", 25),
    ]);
    let too_long = |(verb, command): (String, Command)| {
        let lines = command.term_width(80).render_help().to_string().lines().count();
        let most = long.get(verb.as_str()).copied().unwrap_or(24);
        (lines > most).then(|| format!("{verb}: {lines} lines, {most} fit"))
    };
    none(verbs().into_iter().filter_map(too_long));
}
