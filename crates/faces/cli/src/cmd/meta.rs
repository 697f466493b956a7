//! Shell completions and man pages, generated from the arguments.

use std::{ffi::OsStr, fs, io, path::PathBuf};

use anyhow::{Context, anyhow};
use capture::plan::Backend;
use clap::{Arg, Args, Command};
use clap_complete::{
    engine::{ArgValueCompleter, CompletionCandidate},
    env::Shells,
};
use clap_mangen::Man;

use crate::failure::{Failure, Outcome, print};

/// The variable by which a shell asks this program for completions.
const COMPLETE: &str = "COMPLETE";
/// Arguments that take the name of an interface.
const INTERFACES: [&str; 4] = ["interface", "interfaces", "words", "per"];

/// Print the completions for a shell.
///
/// Example: source <(evenkeel completions bash)
#[derive(Debug, Args)]
pub(crate) struct CompletionsArgs {
    /// The shell.
    shell: clap_complete::Shell,
}

/// Write a man page for each verb into a folder.
///
/// Example: evenkeel man /usr/local/share/man/man1
#[derive(Debug, Args)]
pub(crate) struct ManArgs {
    /// The folder to write to. It is made if it is not there.
    dir: PathBuf,
}

/// Answers a shell that asks for completions, and then ends the program; does nothing otherwise.
pub(crate) fn complete() {
    if std::env::var_os(COMPLETE).is_some() {
        clap_complete::CompleteEnv::with_factory(|| with_interfaces(crate::command())).var(COMPLETE).complete();
    }
}

/// The command line with the names of interfaces where they are asked for.
fn with_interfaces(command: Command) -> Command {
    let verb = command.get_name().to_owned();
    let name_of = |arg: &Arg| arg.get_long().unwrap_or(arg.get_id().as_str()).to_owned();
    let named = |arg: Arg| match (verb.as_str(), &*name_of(&arg)) {
        _ if INTERFACES.contains(&arg.get_id().as_str()) => arg.add(ArgValueCompleter::new(interfaces)),
        ("capture", "backend") => arg.add(ArgValueCompleter::new(|begin: &OsStr| {
            of_list(begin, Backend::ALL.map(Backend::name).into_iter().chain(["auto"]))
        })),
        ("doctor", "only" | "ack") => arg
            .add(ArgValueCompleter::new(|begin: &OsStr| of_list(begin, ::doctor::checks::all().map(|check| check.id)))),
        ("undo" | "confirm", "session") => arg.add(ArgValueCompleter::new(sessions)),
        #[cfg(feature = "measure")]
        (verb, name) => super::measure::completed(verb, name, arg),
        #[cfg(not(feature = "measure"))]
        _ => arg,
    };
    let command = command.mut_args(named).mut_subcommands(with_interfaces);
    if command.get_name() == "capture" {
        return command.mut_arg("interface", |arg| arg.add(ArgValueCompleter::new(interfaces_or_any)));
    }
    command
}

/// [`interfaces`] with the word for all of them.
fn interfaces_or_any(begin: &OsStr) -> Vec<CompletionCandidate> {
    let any = "any".starts_with(&*begin.to_string_lossy()).then(|| CompletionCandidate::new("any"));
    interfaces(begin).into_iter().chain(any).collect()
}

/// The names that the last part of a list separated by commas may become.
pub(super) fn of_list(begin: &OsStr, names: impl IntoIterator<Item = impl AsRef<str>>) -> Vec<CompletionCandidate> {
    let begin = begin.to_string_lossy();
    let (before, part) =
        begin.rsplit_once(',').map_or(("", &*begin), |(_, part)| (&begin[..begin.len() - part.len()], part));
    let taken: Vec<&str> = before.split(',').collect();
    let names = names.into_iter().map(|name| name.as_ref().to_owned());
    let fits = |name: &String| name.starts_with(part) && !taken.contains(&name.as_str());
    names.filter(fits).map(|name| CompletionCandidate::new(format!("{before}{name}"))).collect()
}

/// The sessions that still stand in the journal.
fn sessions(begin: &OsStr) -> Vec<CompletionCandidate> {
    let all = host::journal::Journal::at(None).sessions().unwrap_or_default();
    of_list(begin, all.into_iter().map(|session| session.header.session))
}

/// The interfaces of this network namespace that begin so.
fn interfaces(begin: &OsStr) -> Vec<CompletionCandidate> {
    let begin = begin.to_string_lossy();
    let all = nix::net::if_::if_nameindex();
    let names = all.iter().flat_map(|all| all.iter()).map(|one| one.name().to_string_lossy().into_owned());
    let mut names: Vec<String> = names.filter(|name| name.starts_with(&*begin)).collect();
    names.sort();
    names.into_iter().map(CompletionCandidate::new).collect()
}

pub(crate) fn completions(args: &CompletionsArgs) -> Result<Outcome, Failure> {
    let shells = Shells::builtins();
    let name = args.shell.to_string();
    let shell = shells.completer(&name).ok_or_else(|| Failure::usage(anyhow!("no completions for {name}")))?;
    let mut text = Vec::new();
    shell.write_registration(COMPLETE, "evenkeel", "evenkeel", "evenkeel", &mut text).map_err(Failure::internal)?;
    print(&String::from_utf8(text).map_err(Failure::internal)?).map(|()| Outcome::Fine)
}

/// Writes `evenkeel.1` and one page for each verb into the folder.
pub(crate) fn man(args: &ManArgs) -> Result<Outcome, Failure> {
    // `help` has no page: what it prints is on the others.
    let mut command = without_help(crate::command());
    command.build();
    fs::create_dir_all(&args.dir)
        .and_then(|()| pages(&command, &args.dir))
        .with_context(|| format!("cannot write man pages to {}", args.dir.display()))
        .map_err(Failure::usage)?;
    Ok(Outcome::Fine)
}

fn pages(command: &Command, folder: &std::path::Path) -> io::Result<()> {
    let man = Man::new(command.clone());
    let mut page = Vec::new();
    man.render_title(&mut page)?;
    man.render_name_section(&mut page)?;
    page.extend(synopsis(command).into_bytes());
    man.render_description_section(&mut page)?;
    man.render_options_section(&mut page)?;
    if command.has_subcommands() {
        man.render_subcommands_section(&mut page)?;
    }
    // Verbs have no version of their own.
    if command.get_version().is_some() {
        man.render_version_section(&mut page)?;
    }
    host::file::replace(&folder.join(man.get_filename()), &page, host::file::PUBLIC)?;
    let subs = command.get_subcommands().filter(|sub| !sub.is_hide_set() && sub.get_name() != "help");
    subs.into_iter().try_for_each(|sub| pages(sub, folder))
}

fn without_help(command: Command) -> Command {
    command.disable_help_subcommand(true).mut_subcommands(without_help)
}

/// The synopsis with the value of each option; clap_mangen leaves values out.
fn synopsis(command: &Command) -> String {
    let roff = |text: &str| text.replace('\\', "\\e").replace('-', "\\-");
    let name = command.get_bin_name().unwrap_or(command.get_name());
    let mut text = format!(".SH SYNOPSIS\n\\fB{}\\fR", roff(name));
    let shown = command.get_arguments().filter(|arg| !arg.is_hide_set());
    let (places, options): (Vec<&Arg>, Vec<&Arg>) = shown.partition(|arg| arg.is_positional());
    for arg in options.into_iter().chain(places) {
        let word = match arg.get_short() {
            Some(short) if !arg.is_positional() => format!("-{short}|{arg}"),
            _ => arg.to_string(),
        };
        let optional = !arg.is_required_set() && !arg.is_positional();
        text += &roff(&if optional { format!(" [{word}]") } else { format!(" {word}") });
    }
    if command.has_subcommands() {
        text += if command.is_subcommand_required_set() { " <COMMAND>" } else { " [COMMAND]" };
    }
    text.push('\n');
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_synopsis_shows_values() {
        let mut command = crate::command();
        command.build();
        let capture = command.find_subcommand("capture").unwrap();
        let text = synopsis(capture);
        assert!(text.contains("[\\-c|\\-\\-count <N>]") && text.contains("\\-\\-backend <BACKEND>"), "{text}");
    }

    #[test]
    fn every_verb_has_a_page() {
        let folder = tempfile::tempdir().unwrap();
        let made = folder.path().join("share/man1");
        fs::create_dir_all(&made).unwrap();
        std::os::unix::fs::symlink("other", made.join("evenkeel.1")).unwrap();
        fs::set_permissions(&made, std::os::unix::fs::PermissionsExt::from_mode(0o777)).unwrap();
        assert!(man(&ManArgs { dir: made.clone() }).is_err() && !made.join("other").exists(), "a link of others");
        fs::remove_file(made.join("evenkeel.1")).unwrap();
        man(&ManArgs { dir: made.clone() }).unwrap();
        assert!(!fs::read_to_string(made.join("evenkeel.1")).unwrap().contains("help(1)"));
        for page in ["evenkeel", "evenkeel-capture", "evenkeel-shield-run", "evenkeel-spread-apply"] {
            let text = fs::read_to_string(made.join(format!("{page}.1"))).expect(page);
            assert!(text.contains(".SH SYNOPSIS") && text.contains(".SH DESCRIPTION"), "{page}: {text}");
        }
    }

    #[test]
    fn the_values_of_lists_are_completed() {
        let names = |begin: &str| -> Vec<String> {
            let found = of_list(OsStr::new(begin), ["cpu", "cache", "io"]).into_iter();
            found.map(|c| c.get_value().to_string_lossy().into_owned()).collect()
        };
        assert_eq!(names("c"), ["cpu", "cache"]);
        assert_eq!(names("cpu,"), ["cpu,cache", "cpu,io"]);
        assert_eq!(names("io,c"), ["io,cpu", "io,cache"]);
    }

    #[test]
    fn interfaces_are_completed() {
        let names = |begin: &str| -> Vec<String> {
            let found = interfaces(OsStr::new(begin)).into_iter();
            found.map(|c| c.get_value().to_string_lossy().into_owned()).collect()
        };
        assert!(names("l").contains(&"lo".to_owned()), "{:?}", names("l"));
        assert!(names("ek-no-such").is_empty());
        assert!(interfaces_or_any(OsStr::new("an")).iter().any(|c| c.get_value() == "any"));
        assert!(interfaces_or_any(OsStr::new("l")).iter().all(|c| c.get_value() != "any"));
    }
}
