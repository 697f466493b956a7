//! Whether a terminal is there for keys and a view.

use std::{
    io::{self, IsTerminal},
    os::fd::{AsFd, BorrowedFd},
};

use nix::{
    sys::signal::{SigSet, Signal},
    unistd::{getpgrp, tcgetpgrp},
};

/// True if a view can be shown and asked by keys: input and output are a terminal with a cursor (TERM), and this job is in its foreground. The kernel
/// stops a job of the background that reads keys or sets its terminal (termios(3)), and with it what the job protects.
pub(crate) fn is_interactive() -> bool {
    let (input, output) = (io::stdin(), io::stdout());
    // One that is no session's own has no jobs.
    let is_ours = |terminal: BorrowedFd<'_>| tcgetpgrp(terminal).map_or(true, |group| group == getpgrp());
    // `dumb` has no cursor and no colours; with no name nothing is known of it.
    let is_able = std::env::var_os("TERM").is_some_and(|name| !name.is_empty() && name != "dumb");
    is_able && input.is_terminal() && output.is_terminal() && is_ours(input.as_fd()) && is_ours(output.as_fd())
}

/// Lines that are written from the background stop nothing, also where the terminal asks for that (`stty tostop`). Threads that are started
/// later go by it too.
pub(crate) fn write_from_anywhere() {
    let mut signals = SigSet::empty();
    signals.add(Signal::SIGTTOU);
    // Where it cannot be had, all is as in other programs.
    let _ = signals.thread_block();
}
