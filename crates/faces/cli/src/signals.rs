//! How a verb hears that it is to end.

use std::sync::{Arc, atomic::AtomicBool};

use anyhow::Context;
use signal_hook::consts::{SIGALRM, SIGHUP, SIGINT, SIGQUIT, SIGTERM, SIGUSR1};

use crate::failure::Failure;

/// Effect of a second signal.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Second {
    /// Ends the process at once: there is nothing to undo, and the verb may hang.
    Ends,
    /// Nothing: what was changed or made is being put back.
    IsIgnored,
}

/// Set when the process is told to stop: by Ctrl-C, by a service manager, or by the end of its terminal.
pub(crate) fn stop_flag(second: Second) -> Result<Arc<AtomicBool>, Failure> {
    let stop = Arc::new(AtomicBool::new(false));
    sys::lock_file::ends_waits(&stop);
    for signal in [SIGINT, SIGTERM, SIGHUP, SIGQUIT] {
        // The parent is to see that a signal ended us.
        let ends = match second {
            Second::Ends => signal_hook::flag::register_conditional_default(signal, Arc::clone(&stop)).map(drop),
            Second::IsIgnored => Ok(()),
        };
        ends.and_then(|()| signal_hook::flag::register(signal, Arc::clone(&stop)))
            .context("cannot catch signals")
            .map_err(Failure::internal)?;
    }
    Ok(stop)
}

/// Set when the user asks for the counts so far, as tcpdump's users do.
pub(crate) fn report_flag() -> Result<Arc<AtomicBool>, Failure> {
    let flag = Arc::new(AtomicBool::new(false));
    for signal in [SIGUSR1, SIGALRM] {
        signal_hook::flag::register(signal, Arc::clone(&flag))
            .context("cannot catch signals")
            .map_err(Failure::internal)?;
    }
    Ok(flag)
}
