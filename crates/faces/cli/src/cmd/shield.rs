//! `evenkeel shield`: rules in front of an interface.

mod ask;
mod event;
mod judge;
mod options;
mod run;

use std::path::{Path, PathBuf};

use clap::{
    Args, Subcommand,
    builder::{PathBufValueParser, TypedValueParser},
};
use model::input;
use rules::{Rule, file::RuleFile, flags};
use shield::{ShieldError, run::Source};

use crate::failure::{Failure, Outcome, note};

/// Protect this host from floods by rules in XDP.
///
/// Write rules into a TOML file, check them with `shield check`, start them with `shield run`. The first rule that decides wins. The
/// management allow-list comes before all rules, so that your ssh session stays. docs/run/shield.md has every key.
#[derive(Debug, Args)]
pub(crate) struct ShieldArgs {
    #[command(subcommand)]
    action: Action,
}

#[derive(Debug, Subcommand)]
enum Action {
    Run(Box<run::RunArgs>),
    Status(ask::StatusArgs),
    List(ask::ListArgs),
    Reload(ask::ReloadArgs),
    Stop(ask::StopArgs),
    Check(judge::CheckArgs),
    Explain(judge::ExplainArgs),
    Plan(judge::PlanArgs),
    Unit(Box<run::UnitArgs>),
}

impl ShieldArgs {
    /// True if it goes by files alone.
    pub(crate) fn is_pure(&self) -> bool {
        matches!(self.action, Action::Explain(_) | Action::Plan(_))
    }
}

/// Rules.
#[derive(Debug, Args)]
#[command(next_help_heading = "Rules")]
struct RuleArgs {
    /// File of rules (TOML); `-` reads standard input.
    #[arg(long, short, value_name = "FILE", value_parser = rule_file())]
    rules: Option<PathBuf>,
    /// Add a rule before those of the file: the action, then its keys, as in `drop protocol=udp source-port=53,123`. Repeatable.
    #[arg(long = "rule", value_name = "RULE", value_parser = parse_rule)]
    rule: Vec<Rule>,
    /// Add a set of prefixes from a file with one prefix per line. Rules name it as source=@NAME. Repeatable.
    #[arg(long = "set", hide_short_help = true, value_name = "NAME=FILE")]
    set: Vec<String>,
}

/// The path of a file of rules. `-` goes by the name that stands for the same everywhere behind the command line.
fn rule_file() -> impl TypedValueParser<Value = PathBuf> {
    PathBufValueParser::new().map(|path| if path.as_os_str() == "-" { PathBuf::from("/dev/stdin") } else { path })
}

fn parse_rule(text: &str) -> Result<Rule, String> {
    flags::rule(text).map_err(|error| error.to_string())
}

impl RuleArgs {
    /// For a process that goes on: whoever asks it for its file may be in another folder.
    fn source(&self) -> Source {
        let file = self.rules.as_ref().map(|path| std::path::absolute(path).unwrap_or_else(|_| path.clone()));
        Source { file, rules: self.rule.clone(), sets: self.set.clone() }
    }

    fn read(&self) -> Result<RuleFile, ShieldError> {
        if self.rules.is_none() && self.rule.is_empty() {
            return Err(ShieldError::NoRules);
        }
        let sets = self.set.iter().filter_map(|set| set.split_once('=')).map(|(_, file)| Path::new(file));
        for path in self.rules.as_deref().into_iter().chain(sets) {
            if input::waits_for_a_writer(path) {
                note(format_args!("waiting for {}: it is a pipe, and is read to its end", path.display()));
            }
        }
        // As it was typed: errors name it so.
        let file = Source { file: self.rules.clone(), ..self.source() }.read()?;
        for skipped in &file.skipped {
            note(format_args!("skipped (bad-line = \"skip\"): {skipped}"));
        }
        Ok(file)
    }
}

/// Does what the action says.
pub(crate) fn run(args: &ShieldArgs) -> Result<Outcome, Failure> {
    match &args.action {
        Action::Run(args) => run::run(args),
        Action::Status(args) => ask::status(args),
        Action::List(args) => ask::list(args),
        Action::Reload(args) => ask::reload(args),
        Action::Stop(args) => ask::stop(args),
        Action::Check(args) => judge::check(args),
        Action::Explain(args) => judge::explain(args),
        Action::Plan(args) => judge::plan(args),
        Action::Unit(args) => run::unit(args),
    }
}
