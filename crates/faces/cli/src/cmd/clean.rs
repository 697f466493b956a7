//! `evenkeel clean`: what killed runs left behind goes.

use clap::Args;
use serde::Serialize;
use sys::privilege::{self, Capability};

use crate::failure::{Failure, Outcome, note, print, print_json};

/// Remove labs that a killed run of evenkeel left behind.
///
/// Example: evenkeel clean --dry-run
///
/// demo, bench and profile work in network namespaces of their own (`ip netns list` shows them as ek-PID-...) and remove them at their end.
/// A run that was killed (kill -9) cannot. This removes those namespaces, with the interfaces in them. A namespace whose process still runs is
/// left alone.
#[derive(Debug, Args)]
pub(crate) struct CleanArgs {
    /// Print the shell commands and change nothing.
    #[arg(long)]
    dry_run: bool,
    /// Print JSON (schema evenkeel.clean).
    #[arg(long)]
    json: bool,
}

#[derive(Serialize)]
struct Cleaned {
    /// They were only looked for.
    dry_run: bool,
    namespaces: Vec<String>,
}

/// Removes dead labs, or lists them.
pub(crate) fn run(args: &CleanArgs) -> Result<Outcome, Failure> {
    let namespaces = if args.dry_run {
        lab::dead()?
    } else {
        privilege::require("clean".to_owned(), &[Capability::CAP_SYS_ADMIN])?;
        lab::clear_dead()?
    };
    if args.json {
        return print_json("clean", Cleaned { dry_run: args.dry_run, namespaces }).map(|()| Outcome::Fine);
    }
    let text = if namespaces.is_empty() {
        "Nothing to clean.\n".to_owned()
    } else if args.dry_run {
        namespaces.iter().map(|name| format!("ip netns delete {name}\n")).collect()
    } else {
        namespaces.iter().map(|name| format!("removed {name}\n")).collect()
    };
    print(&text).map(|()| Outcome::Fine)
}

/// Names dead labs before a new one is made, which removes them.
pub(crate) fn warn() {
    if let Ok(dead) = lab::dead()
        && !dead.is_empty()
    {
        note(format_args!(
            "found what a killed run left behind: {}. The next lab removes it; so does `evenkeel clean`",
            dead.join(", ")
        ));
    }
}
