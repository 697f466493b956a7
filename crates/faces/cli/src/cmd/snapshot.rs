//! `evenkeel snapshot`: saves what the readers need of this machine.

use std::{
    io::{self, IsTerminal},
    path::PathBuf,
};

use anyhow::anyhow;
use clap::Args;
use host::snapshot::Snapshot;

use crate::failure::{Failure, Outcome, cannot_write, note};

/// Save this machine's settings as a tar, to plan with --root.
///
/// The tar holds files of /proc and /sys, what sysctl.d sets of the network, and as JSON the ethtool answers, the shape of the
/// nftables rules and who holds sockets: no addresses but MAC addresses, no processes but irqbalance, NAPI threads and those
/// with network sockets (name and id). It works without root as far as the files are readable, and says on stderr which were not.
#[derive(Debug, Args)]
pub(crate) struct SnapshotArgs {
    /// The tar to write; `-` is stdout.
    file: PathBuf,
    /// Replace the hostname, MAC addresses, RSS keys and the paths of control groups.
    #[arg(long)]
    anonymize: bool,
}

pub(crate) fn run(args: &SnapshotArgs) -> Result<Outcome, Failure> {
    let to_stdout = args.file.as_os_str() == "-";
    if to_stdout && io::stdout().is_terminal() {
        return Err(Failure::usage(anyhow!("a tar does not belong on a terminal: redirect stdout or name a file")));
    }
    host::namespace::check()?;
    let mut snapshot = Snapshot::take()?;
    if args.anonymize {
        snapshot = snapshot.anonymized();
    }
    for (path, why) in &snapshot.unreadable {
        note(format_args!("evenkeel: left out {path}: {why}"));
    }
    if to_stdout {
        snapshot.write(io::BufWriter::new(io::stdout().lock())).map_err(cannot_write)?;
    } else {
        let bytes = snapshot.save(&args.file)?;
        let (files, name) = (snapshot.files(), args.file.display());
        note(format_args!(
            "evenkeel: saved {files} files in {name} ({} kB); plan with it: evenkeel spread plan --root {name}",
            bytes.div_ceil(1000)
        ));
    }
    Ok(Outcome::Fine)
}
