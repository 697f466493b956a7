//! The threads that answer: one hears the next call while others work on theirs.

use std::{
    io,
    os::fd::{AsFd, BorrowedFd},
    sync::{
        Mutex, PoisonError,
        atomic::{AtomicUsize, Ordering},
    },
    thread::{Builder, Scope},
};

use nix::sys::eventfd::{EfdFlags, EventFd};
use sys::seccomp_notify::{Answer, Call, Filter, FilterError, Listener, Notification, Rule};

use super::{
    Sockets,
    accept::{self, Taking},
    caller::{Caller, Done, Stop},
    connect,
    epolls::Epolls,
    options,
};

/// Calls that are heard.
const CALLS: [Call; 8] = [
    Call::Connect,
    Call::Accept,
    Call::Accept4,
    Call::Listen,
    Call::Getsockname,
    Call::Getpeername,
    Call::EpollCreate,
    Call::EpollCreate1,
];

/// Threads that are kept for the next call; others end when their call is answered.
const IDLE_THREADS_MAX: usize = 2;

/// The filter for these calls.
pub(super) fn filter() -> Result<Filter, FilterError> {
    let rules: Vec<Rule> = CALLS.into_iter().map(Rule::from).chain(options::rules()).collect();
    Filter::new(&rules)
}

/// Answers the calls of a program.
pub(super) struct Supervisor<'a> {
    listener: &'a Listener,
    sockets: &'a dyn Sockets,
    /// Held by the thread that hears the next call.
    hears: Mutex<()>,
    /// Threads that wait to hear.
    idle: AtomicUsize,
    taking: Taking,
    epolls: Epolls,
    /// Readable when a thread has given up.
    failed: EventFd,
}

impl<'a> Supervisor<'a> {
    pub(super) fn new(listener: &'a Listener, sockets: &'a dyn Sockets) -> io::Result<Self> {
        Ok(Self {
            listener,
            sockets,
            hears: Mutex::default(),
            idle: AtomicUsize::default(),
            taking: Taking::default(),
            epolls: Epolls::default(),
            failed: EventFd::from_flags(EfdFlags::EFD_CLOEXEC)?,
        })
    }

    /// Readable when calls can be heard no longer.
    pub(super) fn failed(&self) -> BorrowedFd<'_> {
        self.failed.as_fd()
    }

    /// Answers calls until the last process of the program is gone; with as many threads as there are calls that wait.
    pub(super) fn serve<'scope>(&'scope self, scope: &'scope Scope<'scope, '_>) -> io::Result<()> {
        let result = self.serve_all(scope);
        if result.is_err() {
            self.failed.write(1)?;
        }
        result
    }

    fn serve_all<'scope>(&'scope self, scope: &'scope Scope<'scope, '_>) -> io::Result<()> {
        loop {
            self.idle.fetch_add(1, Ordering::Relaxed);
            let mut hears = Some(self.hears.lock().unwrap_or_else(PoisonError::into_inner));
            self.idle.fetch_sub(1, Ordering::Relaxed);
            while let Some(turn) = hears.take() {
                let Some(notification) = self.listener.receive()? else { return Ok(()) };
                // Any call can wait: for memory of the caller that another program has to fill.
                if self.another(scope) {
                    drop(turn);
                } else {
                    // Nobody else can be had.
                    hears = Some(turn);
                }
                self.answer(notification)?;
            }
            if self.idle.load(Ordering::Relaxed) >= IDLE_THREADS_MAX {
                return Ok(());
            }
        }
    }

    /// Sees to it that another thread hears the next call.
    fn another<'scope>(&'scope self, scope: &'scope Scope<'scope, '_>) -> bool {
        if self.idle.load(Ordering::Relaxed) > 0 {
            return true;
        }
        // An error of its own it meets again in this thread.
        Builder::new().name("supervise".to_owned()).spawn_scoped(scope, || self.serve(scope)).is_ok()
    }

    fn answer(&self, notification: Notification) -> io::Result<()> {
        let id = notification.id;
        let done = Caller::of(self.listener, notification).and_then(|caller| self.attempt(notification.call, &caller));
        // What was borrowed of the program is given back by now: it counts on a port or a peer being free when a close has returned.
        let answer = match done {
            Ok(Done::Value(value)) => Answer::Value(value),
            Ok(Done::Descriptor { fd, close_on_exec }) => {
                match self.listener.answer_descriptor(id, fd.as_fd(), close_on_exec) {
                    Ok(_) => return Ok(()),
                    Err(error) => Answer::Error(error.raw_os_error().unwrap_or(nix::libc::EIO)),
                }
            }
            Err(Stop::Leave) => Answer::Continue,
            Err(Stop::Fails(errno)) => Answer::Error(errno),
        };
        self.listener.answer(id, answer)
    }

    fn attempt(&self, call: Call, caller: &Caller<'_>) -> Result<Done, Stop> {
        let sockets = self.sockets;
        match call {
            Call::Connect => connect::connect(caller, sockets, &self.epolls),
            Call::Listen => connect::listens(caller, sockets),
            Call::Accept => accept::accept(caller, sockets, &self.taking, 0),
            Call::Accept4 => accept::accept(caller, sockets, &self.taking, caller.number(3)),
            Call::Getsockname => options::name(caller, sockets, false),
            Call::Getpeername => options::name(caller, sockets, true),
            Call::Getsockopt => options::get(caller, sockets),
            Call::Setsockopt => options::set(caller, sockets),
            Call::EpollCreate | Call::EpollCreate1 => {
                self.epolls.made(caller);
                Err(Stop::Leave)
            }
        }
    }
}
