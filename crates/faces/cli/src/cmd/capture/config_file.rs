//! `evenkeel capture --config`: a TOML file of flags, read as if they stood in front of those that were typed.

use std::{
    collections::BTreeMap,
    ffi::OsString,
    fs,
    path::{Path, PathBuf},
};

use anyhow::{Context, anyhow};
use clap::{Args, Command, FromArgMatches};
use toml::{Spanned, Value};

use super::args::CaptureArgs;
use crate::failure::Failure;

/// The arguments in a file.
pub(super) struct ConfigFile {
    path: PathBuf,
    words: Vec<OsString>,
    /// The filter, which has no flag.
    pub(super) filter: Vec<String>,
}

fn command() -> Command {
    CaptureArgs::augment_args(Command::new(crate::args::PROGRAM).no_binary_name(true).args_override_self(true))
}

impl ConfigFile {
    /// Reads a file. A wrong key is reported with its line.
    pub(super) fn read(path: &Path) -> Result<Self, Failure> {
        let name = path.display();
        let text = fs::read_to_string(path)
            .with_context(|| format!("cannot read the configuration {name}"))
            .map_err(Failure::usage)?;
        let table: BTreeMap<Spanned<String>, Value> =
            toml::from_str(&text).map_err(|e| Failure::usage(anyhow!("{name}: {}", e.to_string().trim_end())))?;
        let mut file = Self { path: path.to_owned(), words: Vec::new(), filter: Vec::new() };
        let command = command();
        for (key, value) in &table {
            file.add(&command, key.as_ref(), value).map_err(|why| {
                let line = text[..key.span().start].matches('\n').count() + 1;
                Failure::usage(anyhow!("{name}: line {line}: {}: {why}", key.as_ref()))
            })?;
        }
        Ok(file)
    }

    fn add(&mut self, command: &Command, key: &str, value: &Value) -> Result<(), &'static str> {
        if let ("filter", Value::Array(words)) = (key, value) {
            self.filter = words.iter().filter_map(Value::as_str).map(str::to_owned).collect();
            return Ok(());
        }
        let has_name = |arg: &&clap::Arg| {
            arg.get_long() == Some(key) || arg.get_all_aliases().is_some_and(|names| names.contains(&key))
        };
        let takes_value = match command.get_arguments().find(has_name) {
            Some(arg) if key != "config" => arg.get_action().takes_values(),
            _ => return Err("there is no such key; the keys are the long names of the flags, and filter"),
        };
        let word = match (takes_value, value) {
            (false, Value::Boolean(false)) => return Ok(()),
            (false, Value::Boolean(true)) => format!("--{key}"),
            (false, _) => return Err("write true or false"),
            (true, Value::String(text)) => format!("--{key}={text}"),
            (true, Value::Integer(_) | Value::Float(_)) => format!("--{key}={value}"),
            (true, _) => return Err("write a number, or a text in quotes"),
        };
        self.words.push(word.into());
        Ok(())
    }

    /// The arguments of the file and those that were `typed`, which win.
    pub(super) fn under(&self, typed: Vec<OsString>) -> Result<CaptureArgs, Failure> {
        let words = self.words.iter().cloned().chain(typed);
        let matches = command().try_get_matches_from(words).and_then(|matches| CaptureArgs::from_arg_matches(&matches));
        matches.map_err(|error| {
            // Without the usage, which is about the command line alone.
            let text = error.to_string();
            let why = text.split("\n\n").next().unwrap_or_default().trim_start_matches("error: ");
            Failure::usage(anyhow!("{} and the command line: {why}", self.path.display()))
        })
    }
}
