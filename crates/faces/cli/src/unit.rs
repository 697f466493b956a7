//! Parts of the verbs that print systemd units.

use std::path::{Path, PathBuf};

use anyhow::Context;

use crate::failure::{Failure, note};

/// The path of this program.
pub(crate) fn program() -> Result<PathBuf, Failure> {
    std::env::current_exe().context("cannot find this program").map_err(Failure::lacking)
}

/// The path of this program, for ExecStart.
pub(crate) fn exec_start() -> Result<PathBuf, Failure> {
    let program = program()?;
    warn_of_hidden([program.as_path()], "/usr/local/sbin");
    Ok(program)
}

/// Warns of paths in folders that a unit has for itself.
pub(crate) fn warn_of_hidden<'a>(paths: impl IntoIterator<Item = &'a Path>, elsewhere: &str) {
    for hidden in paths.into_iter().filter(|path| path.starts_with("/tmp") || path.starts_with("/var/tmp")) {
        note(format_args!(
            "warning: the unit cannot see {}: systemd gives it a /tmp of its own (PrivateTmp). Move it, for example to {elsewhere}",
            hidden.display()
        ));
    }
}
