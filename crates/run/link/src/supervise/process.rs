//! The program: started, told signals, waited for.

use std::{
    ffi::{OsStr, OsString},
    io,
    os::fd::{AsFd, BorrowedFd},
    process::Command,
    thread,
};

use nix::{
    errno::Errno,
    libc,
    poll::{PollFd, PollFlags, PollTimeout, poll},
    sys::{
        prctl::set_child_subreaper,
        resource::{Resource, getrlimit, setrlimit},
        signal::{SigSet, SigmaskHow, Signal, kill},
        signalfd::{SfdFlags, SignalFd},
        wait::{Id, WaitPidFlag, WaitStatus, waitid, waitpid},
    },
    unistd::Pid,
};
use sys::seccomp_notify::{Listener, start};

use super::{
    Sockets,
    supervisor::{Supervisor, filter},
};
use crate::LinkError;

/// Signals to this process that the program gets.
const FORWARDED_SIGNALS: [Signal; 6] =
    [Signal::SIGHUP, Signal::SIGINT, Signal::SIGQUIT, Signal::SIGTERM, Signal::SIGUSR1, Signal::SIGUSR2];

/// Runs a program whose TCP connections are those of `sockets`, and its children; returns its exit code, or 128 and the number of the signal that ended it.
///
/// Returns when the last process of the program has exited. Signals INT, TERM, HUP, QUIT, USR1 and USR2 go to the program. The calling process
/// must have no other children and no other threads that take signals: it waits for the program's orphans, too. It raises its own limit of descriptors.
///
/// # Errors
/// The program cannot be started, or the kernel cannot have its calls answered.
pub fn run(program: &OsStr, args: &[OsString], sockets: &dyn Sockets) -> Result<i32, LinkError> {
    let failed = |source| LinkError::System { operation: "supervise a program", source };
    let nix_failed = |errno: Errno| failed(errno.into());
    let mut signals = SigSet::empty();
    signals.add(Signal::SIGCHLD);
    FORWARDED_SIGNALS.into_iter().for_each(|signal| signals.add(signal));
    let before = signals.thread_swap_mask(SigmaskHow::SIG_BLOCK).map_err(nix_failed)?;
    let result = run_blocked(program, args, sockets, &signals, before);
    let restored = before.thread_set_mask().map_err(nix_failed);
    result.and_then(|code| restored.map(|()| code))
}

/// Runs the program with the signals blocked, so that they come by a descriptor.
fn run_blocked(
    program: &OsStr,
    args: &[OsString],
    sockets: &dyn Sockets,
    signals: &SigSet,
    of_program: SigSet,
) -> Result<i32, LinkError> {
    let failed = |source| LinkError::System { operation: "supervise a program", source };
    let nix_failed = |errno: Errno| failed(errno.into());
    let signal_fd =
        SignalFd::with_flags(signals, SfdFlags::SFD_CLOEXEC | SfdFlags::SFD_NONBLOCK).map_err(nix_failed)?;
    // Who is no descendant cannot be looked into where Yama restricts tracing, and a filter is in use until its last process was waited for.
    set_child_subreaper(true).map_err(nix_failed)?;
    let mut command = Command::new(program);
    command.args(args);
    let filter = filter().map_err(|error| failed(io::Error::other(error)))?;
    let (child, listener) = start(command, filter, of_program)
        .map_err(|source| LinkError::NotStarted { program: program.display().to_string(), source })?;
    // A descriptor is moved under the number that the program has for it, which may be any that it may have.
    let (_, most) = getrlimit(Resource::RLIMIT_NOFILE).map_err(nix_failed)?;
    setrlimit(Resource::RLIMIT_NOFILE, most, most).map_err(nix_failed)?;
    let child = Pid::from_raw(child.id().cast_signed());
    let supervisor = Supervisor::new(&listener, sockets).map_err(failed)?;
    thread::scope(|scope| {
        let serves = scope.spawn(|| supervisor.serve(scope));
        let code = wait(child, &signal_fd, &listener, supervisor.failed());
        let served = serves.join().unwrap_or_else(|_| Err(io::Error::other("a thread panicked")));
        served.and(code)
    })
    .map_err(failed)
}

/// Forwards signals and waits for children until the last is gone; the exit code of the first.
fn wait(child: Pid, signal_fd: &SignalFd, listener: &Listener, failed: BorrowedFd<'_>) -> io::Result<i32> {
    let mut code = None;
    loop {
        let mut fds = [
            PollFd::new(signal_fd.as_fd(), PollFlags::POLLIN),
            // Nothing but its end (POLLHUP).
            PollFd::new(listener.as_fd(), PollFlags::empty()),
            PollFd::new(failed, PollFlags::POLLIN),
        ];
        match poll(&mut fds, PollTimeout::NONE) {
            Err(Errno::EINTR) => continue,
            other => other?,
        };
        if fds[2].any() == Some(true) {
            return Err(io::Error::other("its system calls cannot be answered any longer"));
        }
        let is_over = fds[1].any() == Some(true);
        while let Some(signal) = signal_fd.read_signal()? {
            // A terminal has told the program, too.
            let from_terminal = signal.ssi_code == libc::SI_KERNEL;
            let signal = Signal::try_from(signal.ssi_signo.cast_signed())?;
            if FORWARDED_SIGNALS.contains(&signal) && !from_terminal && code.is_none() {
                // Its number is its own until it was waited for, below.
                let _ = kill(child, signal);
            }
        }
        while let Some(status) = ended()? {
            code = code.or_else(|| code_of(status, child));
        }
        if is_over {
            return match code {
                Some(code) => Ok(code),
                None => Ok(code_of(waitpid(child, None)?, child).unwrap_or(1)),
            };
        }
    }
}

/// A child that has ended, and was waited for.
fn ended() -> io::Result<Option<WaitStatus>> {
    match waitid(Id::All, WaitPidFlag::WEXITED | WaitPidFlag::WNOHANG) {
        Ok(WaitStatus::StillAlive) | Err(Errno::ECHILD) => Ok(None),
        Ok(status) => Ok(Some(status)),
        Err(errno) => Err(errno.into()),
    }
}

/// The exit code that a shell would show.
fn code_of(status: WaitStatus, child: Pid) -> Option<i32> {
    match status {
        WaitStatus::Exited(pid, code) if pid == child => Some(code),
        WaitStatus::Signaled(pid, signal, _) if pid == child => Some(128 + signal as i32),
        _ => None,
    }
}
