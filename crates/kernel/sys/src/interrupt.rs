//! Ending a system call of another thread: a signal whose handler does nothing.

use std::{io, sync::Once};

use nix::{
    sys::signal::{SaFlags, SigAction, SigHandler, SigSet, Signal, sigaction},
    unistd::{Pid, getpid, gettid},
};

/// SIGURG is ignored by default, so that one that comes too late harms nobody.
const SIGNAL: Signal = Signal::SIGURG;

/// A thread whose blocking system calls can be made to return EINTR.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct InterruptibleThread {
    tid: Pid,
}

impl InterruptibleThread {
    pub fn current() -> io::Result<Self> {
        extern "C" fn nothing(_: libc::c_int) {}
        static ONCE: Once = Once::new();
        let mut result = Ok(());
        ONCE.call_once(|| {
            // Without SA_RESTART: the call is to end.
            let action = SigAction::new(SigHandler::Handler(nothing), SaFlags::empty(), SigSet::empty());
            // SAFETY: the handler does nothing, and so nothing that is not async-signal-safe.
            result = unsafe { sigaction(SIGNAL, &action) }.map(drop);
        });
        result?;
        Ok(Self { tid: gettid() })
    }

    /// Interrupts the system call that the thread is in; nothing happens if it is in none or has ended.
    pub fn interrupt(self) {
        // SAFETY: tgkill(2) takes numbers only; a thread that has ended is answered with ESRCH.
        unsafe { libc::syscall(libc::SYS_tgkill, getpid().as_raw(), self.tid.as_raw(), SIGNAL as libc::c_int) };
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::{os::unix::net::UnixStream, sync::mpsc, time::Duration};

    #[test]
    fn a_blocked_read_returns() {
        let (ours, _theirs) = UnixStream::pair().expect("a socket pair");
        let (sender, receiver) = mpsc::channel();
        let reader = std::thread::spawn(move || {
            sender.send(InterruptibleThread::current().expect("a handler")).expect("the test waits");
            let mut byte = [0u8];
            nix::unistd::read(&ours, &mut byte)
        });
        let thread = receiver.recv().expect("the thread tells");
        while !reader.is_finished() {
            thread.interrupt();
            std::thread::sleep(Duration::from_millis(1));
        }
        assert_eq!(reader.join().expect("no panic"), Err(nix::errno::Errno::EINTR));
        thread.interrupt();
    }
}
