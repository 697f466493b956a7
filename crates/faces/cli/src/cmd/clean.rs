//! `evenkeel clean`: what killed runs left behind goes.

use std::path::PathBuf;

use anyhow::anyhow;
use clap::Args;
use host::owner;
use link::broker;
use model::units::counted;
use route::leftovers;
use serde::Serialize;
use sys::privilege::{self, Capability};

use crate::failure::{Failure, Outcome, note, print, print_json};

/// Remove what killed runs left behind: labs, and files of routers and brokers.
///
/// Example: evenkeel clean --dry-run
///
/// demo, bench and profile work in network namespaces of their own (`ip netns list` shows them as ek-PID-...) and remove them at their end.
/// A run that was killed (kill -9) cannot. This removes those namespaces, with the interfaces in them. A namespace whose process still runs is
/// left alone.
///
/// A killed `bench --neighbour` leaves its control groups, and the folder of its files; a killed `bench --dut guest` the root and the folder of its guest. They are
/// removed, and processes in such groups are ended.
///
/// A killed `route run` leaves its lock in /run/evenkeel, and with --pin-rules names in /sys/fs/bpf, which stay when the interface goes. Those
/// that nobody holds are removed; rules that still hold on an interface are not.
///
/// A killed `link serve`, and one whose network namespace is gone, leaves a folder in /run/evenkeel-link. It is removed, unless a program still listens.
#[derive(Debug, Args)]
pub(crate) struct CleanArgs {
    /// Print the shell commands and change nothing.
    #[arg(long)]
    dry_run: bool,
    /// Print JSON (schema evenkeel.clean/1).
    #[arg(long)]
    json: bool,
}

#[derive(Serialize)]
struct Cleaned {
    /// True: nothing was removed.
    dry_run: bool,
    namespaces: Vec<String>,
    /// Control groups of runs that were killed.
    groups: Vec<PathBuf>,
    /// Files and folders for temporary use of runs that were killed.
    files: Vec<PathBuf>,
    /// Folders of routers that were killed.
    routers: Vec<PathBuf>,
    /// Folders of brokers of link that were killed, or whose network namespace is gone.
    brokers: Vec<PathBuf>,
    /// Folders of brokers whose network namespace this process can neither find nor exclude. They stay.
    unknown_brokers: Vec<PathBuf>,
}

/// Removes dead labs, or lists them.
pub(crate) fn run(args: &CleanArgs) -> Result<Outcome, Failure> {
    let (namespaces, groups, files, routers, brokers) = if args.dry_run {
        (lab::dead()?, lab::dead_groups(), owner::dead_files(), leftovers::dead(), broker::dead())
    } else {
        privilege::require("clean".to_owned(), &[Capability::CAP_SYS_ADMIN])?;
        let files = owner::clear_dead_files()
            .map_err(|e| Failure::lacking(anyhow!("cannot remove files of a killed run: {e}")))?;
        (lab::clear_dead()?, lab::clear_dead_groups()?, files, leftovers::clear(None)?, broker::clear_dead())
    };
    let unknown_brokers = broker::unknown();
    if args.json {
        let dry_run = args.dry_run;
        let cleaned = Cleaned { dry_run, namespaces, groups, files, routers, brokers, unknown_brokers };
        return print_json("clean", cleaned).map(|()| Outcome::Fine);
    }
    let [delete, remove_group, remove] =
        if args.dry_run { ["ip netns delete", "rmdir", "rm -r"] } else { ["removed"; 3] };
    let namespaces = namespaces.iter().map(|name| format!("{delete} {name}\n"));
    let routers = routers.iter().chain(&brokers).map(|folder| format!("{remove} {}\n", folder.display()));
    let groups = groups.iter().map(|folder| format!("{remove_group} {}\n", folder.display()));
    let files = files.iter().map(|file| format!("{remove} {}\n", file.display()));
    let text: String = namespaces.chain(groups).chain(files).chain(routers).collect();
    if !unknown_brokers.is_empty() {
        note(format_args!(
            "{} of brokers in /run/evenkeel-link stay: whether their network namespaces are gone cannot be known, as this process may \
             not look at all processes. Run it where it may, outside of the container",
            counted(unknown_brokers.len() as u64, "folder", "folders")
        ));
    }
    let text = match text.is_empty() {
        true if unknown_brokers.is_empty() => "Nothing to clean.\n",
        _ => &text,
    };
    print(text).map(|()| Outcome::Fine)
}
