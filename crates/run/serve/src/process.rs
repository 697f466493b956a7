//! The process and those who started it: signals, and systemd.

use std::{
    io,
    os::unix::net::UnixDatagram,
    path::PathBuf,
    sync::{Arc, atomic::AtomicBool},
};

use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};

use crate::wake::Waker;

/// Flags that signals set.
#[derive(Debug, Clone, Default)]
pub(crate) struct Signals {
    /// Read the configuration again (SIGHUP).
    pub(crate) reload: Arc<AtomicBool>,
    /// The process is to end (SIGTERM, SIGINT).
    pub(crate) stop: Arc<AtomicBool>,
}

impl Signals {
    /// Flags that signals set from now on, instead of ending the process. Each wakes the server.
    pub(crate) fn catch(waker: &Waker) -> io::Result<Self> {
        let signals = Self::default();
        sys::lock_file::ends_waits(&signals.stop);
        for (signal, flag) in [(SIGHUP, &signals.reload), (SIGINT, &signals.stop), (SIGTERM, &signals.stop)] {
            signal_hook::flag::register(signal, Arc::clone(flag))?;
            signal_hook::low_level::pipe::register(signal, waker.descriptor()?)?;
        }
        Ok(signals)
    }
}

/// Tells systemd that the process is ready (sd_notify(3)), if it has asked.
pub(crate) fn notify_ready() -> io::Result<()> {
    let Some(path) = std::env::var_os("NOTIFY_SOCKET") else { return Ok(()) };
    UnixDatagram::unbound()?.send_to(b"READY=1\n", PathBuf::from(path)).map(drop)
}
