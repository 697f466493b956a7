//! Pending signals of a thread whose call is answered here.

use std::{fs, io};

use nix::unistd::Pid;

/// Effect of pending signals on a call.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Interruption {
    /// No signal is pending.
    None,
    /// The thread takes a signal: as in the kernel, the call begins again or fails with EINTR, as the handler was set.
    Certain,
    /// A signal for the process, which any thread may take.
    Possible,
}

/// Signal sets of /proc/TID/status.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Signals {
    process: Pid,
    of_thread: u64,
    of_process: u64,
    blocked: u64,
}

impl Signals {
    fn parse(status: &str) -> Option<Self> {
        let field = |name| status.lines().find_map(|line| Some(line.strip_prefix(name)?.trim()));
        let mask = |name| u64::from_str_radix(field(name)?, 16).ok();
        Some(Self {
            process: Pid::from_raw(field("Tgid:")?.parse().ok()?),
            of_thread: mask("SigPnd:")?,
            of_process: mask("ShdPnd:")?,
            blocked: mask("SigBlk:")?,
        })
    }

    fn read(thread: Pid) -> io::Result<Self> {
        let status = fs::read_to_string(format!("/proc/{thread}/status"))?;
        Self::parse(&status).ok_or_else(|| io::ErrorKind::InvalidData.into())
    }

    /// Effect of signals that are pending and not blocked. Ignored signals are never pending.
    fn interruption(self, thread: Pid, first_blocks: impl FnOnce() -> u64) -> Interruption {
        let (mine, shared) = (self.of_thread & !self.blocked, self.of_process & !self.blocked);
        if mine != 0 || (shared != 0 && thread == self.process) {
            // The kernel wakes the first thread for a signal to the process unless that thread blocks it.
            Interruption::Certain
        } else if shared & first_blocks() != 0 {
            Interruption::Possible
        } else {
            Interruption::None
        }
    }
}

/// True if a thread has a pending signal with a handler.
pub(super) fn interruption(thread: Pid) -> Interruption {
    let Ok(signals) = Signals::read(thread) else { return Interruption::None };
    signals.interruption(thread, || Signals::read(signals.process).map_or(0, |first| first.blocked))
}

#[cfg(test)]
mod tests {
    use super::*;

    const STATUS: &str = "Name:\tprogram\nTgid:\t10\nPid:\t10\nThreads:\t1\nSigQ:\t0/1\nSigPnd:\t0000000000000000\n\
                        ShdPnd:\t0000000000004000\nSigBlk:\t0000000000010000\nSigIgn:\t0000000001001000\n";

    #[test]
    fn a_signal_that_is_not_blocked_interrupts_who_takes_it() {
        let signals = Signals::parse(STATUS).unwrap();
        assert_eq!((signals.of_process, signals.blocked, signals.process.as_raw()), (0x4000, 0x10000, 10));
        let (first, second) = (Pid::from_raw(10), Pid::from_raw(11));
        assert_eq!(signals.interruption(first, || 0), Interruption::Certain);
        // The first takes it, unless it blocks it.
        assert_eq!(signals.interruption(second, || 0), Interruption::None);
        assert_eq!(signals.interruption(second, || 0x4000), Interruption::Possible);
        let blocked = Signals { blocked: 0x4000, ..signals };
        assert_eq!(blocked.interruption(first, || 0), Interruption::None);
        let own = Signals { of_thread: 1, of_process: 0, ..signals };
        assert_eq!(own.interruption(second, || 0), Interruption::Certain);
        assert_eq!(Signals::parse("Tgid:\t10\nSigPnd:\tx\n"), None);
    }
}
