//! Shell completions and man pages, generated from the arguments.

use std::path::PathBuf;

use anyhow::Context;
use clap::Args;

use crate::failure::{Failure, Outcome, print};

/// Print the completions for a shell.
#[derive(Debug, Args)]
pub(crate) struct CompletionsArgs {
    /// The shell.
    shell: clap_complete::Shell,
}

/// Write a man page per verb.
#[derive(Debug, Args)]
pub(crate) struct ManArgs {
    /// The folder to write to.
    folder: PathBuf,
}

/// Prints completions on stdout.
pub(crate) fn completions(args: &CompletionsArgs) -> Result<Outcome, Failure> {
    // Into memory first: the generator panics on what it cannot write to.
    let mut text = Vec::new();
    clap_complete::generate(args.shell, &mut crate::command(), "evenkeel", &mut text);
    print(&String::from_utf8(text).map_err(Failure::internal)?).map(|()| Outcome::Fine)
}

/// Writes `evenkeel.1` and one page for each verb into the folder.
pub(crate) fn man(args: &ManArgs) -> Result<Outcome, Failure> {
    clap_mangen::generate_to(crate::command(), &args.folder)
        .with_context(|| format!("cannot write man pages to {}", args.folder.display()))
        .map_err(Failure::usage)?;
    Ok(Outcome::Fine)
}
