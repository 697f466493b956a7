//! How a verb hears that it is to end.

use std::{
    fmt::Display,
    sync::{Arc, atomic::AtomicBool},
};

use anyhow::Context;
use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};

use crate::failure::{Failure, note};

/// Set when the process is told to stop: by Ctrl-C, by a service manager, or by the end of its terminal.
pub(crate) fn stop_flag() -> Result<Arc<AtomicBool>, Failure> {
    let stop = Arc::new(AtomicBool::new(false));
    for signal in [SIGINT, SIGTERM, SIGHUP] {
        signal_hook::flag::register(signal, Arc::clone(&stop))
            .context("cannot catch signals")
            .map_err(Failure::internal)?;
    }
    Ok(stop)
}

/// Says what became of what the verb was at, and ends the process as the signal would have: the parent is to see that a signal ended us.
pub(crate) fn end_interrupted(left: impl Display) -> Result<(), Failure> {
    note(format_args!("evenkeel: interrupted; {left}"));
    signal_hook::low_level::emulate_default_handler(SIGINT).map_err(Failure::internal)
}
